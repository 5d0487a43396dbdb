/** A translated line: its sentences, their positions in source and translation, and its word alignment. */

import { isBlank, wordsOf } from "./words.js";

/**
 * Returns a line of the page from the server's answers for its consecutive parts: the whole line, or its sentences with
 * the white space around them.
 */
export function lineOf(source, answers) {
  const text = answers.map((answer) => answer.text).join("");
  const line = { source, text, sentences: [], links: [], answers };
  const words = [wordsOf(source), wordsOf(text)];
  let [from, at] = [0, 0];
  for (const answer of answers) {
    const place = { from, at };
    line.sentences.push(...sentencesOf(answer).map((one) => ({ ...moved(one, place), answer })));
    const [sourceWords, targetWords] = [wordsOf(answer.source), wordsOf(answer.text)];
    for (const [one, other] of answer.alignment ?? []) {
      if (sourceWords[one] === undefined || targetWords[other] === undefined) continue;
      line.links.push([wordAt(words[0], from + sourceWords[one][0]), wordAt(words[1], at + targetWords[other][0])]);
    }
    from += answer.source.length;
    at += answer.text.length;
  }
  return line;
}

/** Returns whether the answers so far cover the whole line. */
export const isWhole = (source, answers) => answers.reduce((length, answer) => length + answer.source.length, 0) >= source.length;

/** Number of the word that contains a character. */
function wordAt(words, place) {
  let [low, high] = [0, words.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (words[middle][0] <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}

const moved = (one, { from, at }) => ({
  ...one,
  start: one.start + at,
  end: one.end + at,
  sourceStart: one.sourceStart + from,
  sourceEnd: one.sourceEnd + from,
});

/** Sentences of an answer, each with its start and end in source and translation. */
function sentencesOf(answer) {
  const { source, text, sentences } = answer;
  // The model would not produce by itself what had to use given terms, or was taken from a memory.
  const isOwn = !(answer.terms?.length > 0) && !answer.memory?.is_reused;
  const found = [];
  let [from, at] = [0, 0];
  for (const one of sentences) {
    const start = text.indexOf(one.text, from);
    const sourceStart = source.indexOf(one.source, at);
    if (start < 0 || sourceStart < 0 || isBlank(one.source)) continue;
    from = start + one.text.length;
    at = sourceStart + one.source.length;
    found.push({ source: one.source, text: one.text, own: one.text, isOwn, start, end: from, sourceStart, sourceEnd: at });
  }
  // If a sentence cannot be found, its position would be wrong for explaining or replacing it.
  return found.length > 0 && found.length === sentences.length ? found : [wholeOf(source, text, isOwn)];
}

function wholeOf(source, text, isOwn) {
  const [sourceStart, sourceEnd] = inner(source);
  const [start, end] = inner(text);
  const own = text.slice(start, end);
  return { source: source.slice(sourceStart, sourceEnd), text: own, own, isOwn, start, end, sourceStart, sourceEnd };
}

/** Start and end of a text without the white space around it. */
function inner(text) {
  const words = wordsOf(text);
  return words.length === 0 ? [0, text.length] : [words[0][0], words[words.length - 1][1]];
}

/** Returns a line with one sentence's translation replaced; the words of that sentence lose their alignment. */
export function withSentence(line, place, text) {
  const { start, end } = line.sentences[place];
  const whole = line.text.slice(0, start) + text + line.text.slice(end);
  const longer = text.length - (end - start);
  const sentences = line.sentences.map((one, other) => {
    if (other < place) return one;
    if (other === place) return { ...one, text, end: end + longer };
    return { ...one, start: one.start + longer, end: one.end + longer };
  });
  const numWords = (part) => wordsOf(part).length;
  const [before, within] = [numWords(line.text.slice(0, start)), numWords(line.text.slice(start, end))];
  const more = numWords(text) - within;
  const links = line.links
    .filter(([, word]) => word < before || word >= before + within)
    .map(([source, word]) => [source, word < before ? word : word + more]);
  return { ...line, text: whole, sentences, links };
}
