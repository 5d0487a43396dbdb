/** Both texts side by side, and a short summary of the differences. */

import { counted, directionOf, fixed, percent, spoken } from "../explain/text.js";
import { byId, make } from "../explain/dom.js";

const MOST_TOKENS = 3;
const MOST_HEADS = 5;
const LEAST_DISTANCE = 0.005;

/** Titles of the two sides, with the names of their models if these differ. */
export function namesOf({ first, second }) {
  const names = [first, second].map(({ model }) => model.name);
  return names[0] === names[1] ? ["First", "Second"] : names.map((name, place) => `${["First", "Second"][place]}: ${name ?? "a model"}`);
}

/** Draws source, translation and score of each side; words with a token that the other side lacks are marked. */
export function drawSides(comparison) {
  const { first, second, source_changes: sources, target_changes: targets } = comparison;
  // Models with different vocabularies split the same text differently, so equal texts are not marked.
  const { is_same_source: isSameSource, is_same_translation: isSameTranslation } = comparison;
  byId("compared-title").textContent =
    first.model.name !== second.model.name
      ? `What two models ${isSameSource ? "make of one sentence" : "make of two sentences"}`
      : isSameSource
        ? "One sentence, explained twice"
        : "What one model makes of two sentences";
  byId("sides").replaceChildren(
    ...[first, second].map((one, side) =>
      make(
        "div",
        { class: "panel" },
        make("h2", {}, namesOf(comparison)[side]),
        make("p", { class: "label small" }, "Source"),
        marked(one.source, one.source_words, isSameSource ? new Set() : changedPlaces(sources, side)),
        one.kind === "encoder"
          ? null
          : [
              make("p", { class: "label small" }, one.is_given ? "Given translation" : "Translation"),
              marked(one.translation, one.target_words, isSameTranslation ? new Set() : changedPlaces(targets, side)),
              make("p", { class: "soft small" }, facts(one)),
            ],
      ),
    ),
  );
}

function facts({ score, steps, num_told: numTold }) {
  const written = Math.max(1, steps.length - numTold);
  return `log-probability ${fixed(score, 3)} over ${counted(written, "token")}, ${percent(Math.exp(score / written))} each on average`;
}

/** Positions of the tokens that only one side has. */
function changedPlaces(changes, side) {
  const places = new Set();
  for (const { is_same: isSame, first, second } of changes) {
    const [start, end] = side === 0 ? first : second;
    for (let place = start; place < end && !isSame; place += 1) places.add(place);
  }
  return places;
}

function marked(text, words, places) {
  const characters = [...text];
  const parts = [];
  let at = 0;
  for (const { span, tokens } of words) {
    const [start, end] = span;
    const word = characters.slice(start, end).join("");
    parts.push(characters.slice(at, start).join(""));
    parts.push(tokens.some((token) => places.has(token)) ? make("mark", {}, word) : word);
    at = end;
  }
  parts.push(characters.slice(at).join(""));
  return make("p", { class: "text", dir: directionOf(text) }, text === "" ? "(nothing)" : parts);
}

/** Lists the largest changes: the score, the common tokens, and the heads; each head is a button that shows it. */
export function drawChanged(comparison, heads, choose) {
  const { first, is_same_translation: isSame, score_change: change, steps } = comparison;
  const items = [];
  if (first.kind !== "encoder") {
    const than = isSame ? "the same translation" : "its own translation";
    items.push(
      `The second gives ${than} ${fixed(Math.abs(change), 3)} nats ${change < 0 ? "less" : "more"} of log-probability.`,
    );
    const apart = [...steps].sort((one, other) => differenceOf(other) - differenceOf(one)).slice(0, MOST_TOKENS);
    const said = apart
      .filter((step) => differenceOf(step) >= 0.0005)
      .map(({ token, probabilities: [one, other] }) => `${spoken(token)} ${percent(one)} → ${percent(other)}`);
    if (said.length > 0) items.push(`Of the tokens that both write, these changed most: ${said.join(", ")}.`);
    if (steps.length === 0) items.push("They write no token in common.");
  }
  const moved = heads.filter(({ distance }) => distance >= LEAST_DISTANCE);
  const most = moved.sort((one, other) => other.distance - one.distance).slice(0, MOST_HEADS);
  if (heads.length > 0 && most.length === 0) items.push("Every head looks at the same.");
  if (most.length > 0) {
    items.push([
      "Heads that look elsewhere most: ",
      most.map((head) => [
        make(
          "button",
          { type: "button", class: "chip", onclick: () => choose(head, true) },
          `${head.attention.name} ${head.layer + 1}.${head.head + 1}: ${fixed(head.distance, 2)}`,
        ),
        " ",
      ]),
    ]);
  }
  byId("changed-list").replaceChildren(...items.map((item) => make("li", {}, item)));
}

function differenceOf({ probabilities: [one, other] }) {
  return Math.abs(one - other);
}
