/** Lines and words of a text, numbered as in `clearhead.text.word_links`, so that word alignments match. */

/** Scripts without spaces between words, in which every character counts as a word; as in `text/languages.py`. */
const UNSPACED =
  "\u0e00-\u109f\u1780-\u17ff\u19e0-\u19ff\u2e80-\u2fff\u3001-\u312f\u31a0-\u31ff\u3400-\u9fff\ua9e0-\ua9ff" +
  "\uaa60-\uaa7f\uf900-\ufaff\uff00-\uff9f\u{116d0}-\u{116ff}\u{1aff0}-\u{1afff}\u{1b000}-\u{1b16f}\u{20000}-\u{3ffff}";
/** White space as in Python, which differs from that of JavaScript. */
export const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const LINE_END = "\\n\\v\\f\\r\\x1c-\\x1e\\x85\\u2028\\u2029";

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
