/** One row of a head step by step, each step with its part of equation 1 and its numbers. */

import { entropy, rowOf, softmax, weightedSum } from "./arithmetic.js";
import { css, signedColour, signedLegend } from "./colours.js";
import { byId, make } from "./dom.js";
import { headName } from "./heads.js";
import { counted, fixed, spoken, tokenElement } from "./text.js";

/** Components of a vector that its table shows; all of them can be unfolded. */
const COMPONENTS = 8;

/** Draws the chosen row; redraws it when the selection or the temperature changes. */
export function drawRow(selection, model) {
  const slider = byId("temperature");
  const show = () => {
    const { attention, layer, head, row, column } = selection;
    const query = attention.queries[row];
    const found = rowOf(selection, model.scale);
    const key = attention.keys[column];
    const chosen = found.keys[column];
    byId("row-title").textContent =
      `${headName(attention, layer, head)}: the row of ${spoken(query)}, and in it the key ${spoken(key)}.`;
    byId("row-rounded").hidden = !attention.isRounded;
    byId("row-without").hidden = found.query !== null;
    byId("row-vectors").hidden = found.query === null;
    byId("row-output").hidden = found.query === null;
    byId("row-d_k").textContent = found.query === null ? "" : String(found.query.length);
    byId("row-mask").textContent = `${maskText(attention, found.numHidden)} ${spoken(key)} may be seen: its mask is 0, and its score stays ${fixed(chosen.score, 3)}.`;
    if (found.query !== null) {
      const products = Float32Array.from(found.query, (value, place) => value * chosen.key[place]);
      byId("row-strips").replaceChildren(
        strip("q, the query", found.query, spoken(query)),
        strip("k, the key", chosen.key, spoken(key)),
        strip("q × k, number by number", products, "query times key"),
      );
      const table = byId("row-products");
      table.tBodies[0].replaceChildren(...componentRows(found.query, chosen.key, products));
      table.tFoot.replaceChildren(...restRow(products, chosen.product));
      byId("row-score").replaceChildren(...scoreLines(chosen, model.scale, found.query.length));
    }
    showSoftmax(found);
  };

  const showSoftmax = (found = rowOf(selection, model.scale)) => {
    const { attention, column } = selection;
    const temperature = 10 ** Number(slider.value);
    const isModels = slider.value === "0";
    const weights = isModels
      ? found.keys.map(({ weight }) => weight)
      : softmax(found.keys.map(({ score }) => score), temperature);
    slider.setAttribute("aria-valuetext", temperature.toFixed(2));
    byId("temperature-shown").textContent = isModels
      ? "τ = 1.00, as the model computed it"
      : `τ = ${temperature.toFixed(2)}, ${temperature < 1 ? "sharper" : "softer"} than the model`;
    byId("row-entropy").textContent =
      `Entropy ${fixed(entropy(weights), 3)} nats; all alike would be ${fixed(Math.log(weights.length), 3)}.`;
    const highest = Math.max(...found.keys.map(({ score }) => score / temperature));
    byId("row-table").tBodies[0].replaceChildren(
      ...found.keys.map(({ place, product, position, score }, number) => {
        const power = Math.exp(score / temperature - highest);
        const bar = make("span", { class: "weight-bar", "aria-hidden": "true" });
        bar.style.setProperty("--share", weights[number]);
        return make(
          "tr",
          place === column ? { class: "picked", "aria-current": "true" } : {},
          make(
            "th",
            { scope: "row" },
            make(
              "button",
              { type: "button", onclick: () => selection.choose({ column: place }) },
              tokenElement(attention.keys[place]),
            ),
          ),
          make("td", { class: "number optional" }, product === null ? "" : fixed(product, 3)),
          make("td", { class: "number optional with-position" }, fixed(position, 3)),
          make("td", { class: "number" }, fixed(score, 3)),
          make("td", { class: "number optional" }, fixed(power, 4)),
          make("td", { class: "number weight" }, fixed(weights[number], 4)),
          make("td", { class: "bar-cell" }, bar),
        );
      }),
    );
    const vectors = attention.vectors();
    byId("row-table").classList.toggle("no-position", vectors === null || vectors.position_scores === null);
    if (found.values !== null) {
      const output = weightedSum(weights, found.values);
      const value = found.values[column];
      const weighted = value.map((one) => one * weights[column]);
      byId("row-values").tBodies[0].replaceChildren(...componentRows(value, weighted, output));
      byId("row-output-strips").replaceChildren(
        strip(`v of ${spoken(attention.keys[column])}`, value, "value"),
        strip("Σ weight × v, the head's output at this row", output, "output"),
      );
    }
  };

  slider.addEventListener("input", () => showSoftmax());
  byId("temperature-reset").addEventListener("click", () => {
    slider.value = "0";
    showSoftmax();
  });
  const colour = () => {
    byId("row-legend").replaceChildren(signedLegend("All numbers, the colours up to the largest of each strip"));
    show();
  };
  selection.onChange((changed) => {
    if (["attention", "layer", "head", "row", "column"].some((name) => changed.has(name))) show();
  });
  colour();
  return colour;
}

function maskText(attention, numHidden) {
  if (!attention.isCausal) return "Nothing is hidden here: every query may see every key.";
  if (numHidden === 0) return "This is the last row: it may see all that was read.";
  return `${counted(numHidden, "key")} behind this row ${numHidden === 1 ? "is" : "are"} set to −∞, so that ${
    numHidden === 1 ? "its weight is" : "their weights are"
  } 0: the decoder must not see what it has yet to write.`;
}

/** Rows of the first components of vectors side by side. */
function componentRows(...vectors) {
  return Array.from(vectors[0].slice(0, COMPONENTS), (_, place) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, String(place + 1)),
      vectors.map((vector) => make("td", { class: "number" }, fixed(vector[place], 4))),
    ),
  );
}

/** Rows below the products: the sum of those not shown, and of all. */
function restRow(products, sum) {
  const row = (name, value) =>
    make("tr", {}, make("th", { scope: "row", colspan: "3" }, name), make("td", { class: "number" }, value));
  const numOthers = products.length - COMPONENTS;
  const shown = products.slice(0, COMPONENTS).reduce((total, value) => total + value, 0);
  const others = `${counted(numOthers, "more component")}, together`;
  return [...(numOthers > 0 ? [row(others, fixed(sum - shown, 4))] : []), row("q·k, the sum", fixed(sum, 4))];
}

function scoreLines(chosen, scale, width) {
  const position = chosen.position === 0 ? "" : ` + ${fixed(chosen.position, 3)} (relative position)`;
  const isRoot = Math.abs(scale * Math.sqrt(width) - 1) < 1e-6;
  const why = isRoot ? `The scale is 1/√d_k = 1/√${width} = ${fixed(scale, 4)}.` : `The scale of this model is ${fixed(scale, 4)}.`;
  return [
    make("p", {}, scale === 1 ? "This model leaves the scale out: it is 1." : why),
    make(
      "p",
      {},
      `score = ${fixed(chosen.product, 3)} × ${fixed(scale, 4)}${position} = `,
      make("strong", {}, fixed(chosen.score, 3)),
    ),
  ];
}

/** Draws numbers as a strip of colours; the numbers themselves can be expanded. */
function strip(title, values, name) {
  const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const label = `${name}: ${counted(values.length, "number")}`;
  const boxes = make("div", { class: "strip", role: "img", "aria-label": label });
  for (const value of values) {
    const box = make("i", { title: fixed(value, 4) });
    box.style.background = css(signedColour(value, largest));
    boxes.append(box);
  }
  return make(
    "details",
    { class: "numbers" },
    make("summary", {}, make("span", { class: "strip-title" }, title), boxes),
    make("p", { class: "list" }, Array.from(values, (value) => fixed(value, 4)).join("  ")),
  );
}
