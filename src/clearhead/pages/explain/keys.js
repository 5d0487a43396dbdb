/** Arrow keys within a grid: one stop for Tab, and the arrows move inside. */

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
 * Returns where a key leads from a place in a grid of so many rows and columns; null if it is no such key. In a grid
 * that runs from right to left, the first column is on the right.
 */
export function moved(event, row, column, numRows, numColumns, isMirrored = false) {
  const move = MOVES[(isMirrored && MIRRORED[event.key]) || event.key];
  if (move === undefined || event.altKey || event.ctrlKey || event.metaKey) return null;
  const within = (value, size) => Math.max(0, Math.min(size - 1, value));
  return [within(row + move[0], numRows), within(column + move[1], numColumns)];
}

/** Gives elements in rows one stop for Tab; an arrow moves the focus, and what has the focus is chosen. */
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

/** Makes an element the one that Tab stops at. */
export function stopAt(rows, element) {
  rows.flat().forEach((other) => other.setAttribute("tabindex", other === element ? "0" : "-1"));
}
