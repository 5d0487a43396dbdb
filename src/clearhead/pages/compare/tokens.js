/** Token-by-token table of both outputs: common tokens share a row, other tokens are next to their replacements. */

import { css, signedColour } from "../explain/colours.js";
import { byId, make } from "../explain/dom.js";
import { rove, stopAt } from "../explain/keys.js";
import { fixed, percent, spoken, tokenElement } from "../explain/text.js";
import { namesOf } from "./sides.js";

/** Draws the table; returns a function that recolours it. */
export function drawTokens(comparison) {
  const { first, second, target_changes: changes } = comparison;
  byId("tokens").hidden = first.kind === "encoder";
  if (first.kind === "encoder") return () => {};
  byId("tokens-about").textContent =
    "Tokens that both write stand in one row; what only one writes is marked. Choose a row to see what else each considered.";
  const names = namesOf(comparison);
  const rows = changes.flatMap(pairsOf).map(([one, other, isSame]) => {
    const steps = [first.steps[one], second.steps[other]];
    const change = isSame ? steps[1].probability - steps[0].probability : null;
    const shown = steps.find((step) => step !== undefined);
    const button = make("button", { type: "button" }, tokenElement(shown.token));
    const box = make("i", { class: "difference", "aria-hidden": "true" });
    const cells = steps.flatMap((step) => {
      const token = step === undefined ? "" : step === shown ? button : tokenElement(step.token);
      return [
        make(step === shown ? "th" : "td", step === shown ? { scope: "row" } : {}, isSame || step === undefined ? token : make("mark", {}, token)),
        make("td", { class: "number" }, step === undefined ? "" : percent(step.probability)),
      ];
    });
    const sign = change === null || change < 0 ? "" : "+";
    const row = make(
      "tr",
      { onclick: () => mark(place(row)) },
      cells,
      make("td", { class: "number" }, change === null ? "" : [`${sign}${fixed(100 * change, 1)}`, box]),
    );
    return { row, button, box, change, steps };
  });
  const buttons = rows.map(({ button }) => [button]);
  const place = (row) => rows.findIndex((one) => one.row === row);
  const mark = (chosen) => {
    rows.forEach(({ row, button }, at) => {
      row.classList.toggle("picked", at === chosen);
      if (at === chosen) stopAt(buttons, button);
    });
    byId("tokens-reading").textContent = rows[chosen].steps
      .map((step, side) => step && `${names[side]}: ${candidatesOf(step)}.`)
      .filter(Boolean)
      .join(" ");
  };
  const colour = () =>
    rows.forEach(({ box, change }) => {
      box.style.background = css(signedColour(change ?? 0, 1));
    });
  byId("tokens-table").tBodies[0].replaceChildren(...rows.map(({ row }) => row));
  rove(byId("tokens-table"), buttons, (button) => button.closest("tr").click());
  colour();
  // The first row at which the outputs differ is marked initially.
  mark(Math.max(0, rows.findIndex(({ change }) => change === null)));
  return colour;
}

/** Rows for a run of tokens: position on the first and on the second side, and whether the tokens are equal. */
function pairsOf({ is_same: isSame, first: [start, end], second: [otherStart, otherEnd] }) {
  return Array.from({ length: Math.max(end - start, otherEnd - otherStart) }, (_, place) => [
    start + place < end ? start + place : -1,
    otherStart + place < otherEnd ? otherStart + place : -1,
    isSame,
  ]);
}

function candidatesOf({ token, probability, candidates }) {
  const others = candidates.filter((one) => one.token !== token).slice(0, 3);
  const said = others.map((one) => `${spoken(one.token)} ${percent(one.probability)}`);
  return `${spoken(token)} ${percent(probability)}, beside ${said.join(", ")}`;
}
