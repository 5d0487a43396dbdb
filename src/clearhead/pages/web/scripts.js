// Scripts of letters: text/languages.py, which takes them from the names of letters, here from their property.
//
// A letter of a script that is not listed, or whose name does not begin with its script (`ª`, `ʰ`), differs.

import { RULES } from "./rules.js";

const NAMES =
  "Latin Cyrillic Greek Han Hiragana Katakana Hangul Arabic Hebrew Devanagari Thai Armenian Georgian Bengali " +
  "Gurmukhi Gujarati Oriya Tamil Telugu Kannada Malayalam Sinhala Lao Tibetan Myanmar Khmer Ethiopic Mongolian " +
  "Bopomofo Syriac Thaana Cherokee Yi";
const SCRIPTS = NAMES.split(" ").map((name) => [name.toUpperCase(), new RegExp(`[${charactersOf([name])}]`, "u")]);
const CHINESE_AND_JAPANESE = new RegExp(`[${charactersOf(RULES.CHINESE_AND_JAPANESE)}]`, "u");
const scripts = new Map();

/** The script of a letter, such as `LATIN`; null for another character. */
export function scriptOf(letter) {
  if (!scripts.has(letter)) {
    const found = /\p{L}/u.test(letter) ? (SCRIPTS.find(([, pattern]) => pattern.test(letter))?.[0] ?? "OTHER") : null;
    if (scripts.size > 10_000) scripts.clear();
    scripts.set(letter, found);
  }
  return scripts.get(letter);
}

/** The characters of some scripts, for a set in a pattern; Unicode counts the sign of long vowels to no script. */
export function charactersOf(names) {
  const inScript = (name) => `\\p{Script=${name[0].toUpperCase()}${name.slice(1).toLowerCase()}}`;
  return names.map((name) => inScript(name) + (/^katakana$/iu.test(name) ? "ーｰ" : "")).join("");
}

export const scriptsOf = (characters) => new Set([...characters].map(scriptOf).filter(Boolean));

/** Whether one of the letters is of a script without spaces between sentences. */
export const isUnspaced = (...letters) => letters.some((letter) => CHINESE_AND_JAPANESE.test(letter));
