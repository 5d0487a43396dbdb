// Sentences of a line, and lines from translated sentences: text/sentence_splitting.py.
//
// Where Python asks sentencex for the ends of sentences, this asks the browser (Intl.Segmenter, the rules of Unicode).
// Doubtful ends are then ignored as in Python. What differs:
// - Unicode's rules know no abbreviations: a line ends after one that is not in the short list below.
// - They end a sentence between a full stop and a quotation mark that closes it after a space (`. "`).
// - They end one before a digit, and after a closing bracket or quotation mark, where sentencex often does not.
// Of the 8,461 ends that Python finds in paragraphs of five lines (Multi30k, newstest2013 in German, English and
// French, Tanaka in Japanese, Python's documentation in two languages, the Bible in German), 9 are missed, and 166 are
// added.
// A browser without Intl.Segmenter keeps every line whole; one that is too long for the model is cut there and flagged.

import { innerSpan, isLetter, isLowerCase, isSpace, isUpperCase, stripped } from "./characters.js";
import { RULES } from "./rules.js";
import { isUnspaced, scriptOf } from "./scripts.js";

// Sentencex has lists of hundreds in each language.
const ABBREVIATIONS =
  "Dr Mr Mrs Ms Mme Mlle Prof St Ste Sr Sra Jr Nr Mio Mrd bzw ca vgl sog ggf vs Hr Lt Capt Sgt Rev Gov Sen";
const ABBREVIATION = new RegExp(`(?:^|[^\\p{L}\\p{N}_])(?:${ABBREVIATIONS.replaceAll(" ", "|")})\\.\\s*$`, "iu");
const DASH = new RegExp(`^${RULES.DASH}`, "u");
const BEGINNING = new RegExp(RULES.BEGINNING, "gu");
const OPENING = /\p{Ps}/u;
const TAIL = 200; // characters at the end of a sentence in which an initial or ordinal is looked for
const segmenters = new Map();
const patterns = new Map();

/**
 * The sentences of a line and the white space between them, as CutLine in Python.
 * @param {?string} language - Code of its language, such as `de`; null if it is unknown.
 */
export function cutLine(text, language) {
  const pieces = splitSentences(text, language);
  if (pieces.length === 1) return { sentences: [text], gaps: [] };
  const spans = pieces.map(innerSpan);
  const gaps = pieces.slice(1).map((after, number) =>
    pieces[number].slice(spans[number][1]) + after.slice(0, spans[number + 1][0]));
  return { sentences: pieces.map(stripped), gaps };
}

/** Sentences, each with the white space that follows it. */
function splitSentences(text, language) {
  const segmenter = segmenterOf(language ?? (/\p{Script=Greek}/u.test(text) ? "el" : "en"));
  if (segmenter === null) return [text];
  const isEnglish = language?.toLowerCase().split(/[-_]/)[0].startsWith("en") ?? false;
  const capitals = new Set([...new Set(text)].filter(isUpperCase).map(scriptOf));
  const sentences = [];
  let [start, at] = [0, 0];
  let [letter, ends] = ["", false]; // the last letter since `start`, and whether a sentence may end here
  const plain = isLowerCase(text) ? text.replace(BEGINNING, withCapital) : text;
  for (const { index, segment } of segmenter.segment(plain)) {
    let end = index + segment.length;
    while (end < text.length && end > at && OPENING.test(text[end - 1])) end--; // it opens the next sentence
    const piece = text.slice(at, end);
    const first = firstLetter(piece);
    const isApart = at > 0 && (isSpace(text[at - 1]) || isUnspaced(letter, first));
    const said = patternOf(RULES.SAID, "uy");
    said.lastIndex = at;
    const goesOn = !stripped(piece) || DASH.test(piece) || said.test(text) || continues(letter, first, capitals);
    if (ends && letter && isApart && !goesOn) {
      sentences.push(text.slice(start, at));
      [start, letter] = [at, ""];
    }
    at += piece.length;
    letter = lastLetter(piece) || letter;
    const tail = piece.slice(-TAIL);
    const unfinished = [RULES.INITIAL, ...(isEnglish ? [] : [RULES.ORDINAL])].map((source) => patternOf(source, "u"));
    ends = ![ABBREVIATION, ...unfinished].some((pattern) => pattern.test(tail));
  }
  if (letter || !sentences.length) return [...sentences, text.slice(start)];
  return [...sentences.slice(0, -1), sentences.at(-1) + text.slice(start)];
}

/** The translations of a line's sentences, with the white space of the source line between them. */
export function joinSentences(texts, gaps) {
  return texts.slice(1).reduce((line, text, number) => line + spaceBefore(text, line, gaps[number]) + text, texts[0]);
}

/** The white space between the translation of a sentence and `line`, those of the sentences before it. */
export function spaceBefore(text, line, gap) {
  if (!line || !text) return "";
  return isUnspaced(lastLetter(line.slice(-RULES.NEAR)) || firstLetter(text)) ? gap.replace(/\p{Zs}/gu, "") : gap || " ";
}

/** A pattern of Python that looks behind, made when it is needed, as not every browser can (placeholders.js). */
function patternOf(source, flags) {
  if (!patterns.has(source)) patterns.set(source, new RegExp(source, flags));
  return patterns.get(source);
}

function segmenterOf(language) {
  if (typeof Intl.Segmenter !== "function") return null;
  const code = language.toLowerCase().split(/[-_]/)[0];
  if (!segmenters.has(code)) segmenters.set(code, new Intl.Segmenter(code, { granularity: "sentence" }));
  return segmenters.get(code);
}

/** Whether a letter continues a sentence: a small one, in a text with capitals of its script. */
function continues(before, first, capitals) {
  if (!/\p{Lowercase}/u.test(first)) return false;
  const script = scriptOf(first);
  return (!before || scriptOf(before) === script) && capitals.has(script);
}

/** What may begin a sentence with its letter as a capital, as the rules expect. */
function withCapital(beginning) {
  const letter = lastLetter(beginning);
  const capital = letter.toUpperCase();
  return capital.length === letter.length ? beginning.slice(0, -letter.length) + capital : beginning;
}

const firstLetter = (text) => /\p{L}/u.exec(text)?.[0] ?? "";

/** The last letter; looked for from the end, since most of a text has letters. */
function lastLetter(text) {
  for (let at = text.length - 1; at >= 0; at--) {
    const isPair = at > 0 && text.charCodeAt(at) >> 10 === 0x37; // the second half of a character of two units
    const character = isPair ? text.slice(at - 1, at + 1) : text[at];
    if (isLetter(character)) return character;
    if (isPair) at--;
  }
  return "";
}
