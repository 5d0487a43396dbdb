/** Elements that show lines, one each, and of which only those are made anew whose line is another. */

import { make } from "../explain/dom.js";
import { wordsOf } from "./words.js";

/** The lines in an element. */
export class LineList {
  #container;
  #build;
  #lines = [];
  #elements = [];
  /** From the element of a word to its number in the line. */
  #numbers = new WeakMap();

  /** `build` makes the element of a line, and is given what makes the parts of a text with words of their own. */
  constructor(container, build) {
    this.#container = container;
    this.#build = build;
  }

  get lines() {
    return this.#lines;
  }

  /** Shows lines; those that are the same object as before stay. */
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

  /** Forgets all lines, and what else is in the element. */
  clear() {
    this.#lines = [];
    this.#elements = [];
    this.#container.replaceChildren();
  }

  /** Where an element stands: [line, word]; null if it is no word. */
  placeOf(element) {
    const word = element?.closest(".word") ?? null;
    const number = word === null ? undefined : this.#numbers.get(word);
    if (number === undefined) return null;
    return [this.#elements.findIndex((one) => one.contains(word)), number];
  }

  /** The element of a line. */
  elementOf(line) {
    return this.#elements[line];
  }

  /** The elements of the words of a line. */
  wordsOf(line) {
    return [...(this.#elements[line]?.querySelectorAll(".word") ?? [])];
  }
}

/** A text as elements of its words, and what is between them. */
export function partsOf(text) {
  const parts = [];
  let from = 0;
  for (const [start, end] of wordsOf(text)) {
    parts.push(text.slice(from, start), make("span", { class: "word" }, text.slice(start, end)));
    from = end;
  }
  return [...parts, text.slice(from)].filter((part) => part !== "");
}
