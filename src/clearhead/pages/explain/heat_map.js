/** Heat maps of matrices: a thumbnail, or a large map with tokens on both axes, for mouse and keyboard. */

import { css, inkOn } from "./colours.js";
import { make, onWidth } from "./dom.js";
import { moved } from "./keys.js";
import { tokenElement } from "./text.js";

const SMALLEST_CELL = 12;
const LARGEST_CELL = 46;
const CELL_WITH_TEXT = 34;

/** Paints one pixel per cell; `colour(row, column)` is null for a masked cell. */
export function paintSmall(canvas, numRows, numColumns, colour) {
  canvas.width = numColumns;
  canvas.height = numRows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(numColumns, numRows);
  for (let row = 0; row < numRows; row += 1) {
    for (let column = 0; column < numColumns; column += 1) {
      const shade = colour(row, column);
      if (shade === null) continue;
      const place = 4 * (row * numColumns + column);
      [image.data[place], image.data[place + 1], image.data[place + 2]] = shade;
      image.data[place + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
}

/**
 * A large map within a container.
 *
 * `shown` has the tokens of `rows` and `columns`, the names of both axes, `colour(row, column)` and `text(row, column)`
 * of a cell, `describe(row, column)` for the line below the map, `label` for screen readers, and optionally
 * `canPick(row, column)` and `rowNote(row)`, a second token of a row's label or null. `onPick(row, column)` is called when the reader clicks a cell or moves to it.
 */
export class HeatMap {
  constructor(container, onPick) {
    this.container = container;
    this.onPick = onPick;
    this.picked = [0, 0];
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.cursor = make("div", { class: "cursor" });
    this.cells = make(
      "div",
      {
        class: "cells",
        role: "application",
        tabindex: "0",
        onkeydown: (event) => this.#move(event),
        onpointermove: (event) => event.pointerType === "mouse" && this.#point(event),
        onpointerleave: () => this.pick(...this.picked),
        onclick: (event) => this.#click(event),
      },
      this.canvas,
      this.cursor,
    );
    const labels = (name, cellOf) =>
      make("div", { class: name, "aria-hidden": "true", onclick: (event) => this.#chooseLabel(event, cellOf) });
    this.columnLabels = labels("column-labels", (column) => [this.picked[0], column]);
    this.rowLabels = labels("row-labels", (row) => [row, this.picked[1]]);
    this.corner = make("div", { class: "corner", "aria-hidden": "true" });
    this.frame = make(
      "div",
      { class: "map scroll", tabindex: "-1" },
      make("div", { class: "map-grid" }, this.corner, this.columnLabels, this.rowLabels, this.cells),
    );
    this.line = make("output", { class: "reading" });
    container.replaceChildren(this.frame, this.line);
    onWidth(container, () => this.shown && this.show(this.shown));
  }

  show(shown) {
    this.shown = shown;
    const { rows, columns } = shown;
    this.columnLabels.replaceChildren(...columns.map((token) => tokenElement(token, "label")));
    this.rowLabels.replaceChildren(
      ...rows.map((token, row) => {
        const label = tokenElement(token, "label");
        const note = shown.rowNote?.(row) ?? null;
        if (note !== null) label.append(make("small", {}, " → ", tokenElement(note)));
        return label;
      }),
    );
    this.corner.replaceChildren(
      make("span", {}, `${shown.rowName} ↓`),
      make("span", {}, `${shown.columnName} →`),
    );
    this.cells.setAttribute("aria-label", `${shown.label}. Arrow keys move from cell to cell.`);
    // The size of the labels is known only after they are in the page.
    const room = this.container.clientWidth - this.rowLabels.offsetWidth - 4;
    this.size = Math.max(SMALLEST_CELL, Math.min(LARGEST_CELL, Math.floor(room / columns.length)));
    this.frame.style.setProperty("--cell", `${this.size}px`);
    this.#paint();
    this.pick(...this.picked);
  }

  /** Moves the cursor and updates the line below, without calling `onPick`. */
  pick(row, column) {
    this.picked = [Math.min(row, this.shown.rows.length - 1), Math.min(column, this.shown.columns.length - 1)];
    this.#mark(...this.picked);
  }

  #mark(row, column) {
    this.cursor.style.transform = `translate(${column * this.size}px, ${row * this.size}px)`;
    for (const [labels, place] of [[this.rowLabels, row], [this.columnLabels, column]]) {
      labels.querySelector(".picked")?.classList.remove("picked");
      labels.children[place]?.classList.add("picked");
    }
    this.cursor.hidden = column < 0; // what is chosen elsewhere has no column here
    const text = column < 0 ? "" : this.shown.describe(row, column);
    if (this.line.textContent !== text) this.line.textContent = text;
  }

  #paint() {
    const { rows, columns, colour, text } = this.shown;
    const { size, canvas } = this;
    const ratio = window.devicePixelRatio;
    canvas.width = columns.length * size * ratio;
    canvas.height = rows.length * size * ratio;
    canvas.style.width = `${columns.length * size}px`;
    canvas.style.height = `${rows.length * size}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = "12px system-ui, sans-serif";
    const gap = size >= 20 ? 1 : 0.5;
    for (let row = 0; row < rows.length; row += 1) {
      for (let column = 0; column < columns.length; column += 1) {
        const shade = colour(row, column);
        if (shade === null) continue;
        context.fillStyle = css(shade);
        context.fillRect(column * size, row * size, size - gap, size - gap);
        if (size < CELL_WITH_TEXT) continue;
        context.fillStyle = inkOn(shade);
        context.fillText(text(row, column), (column + 0.5) * size, (row + 0.5) * size);
      }
    }
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / this.size);
    const column = Math.floor((event.clientX - box.left) / this.size);
    const isInside = row >= 0 && column >= 0 && row < this.shown.rows.length && column < this.shown.columns.length;
    return isInside ? [row, column] : null;
  }

  #point(event) {
    const place = this.#place(event);
    if (place) this.#mark(...place);
  }

  #click(event) {
    const place = this.#place(event);
    if (place) this.#choose(...place);
  }

  /** Chooses the row or column of a label that was clicked; if its cell is masked, the token's own. */
  #chooseLabel({ target, currentTarget }, cellOf) {
    const place = [...currentTarget.children].indexOf(target.closest(".label"));
    if (place < 0) return;
    const [row, column] = cellOf(place);
    if (this.shown.canPick && !this.shown.canPick(row, column)) this.#choose(place, place);
    else this.#choose(row, column);
  }

  #move(event) {
    const place = moved(event, ...this.picked, this.shown.rows.length, this.shown.columns.length);
    if (!place) return;
    event.preventDefault();
    this.#choose(...place);
    this.cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  #choose(row, column) {
    if (this.shown.canPick && !this.shown.canPick(row, column)) return;
    this.pick(row, column);
    this.onPick(row, column);
  }
}
