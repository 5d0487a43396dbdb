/** Overview beside the alignment: roles of the heads, and alternatives that the search considered. */

import { comparedText } from "./differences.js";
import { byId, make } from "./dom.js";
import { bringIntoView, headName } from "./heads.js";
import { smoothingLine } from "./steps.js";
import { counted, directionOf, fixed, percent, spoken } from "./text.js";

const MOST_EXAMPLES = 6;
const MOST_COMMON = 4;

/** Lists the roles of the heads, grouped by role; each head is a button that shows it. */
export function drawRoles(selection, attentions, alignmentHead) {
  const groups = new Map();
  for (const attention of attentions) {
    attention.roles.forEach((ofLayer, layer) =>
      ofLayer.forEach((role, head) => {
        const key = `${attention.name} ${role.kind}`;
        if (!groups.has(key)) groups.set(key, { attention, role, heads: [] });
        groups.get(key).heads.push({ attention, layer, head, role });
      }),
    );
  }
  const lists = attentions.map((attention) => {
    const items = [...groups.values()]
      .filter((group) => group.attention === attention)
      .sort((one, other) => rankOf(one.role) - rankOf(other.role) || other.heads.length - one.heads.length)
      .map(({ role, heads }) => {
        const best = [...heads].sort((one, other) => other.role.share - one.role.share);
        return make(
          "li",
          {},
          `${counted(heads.length, "head")} ${heads.length === 1 ? role.does : role.do} `,
          best.slice(0, MOST_EXAMPLES).map(({ layer, head }) => [chip(selection, attention, layer, head), " "]),
          heads.length > MOST_EXAMPLES ? "…" : null,
        );
      });
    if (attention.name === "cross" && alignmentHead.head !== null) {
      const { layer, head, is_reading: isReading } = alignmentHead;
      const step = `at the step that ${isReading ? "reads" : "writes"} them`;
      items.unshift(make("li", {}, chip(selection, attention, layer, head), ` was chosen to align words, ${step}`));
    }
    return [make("h3", {}, attention.title), make("ul", {}, items)];
  });
  byId("roles").replaceChildren(...lists.flat());
}

/** Returns a button that shows a head. */
function chip(selection, attention, layer, head) {
  const { sentence } = attention.roles[layer][head];
  const choose = () => {
    selection.choose({ attention, layer, head });
    bringIntoView(byId("head"));
  };
  const label = `${headName(attention, layer, head)}: ${sentence}`;
  const name = `${layer + 1}.${head + 1}`;
  return make("button", { type: "button", class: "chip", title: sentence, "aria-label": label, onclick: choose }, name);
}

function rankOf({ kind }) {
  return { mixed: 3, spread: 2, picks: 1 }[kind] ?? 0;
}

/** Describes the alternatives of the search: the finished hypotheses, and the least certain steps. */
export function drawConsidered(explanation) {
  const { search, steps, num_told: numTold, is_given: isGiven } = explanation;
  const parts = [];
  if (search !== null && !search.is_translation) {
    const why = isGiven ? "The translation was given. Left to itself, the model writes: " : "The search shown finds: ";
    parts.push(make("p", {}, why, quoted(search.text)));
  }
  if (search !== null && search.finished.length > 1) {
    const [best, ...others] = search.finished;
    parts.push(
      make("p", {}, `The search finished ${counted(search.finished.length, "text")}. Beside the one it chose, and how far below it they rank:`),
      make(
        "ol",
        { class: "finished" },
        others
          .slice(0, 4)
          .map(({ text, rank_score: score }) =>
            make(
              "li",
              {},
              comparedText(text, best.text, MOST_COMMON),
              make("span", { class: "soft" }, fixed(score - best.rank_score, 2)),
            ),
          ),
      ),
    );
  } else if (search !== null) {
    parts.push(make("p", {}, "The search finished this one text alone; everything else was pruned on the way."));
  }
  const doubts = steps
    .map((step, place) => ({ ...step, place }))
    .filter(({ place }) => place >= numTold)
    .sort((one, other) => one.probability - other.probability)
    .slice(0, 2);
  if (doubts.length > 0) {
    parts.push(
      make("p", {}, "Least sure of:"),
      make(
        "ul",
        {},
        doubts.map(({ token, probability, candidates }) => {
          const others = candidates.filter((other) => other.token !== token).slice(0, 2);
          return make(
            "li",
            {},
            `${spoken(token)} ${percent(probability)}; it might have been ` +
              others.map((other) => `${spoken(other.token)} ${percent(other.probability)}`).join(", "),
          );
        }),
      ),
    );
  }
  byId("considered").replaceChildren(...parts);
}

function quoted(text) {
  return make("q", { dir: directionOf(text) }, text);
}

const TITLES = {
  "encoder-decoder": "What the model read, and what it made of it",
  decoder: "What the model read, and how it went on",
  encoder: "What the model read",
};

/** Shows the title, and a line with model and score. */
export function drawFacts({ model, kind, score, steps, num_told: numTold, is_given: isGiven }, attentions) {
  byId("glance-title").textContent = TITLES[kind];
  const layers = attentions
    .filter(({ name }) => name !== "cross")
    .map(({ name, numLayers }) => counted(numLayers, `${name} layer`));
  const facts = [model.name, layers.join(", "), `${counted(attentions[0].numHeads, "head")} each`];
  if (model.d_model) facts.push(`d_model ${model.d_model}`);
  if (kind !== "encoder") {
    const written = Math.max(1, steps.length - numTold);
    facts.push(
      `${isGiven ? "given text" : `beam of ${model.beam_size}`}`,
      `log-probability ${fixed(score, 4)} over ${counted(written, "token")}`,
      `${percent(Math.exp(score / written))} each on average`,
    );
  }
  byId("facts").textContent = facts.filter(Boolean).join(" · ");
  const smoothing = steps.length > 0 ? smoothingLine(model) : null;
  byId("smoothing-line").hidden = smoothing === null;
  byId("smoothing-line").prepend(smoothing ?? "");
}
