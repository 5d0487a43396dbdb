/** The grid of all heads in all layers, and the large view of the chosen head. */

import { weightColour, weightLegend } from "./colours.js";
import { byId, make } from "./dom.js";
import { HeatMap, paintSmall } from "./heat_map.js";
import { headGrid } from "./head_grid.js";
import { stopAt } from "./keys.js";
import { fixed, spoken, wholePercent } from "./text.js";
import { chainOf } from "./arithmetic.js";

/** Most heads of a layer with names below them: on a phone, and on any screen. */
const MANY = 4;
const MOST_NAMED = 9;

/** Scrolls to an element if it is not visible, as on a phone, where views are below each other. */
export function bringIntoView(element) {
  const { top, bottom } = element.getBoundingClientRect();
  if (bottom < 0 || top > 0.6 * innerHeight) element.scrollIntoView();
}

/** Colours of a head's weights; null for masked positions. */
export function headColours(attention, weights) {
  return (row, column) => (attention.isCausal && column > row ? null : weightColour(weights.at(row, column)));
}

/** Name of a head; layers and heads are counted from 1 for readers. */
export function headName(attention, layer, head) {
  return `${attention.title}, layer ${layer + 1}, head ${head + 1}`;
}

/** Draws the grids; returns a function that redraws the thumbnails, with `all` also those not visible yet. */
export function drawHeads(container, attentions, selection) {
  const thumbnails = [];
  const grids = [];
  const waiting = new Map();
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      observer.unobserve(target);
      waiting.get(target)?.();
      waiting.delete(target);
    }
  });
  for (const attention of attentions) {
    const { name, title, numHeads, roles } = attention;
    const { grid, rows } = headGrid(attention, ["", "many", "unnamed"][Number(numHeads > MANY) + Number(numHeads > MOST_NAMED)], (layer, head) => {
      const role = roles[layer][head];
      return {
        properties: {
          class: `thumbnail ${attention.isCausal ? "causal" : ""}`,
          "aria-label": `Layer ${layer + 1}, head ${head + 1}: ${role.sentence}`,
          title: role.sentence,
          onclick: (event) => {
            selection.choose({ attention, layer, head });
            if (event.detail > 0) bringIntoView(byId("head")); // only for a mouse click; with keys, the focus stays in the grid
          },
        },
        children: [
          make("div", { class: "picture" }, make("canvas", { "aria-hidden": "true" }), make("i", { class: "row-mark" }), make("i", { class: "column-mark" })),
          make("span", { class: "role", "aria-hidden": "true" }, role.label),
        ],
      };
    });
    rows.forEach((cells, layer) =>
      cells.forEach((cell, head) => {
        const paint = () => {
          const weights = attention.weights().part(layer, head);
          paintSmall(cell.querySelector("canvas"), ...weights.shape, headColours(attention, weights));
        };
        waiting.set(cell, paint);
        observer.observe(cell);
        thumbnails.push({ attention, layer, head, cell, rows, paint });
      }),
    );
    grids.push({ attention, grid });
    container.append(
      make(
        "div",
        { class: "attention", id: `heads-${name}` },
        make("h3", {}, title),
        make("p", { class: "soft" }, attention.about),
        grid,
      ),
    );
  }
  const mark = () => {
    for (const { attention, layer, head, cell, rows } of thumbnails) {
      const isChosen = attention === selection.attention && layer === selection.layer && head === selection.head;
      cell.setAttribute("aria-selected", String(isChosen));
      if (isChosen) stopAt(rows, cell);
    }
    for (const { attention, grid } of grids) {
      grid.style.setProperty("--row", attention.rowOf(selection));
      grid.style.setProperty("--rows", attention.queries.length);
      grid.style.setProperty("--column", attention.keysOf(selection)[0]);
      grid.style.setProperty("--columns", attention.keys.length);
    }
  };
  selection.onChange(mark);
  mark();
  return (all = false) => thumbnails.filter(({ cell }) => all || !waiting.has(cell)).forEach(({ paint }) => paint());
}

/** Draws the chosen head in large; returns a function that redraws it. */
export function drawHead(selection, scale) {
  const map = new HeatMap(byId("head-map"), (row, column) => selection.choose({ row, column }));
  const show = () => {
    const { attention, layer, head } = selection;
    const weights = attention.weights().part(layer, head);
    const role = attention.roles[layer][head];
    byId("head-title").textContent = headName(attention, layer, head);
    byId("head-role").textContent = role.sentence;
    byId("head-legend").replaceChildren(weightLegend(attention.isCausal));
    map.picked = [selection.row, selection.column];
    map.show({
      rows: attention.queries,
      rowNote: (row) => writtenAt(attention, row),
      columns: attention.keys,
      rowName: rowName(attention),
      columnName: "looks at",
      label: `Weights of ${headName(attention, layer, head)}`,
      colour: headColours(attention, weights),
      text: (row, column) => fixed(weights.at(row, column), 2).replace(/^0/u, ""),
      describe: (row, column) => describe(selection, weights, row, column),
      canPick: (row, column) => !attention.isCausal || column <= row,
    });
    showChain();
  };
  const showChain = () => {
    byId("head-chain").textContent = chainOf(selection, scale);
    const same = selection.attention.keysOf(selection);
    [...map.columnLabels.children].forEach((label, column) => label.classList.toggle("same", same.includes(column)));
  };
  selection.onChange((changed) => {
    if (changed.has("attention") || changed.has("layer") || changed.has("head")) show();
    else {
      map.pick(selection.row, selection.column);
      showChain();
    }
  });
  show();
  return show;
}

/** One word for what the rows of an attention represent. */
export function rowName({ name }) {
  return { cross: "writing", encoder: "token", decoder: "read" }[name];
}

/** Token that a row of decoder self-attention writes; null if it has read a part of the prompt, and writes nothing. */
function writtenAt({ written, firstStep }, row) {
  return written && row >= firstStep ? written[row - firstStep] : null;
}

function describe({ attention }, weights, row, column) {
  const { name, queries, keys, isCausal, firstStep } = attention;
  const from = spoken(queries[row]);
  const to = spoken(keys[column]);
  if (isCausal && column > row) return `${from} cannot see ${to}: it comes later.`;
  const weight = weights.at(row, column);
  const written = writtenAt(attention, row);
  const who = {
    cross: `Writing ${from} (step ${row - firstStep + 1}), the head`,
    encoder: from,
    decoder: `Having read ${from}${written === null ? "" : `, to write ${spoken(written)}`}, the head`,
  }[name];
  return `${who} looks at ${to} with weight ${fixed(weight)} (${wholePercent(weight)}).`;
}
