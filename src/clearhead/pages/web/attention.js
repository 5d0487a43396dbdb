// A pass over a given source and target, all positions at once, by the core: decoding/native/engine.py.

import { makePositions, runTargets } from "./scoring.js";

/** What `forcedPass` can return. */
export const ALL_OF_A_PASS = ["encoder", "decoder", "cross", "states", "vectors"];

/**
 * Return what a pass computed.
 * @param {Weights} weights
 * @param {number[]} source - Source ids, ended by eos.
 * @param {number[]} target - Target ids, ended by eos.
 * @param {string[]} wanted - Some of `ALL_OF_A_PASS`.
 * @returns {object} Of what is wanted: the attentions `encoder`, `decoder` and `cross`, each `{ values, shape }` with a
 *   Float32Array and its shape [layers, heads, rows, columns], where row t of `decoder` and of `cross` is the step that
 *   writes target token t; `states: { encoder, decoder }` of shape [layers + 1, tokens, D], as `HiddenStates` in
 *   model/recorder.py; `vectors: { encoder, decoder, cross }` with `queries`, `keys` and `values` of shape [layers, heads,
 *   tokens, width]. Throws RangeError if a side has no ids, an id is not in its vocabulary, or the model has fewer
 *   positions.
 */
export function forcedPass(weights, source, target, wanted) {
  const { core, config, panel } = weights;
  if (!source.length || !target.length) throw new RangeError("a side has no ids, not even the end token");
  for (const id of target)
    if (!(id >= 0 && id < config.vocab_size))
      throw new RangeError(`id ${id} is not in the vocabulary of ${config.vocab_size}`);
  const longest = makePositions(weights, [source], [target]); // before what is freed at the end
  const before = core.end;
  const { num_heads: heads, key_dim: keyWidth, value_dim: valueWidth } = config;
  const padded = (width) => Math.ceil(width / panel) * panel;
  const [qkvWidth, queryWidth] = [padded(heads * (2 * keyWidth + valueWidth)), padded(heads * keyWidth)];
  const sides = {
    encoder: { rows: source.length, layers: config.num_encoder_layers, columns: source.length },
    decoder: { rows: target.length, layers: config.num_decoder_layers, columns: longest },
  };
  const room = (name, count) => (wanted.includes(name) ? core.zeros(4 * count) : 0);
  try {
    for (const [name, side] of Object.entries(sides))
      side.record = {
        states: room("states", (side.layers + 1) * side.rows * config.d_model),
        qkv: room("vectors", side.layers * side.rows * qkvWidth),
        self_attn: room(name, side.layers * heads * side.rows * side.columns),
      };
    const { encoder, decoder } = sides;
    decoder.record.queries = room("vectors", decoder.layers * decoder.rows * queryWidth);
    decoder.record.cross_attn = room("cross", decoder.layers * heads * decoder.rows * longest);
    const [memory] = weights.encode([source], { record: encoder.record });
    runTargets(weights, [{ memory, source, target }], { record: decoder.record });

    const found = {};
    const weightsOf = (at, { layers, rows }, columns, stride) =>
      ofRows([layers, heads, rows, columns], (layer, head, row) =>
        core.floats(at + 4 * ((layer * heads + head) * rows + row) * stride, columns));
    if (wanted.includes("encoder"))
      found.encoder = weightsOf(encoder.record.self_attn, encoder, source.length, source.length);
    if (wanted.includes("decoder"))
      found.decoder = weightsOf(decoder.record.self_attn, decoder, target.length, longest);
    if (wanted.includes("cross")) found.cross = weightsOf(decoder.record.cross_attn, decoder, source.length, longest);
    if (wanted.includes("states"))
      found.states = ofEach(sides, ({ record, layers, rows }) => {
        const shape = [layers + 1, rows, config.d_model];
        return { values: core.floats(record.states, shape.reduce((size, length) => size * length)).slice(), shape };
      });
    if (wanted.includes("vectors")) {
      const part = (at, { layers, rows }, stride, from, width) =>
        ofRows([layers, heads, rows, width], (layer, head, row) =>
          core.floats(at + 4 * ((layer * rows + row) * stride + from + head * width), width));
      found.vectors = ofEach(sides, (side) => ({
        queries: part(side.record.qkv, side, qkvWidth, 0, keyWidth),
        keys: part(side.record.qkv, side, qkvWidth, heads * keyWidth, keyWidth),
        values: part(side.record.qkv, side, qkvWidth, 2 * heads * keyWidth, valueWidth),
      }));
      found.vectors.cross = {
        queries: part(decoder.record.queries, decoder, queryWidth, 0, keyWidth),
        ...memoryVectors(weights, memory, source.length),
      };
    }
    return found;
  } finally {
    core.release(before);
  }
}

/** Keys and values of cross-attention, from blocks of positions whose keys are turned; see `Slot` in csrc/types.h. */
function memoryVectors({ core, config, lanes }, memory, length) {
  const { num_heads: heads, num_decoder_layers: layers, key_dim: keyWidth, value_dim: valueWidth } = config;
  const [keys, values] = [heads * keyWidth, heads * valueWidth];
  const block = (layer, position) =>
    memory + 4 * (Math.floor(position / lanes) * layers + layer) * lanes * (keys + values);
  return {
    keys: ofRows([layers, heads, length, keyWidth], (layer, head, row) => {
      const all = core.floats(block(layer, row), lanes * keys);
      return Float32Array.from({ length: keyWidth }, (_, n) => all[(head * keyWidth + n) * lanes + (row % lanes)]);
    }),
    values: ofRows([layers, heads, length, valueWidth], (layer, head, row) =>
      core.floats(block(layer, row) + 4 * (lanes * keys + (row % lanes) * values + head * valueWidth), valueWidth)),
  };
}

/** An array of this shape, [layers, heads, rows, width], from a function that returns a row. */
function ofRows(shape, rowOf) {
  const [layers, heads, rows, width] = shape;
  const values = new Float32Array(layers * heads * rows * width);
  for (let layer = 0, at = 0; layer < layers; layer++)
    for (let head = 0; head < heads; head++)
      for (let row = 0; row < rows; row++, at += width) values.set(rowOf(layer, head, row), at);
  return { values, shape };
}

/** An object with the same keys, and what `of` makes of each value. */
export function ofEach(object, of) {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, of(value, key)]));
}
