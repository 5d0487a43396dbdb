/** The translation: its lines, their sentences, and the word at the keyboard cursor. */

import { byId, make } from "../explain/dom.js";
import { counted, spoken } from "../explain/text.js";
import { directionOfLanguage } from "./languages.js";
import { LineList, partsOf } from "./line_list.js";
import { upper } from "./words.js";

/** Maximum number of notes shown; a long text could have hundreds. */
const MOST_NOTES = 5;

/** The right pane. */
export class TranslationPane {
  #box = byId("translation");
  #meanings;

  /** `meanings` has the description of each kind of warning. */
  constructor(meanings) {
    this.#meanings = meanings;
    this.list = new LineList(this.#box, (line) => lineElement(line, (answer) => this.#reasonsOf(answer).map(upper).join(". ")));
  }

  get text() {
    return this.list.lines.map(({ text }) => text).join("");
  }

  /** Shows lines, and the notes on them. */
  show(lines) {
    this.list.show(lines);
    const notes = lines.flatMap(({ answers }, place) =>
      answers.flatMap((answer) =>
        this.#reasonsOf(answer).map((reason) => (lines.length > 1 ? `Line ${place + 1}: ${reason}` : upper(reason))),
      ),
    );
    const rest = notes.length - MOST_NOTES;
    byId("notes").replaceChildren(
      ...notes.slice(0, MOST_NOTES).map((note) => make("li", {}, note)),
      ...(rest > 0 ? [make("li", {}, counted(rest, "more note"))] : []),
    );
    byId("notes").hidden = notes.length === 0;
    byId("tools").hidden = lines.every(({ answers }) => answers.length === 0);
  }

  /** Whether the shown translation is that of an earlier text. */
  set isStale(isStale) {
    this.#box.classList.toggle("stale", isStale);
    this.#box.setAttribute("aria-busy", String(isStale));
  }

  set language(code) {
    this.#box.dir = directionOfLanguage(code);
    this.#box.lang = code ?? "";
  }

  /** What looks wrong with an answer, each reason in words. */
  #reasonsOf(answer) {
    const cut = [
      answer.source_truncated && "the text was cut: it is longer than the model reads",
      answer.output_truncated && "the translation was cut: it is longer than the model writes",
      answer.truncated && !answer.source_truncated && !answer.output_truncated && "something was cut",
    ].filter(Boolean);
    const warnings = answer.warnings.map((kind) => {
      const detail = answer.warning_details?.[kind];
      return `${this.#meanings[kind] ?? kind}${detail ? `: ${detail}` : ""}`;
    });
    const terms = answer.terms ?? [];
    const missed = terms
      .filter(({ form }) => form === "")
      .map(({ source, target }) => `the term ${spoken(source)} is not translated as ${spoken(target)}`);
    const costly = terms
      .filter(({ reason }) => reason === "costly")
      .map(({ source, form, without }) => `the term ${spoken(source)} as ${spoken(form)} spoils its sentence; without it: ${without}`);
    return [...cut, ...warnings, ...missed, ...costly];
  }
}

/** Element of a line; `reasonOf` says what looks wrong with an answer, which marks its sentences. */
function lineElement({ text, sentences }, reasonOf) {
  const parts = [];
  let from = 0;
  sentences.forEach(({ start, end, text: own, own: first, answer }, number) => {
    const isReplaced = own !== first;
    const reason = isReplaced ? "" : reasonOf(answer);
    const marks = isReplaced ? " replaced" : reason === "" ? "" : " flagged";
    const attributes = { class: `sentence${marks}`, "data-number": number, "data-reason": reason };
    parts.push(...partsOf(text.slice(from, start)), make("span", attributes, ...partsOf(own)));
    from = end;
  });
  return make("span", { class: "line" }, ...parts, ...partsOf(text.slice(from)));
}

/** Shows below the sentence of a word what looks wrong with it, if something does; the notes say it to screen readers. */
export function showReason(word) {
  const sentence = word?.closest(".flagged") ?? null;
  const reason = byId("reason");
  reason.hidden = sentence === null;
  if (sentence === null) return;
  reason.textContent = sentence.dataset.reason;
  reason.style.top = `${[...sentence.getClientRects()].at(-1).bottom - reason.parentElement.getBoundingClientRect().top + 6}px`;
}
