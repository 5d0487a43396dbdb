/** Word alignment on pointing: pointing at a word marks the aligned words on the other side. */

import { byId } from "../explain/dom.js";
import { spoken } from "../explain/text.js";
import { wordsOf } from "./words.js";

/** Marks words on both sides; the position of a word is [line, word]. */
export class Linking {
  #sides;
  #marked = [];
  #onTarget;

  /**
   * `source` and `target` are the lists of lines on both sides; the lines of `target` hold the alignment. `onTarget` is
   * called with the element of the marked word of the translation, or the first of them; null if there is none.
   */
  constructor(source, target, onTarget = () => {}) {
    this.#sides = { source, target };
    this.#onTarget = onTarget;
  }

  /** Marks a word on one side, and the words aligned with it. */
  point(side, place) {
    this.clear();
    if (place === null) return;
    const [number, word] = place;
    const line = this.#sides.target.lines[number];
    if (line === undefined) return;
    const [own, other] = side === "target" ? [1, 0] : [0, 1];
    const others = [...new Set(line.links.filter((link) => link[own] === word).map((link) => link[other]))];
    const otherSide = side === "target" ? "source" : "target";
    this.#mark(this.#sides[side].wordsOf(number)[word], "pointed");
    const linked = this.#sides[otherSide].wordsOf(number);
    others.forEach((one) => this.#mark(linked[one], "linked"));
    const [text, otherText] = side === "target" ? [line.text, line.source] : [line.source, line.text];
    const say = (whole, one) => whole.slice(...wordsOf(whole)[one]);
    if (wordsOf(text)[word] === undefined) return;
    const found = others.map((one) => spoken(say(otherText, one))).join(", ");
    const from = side === "target" ? "comes from" : "became";
    byId("reading").textContent = `${spoken(say(text, word))} ${found === "" ? "is linked with no word" : `${from} ${found}`}`;
    this.#onTarget(this.#sides.target.wordsOf(number)[side === "target" ? word : others[0]] ?? null);
  }

  clear() {
    this.#marked.splice(0).forEach((element) => element.classList.remove("pointed", "linked"));
    byId("reading").textContent = "";
    this.#onTarget(null);
  }

  #mark(element, name) {
    if (element === undefined) return;
    element.classList.add(name);
    this.#marked.push(element);
  }
}
