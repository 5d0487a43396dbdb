/** A list of elements that shows lines; only the elements of changed lines are rebuilt. */

import { make } from "../explain/dom.js";
import { wordsOf } from "./words.js";

/** The lines shown in an element. */
export class LineList {
  #container;
  #build;
  #lines = [];
  #elements = [];
  /** Maps the element of a word to its number in the line. */
  #numbers = new WeakMap();

  /** `build` creates the element of a line; it is given a function that creates the word elements of a text. */
  constructor(container, build) {
    this.#container = container;
    this.#build = build;
  }

  get lines() {
    return this.#lines;
  }

  /** Shows lines; a line that is the same object as before keeps its element. */
  show(lines) {
    lines.forEach((line, place) => {
      if (this.#lines[place] === line) return;
      const element = this.#build(line);
      element.querySelectorAll(".word").forEach((word, number) => this.#numbers.set(word, number));
      if (place < this.#elements.length) this.#elements[place].replaceWith(element);
      else this.#container.append(element);
      this.#elements[place] = element;
    });
    this.#elements.splice(lines.length).forEach((element) => element.remove());
    this.#lines = [...lines];
  }

  /** Removes all lines, and everything else in the element. */
  clear() {
    this.#lines = [];
    this.#elements = [];
    this.#container.replaceChildren();
  }

  /** Position of an element as [line, word]; null if it is no word. */
  placeOf(element) {
    const word = element?.closest(".word") ?? null;
    const number = word === null ? undefined : this.#numbers.get(word);
    if (number === undefined) return null;
    return [this.#elements.findIndex((one) => one.contains(word)), number];
  }

  /** Position of the word at a point of the window, also below other elements; see `placeOf`. */
  placeAt({ clientX, clientY }) {
    return this.placeOf(document.elementsFromPoint(clientX, clientY).find((element) => element.classList.contains("word")));
  }

  /** Element of a line. */
  elementOf(line) {
    return this.#elements[line];
  }

  /** Elements of the words of a line. */
  wordsOf(line) {
    return [...(this.#elements[line]?.querySelectorAll(".word") ?? [])];
  }
}

/** Splits a text into elements for its words, and the text between them. */
export function partsOf(text) {
  const parts = [];
  let from = 0;
  for (const [start, end] of wordsOf(text)) {
    parts.push(text.slice(from, start), make("span", { class: "word" }, text.slice(start, end)));
    from = end;
  }
  return [...parts, text.slice(from)].filter((part) => part !== "");
}
