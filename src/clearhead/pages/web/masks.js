// Masks of the allowed next tokens of a sentence: decoding/token_masks.py, without prefixes and terms.
//
// Its translation has exactly the placeholders of the source, each as often: the end is not allowed before all of them
// are written, a closing one not before its opening one, and when there is just room for the missing ones, only they.
// `minLength` and `noRepeatNgramSize` take tokens away from what is then allowed, unless they would leave none.

import { RULES } from "./rules.js";

const { NUM_ALONE, NUM_PAIRS, NUM_STATES, NUM_ROOMS } = RULES;

/** The tokens that are parts of characters, and what may follow them: decoding/utf8.py. */
export class CharacterParts {
  /** @param {{needed: number[], next: Object<string, number[]>}} settings - `utf8` of browser/text.py. */
  constructor({ needed, next }, { vocab_size: size, never_written: never }) {
    Object.assign(this, { needed, size, never });
    this.nextStates = new Int8Array(NUM_STATES * size).fill(-1).fill(0, 0, size);
    for (const [token, states] of Object.entries(next))
      states.forEach((state, from) => (this.nextStates[from * size + Number(token)] = state));
    this.masks = new Uint8Array(NUM_ROOMS * NUM_STATES * size); // [room][state][token]
    for (let room = 0; room < NUM_ROOMS; room++)
      this.nextStates.forEach((state, at) => {
        if (state >= 0 && needed[state] <= room) this.masks[room * NUM_STATES * size + at] = 1;
      });
    this.written = this.masks.slice(); // of tokens that are ever written
    for (let at = 0; at < this.written.length; at += size) for (const token of never) this.written[at + token] = 0;
  }

  /** The state after some tokens. */
  state(tokens) {
    return tokens.reduce((state, token) => this.nextStates[state * this.size + token], 0);
  }

  /** A mask of `maskAfter` without the tokens that would leave a character incomplete; within one, of its rest alone. */
  restrict(mask, tokens, room) {
    const state = this.state(tokens);
    if (mask?.isEnd && !state) return mask;
    const number = Math.max(0, Math.min(room, NUM_ROOMS - 1)) * NUM_STATES + state;
    const of = (masks) => masks.subarray(number * this.size, (number + 1) * this.size);
    const bytes = state ? null : mask?.bytes().map((allowed, token) => allowed & of(this.masks)[token]);
    return bytes?.some(Boolean)
      ? { key: `${mask.key} in ${number}`, isEnd: false, bytes: () => bytes }
      : { key: `${number}`, isEnd: false, bytes: () => of(this.written) };
  }
}

/** The placeholders in a source, each as often as it is there. */
export function placeholderIds({ vocab_size: size, num_placeholders: count }, source) {
  return count ? source.filter((id) => id >= size - count) : [];
}

/**
 * What may follow a beginning: null for any token that is ever written, or a mask.
 * @param {object} config - The settings of the model.
 * @param {number[]} source - Source ids.
 * @param {number[]} written - Ids of the translation so far.
 * @param {number} limit - Tokens of the translation at most, the end token included.
 * @param {boolean} isOver - Whether it must end, since it is caught in a repetition loop.
 * @param {{minLength: number, noRepeatNgramSize: number, parts: ?CharacterParts}} options
 * @returns {?{key: string, isEnd: boolean, bytes: function(): Uint8Array}} `bytes` has 1 for each allowed token; masks
 *   with the same key are the same; `isEnd` says that only the end is allowed.
 */
export function maskAfter(config, source, written, limit, isOver, options) {
  const mask = maskWithin(config, source, written, limit, isOver, options);
  const room = limit - written.length - 2 - missingAfter(config, source, written).length;
  return options.parts ? options.parts.restrict(mask, written, room) : mask;
}

function maskWithin(config, source, written, limit, isOver, options) {
  const [mask, avoided] = [maskByContent(config, source, written, limit, isOver), avoidedAfter(config, written, options)];
  if (!avoided.length || mask?.isEnd) return mask;
  const bytes = (mask ?? maskOf(config, [config.eos_id], true)).bytes();
  for (const token of avoided) bytes[token] = 0;
  return bytes.some(Boolean) ? { key: `${mask?.key} without ${avoided}`, isEnd: false, bytes: () => bytes } : mask;
}

function maskByContent(config, source, written, limit, isOver) {
  if (written.length + 1 === limit) return maskOf(config, [config.eos_id], false);
  const missing = missingAfter(config, source, written);
  if (!missing.length) return isOver ? maskOf(config, [config.eos_id], false) : null;
  const hasRoom = written.length + missing.length + 1 < limit;
  return maskOf(config, nextOf(config, missing, written), hasRoom && !isOver);
}

/** The placeholders of a source that are not yet written. */
function missingAfter(config, source, written) {
  const missing = placeholderIds(config, source);
  for (const token of missing.length ? written : []) {
    const at = missing.indexOf(token);
    if (at >= 0) missing.splice(at, 1);
  }
  return missing;
}

/** The tokens that `minLength` and `noRepeatNgramSize` take away. */
function avoidedAfter(config, written, { minLength, noRepeatNgramSize: size }) {
  const avoided = written.length + 1 < minLength ? [config.eos_id] : [];
  const last = written.length - size + 1;
  for (let at = 0; size && at < last; at++)
    if (!placeholderIds(config, [written[at + size - 1]]).length
      && written.slice(last).every((token, n) => token === written[at + n])) avoided.push(written[at + size - 1]);
  return avoided;
}

/** The missing placeholders allowed next; all of them if the source closes what it never opened. */
function nextOf({ vocab_size: size, num_placeholders: count }, missing, written) {
  const opening = size - count + NUM_ALONE;
  const closing = opening + NUM_PAIRS;
  const opened = [];
  for (const token of written)
    if (token >= closing) opened.pop();
    else if (token >= opening) opened.push(token);
  const next = missing.filter((token) => token < closing || opened.at(-1) === token - NUM_PAIRS);
  return next.length ? next : missing;
}

function maskOf(config, tokens, allowsText) {
  const different = [...new Set(tokens)].sort((one, other) => one - other);
  return {
    key: `${allowsText} ${different}`,
    isEnd: different.length === 1 && different[0] === config.eos_id,
    bytes() {
      const bytes = new Uint8Array(config.vocab_size).fill(Number(allowsText));
      if (allowsText) for (const token of [...config.never_written, config.eos_id]) bytes[token] = 0;
      for (const token of different) bytes[token] = 1;
      return bytes;
    },
  };
}
