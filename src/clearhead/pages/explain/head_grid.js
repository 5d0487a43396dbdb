/** A grid of heads with arrow-key navigation: a row for each layer and a cell for each head. */

import { make } from "./dom.js";
import { rove } from "./keys.js";

/**
 * Creates the grid of an attention. `cellOf(layer, head)` returns the properties and children of a cell. Returns the
 * grid and its cells, row by row.
 */
export function headGrid({ title, numLayers, numHeads }, className, cellOf) {
  const label = `${title}: ${numLayers} layers of ${numHeads} heads. Arrow keys choose a head.`;
  const grid = make("div", { class: `head-grid ${className}`.trim(), role: "grid", "aria-label": label });
  grid.style.setProperty("--heads", numHeads);
  const rows = Array.from({ length: numLayers }, (_, layer) =>
    Array.from({ length: numHeads }, (__, head) => {
      const { properties, children } = cellOf(layer, head);
      return make("div", { role: "gridcell", "aria-selected": "false", ...properties }, children);
    }),
  );
  rows.forEach((cells, layer) => {
    const name = make("span", { class: "layer", role: "rowheader" }, `L${layer + 1}`);
    grid.append(make("div", { role: "row" }, name, cells));
  });
  rove(grid, rows, (cell) => cell.click());
  return { grid, rows };
}
