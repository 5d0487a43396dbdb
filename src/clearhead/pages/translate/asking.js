/** The translation of a text, as it is typed: each line is asked for once, and only the last text is answered. */

import { isWhole, lineOf } from "./lines.js";
import { detectLanguage, translateTexts } from "./server.js";
import { isBlank, linesOf } from "./words.js";

/** Lines whose translations are known at once. */
const MOST_KNOWN = 5_000;

/** Asks for one text at a time: whoever asks anew breaks off what was asked before, and that returns null. */
export class Asking {
  #controller = new AbortController();
  /** Lines that are translated, by what was asked. */
  #known = new Map();
  /** Lines without a translation: blank ones, and those that are not there yet. */
  #untranslated = new Map();
  #mostTexts;

  /** `mostTexts` is how many texts one request may have. */
  constructor(mostTexts) {
    this.#mostTexts = mostTexts;
  }

  /** Breaks off. */
  stop() {
    this.#controller.abort();
  }

  /** Forgets what is known, so that all is asked anew. */
  forget() {
    this.#known.clear();
  }

  /** The language of a text. */
  detect(text) {
    return this.#only((signal) => detectLanguage(text, signal));
  }

  /**
   * Translates a text: calls back with its lines, as far as they are known, whenever there are more. A line is the same
   * object as long as it is the same line. Returns true.
   */
  translate(text, fields, take) {
    return this.#only(async (signal) => {
      if (this.#known.size > MOST_KNOWN) this.forget();
      this.#untranslated.clear();
      const lines = linesOf(text);
      const missing = [...new Set(lines)].filter((line) => !isBlank(line) && !this.#known.has(nameOf(line, fields)));
      const partly = new Map();
      const known = (line) => this.#known.get(nameOf(line, fields)) ?? partly.get(line)?.() ?? this.#without(line);
      const show = seldom(() => !signal.aborted && take(lines.map(known)));
      for (let from = 0; from < missing.length && !signal.aborted; from += this.#mostTexts) {
        const asked = missing.slice(from, from + this.#mostTexts);
        const answers = asked.map(() => []);
        await translateTexts({ ...fields, text: asked }, signal, (answer) => {
          const [line, parts] = [asked[answer.index], answers[answer.index]];
          parts.push(answer);
          if (isWhole(line, parts)) this.#known.set(nameOf(line, fields), lineOf(line, parts));
          else partly.set(line, () => lineOf(line, [...parts]));
          show();
        });
      }
      if (!signal.aborted) take(lines.map(known));
      return true;
    });
  }

  /** Has a line translated otherwise from now on, until all is forgotten. */
  replace(line, fields) {
    this.#known.set(nameOf(line.source, fields), line);
  }

  async #only(work) {
    this.stop();
    this.#controller = new AbortController();
    const { signal } = this.#controller;
    try {
      const found = await work(signal);
      return signal.aborted ? null : found;
    } catch (error) {
      if (signal.aborted) return null;
      throw error;
    }
  }

  #without(line) {
    if (!this.#untranslated.has(line)) this.#untranslated.set(line, untranslated(line));
    return this.#untranslated.get(line);
  }
}

/** Returns what does something at most a third of the time, since a long text takes long to lay out. */
function seldom(work) {
  let next = 0;
  return () => {
    const begin = performance.now();
    if (begin < next) return;
    work();
    next = performance.now() + 2 * (performance.now() - begin);
  };
}

/** What the translation of a line is known by. */
const nameOf = (line, fields) => JSON.stringify([fields, line]);

/** A blank line is its own translation; of one that is not there yet only the end is. */
function untranslated(line) {
  const text = isBlank(line) ? line : hasEnd(line) ? "\n" : "";
  return { source: line, text, sentences: [], links: [], answers: [] };
}

const hasEnd = (line) => linesOf(`${line}x`).length > 1;
