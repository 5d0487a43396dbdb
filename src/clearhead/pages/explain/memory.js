/** The similar pairs of a memory that the model consulted, and the probability that they gave each token. */

import { byId, make } from "./dom.js";
import { fillSteps } from "./steps.js";
import { directionOf, percent, spoken, tokenElement, wholePercent } from "./text.js";

/** Draws the pairs and the steps; the pair that gives the token of the chosen step most is marked. */
export function drawMemory(selection, { memory, steps, num_told: numTold }) {
  byId("memory-weight").textContent = percent(memory.weight);
  const pairRows = memory.pairs.map(({ source, target, similarity }, place) =>
    make(
      "tr",
      {},
      make("td", { class: "number" }, String(place + 1)),
      make("td", { class: "number" }, wholePercent(similarity)),
      make("td", {}, [source, target].map((text) => make("div", { dir: directionOf(text) }, text))),
    ),
  );
  byId("memory-pairs").tBodies[0].replaceChildren(...pairRows);
  const numbersOf = (step) => {
    const { probability: ofPairs, weight } = memory.steps[step];
    const own = steps[step].probability;
    return [own, ofPairs, weight, (1 - weight) * own + weight * ofPairs].map(percent);
  };
  const pairOf = (step) => memory.steps[step].pair;
  const nameOf = (step) => (pairOf(step) === null ? "none" : `pair ${pairOf(step) + 1}`);
  const rows = steps.map(({ token }, step) => {
    const label = `Step ${step + 1}: ${spoken(token)}`;
    const button = make("button", { type: "button", class: "step", "aria-label": label }, tokenElement(token));
    const [own, ...mixture] = step < numTold ? ["told", "", "", "", ""] : [...numbersOf(step), nameOf(step)];
    const classes = ["number", "number optional", "number optional", "number"];
    const row = make(
      "tr",
      { onclick: () => selection.choose({ step }) },
      make("th", { scope: "row" }, button),
      make("td", { class: "number" }, own),
      mixture.map((text, column) => make("td", { class: classes[column] }, text)),
    );
    return { button, row };
  });
  const sentenceOf = (step) => {
    if (step < numTold) return "told to the model.";
    const [own, ofPairs, weight, mixed] = numbersOf(step);
    const most = pairOf(step) === null ? "" : `, most of it from ${nameOf(step)}`;
    return `${own} by the model alone, ${ofPairs} by the pairs${most}; mixed with a weight of ${weight}, ${mixed}.`;
  };
  fillSteps(selection, byId("memory-steps"), rows, () => {
    const { step } = selection;
    pairRows.forEach((row, place) => row.classList.toggle("picked", place === pairOf(step)));
    byId("memory-reading").textContent = `Step ${step + 1}, ${spoken(steps[step].token)}: ${sentenceOf(step)}`;
  });
}
