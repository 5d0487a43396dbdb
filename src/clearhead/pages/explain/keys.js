/** Arrow-key navigation in a grid: a single Tab stop, and arrow keys move within the grid. */

const MOVES = {
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  Home: [0, -Infinity],
  End: [0, Infinity],
  PageUp: [-Infinity, 0],
  PageDown: [Infinity, 0],
};

const MIRRORED = { ArrowLeft: "ArrowRight", ArrowRight: "ArrowLeft" };

/**
 * Returns the cell to which a key moves from a cell of a grid; null for other keys. In a mirrored grid, which runs from
 * right to left, the first column is on the right.
 */
export function moved(event, row, column, numRows, numColumns, isMirrored = false) {
  const move = MOVES[(isMirrored && MIRRORED[event.key]) || event.key];
  if (move === undefined || event.altKey || event.ctrlKey || event.metaKey) return null;
  const within = (value, size) => Math.max(0, Math.min(size - 1, value));
  return [within(row + move[0], numRows), within(column + move[1], numColumns)];
}

/** Gives rows of elements a single Tab stop; arrow keys move the focus, and `choose` gets the focused element. */
export function rove(container, rows, choose) {
  rows.flat().forEach((element, place) => element.setAttribute("tabindex", place === 0 ? "0" : "-1"));
  container.addEventListener("keydown", (event) => {
    const row = rows.findIndex((elements) => elements.includes(document.activeElement));
    if (row < 0) return;
    const column = rows[row].indexOf(document.activeElement);
    const isMirrored = getComputedStyle(container).direction === "rtl";
    const longest = Math.max(...rows.map((elements) => elements.length));
    const to = moved(event, row, column, rows.length, longest, isMirrored);
    const element = to && rows[to[0]][Math.min(to[1], rows[to[0]].length - 1)];
    if (event.key === "Enter" || event.key === " ") document.activeElement.click();
    else if (!element) return;
    else {
      element.focus();
      choose(element);
    }
    event.preventDefault();
  });
}

/** Makes an element the Tab stop of its grid. */
export function stopAt(rows, element) {
  rows.flat().forEach((other) => other.setAttribute("tabindex", other === element ? "0" : "-1"));
}
