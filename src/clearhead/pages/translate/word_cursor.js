/** Keyboard cursor on a word of the translation: arrow keys move it, and aligned source words are marked. */

import { byId } from "../explain/dom.js";

/** A cursor that moves while the translation has the focus. */
export class WordCursor {
  /** Position, as [line, word]. */
  place = null;
  #list;
  #linking;
  #open = () => {};

  constructor(list, linking) {
    this.#list = list;
    this.#linking = linking;
    const box = byId("translation");
    box.addEventListener("focus", () => this.show());
    box.addEventListener("blur", () => linking.clear());
    box.addEventListener("keydown", (event) => this.#key(event));
  }

  /** `open` is called with the sentence to open, [line, number], and whether to show its explanation. */
  onOpen(open) {
    this.#open = open;
  }

  /** Marks the word at the cursor, if the translation has keyboard focus; called again when the lines change. */
  show() {
    if (byId("translation").matches(":focus-visible")) this.#point(this.place);
  }

  #first() {
    const line = this.#list.lines.findIndex((_, place) => this.#list.wordsOf(place).length > 0);
    return line < 0 ? null : [line, 0];
  }

  /** Marks the word at a position, or the first word if there is none there; returns its element. */
  #point(place) {
    const word = place && this.#list.wordsOf(place[0])[place[1]];
    this.place = word ? place : this.#first();
    this.#linking.point("target", this.place);
    return word;
  }

  #go(place) {
    this.#point(place)?.scrollIntoView({ block: "nearest" });
  }

  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const place = this.place ?? this.#first();
    if (place === null) return;
    const isBack = getComputedStyle(event.currentTarget).direction === "rtl" ? "ArrowRight" : "ArrowLeft";
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") this.#go(this.#beside(place, event.key === isBack ? -1 : 1));
    else if (event.key === "Home") this.#go(this.#first());
    else if (event.key === "End") this.#go(this.#beside([this.#list.lines.length, 0], -1));
    else if (event.key === "Enter") this.#openAt(place, event.shiftKey);
    else return;
    event.preventDefault();
  }

  /** Position of the next word in a direction, possibly on another line; the same position if there is none. */
  #beside([line, word], step) {
    const count = (place) => this.#list.wordsOf(place).length;
    if (word + step >= 0 && word + step < count(line)) return [line, word + step];
    for (let other = line + step; other >= 0 && other < this.#list.lines.length; other += step) {
      if (count(other) > 0) return [other, step > 0 ? 0 : count(other) - 1];
    }
    return [line, word];
  }

  #openAt([line, word], isInside) {
    const sentence = this.#list.wordsOf(line)[word]?.closest(".sentence");
    if (sentence) this.#open([line, Number(sentence.dataset.number)], isInside);
  }
}
