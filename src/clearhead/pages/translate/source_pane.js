/** The text to translate: where it is written, and a mirror behind it on which its words can be marked. */

import { byId, make } from "../explain/dom.js";
import { directionOfLanguage } from "./languages.js";
import { LineList, partsOf } from "./line_list.js";
import { numCharacters, wordsOf } from "./words.js";

/** The pane on the left. */
export class SourcePane {
  #mirror = byId("mirror");
  #area = byId("source");
  #most;

  /** `most` is how many characters a text may have; the second calls back when the text changes. */
  constructor(most, onInput) {
    this.#most = most;
    this.list = new LineList(this.#mirror, ({ source }) => make("span", { class: "line" }, ...partsOf(source)));
    this.#area.addEventListener("input", (event) => {
      this.#update();
      onInput(event.inputType === "insertFromPaste" || event.inputType === "insertFromDrop");
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

  /** Whether the text has more characters than may be asked for. */
  get isTooLong() {
    return this.count > this.#most;
  }

  /** Where in the text the cursor stands. */
  get cursor() {
    return this.#area.selectionStart;
  }

  /** Shows which words the text has, when its lines are translated. */
  show(lines) {
    if (this.isTooLong) return;
    if (this.list.lines.length === 0) this.list.clear();
    this.list.show(lines);
  }

  /** Lays the pane out for a language. */
  set language(code) {
    for (const element of [this.#area, this.#mirror]) {
      element.dir = directionOfLanguage(code);
      element.lang = code ?? "";
    }
  }

  /** The place of the word under the pointer, as of `LineList.placeOf`. */
  wordAt(x, y) {
    const word = document.elementsFromPoint(x, y).find((element) => element.classList.contains("word"));
    return this.list.placeOf(word);
  }

  /** Likewise of the word at the cursor. */
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
    // A mirror as long as a book helps nobody; such a text scrolls in its own box.
    this.#area.classList.toggle("scrolls", this.isTooLong);
    this.#mirror.textContent = this.isTooLong ? "" : text;
    const count = byId("count");
    count.textContent = `${this.count.toLocaleString("en")} of ${this.#most.toLocaleString("en")} characters`;
    count.classList.toggle("serious", this.isTooLong);
    byId("clear").hidden = text === "";
    document.body.classList.toggle("long", this.count > 400);
  }
}
