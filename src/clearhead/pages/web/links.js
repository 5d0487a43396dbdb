// Word links from cross-attention: text/word_links.py, decoding/cross_attention.py and translation/alignment.py.

import { numCharacters, wordsOf } from "../translate/words.js";
import { RULES } from "./rules.js";

/** Spans of the words of a text, in characters (code points). */
export function wordSpans(text) {
  const spans = wordsOf(text);
  if (numCharacters(text) === text.length) return spans;
  const places = new Int32Array(text.length + 1);
  let number = 0;
  for (let at = 0; at < text.length; number++) {
    places[at] = number;
    at += text.codePointAt(at) > 0xffff ? 2 : 1;
  }
  places[text.length] = number;
  return spans.map(([start, end]) => [places[start], places[end]]);
}

/**
 * The attention of each target token to the source tokens, by the head that aligns words.
 * @param {{values: Float32Array, shape: number[]}} cross - Cross-attention [layers, heads, target, source].
 * @param {{layer: ?number, head: ?number, is_reading: boolean}} head - As in decoding/cross_attention.py.
 * @returns {Float64Array[]} A row for each target token.
 */
export function attentionOfHead({ values, shape: [layers, heads, targets, sources] }, { layer, head, is_reading }) {
  const chosen = [];
  for (let l = layer ?? 0; l < (layer === null ? layers : layer + 1); l++)
    for (let h = head ?? 0; h < (head === null ? heads : head + 1); h++) chosen.push(l * heads + h);
  return Array.from({ length: targets }, (_, number) => {
    // No step reads the last token, the end token. No word is aligned by it.
    const step = is_reading && layer !== null ? Math.min(number + 1, targets - 1) : number;
    const row = new Float64Array(sources);
    for (const one of chosen)
      for (let s = 0; s < sources; s++) row[s] += values[(one * targets + step) * sources + s] / chosen.length;
    return row;
  });
}

/**
 * Pairs of a source word and a target word, counted from 0, in ascending order.
 * @param {Float64Array[]} weights - Attention of each target token to the source tokens.
 * @param {number[][]} sourceTokens - Span of each source token in its text, like the three that follow.
 */
export function linkWords(weights, sourceTokens, targetTokens, sourceWords, targetWords) {
  const [ofSource, ofTarget] = [sharesOf(sourceWords, sourceTokens), sharesOf(targetWords, targetTokens)];
  const looks = targetWords.map(() => new Float64Array(sourceWords.length));
  weights.forEach((row, token) => {
    if (!ofTarget[token].length) return;
    const ofWords = new Float64Array(sourceWords.length);
    row.forEach((weight, source) => ofSource[source].forEach(([word, share]) => (ofWords[word] += weight * share)));
    for (const [word, share] of ofTarget[token])
      ofWords.forEach((look, source) => (looks[word][source] += share * look));
  });
  const received = new Float64Array(sourceWords.length).fill(RULES.UNLOOKED);
  for (const row of looks) {
    const sum = row.reduce((total, look) => total + look, 0);
    row.forEach((look, source) => (received[source] += row[source] = sum > 0 ? look / sum : 0));
  }
  const links = [];
  looks.forEach((row, target) => {
    const shares = row.map((look, source) => look / received[source]);
    const most = shares.reduce((best, share) => Math.max(best, share), 0);
    if (most > 0) shares.forEach((share, source) => share >= most * RULES.NEARLY && links.push([source, target]));
  });
  return sorted(links);
}

/** The links of a line from those of its sentences; see joined_links in text/word_links.py. */
export function joinedLinks(links, sources, targets, source, target) {
  const [ofSources, ofTargets] = [wordsIn(source, sources), wordsIn(target, targets)];
  const found = new Map();
  links.forEach((some, number) => {
    for (const [one, other] of some) {
      const link = [ofSources[number][one], ofTargets[number][other]];
      found.set(link.join(), link);
    }
  });
  return sorted([...found.values()]);
}

const sorted = (links) => links.sort(([a, b], [c, d]) => a - c || b - d);

/** For each word of each part, the number of the word of the whole text in which it begins. */
function wordsIn(whole, parts) {
  const ofCharacters = wordsOf(whole).flatMap(([start, end], number) => Array(end - start).fill(number));
  let at = 0;
  return parts.map((part) =>
    wordsOf(part).map(([start, end]) => {
      at += end - start;
      return ofCharacters[at - (end - start)];
    }),
  );
}

/** For each token, the words that it overlaps, each with the share of the token's characters in it. */
function sharesOf(words, tokens) {
  let first = 0;
  return tokens.map(([start, end]) => {
    const shares = [];
    while (first < words.length && words[first][1] <= start) first++;
    for (let word = first; word < words.length; word++) {
      const common = Math.min(end, words[word][1]) - Math.max(start, words[word][0]);
      if (common <= 0) break;
      shares.push([word, common / (end - start)]);
    }
    return shares;
  });
}
