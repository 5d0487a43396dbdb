// White space and letters as Python's `str` knows them; JavaScript's differ.

import { SPACE } from "../translate/words.js";

const IS_SPACE = new RegExp(`[${SPACE}]`, "u");
const SPACES = new RegExp(`[${SPACE}]{2,}`, "gu");
const LETTER = /\p{L}/u;

export const isSpace = (character) => IS_SPACE.test(character);

export const isLetter = (character) => LETTER.test(character);

/** Start and end of a text without the white space around it; both are the text's length if it is blank. */
export function innerSpan(text) {
  let [start, end] = [0, text.length];
  while (start < end && isSpace(text[start])) start++;
  if (start === end) return [end, end];
  while (isSpace(text[end - 1])) end--;
  return [start, end];
}

export const stripped = (text) => text.slice(...innerSpan(text));

/** A text with one space in place of white space of several characters. */
export const withSingleSpaces = (text) => text.replace(SPACES, " ");

// Letters such as `ǅ`, two that are written as one, by all their forms.
const TITLES = new Map();
for (let code = 0x1c4; code < 0x2000; code++) {
  const letter = String.fromCodePoint(code);
  const forms = /\p{Lt}/u.test(letter) ? [letter, letter.toLowerCase(), letter.toUpperCase()] : [];
  for (const form of forms) TITLES.set(form, letter);
}

/** A letter as it begins a word, `str.title` of Python: Georgian has capitals for whole words only. */
export const inTitleCase = (letter) =>
  TITLES.get(letter) ?? (/[\u10d0-\u10ff]/u.test(letter) ? letter : letter.toUpperCase());

/** Whether a text has a letter with a case, and all have that case. */
export const isUpperCase = (text) => /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text);
export const isLowerCase = (text) => /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text);
