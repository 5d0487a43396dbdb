// Character spans of tokens: tokenizers/learned.py, tokenizers/spans.py and inspection/tokens.py.
//
// A span is the number of its first character, and of the one after its last. As in Python, characters are code points.

import { isSpace } from "./characters.js";
import { RULES } from "./rules.js";

const SPACE_NAME = "\u0120"; // as the byte level writes a space
const UNREADABLE = "\ufffd"; // part of a character

const utf8Length = (code) => (code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4);

/** The span of each id in the text that was tokenized; an id that is not text has an empty one. */
export function tokenSpans(vocabulary, ids, text) {
  // A model may have written part of a character, fewer bytes than U+FFFD.
  if (text.includes(UNREADABLE)) return matchedSpans(vocabulary, ids, text);
  const places = []; // the character of each byte
  let length = 0;
  for (const character of text) {
    for (let bytes = utf8Length(character.codePointAt(0)); bytes > 0; bytes--) places.push(length);
    length++;
  }
  places.push(length);
  const end = places.length - 1;
  let [at, isFirst] = [0, true];
  return ids.map((id) => {
    let size = 0;
    if (!vocabulary.special.has(id)) {
      const name = vocabulary.names[id];
      const isSign = vocabulary.signs.has(name);
      // A space was put before the text, but a model may leave it out. One character of a name is one byte.
      size = isSign ? utf8Length(name.codePointAt(0)) : name.length - Number(isFirst && name.startsWith(SPACE_NAME));
      isFirst = isSign;
    }
    const [from, until] = [Math.min(at, end), Math.min(at + size, end)];
    at += size;
    return [places[from], until > from ? places[until - 1] + 1 : places[from]];
  });
}

/**
 * The span of each id in the text with its placeholders restored, without the spaces around it; null for an id without
 * text. This is Reader.source_spans and Reader.target_spans of inspection/tokens.py.
 * @param {Masked} masked - The source with signs in place of placeholders (placeholders.js).
 * @param {string} [text] - The text that was tokenized: the source, or a target with signs.
 */
export function shownSpans(vocabulary, masked, ids, text = masked.text) {
  const characters = [...masked.restored(text)];
  return masked.restoredSpans(text, tokenSpans(vocabulary, ids, text)).map(([start, end]) => {
    if (start >= end) return null;
    const [from, until] = within(characters, start, end);
    return from < until ? [from, until] : [start, end];
  });
}

/** A span without the spaces at its ends; an empty one at its end if it is blank. */
function within(characters, from, until) {
  while (from < until && isSpace(characters[from])) from++;
  while (until > from && isSpace(characters[until - 1])) until--;
  return [from, until];
}

/** Spans found by matching the pieces; one with no match nearby gets the text between its neighbours. */
function matchedSpans(vocabulary, ids, text) {
  const characters = [...text];
  const pieces = vocabulary.pieces(ids).map((piece, number) => {
    const own = vocabulary.special.has(ids[number]) ? [] : [...piece];
    return own.slice(...within(own, 0, own.length));
  });
  const [folded, places] = foldedOf(characters);
  let at = 0;
  const found = pieces.map((piece) => {
    const own = foldedOf(piece)[0];
    if (!own) return [at, at];
    const start = own.includes(UNREADABLE) ? -1 : folded.slice(at, at + own.length + RULES.FARTHEST).indexOf(own);
    if (start < 0) return null;
    const from = at + start;
    at = from + own.length;
    return [from, at];
  });
  const limits = []; // for each piece, where the next piece with a match begins
  let following = folded.length;
  for (let number = found.length - 1; number >= 0; number--) {
    if (found[number] && pieces[number].length) following = found[number][0];
    limits[number] = following;
  }
  let end = 0;
  return found.map((span, number) => {
    if (span === null) return within(characters, places[end], places[limits[number]]);
    if (span[0] === span[1]) return [places[span[0]], places[span[0]]];
    [, end] = span;
    return [places[span[0]], places[end - 1] + 1];
  });
}

/** Characters in a form without case and compatibility variants, and the original place of each of its code units. */
function foldedOf(characters) {
  const places = [];
  const parts = characters.map((character, place) => {
    const simple = character.normalize("NFKC").toUpperCase().toLowerCase() || character;
    for (let unit = 0; unit < simple.length; unit++) places.push(place);
    return simple;
  });
  places.push(characters.length);
  return [parts.join(""), places];
}
