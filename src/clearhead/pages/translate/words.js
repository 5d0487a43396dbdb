/** Lines and words of a text, numbered as in `clearhead.text.word_links`, so that word alignments match. */

import { TEXT_RULES } from "./text_rules.js";

// Of Python: white space, line ends, and the characters that are words of their own, in scripts without spaces.
export const { SPACE, LINE_END, UNSPACED } = TEXT_RULES;

const WORD = new RegExp(`[${UNSPACED}]|[^${SPACE}${UNSPACED}]+`, "gu");
const LINE = new RegExp(`[^${LINE_END}]*(?:\\r\\n|[${LINE_END}])|[^${LINE_END}]+$`, "gu");
const BLANK = new RegExp(`^[${SPACE}]*$`, "u");

/** Start and end of each word of a text. */
export const wordsOf = (text) => [...text.matchAll(WORD)].map(({ index, 0: word }) => [index, index + word.length]);

/** Lines of a text, with their line endings. */
export const linesOf = (text) => text.match(LINE) ?? [];

export const isBlank = (text) => BLANK.test(text);

/** A text with a capital letter at its beginning. */
export const upper = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

/** Number of characters, counted as the server does: a surrogate pair is one character. */
export function numCharacters(text) {
  let count = text.length;
  for (let place = 0; place < text.length - 1; place += 1) {
    if ((text.charCodeAt(place) & 0xfc00) === 0xd800 && (text.charCodeAt(place + 1) & 0xfc00) === 0xdc00) {
      count -= 1;
      place += 1;
    }
  }
  return count;
}
