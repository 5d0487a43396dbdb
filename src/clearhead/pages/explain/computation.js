/** The computation of the chosen step, number by number; an exported model adds it (web/computation.js). */

import { rowOf } from "./arithmetic.js";
import { byId, make } from "./dom.js";
import { headName } from "./heads.js";
import { counted, fixed, percent, spoken, tokenElement } from "./text.js";

const KEYS_SHOWN = 3;

/** Draws the chosen step in a layer and head; redraws them when the selection changes. */
export function drawComputation(selection, explanation) {
  const { computation, decoder_tokens: read, model } = explanation;
  const choice = byId("computation-layer");
  const numLayers = model.num_decoder_layers;
  choice.replaceChildren(
    ...Array.from({ length: numLayers }, (_, layer) => make("option", { value: layer }, `layer ${layer + 1}`)),
  );
  const follow = () => (choice.value = Math.min(selection.layer, numLayers - 1));
  const show = () => {
    const { step } = selection;
    const layer = Number(choice.value);
    const found = computation.steps[step];
    byId("computation-title").textContent =
      `Step ${step + 1} of ${computation.steps.length} reads ${spoken(read[step])} and writes ` +
      `${spoken(explanation.target_tokens[step])}. The first ${computation.components} of ` +
      `${counted(computation.d_model, "component")} of each vector are shown, of ${computation.d_ff} in the ` +
      "feed-forward network.";
    const lines = { computation, model, selection, read, step, layer };
    byId("computation-lines").replaceChildren(
      embeddingLine(lines, found.embedding),
      ...found.layers[layer].map((sublayer) => sublayerLine(lines, sublayer)),
      outputLine(found.output, computation),
    );
  };
  choice.addEventListener("change", show);
  selection.onChange((changed) => {
    if (changed.has("layer")) follow();
    if (["step", "layer", "head"].some((name) => changed.has(name))) show();
  });
  follow();
  show();
}

function embeddingLine({ computation, read, step }, { row, scaled, position, sum, hasNorm }) {
  const scale = computation.scale ? `× √${computation.d_model}` : null;
  return computedLine("Embed the token", "x = E √d_model + PE", [
    [`E, the row of ${spoken(read[step])}`, row],
    scale && [scale, scaled],
    position && [`+ PE(${step}), the position`, position],
    [hasNorm ? "the sum, which a norm follows" : "= x", sum],
  ]);
}

const SUBLAYERS = {
  self_attn: ["Self-attention", (x) => `MultiHead(${x})`],
  cross_attn: ["Cross-attention", (x) => `MultiHead(${x}, memory)`],
  feed_forward: ["Feed-forward network", (x) => `FFN(${x})`],
};

/** A sublayer with its residual connection and norm. */
function sublayerLine(lines, sublayer) {
  const [title, formula] = SUBLAYERS[sublayer.name];
  return computedLine(
    `${title}, layer ${lines.layer + 1}`,
    sublayer.after === null ? `x + ${formula("Norm(x)")}` : `Norm(x + ${formula("x")})`,
    [
      ["x", sublayer.input],
      normRow(sublayer.before),
      ...(sublayer.heads ? headRows(lines, sublayer) : hiddenRows(sublayer)),
      [sublayer.heads ? "all heads side by side × Wᴼ" : "× W₂ + b₂", sublayer.update],
      ["x + this", sublayer.sum],
      normRow(sublayer.after),
    ],
    sublayer.heads ? keysOfHead(lines, sublayer) : null,
  );
}

const hiddenRows = ({ projected, hidden }) => [["× W₁ + b₁", projected], ["after the activation", hidden]];

function headRows(lines, { name, heads }) {
  const { head } = lines.selection;
  const { query } = chosenRow(lines, name);
  return [
    query && [`q of head ${head + 1}`, Array.from(query.slice(0, lines.computation.components))],
    [`Σ weight × v of head ${head + 1}`, heads[head]],
  ];
}

/** The row of the chosen head at the chosen step, and its attention. */
function chosenRow({ selection, model, layer, step }, name) {
  const attention = selection.attentions.find((one) => one.name === (name === "self_attn" ? "decoder" : "cross"));
  return { attention, ...rowOf({ attention, layer, head: selection.head, row: step }, model.scale) };
}

/** The keys with the largest weights, in words; a button chooses the head, whose arithmetic another section shows. */
function keysOfHead(lines, { name }) {
  const { selection, layer } = lines;
  const { attention, keys } = chosenRow(lines, name);
  const best = [...keys].sort((one, other) => other.weight - one.weight).slice(0, KEYS_SHOWN);
  const said = best.map(({ place, weight, score, product }) => {
    const scored = product === null ? "" : `, score ${fixed(score, 3)}`;
    return make("li", {}, tokenElement(attention.keys[place]), ` weight ${fixed(weight, 4)}${scored}`);
  });
  const choose = () => selection.choose({ attention, layer, head: selection.head });
  return [
    make("p", { class: "soft" }, `The largest weights of ${headName(attention, layer, selection.head)}:`),
    make("ul", { class: "candidates" }, said),
    make("p", {}, make("button", { type: "button", class: "chip", onclick: choose }, "Choose this head in every view")),
  ];
}

function outputLine({ input, norm, isScaled, state, logits }, { components }) {
  const heading = (name, columns = 1) => make("th", { scope: "col", class: "number", colspan: columns }, name);
  const token = make("th", { scope: "col" }, "Token");
  const headings = [token, heading("its row of W", components), heading("logit"), heading("e^(logit − ln Σ)")];
  const tokens = logits.map((one) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, tokenElement(one.token)),
      one.row.map((value) => make("td", { class: "number" }, fixed(value, 4))),
      make("td", { class: "number" }, fixed(one.logit, 3)),
      make("td", { class: "number" }, percent(one.probability)),
    ),
  );
  const head = make("thead", {}, make("tr", {}, headings));
  const rows = [["x, after the last layer", input], normRow(norm), isScaled ? ["/ √d_model", state] : null];
  return computedLine("Choose the next token", "softmax(x Wᵀ + b)", rows, [
    scrolled("Most probable tokens", head, make("tbody", {}, tokens)),
    make("p", { class: "soft" }, `ln Σ, over the whole vocabulary, is ${fixed(logits[0].log_sum, 4)} at this step.`),
  ]);
}

function normRow(norm) {
  if (norm === null) return null;
  const centred = `x ${norm.mean < 0 ? "+" : "−"} ${fixed(Math.abs(norm.mean), 4)}`;
  return [`norm: (${centred}) / ${fixed(norm.deviation, 4)} × weight + bias`, norm.output];
}

/** One item: its title, its formula, the vectors it computes one below the other, and what follows them. */
function computedLine(title, formula, rows, after = null) {
  return make(
    "li",
    {},
    make("h3", {}, `${title} `, make("span", { class: "formula" }, formula)),
    scrolled(
      title,
      make("tbody", {}, rows.filter(Boolean).map(([name, values]) =>
        make(
          "tr",
          {},
          make("th", { scope: "row" }, name),
          values.map((value) => make("td", { class: "number" }, fixed(value, 4))),
          make("td", { class: "soft" }, "…"),
        ),
      )),
    ),
    after ?? [],
  );
}

/** A table that scrolls where it is too wide, as on a phone. */
function scrolled(title, ...parts) {
  const table = make("table", { class: "vectors" }, parts);
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}: numbers` }, table);
}
