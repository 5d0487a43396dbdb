// One form for the same text, as the model knows it: text/unicode_forms.py.

import { isSpace } from "./characters.js";
import { RULES } from "./rules.js";

const PLAIN = /^[ -~]*$/u;
const JAMO = new RegExp(RULES.JAMO, "u");

export class TextForm {
  /**
   * @param {object} settings - What `TextForm.settings` in Python returns.
   * @param {Placeholders} placeholders
   */
  constructor({ form, usual, left_out: leftOut, replaced, spaces }, placeholders) {
    Object.assign(this, { form, replaced, placeholders });
    this.usual = Object.entries(usual);
    this.leftOut = new Set(leftOut);
    this.spaces = spaces && new Set(spaces);
  }

  /** A text in this form; placeholders are not changed. */
  of(text) {
    return this.aligned(text).text;
  }

  /**
   * A text in this form, and the start of each of its UTF-16 units, and of its end, in the original text.
   * @returns {{text: string, starts: ?number[]}} `starts` is null if the text is in this form already.
   */
  aligned(text) {
    if (PLAIN.test(text)) return { text, starts: null };
    let [found, at] = ["", 0];
    const starts = [];
    const kept = this.placeholders.find(text).map(({ 0: one, index }) => [index, index + one.length]);
    for (const [start, end] of [...kept, [text.length, text.length]]) {
      for (const [first, part] of this.#parts(text, at, start)) {
        found += part;
        for (let unit = 0; unit < part.length; unit++) starts.push(first);
      }
      found += text.slice(start, end);
      for (let place = start; place < end; place++) starts.push(place);
      at = end;
    }
    return found === text ? { text, starts: null } : { text: found, starts: [...starts, text.length] };
  }

  /** The units between two places, of a letter with its marks each, in this form, with their starts. */
  #parts(text, start, end) {
    const units = [];
    const near = [text.slice(Math.max(0, start - 4), start), text.slice(start, end), text.slice(end, end + 2)];
    const [before, own, after] = near.map((part) => [...part]);
    let place = start;
    const characters = own.map((character) => [place, (place += character.length) && character]);
    const left = characters.filter(([, character]) => !this.leftOut.has(character));
    const around = [...before.slice(-2), ...left.map(([, character]) => character), after[0]];
    for (const [number, [first, original]] of left.entries()) {
      let character = original;
      if (this.spaces && original !== " " && isSpace(original)) {
        const isKept = this.spaces.has(original) || this.spaces.has(kindOf(around, Math.min(2, before.length) + number));
        if (!isKept) character = " ";
      }
      character = this.replaced[character] ?? character;
      if (units.length && (/\p{M}/u.test(character) || JAMO.test(character))) units.at(-1)[1] += character;
      else units.push([first, character]);
    }
    return units.map(([place, unit]) => [place, this.#canonical(unit)]);
  }

  #canonical(unit) {
    if (PLAIN.test(unit)) return unit;
    return this.usual.reduce((text, [canonical, letter]) => text.replaceAll(canonical, letter), unit.normalize(this.form));
  }
}

/** White space with the kinds of its neighbours: `_kind` in Python. */
function kindOf(characters, place) {
  let [before, first] = [neighbour(characters[place - 1]), place - 1];
  while (first >= 0 && /\p{M}/u.test(characters[first])) first--;
  if (before === "a" && !"a1".includes(neighbour(characters[first - 1]))) before = "s";
  return characters[place] + before + neighbour(characters[place + 1]);
}

function neighbour(character) {
  if (!character || isSpace(character)) return " ";
  return /[\p{L}\p{M}]/u.test(character) ? "a" : /\p{Nd}/u.test(character) ? "1" : ".";
}
