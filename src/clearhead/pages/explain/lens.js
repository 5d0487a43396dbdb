/** The logit lens: the model's prediction after each layer, as if it were the last. */

import { css, inkOn, weightColour, weightLegend } from "./colours.js";
import { byId, make } from "./dom.js";
import { rove, stopAt } from "./keys.js";
import { percent, spoken, tokenElement } from "./text.js";

/** Draws the table; returns a function that recolours it. */
export function drawLens(selection, { logit_lens: lens, target_tokens: targets }) {
  const table = byId("lens-table");
  const layerName = (layer) => {
    if (layer === 0) return "embedded";
    return layer === lens.length - 1 ? `layer ${layer}, the output` : `layer ${layer}`;
  };
  const columns = targets.map((token, step) =>
    make("th", { scope: "col" }, make("small", {}, String(step + 1)), tokenElement(token)),
  );
  table.tHead.replaceChildren(make("tr", {}, make("td", {}), columns));
  const cells = lens.map((steps, layer) =>
    steps.map((step, target) => {
      const [first] = step.candidates;
      const said = step.candidates.map(({ token, probability }) => `${spoken(token)} ${percent(probability)}`);
      const sentence =
        `Step ${target + 1}, ${layerName(layer)}: ${said.join(", ")}. ` +
        `What is written in the end, ${spoken(targets[target])}, has ${percent(step.probability)} here, rank ${step.rank}.`;
      return make(
        "button",
        {
          type: "button",
          class: step.rank === 1 ? "lens agrees" : "lens",
          "aria-label": sentence,
          "data-share": first.probability,
          onclick: () => {
            byId("lens-reading").textContent = sentence;
            selection.choose({ step: target });
          },
        },
        tokenElement(first.token),
        make("small", {}, percent(first.probability)),
      );
    }),
  );
  // The last layer is on top, because its prediction is the output.
  const order = cells.map((_, layer) => cells.length - 1 - layer);
  table.tBodies[0].replaceChildren(
    ...order.map((layer) =>
      make("tr", {}, make("th", { scope: "row" }, layerName(layer)), cells[layer].map((cell) => make("td", {}, cell))),
    ),
  );
  const rows = order.map((layer) => cells[layer]);
  rove(table, rows, (cell) => cell.click());
  const colour = () => {
    byId("lens-legend").replaceChildren(weightLegend(false, "Probability of the layer’s first token"));
    cells.flat().forEach((cell) => {
      const shade = weightColour(Number(cell.dataset.share));
      cell.style.background = css(shade);
      cell.style.color = inkOn(shade);
    });
  };
  const mark = () => {
    columns.forEach((header, step) => header.classList.toggle("picked", step === selection.step));
    cells.flat().forEach((cell) => cell.parentElement.classList.remove("picked"));
    cells.forEach((steps) => steps[selection.step]?.parentElement.classList.add("picked"));
    if (!table.contains(document.activeElement)) stopAt(rows, cells[cells.length - 1][selection.step]);
  };
  selection.onChange((changed) => changed.has("step") && mark());
  colour();
  mark();
  return colour;
}
