/** The source text: a text area, and a mirror behind it in which words can be marked. */

import { byId, make } from "../explain/dom.js";
import { directionOfLanguage } from "./languages.js";
import { LineList, partsOf } from "./line_list.js";
import { numCharacters, wordsOf } from "./words.js";

/** The left pane. */
export class SourcePane {
  #mirror = byId("mirror");
  #area = byId("source");
  #most;

  /** `most` is the maximum number of characters of a text; `onInput` is called when the text changes. */
  constructor(most, onInput) {
    this.#most = most;
    this.list = new LineList(this.#mirror, ({ source }) => make("span", { class: "line" }, ...partsOf(source)));
    this.#area.addEventListener("input", (event) => {
      this.#update();
      if (event.isComposing) return; // the input method's text is not yet what the reader will choose
      onInput(event.inputType === "insertFromPaste" || event.inputType === "insertFromDrop");
    });
    this.#area.addEventListener("compositionend", () => {
      this.#update();
      onInput(false);
    });
    this.#update();
  }

  get text() {
    return this.#area.value;
  }

  set text(text) {
    this.#area.value = text;
    this.#update();
  }

  /** Whether the text exceeds the maximum number of characters. */
  get isTooLong() {
    return this.count > this.#most;
  }

  /** Position of the cursor in the text. */
  get cursor() {
    return this.#area.selectionStart;
  }

  /** Shows translated lines in the mirror, with an element for each word. */
  show(lines) {
    if (this.isTooLong) return;
    if (this.list.lines.length === 0) this.list.clear();
    this.list.show(lines);
  }

  /** Sets text direction and language of the pane. */
  set language(code) {
    for (const element of [this.#area, this.#mirror]) {
      element.dir = directionOfLanguage(code);
      element.lang = code ?? "";
    }
  }

  /** Position of the word at the cursor, see `LineList.placeOf`. */
  wordAtCursor() {
    let start = 0;
    for (const [line, { source }] of this.list.lines.entries()) {
      const at = this.cursor - start;
      const word = wordsOf(source).findIndex(([from, to]) => from <= at && at <= to);
      if (at < source.length || line === this.list.lines.length - 1) return word < 0 ? null : [line, word];
      start += source.length;
    }
    return null;
  }

  focus() {
    this.#area.focus();
  }

  #update() {
    const text = this.text;
    this.count = numCharacters(text);
    this.list.clear();
    // A text that is too long is not mirrored and not shown at full height; it scrolls in its own box.
    this.#area.classList.toggle("scrolls", this.isTooLong);
    this.#mirror.textContent = this.isTooLong ? "" : text;
    const count = byId("count");
    count.textContent = `${this.count.toLocaleString("en")} of ${this.#most.toLocaleString("en")} characters`;
    count.classList.toggle("serious", this.isTooLong);
    byId("clear").hidden = text === "";
    document.body.classList.toggle("long", this.count > 400);
  }
}
