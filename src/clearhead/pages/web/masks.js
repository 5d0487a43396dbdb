// Masks of the allowed next tokens of a sentence: decoding/token_masks.py, without prefixes and terms.
//
// Its translation has exactly the placeholders of the source, each as often: the end is not allowed before all of them
// are written, a closing one not before its opening one, and when there is just room for the missing ones, only they.
// `minLength` and `noRepeatNgramSize` take tokens away from what is then allowed, unless they would leave none.

const [NUM_ALONE, NUM_PAIRS] = [16, 8]; // text/placeholders.py

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
 * @param {{minLength: number, noRepeatNgramSize: number}} options
 * @returns {?{key: string, isEnd: boolean, bytes: function(): Uint8Array}} `bytes` has 1 for each allowed token; masks
 *   with the same key are the same; `isEnd` says that only the end is allowed.
 */
export function maskAfter(config, source, written, limit, isOver, options) {
  const [mask, avoided] = [maskByContent(config, source, written, limit, isOver), avoidedAfter(config, written, options)];
  if (!avoided.length || mask?.isEnd) return mask;
  const bytes = (mask ?? maskOf(config, [config.eos_id], true)).bytes();
  for (const token of avoided) bytes[token] = 0;
  return bytes.some(Boolean) ? { key: `${mask?.key} without ${avoided}`, isEnd: false, bytes: () => bytes } : mask;
}

function maskByContent(config, source, written, limit, isOver) {
  if (written.length + 1 === limit) return maskOf(config, [config.eos_id], false);
  const missing = placeholderIds(config, source);
  for (const token of written) {
    const at = missing.indexOf(token);
    if (at >= 0) missing.splice(at, 1);
  }
  if (!missing.length) return isOver ? maskOf(config, [config.eos_id], false) : null;
  const hasRoom = written.length + missing.length + 1 < limit;
  return maskOf(config, nextOf(config, missing, written), hasRoom && !isOver);
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
