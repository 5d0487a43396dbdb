/** Two texts compared: the words in which one differs from the other. */

import { make } from "./dom.js";
import { directionOf } from "./text.js";

/** Words of a text, those that another text has not in the same place of their common order marked. */
function differingWords(text, other) {
  const words = text.split(/\s+/u).filter(Boolean);
  const others = other.split(/\s+/u).filter(Boolean);
  // The longest common subsequence: `lengths[i][j]` is that of words from i and others from j.
  const lengths = Array.from({ length: words.length + 1 }, () => new Uint16Array(others.length + 1));
  for (let i = words.length - 1; i >= 0; i -= 1) {
    for (let j = others.length - 1; j >= 0; j -= 1) {
      const best = Math.max(lengths[i + 1][j], lengths[i][j + 1]);
      lengths[i][j] = words[i] === others[j] ? lengths[i + 1][j + 1] + 1 : best;
    }
  }
  const shared = new Set();
  for (let i = 0, j = 0; i < words.length && j < others.length; ) {
    if (words[i] === others[j]) {
      shared.add(i);
      i += 1;
      j += 1;
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return words.map((word, place) => [word, !shared.has(place)]);
}

/**
 * The text of a hypothesis, with the words marked in which it differs from the one that was chosen; of the words that
 * both have, so many stay beside those that differ.
 */
export function comparedText(text, chosen, mostCommon = Infinity) {
  if (text === "") return make("span", { class: "hypothesis" }, "(nothing)");
  const words = differingWords(text, chosen);
  const differ = (some) => some.some(([, differs]) => differs);
  const around = (place) => words.slice(Math.max(0, place - mostCommon), place + mostCommon + 1);
  const isShown = words.map((_, place) => mostCommon === Infinity || differ(around(place)));
  const parts = words.map(([word, differs], place) => {
    if (isShown[place]) return [differs ? make("mark", {}, word) : word, " "];
    return place === 0 || isShown[place - 1] ? ["… "] : [];
  });
  return make("span", { class: "hypothesis", dir: directionOf(text) }, differ(words) ? parts : text);
}
