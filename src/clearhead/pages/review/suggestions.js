/** Texts that can take the place of the translation, by number: matches of the memory, the model's, and what the document had. */

import { comparedText } from "../explain/differences.js";
import { byId, make } from "../explain/dom.js";
import { wholePercent } from "../explain/text.js";
import { setSide } from "./segment_list.js";

/** Digits on the keyboard. */
const MOST_SUGGESTIONS = 9;
/** Maximum characters of two sources that are compared word by word. */
const MOST_COMPARED = 2_000;

/** The list of suggestions in the editor. */
export class Suggestions {
  #review;
  #take;
  #segment = null;
  #texts = [];

  /** `take` is called with the text that the reader chooses. */
  constructor(review, take) {
    this.#review = review;
    this.#take = take;
  }

  /**
   * Shows the suggestions for a segment, and those of `alternatives` after them, so that numbers stay. `undone` is the
   * text before an undo, or null.
   */
  show(segment, undone, alternatives = []) {
    this.#segment = segment;
    const own = segment.machine === null ? [] : [{ text: segment.machine, from: segment.origin === "memory" ? "memory" : "machine translation" }];
    const all = [
      ...(undone === null ? [] : [{ text: undone, from: "undone" }]),
      ...segment.matches.map(({ target, source, similarity }) => ({ text: target, from: wholePercent(similarity), source })),
      ...own,
      ...(segment.file === null ? [] : [{ text: segment.file, from: "document" }]),
      ...alternatives.map((text) => ({ text, from: "alternative" })),
    ];
    const isFirst = ({ text }, place) => text !== segment.text && all.findIndex((one) => one.text === text) === place;
    const shown = all.filter(isFirst).slice(0, MOST_SUGGESTIONS);
    this.#texts = [segment.source, ...shown.map(({ text }) => text)];
    byId("suggestions").replaceChildren(
      ...shown.map((one, place) => this.#element(one, place + 1)),
      this.#element({ text: segment.source, from: "source", side: 0 }, 0),
    );
  }

  /** Takes the suggestion with a number. */
  take(number) {
    if (this.#texts[number] !== undefined) this.#take(this.#texts[number]);
  }

  #element({ text, from, source, side = 1 }, number) {
    const shown = make("span", { class: "suggested" }, text);
    setSide(shown, this.#review, side);
    const about = make("span", { class: "soft about" }, from);
    const parts = [make("kbd", {}, String(number)), " ", shown, " ", about];
    if (source !== undefined && source !== this.#segment.source) {
      const own = this.#segment.source;
      const compared = make("span", { class: "soft compared" }, comparedText(source.slice(0, MOST_COMPARED), own.slice(0, MOST_COMPARED)));
      setSide(compared, this.#review, 0);
      parts.push(compared);
    }
    return make("li", {}, make("button", { type: "button", onclick: () => this.take(number) }, ...parts));
  }
}
