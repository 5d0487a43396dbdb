/** The editor of the active segment: its source, the field of its translation, and the links between their words. */

import { byId, make } from "../explain/dom.js";
import { fixed } from "../explain/text.js";
import { LineList, partsOf } from "../translate/line_list.js";
import { Linking } from "../translate/linking.js";
import { Refused } from "../translate/refused.js";
import { wordsOf } from "../translate/words.js";
import { Checks } from "./checks.js";
import { markUnwordly } from "./highlights.js";
import { nameOfState, setSide } from "./segment_list.js";
import { alternativesOf, checkText, segmentAt } from "./server.js";
import { Suggestions } from "./suggestions.js";

/** Milliseconds after the last key press before a text is checked. */
const CHECK_PAUSE = 250;
/** Milliseconds on a segment before the model is asked for alternatives. */
const REST = 500;
/** Maximum characters of a text whose words are marked. */
const MOST_MARKED = 20_000;
/** Maximum characters of the texts before and after. */
const MOST_NEARBY = 300;
/** What is said of the origin of a translation. */
const ORIGINS = {
  machine: "",
  memory: "from the memory",
  repaired: "from the memory, repaired",
  file: "from the file",
};

const plainLine = (text) => make("span", { class: "line" }, ...(text.length > MOST_MARKED ? [text] : partsOf(text)));

/** The editor; there is one, which the active row holds. */
export class Editor {
  #field = byId("target");
  #mirror = byId("mirror");
  #original = byId("original");
  /** The text behind the field while its words are not linked. */
  #plain = document.createTextNode("");
  #sources = new LineList(this.#original, ({ source }) => plainLine(source));
  #targets = new LineList(this.#mirror, ({ text }) => plainLine(text));
  #linking = new Linking(this.#sources, this.#targets);
  #checks = new Checks((text) => this.#put(text));
  #suggestions;
  #controller = new AbortController();
  #timers = [];
  #checkTimer = null;
  #onInput;
  #review;
  #segment = null;
  #undone = null;
  /** The line whose words are linked: {source, text, links}; null while the links are not known. */
  #linked = null;

  /** `onInput` is called with the segment and the text when that changes. */
  constructor(review, onInput) {
    this.#onInput = onInput;
    this.#review = review;
    this.#suggestions = new Suggestions(review, (text) => this.replace(text));
    setSide(this.#original, review, 0);
    setSide(this.#field, review, 1);
    setSide(this.#mirror, review, 1);
    this.#field.addEventListener("beforeinput", () => this.#showPlain());
    this.#field.addEventListener("input", () => {
      this.#onInput(this.#segment, this.text);
      this.#layOut();
      this.#checkLater();
    });
    this.#original.addEventListener("pointermove", (event) => this.#linking.point("source", this.#sources.placeAt(event)));
    this.#field.addEventListener("pointermove", (event) => this.#linking.point("target", this.#targets.placeAt(event)));
    for (const element of [this.#original, this.#field]) element.addEventListener("pointerleave", () => this.#linking.clear());
    document.addEventListener("selectionchange", () => this.isTyping && this.#pointAtCursor());
  }

  get text() {
    return this.#field.value;
  }

  /** Whether the text differs from the saved one. */
  get isEdited() {
    return this.text !== this.#segment.text;
  }

  /** Whether the field has the focus. */
  get isTyping() {
    return document.activeElement === this.#field;
  }

  focus() {
    this.#field.focus();
  }

  /** Shows a segment; `draft` is the text typed for it, and `undone` the one before an undo, null for none. */
  open(segment, draft, undone) {
    this.close();
    this.#segment = segment;
    this.#undone = undone;
    const text = draft ?? segment.text;
    if (this.text !== text) this.#field.value = text; // otherwise the cursor stays where it is
    const { place, state, origin, quality, score_per_token: score, context } = segment;
    const measures = [quality !== null && `quality ${fixed(quality, 2)}`, score !== null && `score per token ${fixed(score, 2)}`];
    byId("where").textContent = [place, nameOfState(state), ORIGINS[origin], ...measures].filter(Boolean).join(" · ");
    byId("context").textContent = context ?? "";
    byId("context").hidden = !context;
    this.#linked = null;
    this.#sources.clear();
    this.#sources.show([segment]);
    const codes = segment.placeholders.map((text) => ({ text, found: this.text.includes(text) }));
    this.#checks.show({ flags: segment.flags, terms: segment.terms, placeholders: codes }, true);
    this.#suggestions.show(segment, undone);
    this.#layOut();
    if (this.isEdited) this.#checkLater();
    byId("nearby").hidden = true;
    this.#later(() => this.#ask(), REST);
    this.#later(() => this.#showNearby(), REST);
  }

  /** Stops what is under way for the segment. */
  close() {
    this.#controller.abort();
    this.#controller = new AbortController();
    this.#timers.splice(0).forEach(clearTimeout);
    this.#linking.clear();
  }

  /** Puts a text in place of all that is in the field; the browser can undo it. */
  replace(text) {
    this.#field.focus();
    this.#field.select();
    this.#put(text);
  }

  /** Takes the suggestion with a number. */
  take(number) {
    this.#suggestions.take(number);
  }

  /** Writes the first missing placeholder or term at the cursor. */
  putMissing() {
    const { missing } = this.#checks;
    if (missing !== null) this.#put(missing);
  }

  #put(text) {
    this.#field.focus();
    // No other way of writing into a field can be undone there.
    if (!document.execCommand(text === "" ? "delete" : "insertText", false, text)) {
      this.#field.setRangeText(text, this.#field.selectionStart, this.#field.selectionEnd, "end");
      this.#field.dispatchEvent(new Event("input"));
    }
  }

  #layOut() {
    const { text } = this;
    this.#linking.clear();
    if (this.#linked?.text === text) {
      if (this.#targets.lines[0] !== this.#linked) this.#targets.clear();
      this.#targets.show([this.#linked]);
    } else {
      this.#showPlain();
    }
    const isShort = text.length <= MOST_MARKED && this.#segment.source.length <= MOST_MARKED;
    markUnwordly(isShort ? [this.#original, this.#mirror] : [], this.#segment.placeholders);
  }

  /** Shows the text without words. The browser undoes typing in one step only while no node comes or goes: so before it. */
  #showPlain() {
    this.#plain.data = this.text;
    if (this.#plain.parentNode !== null) return;
    this.#linking.clear();
    this.#targets.clear();
    this.#mirror.append(this.#plain);
  }

  #later(work, milliseconds) {
    const timer = setTimeout(() => void work(), milliseconds);
    this.#timers.push(timer);
    return timer;
  }

  #checkLater() {
    clearTimeout(this.#checkTimer);
    this.#checkTimer = this.#later(() => this.#check(), CHECK_PAUSE);
  }

  async #check() {
    const { signal } = this.#controller;
    const { text } = this;
    try {
      const found = await checkText({ number: this.#segment.number, text }, signal);
      if (!signal.aborted && text === this.text) this.#checks.show(found);
    } catch (error) {
      if (!signal.aborted && !(error instanceof Refused)) throw error; // saving says what is wrong with the server
    }
  }

  /** Asks for alternatives and links. */
  async #ask() {
    const { signal } = this.#controller;
    const segment = this.#segment;
    try {
      const { alternatives, links, text } = await alternativesOf(segment.number, signal);
      if (signal.aborted) return;
      this.#suggestions.show(segment, this.#undone, alternatives);
      this.#linked = { source: segment.source, text, links };
      this.#layOut();
    } catch (error) {
      if (!signal.aborted && !(error instanceof Refused)) throw error;
    }
  }

  /** Shows the segments before and after this one in the document, for the list has another order. */
  async #showNearby() {
    const { signal } = this.#controller;
    const { number } = this.#segment;
    const sides = [number - 1, number + 1].filter((one) => one >= 0 && one < this.#review.count);
    try {
      const found = await Promise.all(sides.map((one) => segmentAt(one, signal)));
      if (signal.aborted) return;
      const side = (text, of) => {
        const element = make("dd", {}, text.length > MOST_NEARBY ? `${text.slice(0, MOST_NEARBY)} …` : text);
        setSide(element, this.#review, of);
        return element;
      };
      byId("nearby-segments").replaceChildren(
        ...found.flatMap(({ number: own, source, text }) => [make("dt", {}, own < number ? "Before" : "After"), side(source, 0), side(text, 1)]),
      );
      byId("nearby").hidden = found.length === 0;
    } catch (error) {
      if (!signal.aborted && !(error instanceof Refused)) throw error;
    }
  }

  #pointAtCursor() {
    if (this.#targets.lines.length === 0) return;
    const at = this.#field.selectionEnd;
    const word = wordsOf(this.text).findIndex(([start, end]) => start <= at && at <= end);
    this.#linking.point("target", word < 0 ? null : [0, word]);
  }
}
