// The words of a text, with their tokens: `token_words` in inspection/tokens.py.

import { stripped } from "./characters.js";
import { RULES } from "./rules.js";
import { charactersOf } from "./scripts.js";

const WORD_OF_ITS_OWN = new RegExp(`[${charactersOf(RULES.WITHOUT_SPACES)}]`, "u");
const ZERO_WIDTH_JOINER = "\u200d";

/**
 * Return the words that have tokens, in order: runs of characters between spaces; in scripts without spaces, tokens.
 * @param {string} text
 * @param {([number, number] | null)[]} spans - Span of each token, in code points.
 * @returns {{text: string, span: number[], tokens: number[]}[]}
 */
export function tokenWords(text, spans) {
  const characters = [...text];
  const part = (start, end) => characters.slice(start, end).join("");
  const words = [];
  spans.forEach((span, token) => {
    if (span === null || !stripped(part(...span))) return;
    const last = words.at(-1);
    if (last && areOneWord(characters, last.span, span)) {
      last.span = [last.span[0], Math.max(last.span[1], span[1])];
      last.tokens.push(token);
    } else words.push({ span, tokens: [token] });
  });
  return words.map(({ span, tokens }) => ({ text: part(...span), span, tokens }));
}

function areOneWord(characters, [, end], [start]) {
  if (start < end) return true; // parts of the same character, or of a text that was not located piece by piece
  const [last, first] = [characters[end - 1], characters[start]];
  const isJoined = last === ZERO_WIDTH_JOINER || first === ZERO_WIDTH_JOINER || /\p{M}/u.test(first); // as in emoji
  return start === end && (isJoined || (joins(last) && joins(first)));
}

/** Whether a character forms words with its neighbours; spaces, punctuation and letters such as 犬 do not. */
function joins(character) {
  return /[\p{L}\p{M}\p{N}]/u.test(character) && !(/\p{Lo}/u.test(character) && WORD_OF_ITS_OWN.test(character));
}
