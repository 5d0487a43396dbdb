// Statistics of attention heads: inspection/head_statistics.py, which defines them.

const DIAGONAL_WIDTH = 0.2;

/**
 * Return the statistics of every head, each [layers][heads].
 * @param {{values: Float32Array, shape: number[]}} weights - [layers, heads, rows, columns]; rows sum to 1.
 * @param {{isSelf: boolean, isCausal: boolean}} kind - Whether queries and keys are the same tokens, and whether a
 *   query attends only up to its own position.
 */
export function headStatistics({ values, shape: [layers, heads, rows, columns] }, { isSelf, isCausal }) {
  const cell = {
    entropy: (weight) => (weight > 0 ? -weight * Math.log(weight) : 0),
    distance: (weight, row, column) => weight * Math.abs(column - row),
    diagonality: (weight, row, column) =>
      weight * Math.exp(-((column / columns - row / rows) ** 2) / (2 * DIAGONAL_WIDTH ** 2)),
    first_share: (weight, row, column) => (column === 0 ? weight : 0),
    ...(!isCausal && { last_share: (weight, row, column) => (column === columns - 1 ? weight : 0) }),
  };
  const diagonals = isSelf ? { same_share: 0, ...(columns > 1 && { previous_share: -1 }) } : {};
  if (isSelf && !isCausal && columns > 1) diagonals.next_share = 1;
  const ofHead = (head) => {
    const weight = (row, column) => values[(head * rows + row) * columns + column];
    const found = { peak: 0 };
    for (const name of Object.keys(cell)) found[name] = 0;
    for (let row = 0; row < rows; row++) {
      let peak = 0;
      for (let column = 0; column < columns; column++) {
        peak = Math.max(peak, weight(row, column));
        for (const [name, of] of Object.entries(cell)) found[name] += of(weight(row, column), row, column) / rows;
      }
      found.peak += peak / rows;
    }
    for (const [name, offset] of Object.entries(diagonals)) {
      const [first, end] = [Math.max(0, -offset), Math.min(rows, columns - offset)];
      found[name] = 0;
      for (let row = first; row < end; row++) found[name] += weight(row, row + offset) / (end - first);
    }
    return found;
  };
  const all = Array.from({ length: layers * heads }, (_, head) => ofHead(head));
  const table = (name) => Array.from({ length: layers }, (_, layer) =>
    all.slice(layer * heads, (layer + 1) * heads).map((found) => found[name]));
  return Object.fromEntries(Object.keys(all[0]).map((name) => [name, table(name)]));
}
