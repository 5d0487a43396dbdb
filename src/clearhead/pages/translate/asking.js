/** Translation as you type: each line is requested once, and only the latest text is answered. */

import { isWhole, lineOf } from "./lines.js";
import { detectLanguage, translateTexts } from "./server.js";
import { isBlank, linesOf } from "./words.js";

/** Maximum number of lines in the cache of translations. */
const MOST_KNOWN = 5_000;

/** Handles one request at a time: a new one aborts the previous one, which then returns null. */
export class Asking {
  #controller = new AbortController();
  /** Translated lines, by request. */
  #known = new Map();
  /** Lines without a translation: blank lines, and lines not translated yet. */
  #untranslated = new Map();
  #mostTexts;

  /** `mostTexts` is the maximum number of texts in a request. */
  constructor(mostTexts) {
    this.#mostTexts = mostTexts;
  }

  /** Aborts the current request. */
  stop() {
    this.#controller.abort();
  }

  /** Clears the cache, so that every line is requested again. */
  forget() {
    this.#known.clear();
  }

  /** Detects the language of a text. */
  detect(text) {
    return this.#only((signal) => detectLanguage(text, signal));
  }

  /**
   * Translates a text and returns true. Calls `take` with all lines, translated as far as possible, whenever more of
   * them are translated. An unchanged line is passed as the same object.
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

  /** Replaces the translation of a line, until the cache is cleared. */
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

/** Returns a function that runs `work` for at most a third of the time, since laying out a long text is slow. */
function seldom(work) {
  let next = 0;
  return () => {
    const begin = performance.now();
    if (begin < next) return;
    work();
    next = performance.now() + 2 * (performance.now() - begin);
  };
}

/** Cache key of a line's translation. */
const nameOf = (line, fields) => JSON.stringify([fields, line]);

/** Placeholder for a line without a translation: a blank line as it is, otherwise only its line ending. */
function untranslated(line) {
  const text = isBlank(line) ? line : hasEnd(line) ? "\n" : "";
  return { source: line, text, sentences: [], links: [], answers: [] };
}

const hasEnd = (line) => linesOf(`${line}x`).length > 1;
