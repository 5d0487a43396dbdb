/** Differences between two texts, word by word. */

import { make } from "./dom.js";
import { directionOf } from "./text.js";

/** Words of a text; words outside the longest common subsequence with another text are marked. */
function differingWords(text, other) {
  const words = text.split(/\s+/u).filter(Boolean);
  const others = other.split(/\s+/u).filter(Boolean);
  // Longest common subsequence: `lengths[i][j]` is its length for words from i and others from j.
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
 * Returns the text of a hypothesis, with the words marked that differ from the chosen one. At most `mostCommon` common
 * words are kept on each side of a difference.
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
