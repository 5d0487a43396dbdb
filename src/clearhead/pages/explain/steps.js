/** The decoding timeline: the probability of every token, and its alternatives. */

import { byId, make } from "./dom.js";
import { rove, stopAt } from "./keys.js";
import { fixed, percent, spoken, tokenElement } from "./text.js";

/** A probability as a bar with its number; a tick marks the highest probability that label smoothing allows. */
function probabilityBar(probability, highest) {
  const bar = make("span", { class: "probability", "aria-hidden": "true" });
  bar.style.setProperty("--share", probability);
  if (highest !== null) {
    const tick = make("i");
    tick.style.left = `${100 * highest}%`;
    bar.append(tick);
  }
  return bar;
}

/** Text on the effect of label smoothing on probabilities; null for a model trained without it. */
function smoothingText({ label_smoothing: smoothing, highest_probability: highest }) {
  if (!smoothing || highest === null) return null;
  return (
    `This model was trained with label smoothing ${smoothing} (section 5.4 of the paper): it learned to keep a ` +
    `${percent(smoothing).replace(".0", "")} share for all other tokens together. A perfect model would give ` +
    `${percent(highest)} to a token that it is certain of (the tick on each bar), never 100 %: a bar that ends near the ` +
    `tick is no sign of doubt.`
  );
}

/** One-line version of the text on label smoothing, for the first place where probabilities appear. */
export function smoothingLine({ label_smoothing: smoothing, highest_probability: highest }) {
  if (!smoothing || highest === null) return null;
  return `Trained with label smoothing ${smoothing}, a perfect model says ${percent(highest)} where it is certain. `;
}

/** Draws the steps; the chosen step is marked here and in every other view. */
export function drawSteps(selection, { steps, model, num_told: numTold }) {
  const highest = model.highest_probability ?? null;
  const smoothing = smoothingText(model);
  byId("smoothing").hidden = smoothing === null;
  byId("smoothing").textContent = smoothing ?? "";
  const rows = steps.map(({ token, probability, candidates, entropy, rank }, step) => {
    const isTold = step < numTold;
    const button = make(
      "button",
      {
        type: "button",
        class: "step",
        "aria-label": isTold
          ? `Step ${step + 1}: ${spoken(token)}, told to the model`
          : `Step ${step + 1}: ${spoken(token)}, ${percent(probability)}, rank ${rank}`,
      },
      tokenElement(token),
    );
    const row = make(
      "tr",
      { onclick: () => selection.choose({ step }) },
      make("td", { class: "number" }, String(step + 1)),
      make("th", { scope: "row" }, button),
      make("td", { class: "number" }, isTold ? "told" : percent(probability)),
      make("td", { class: "optional" }, probabilityBar(probability, highest)),
      make(
        "td",
        {},
        make(
          "ol",
          { class: "candidates" },
          candidates.map((other, place) =>
            make(
              "li",
              place === rank - 1 && other.token === token ? { class: "written" } : {},
              tokenElement(other.token),
              make("span", { class: "soft" }, percent(other.probability)),
            ),
          ),
          rank > candidates.length && !isTold
            ? make("li", { class: "written" }, tokenElement(token), make("span", { class: "soft" }, `rank ${rank}`))
            : null,
        ),
      ),
      make("td", { class: "number optional" }, fixed(entropy, 2)),
    );
    return { button, row };
  });
  fillSteps(selection, byId("steps-table"), rows, () => {
    byId("step-chosen").textContent =
      `Step ${selection.step + 1} of ${steps.length} is chosen: ${spoken(steps[selection.step].token)}. ` +
      "Its rows are marked in every view.";
  });
}

/** Fills a table with a row for each step, each with its button, marks that of the chosen step, and calls `tell()`. */
export function fillSteps(selection, table, rows, tell) {
  table.tBodies[0].replaceChildren(...rows.map(({ row }) => row));
  const buttons = rows.map(({ button }) => [button]);
  rove(table, buttons, (button) => button.closest("tr").click());
  const mark = () => {
    rows.forEach(({ row, button }, step) => {
      row.classList.toggle("picked", step === selection.step);
      if (step === selection.step) {
        button.setAttribute("aria-current", "step");
        stopAt(buttons, button);
      } else button.removeAttribute("aria-current");
    });
    tell();
  };
  selection.onChange((changed) => changed.has("step") && mark());
  mark();
}
