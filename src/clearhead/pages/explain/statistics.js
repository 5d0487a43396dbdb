/** Sortable table of statistics of all heads, one row per head. */

import { byId, make } from "./dom.js";
import { rove, stopAt } from "./keys.js";
import { fixed } from "./text.js";

const SHORT = {
  entropy: "entropy",
  peak: "peak",
  distance: "distance",
  diagonality: "diagonal",
  first_share: "first",
  last_share: "last",
  previous_share: "previous",
  same_share: "same",
  next_share: "next",
};

const EFFECTS = [
  ["if off", "How the translation's log-probability changes when the head is switched off, in nats.", "score_change"],
  ["loss if off", "How the loss on the test set changes then, in nats per target token.", "loss_change"],
  ["BLEU if off", "How BLEU on the test set changes then.", "bleu_change"],
];

/** Draws the table. */
export function drawStatistics(selection, attentions, explanation) {
  const { statistics_meaning: meaning, ablation } = explanation;
  const names = Object.keys(SHORT).filter((name) => attentions.some(({ statistics }) => name in statistics));
  const effects = EFFECTS.filter(([, , key]) => ablation !== null && ablation.heads.some((one) => one[key] !== null));
  const ablated = new Map((ablation?.heads ?? []).map((one) => [`${one.attention} ${one.layer} ${one.head}`, one]));
  const heads = attentions.flatMap((attention) =>
    Array.from({ length: attention.numLayers * attention.numHeads }, (_, number) => {
      const layer = Math.floor(number / attention.numHeads);
      const head = number % attention.numHeads;
      const values = names.map((name) => attention.statistics[name]?.[layer][head] ?? null);
      const without = ablated.get(`${attention.name} ${layer} ${head}`);
      effects.forEach(([, , key]) => values.push(without?.[key] ?? null));
      const button = make("button", { type: "button", class: "plain" }, `${attention.name} ${layer + 1}.${head + 1}`);
      const choose = () => selection.choose({ attention, layer, head });
      const row = make(
        "tr",
        { onclick: choose },
        make("th", { scope: "row" }, button),
        make("td", { class: "role-cell" }, attention.roles[layer][head].label),
        values.map((value) => make("td", { class: "number" }, value === null ? "" : fixed(value, 3))),
      );
      return { attention, layer, head, values, row, button };
    }),
  );
  const table = byId("statistics-table");
  const titles = [...names.map((name) => [SHORT[name], meaning[name]]), ...effects];
  const headers = titles.map(([title, about], column) =>
    make(
      "th",
      { scope: "col", class: "number", title: about },
      make("button", { type: "button", class: "plain", onclick: () => sort(column) }, title),
    ),
  );
  table.tHead.replaceChildren(
    make("tr", {}, make("th", { scope: "col" }, "Head"), make("th", { scope: "col" }, "What it does"), headers),
  );
  const body = table.tBodies[0];
  const rows = heads.map(({ button }) => [button]);
  rove(body, rows, (button) => button.closest("tr").click());
  let sorted = null;
  const sort = (column) => {
    const isDown = !(sorted?.column === column && sorted.isDown);
    sorted = { column, isDown };
    const rank = ({ values }) => values[column] ?? -Infinity;
    heads.sort((one, other) => (isDown ? rank(other) - rank(one) : rank(one) - rank(other)));
    rows.splice(0, rows.length, ...heads.map(({ button }) => [button]));
    headers.forEach((header) => header.removeAttribute("aria-sort"));
    headers[column].setAttribute("aria-sort", isDown ? "descending" : "ascending");
    body.replaceChildren(...heads.map(({ row }) => row));
  };
  body.replaceChildren(...heads.map(({ row }) => row));
  const mark = () => {
    for (const { attention, layer, head, row, button } of heads) {
      const isChosen = attention === selection.attention && layer === selection.layer && head === selection.head;
      row.classList.toggle("picked", isChosen);
      if (isChosen) stopAt(rows, button);
    }
  };
  selection.onChange(mark);
  mark();
  byId("statistics-meaning").replaceChildren(
    ...titles.map(([title, about]) => [make("dt", {}, title), make("dd", {}, about)]).flat(),
  );
}
