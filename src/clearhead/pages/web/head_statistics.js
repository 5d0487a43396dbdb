// Statistics of attention heads: inspection/head_statistics.py, which defines them.

import { ofEach } from "./attention.js";
import { RULES } from "./rules.js";

/**
 * Return the statistics of every head, each [layers][heads].
 * @param {{values: Float32Array, shape: number[]}} weights - [layers, heads, rows, columns]; rows sum to 1.
 * @param {{isSelf: boolean, isCausal: boolean}} kind - Whether queries and keys are the same tokens, and whether a
 *   query attends only up to its own position.
 */
export function headStatistics({ values, shape: [layers, heads, rows, columns] }, { isSelf, isCausal }) {
  const nearness = Float64Array.from({ length: rows * columns }, (_, place) => {
    const [row, column] = [Math.floor(place / columns), place % columns];
    return Math.exp(-((column / columns - row / rows) ** 2) / (2 * RULES.DIAGONAL_WIDTH ** 2));
  });
  const diagonals = isSelf ? { same_share: 0, ...(columns > 1 && { previous_share: -1 }) } : {};
  if (isSelf && !isCausal && columns > 1) diagonals.next_share = 1;
  const ofHead = (weights) => {
    let [entropy, peaks, distance, diagonality, first, last] = [0, 0, 0, 0, 0, 0];
    for (let row = 0, place = 0; row < rows; row++) {
      let peak = 0;
      first += weights[place];
      for (let column = 0; column < columns; column++, place++) {
        const weight = weights[place];
        if (weight > 0) entropy -= weight * Math.log(weight);
        if (weight > peak) peak = weight;
        distance += weight * Math.abs(column - row);
        diagonality += weight * nearness[place];
      }
      last += weights[place - 1];
      peaks += peak;
    }
    const sums = { entropy, peak: peaks, distance, diagonality, first_share: first };
    if (!isCausal) sums.last_share = last;
    const found = ofEach(sums, (sum) => sum / rows);
    for (const [name, offset] of Object.entries(diagonals)) {
      const [from, until] = [Math.max(0, -offset), Math.min(rows, columns - offset)];
      found[name] = 0;
      for (let row = from; row < until; row++) found[name] += weights[row * columns + row + offset] / (until - from);
    }
    return found;
  };
  const size = rows * columns;
  const weightsOf = (head) => values.subarray(head * size, (head + 1) * size);
  const all = Array.from({ length: layers * heads }, (_, head) => ofHead(weightsOf(head)));
  const table = (name) => Array.from({ length: layers }, (_, layer) =>
    all.slice(layer * heads, (layer + 1) * heads).map((found) => found[name]));
  return ofEach(all[0], (_, name) => table(name));
}
