// The attention weights of every head for a given translation, by the core: decoding/native/engine.py.

/** Weights of encoder and decoder self-attention and of cross-attention, in this order. */
const ATTENTIONS = ["encoder", "decoder", "cross"];

/**
 * Compute all positions of a target at once.
 * @param {Weights} weights
 * @param {number[]} source - Source ids, ended by eos.
 * @param {number[]} target - Target ids, ended by eos.
 * @param {string[]} [wanted] - The attentions to return.
 * @returns {{encoder: object, decoder: object, cross: object}} Each `{ values, shape }`, a Float32Array and its shape
 *   [layers, heads, rows, columns]; row t of `cross` is the step that writes target token t. Throws RangeError if an id
 *   is not in its vocabulary, a side has no ids, or the model has fewer positions.
 */
export function attention(weights, source, target, wanted = ATTENTIONS) {
  const { core, config } = weights;
  if (!source.length || !target.length) throw new RangeError("a side has no ids, not even the end token");
  for (const id of target)
    if (!(id >= 0 && id < config.vocab_size))
      throw new RangeError(`id ${id} is not in the vocabulary of ${config.vocab_size}`);
  // Before what is freed at the end.
  weights.tokens("source_embedding", source.length);
  const tokens = weights.tokens("target_embedding", target.length);
  const before = core.end;
  try {
    const rows = target.length;
    const longest = Math.max(source.length, rows);
    const numbers = (name, count) => (wanted.includes(name) ? core.zeros(4 * config.num_heads * count) : 0);
    const at = {
      encoder: numbers("encoder", config.num_encoder_layers * source.length ** 2),
      decoder: numbers("decoder", config.num_decoder_layers * rows * longest),
      cross: numbers("cross", config.num_decoder_layers * rows * longest),
    };
    const [memory] = weights.encode([source], { self_attn: at.encoder });
    const column = (of) => core.put(Int32Array.from(target, of));
    const targets = core.make("Targets", {
      num_rows: rows, num_slots: 1, longest, slots: core.make("Slot", { memory, source_length: source.length }),
      slot: column(() => 0), first: column(() => 0),
      position: column((_, row) => row), length: column((_, row) => row + 1),
      token: column((_, row) => (row ? target[row - 1] : config.bos_id)), wanted: column((id) => id),
      self_attn: at.decoder, cross_attn: at.cross,
      scratch: core.allocate(weights.scratch(weights.decoder, rows, longest, 1, false)),
    });
    core.functions.score(weights.decoder, tokens.at, targets);
    const shapes = {
      encoder: [config.num_encoder_layers, config.num_heads, source.length, source.length],
      decoder: [config.num_decoder_layers, config.num_heads, rows, rows],
      cross: [config.num_decoder_layers, config.num_heads, rows, source.length],
    };
    return Object.fromEntries(wanted.map((name) => {
      const stride = name === "encoder" ? source.length : longest;
      return [name, { values: firstColumns(core, at[name], stride, shapes[name]), shape: shapes[name] }];
    }));
  } finally {
    core.release(before);
  }
}

/** Copy the first numbers of rows that are `stride` apart. */
function firstColumns(core, at, stride, shape) {
  const columns = shape.at(-1);
  const rows = shape.slice(0, -1).reduce((product, size) => product * size, 1);
  const all = core.floats(at, rows * stride);
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++)
    values.set(all.subarray(row * stride, row * stride + columns), row * columns);
  return values;
}
