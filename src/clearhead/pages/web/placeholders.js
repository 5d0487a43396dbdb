// Placeholders of texts, and the signs that take their place: text/placeholders.py and text/placeholder_masking.py.
//
// The patterns are Python's own, translated when the model is exported (browser/text.py).

import { isLetter } from "./characters.js";
import { RULES } from "./rules.js";

const { MARKS, SIGNS } = RULES;
export const SIGN = new RegExp(`[${SIGNS.join("")}]`, "gu");
const INVISIBLE = new RegExp(`^[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Z}${RULES.INVISIBLE.join("")}]*$`, "u");

/** A text with signs in place of its placeholders. */
export class Masked {
  /** @param {[string[], string[]][]} units - Signs, single or in pairs, with the placeholders that they replace. */
  constructor(text, units = []) {
    this.text = text;
    this.originals = new Map(units.flatMap(([signs, texts]) => signs.map((sign, number) => [sign, texts[number]])));
  }

  /** A translation with its signs replaced by the placeholders. */
  restored(translation) {
    if (!this.originals.size) return translation;
    return translation.replace(SIGN, (sign) => this.originals.get(sign) ?? sign);
  }

  /** Spans of a translation as spans of the restored translation, in characters (code points). */
  restoredSpans(translation, spans) {
    if (!this.originals.size) return spans;
    const starts = [0];
    for (const character of translation)
      starts.push(starts.at(-1) + [...(this.originals.get(character) ?? character)].length);
    return spans.map(([start, end]) => [starts[start], starts[end]]);
  }
}

export class Placeholders {
  #patterns;
  #compiled = new Map();

  /**
   * @param {object} settings - What text_settings in browser/text.py returns. Throws Error in a browser whose
   *   regular expressions cannot look behind.
   */
  constructor({ patterns, signs }) {
    try {
      new RegExp("(?<!a)b", "u");
    } catch {
      throw new Error("this browser is too old: its regular expressions cannot look behind (Safari before 16.4)");
    }
    this.#patterns = patterns;
    this.hasSigns = signs > 0;
  }

  /** The placeholders of a text, as matches; and its numbers if those are asked for. */
  find(text, withNumbers = false) {
    if (withNumbers) return [...text.matchAll(this.#pattern("placeholder_or_number"))];
    return this.mayHave(text) ? [...text.matchAll(this.#pattern("placeholder"))] : [];
  }

  mayHave(text) {
    return this.#pattern("may_be_placeholder", "u").test(text);
  }

  /** The parts of a text that are words, and between them, at odd places, those that are not translated. */
  parts(text) {
    if (!this.#pattern("may_be_kept", "u").test(text)) return [text];
    const parts = [];
    let end = 0;
    for (const { 0: kept, index } of text.matchAll(this.#pattern("kept"))) {
      parts.push(text.slice(end, index), kept);
      end = index + kept.length;
    }
    return [...parts, text.slice(end)];
  }

  wordsAlone(text) {
    return this.parts(text).map((part, number) => (number % 2 ? " " : part)).join("");
  }

  changeWords(text, change) {
    return this.parts(text).map((part, number) => (number % 2 ? part : change(part))).join("");
  }

  hasWords(text) {
    return isLetter(this.wordsAlone(text));
  }

  /** The list markers at the beginning of a line, with their white space: text/sentence_splitting.py. */
  listMarker(text) {
    const pattern = this.#pattern("list_marker", "uy");
    const marker = pattern.exec(text)?.[0] ?? "";
    const rest = text.slice(marker.length);
    if (!marker || !this.hasWords(rest)) return "";
    const isOrdinal = marker.trimEnd().endsWith(".") && /^[\p{Nd}\p{Lowercase}]/u.test(rest);
    return isOrdinal ? "" : marker;
  }

  /** Whether a text shows no character: it has only white space, invisible characters and tags. */
  isBlank(text) {
    return INVISIBLE.test(this.withoutTags(text));
  }

  /** A text with a sign in place of each placeholder that no pattern knows. */
  withoutPlaceholders(text) {
    return text.replace(this.#pattern("placeholder"), "\0");
  }

  withoutTags(text) {
    if (!text.includes("<")) return text;
    return text.replace(this.#pattern("placeholder"), (found) => (this.tag(found) ? "" : found));
  }

  /** The slash of a tag, its name, and the slash of one that closes itself, after the whole; null for another text. */
  tag(text) {
    return this.#whole("tag").exec(text);
  }

  /** The placeholders of a text in order; an opening one and its closing one are one unit, with two texts. */
  unitsOf(text, withNumbers = false) {
    const matches = this.find(text, withNumbers);
    const roles = matches.map((match) => this.#role(text, match));
    const toClose = new Map();
    for (const role of roles) if (role?.isClosing) toClose.set(role.name, (toClose.get(role.name) ?? 0) + 1);
    const found = [];
    const opened = []; // names of open codes or marks, with their index in `found`
    matches.forEach(({ 0: one, index }, number) => {
      found.push({ texts: [one], starts: [index] });
      const { name = "", isClosing = false } = roles[number] ?? {};
      if (!isClosing) {
        if (toClose.get(name)) opened.push([name, found.length - 1]); // `<br>` is never closed
        return;
      }
      toClose.set(name, toClose.get(name) - 1);
      if (opened.at(-1)?.[0] !== name) return;
      const closing = found.pop();
      const opening = found[opened.pop()[1]];
      opening.texts.push(...closing.texts);
      opening.starts.push(...closing.starts);
    });
    return found;
  }

  /** A text with its placeholders replaced by signs, in order, until none is left for another placeholder. */
  protect(text, withNumbers = false) {
    const units = this.hasSigns ? this.unitsOf(text, withNumbers) : [];
    if (!units.length) return new Masked(text);
    const [opening, closing] = [RULES.NUM_ALONE, RULES.NUM_ALONE + RULES.NUM_PAIRS];
    const free = [
      SIGNS.slice(0, opening).map((sign) => [sign]),
      SIGNS.slice(opening, closing).map((sign, number) => [sign, SIGNS[closing + number]]),
    ].map((all) => all.filter((signs) => signs.every((one) => !text.includes(one))));
    const signsOf = new Map();
    const placed = [];
    for (const { texts, starts } of units) {
      const name = JSON.stringify(texts);
      if (!signsOf.has(name)) signsOf.set(name, free[texts.length - 1].shift());
      const signs = signsOf.get(name);
      if (signs) placed.push({ signs, texts, starts });
    }
    const spots = placed.flatMap(({ signs, texts, starts }) => starts.map((at, n) => [at, texts[n], signs[n]]));
    let [masked, end] = ["", 0];
    for (const [at, old, one] of spots.sort(([a], [b]) => a - b)) {
      masked += text.slice(end, at) + one;
      end = at + old.length;
    }
    return new Masked(masked + text.slice(end), placed.map(({ signs, texts }) => [signs, texts]));
  }

  #role(text, { 0: one, index }) {
    if (!MARKS.includes(one)) return this.#pairRole(one);
    const closing = this.#pattern("closing_mark", "uy");
    closing.lastIndex = index;
    return { name: one, isClosing: closing.test(text) };
  }

  /** The name of the pair that a code can be half of, and whether it is the closing half; null if of no pair. */
  #pairRole(code) {
    const tag = this.tag(code);
    if (tag) return tag[3] ? null : { name: `<${tag[2]}`, isClosing: tag[1] !== "" };
    const mark = this.#whole("bbcode").exec(code);
    if (mark) return { name: `[${mark[2]}`, isClosing: mark[1] !== "" };
    const half = this.#whole("rst_pair").exec(code);
    if (half) return { name: "`", isClosing: half[1] !== undefined };
    const named = this.#whole("angular").exec(code);
    if (named) return { name: named[2], isClosing: named[1] === "CLOSE" };
    if (code.startsWith("<% ")) {
      if (this.#pattern("erb_block", "uy").test(code)) return { name: "<%", isClosing: false };
      return code === "<% end %>" ? { name: "<%", isClosing: true } : null;
    }
    const statement = code.endsWith("/>}}") ? null : this.#pattern("statement", "uy").exec(code);
    return statement && { name: statement[1] + statement[3], isClosing: Boolean(statement[2]) };
  }

  /** A pattern that starts at the beginning; with the flag `y`, at its `lastIndex`. */
  #pattern(name, flags = "gu") {
    const key = `${name} ${flags}`;
    if (!this.#compiled.has(key)) this.#compiled.set(key, new RegExp(this.#patterns[name], flags));
    const pattern = this.#compiled.get(key);
    pattern.lastIndex = 0;
    return pattern;
  }

  #whole(name) {
    const key = `${name} whole`;
    if (!this.#compiled.has(key)) this.#compiled.set(key, new RegExp(`^(?:${this.#patterns[name]})$`, "u"));
    return this.#compiled.get(key);
  }
}
