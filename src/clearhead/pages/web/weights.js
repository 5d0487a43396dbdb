// The weights of a model in the structures of the core, and the encoding of sentences: decoding/native/weights.py.

const PRECISIONS = { fp32: "FP32", int8: "INT8" };

/** The arrays of a safetensors file; matrices in 8 bits are given as the float32 numbers they stand for. */
export class StoredArrays {
  /**
   * @param {ArrayBuffer} file - The file.
   * @param {Object<string, string>} aliases - Stored names of arrays that share one.
   * @param {Core} core - Whose memory holds the arrays that are used as they are.
   */
  constructor(file, aliases, core) {
    const length = Number(new DataView(file).getBigUint64(0, true));
    this.headers = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length)));
    this.file = file;
    this.start = 8 + length;
    Object.assign(this, { aliases, core });
    this.places = new Map();
  }

  has(name) {
    return (this.aliases[name] ?? name) in this.headers;
  }

  shape(name) {
    return this.headers[this.aliases[name] ?? name].shape;
  }

  /** Write a matrix or vector to `to`, a Float32Array; of a matrix, the rows that fit, from row `first`. */
  read(name, to, first = 0) {
    name = this.aliases[name] ?? name;
    const { dtype, shape } = this.headers[name];
    const from = first * (shape[1] ?? 1);
    if (dtype === "F32") return to.set(this.#numbers(name, Float32Array, from, to.length));
    const levels = this.#numbers(name, Int8Array, from, to.length);
    const width = shape[1];
    const scales = this.#numbers(`${name}_scale`, Float32Array, first, Math.ceil(levels.length / width));
    for (let row = 0, i = 0; row < scales.length; row++)
      for (const end = Math.min(i + width, levels.length); i < end; i++) to[i] = levels[i] * scales[row];
  }

  /**
   * The address of a whole array in the core, where it stays; weights in two precisions and tied names share it. The
   * first call for an array is outside of what `release` frees.
   */
  place(name) {
    const own = this.aliases[name] ?? name;
    if (!this.places.has(own)) {
      const length = this.shape(own).reduce((product, size) => product * size, 1);
      this.places.set(own, this.core.allocate(4 * length));
      this.read(own, this.core.floats(this.places.get(own), length));
    }
    return this.places.get(own);
  }

  #numbers(name, kind, from, count) {
    const [start, end] = this.headers[name].data_offsets.map((place) => this.start + place);
    const first = start + from * kind.BYTES_PER_ELEMENT;
    const bytes = Math.min(end - first, count * kind.BYTES_PER_ELEMENT);
    if (kind === Int8Array) return new kind(this.file, first, bytes);
    return new kind(this.file.slice(first, first + bytes)); // an address that is a multiple of their size
  }
}

export class Weights {
  /**
   * @param {object} config - The settings of the model.
   * @param {StoredArrays} arrays - Those of the core that computes.
   * @param {string} precision - Of the matrix products: fp32 or int8.
   */
  constructor(config, arrays, precision) {
    const { core } = arrays;
    Object.assign(this, { core, config, arrays });
    this.precision = core.layout.constants[PRECISIONS[precision]];
    this.panel = core.layout.constants.PANEL;
    this.lanes = core.layout.constants.LANES;
    this.norms = new Map();
    const cross = Array.from({ length: config.num_decoder_layers }, (_, n) => `decoder.layers.${n}.cross_attn`);
    const memory = this.#product(cross.flatMap((name) => [`${name}.k_proj`, `${name}.v_proj`]));
    this.memoryWidth = memory.outputs;
    this.encoder = this.#stack("encoder", config.num_encoder_layers, memory);
    this.decoder = this.#stack("decoder", config.num_decoder_layers, this.#product(["output_proj"]));
    this.embeddings = {};
  }

  /**
   * The structure that embeds tokens, with at least `longest` positions. Where they are more than before, it is called
   * outside of what `release` frees. Throws RangeError if the model has fewer.
   */
  tokens(embedding, longest) {
    const known = this.embeddings[embedding];
    if (known && known.room >= longest) return known;
    const { core, config, arrays } = this;
    if (longest > (config.max_length ?? Infinity))
      throw new RangeError(`${longest} tokens, but the model has ${config.max_length} positions`);
    const room = Math.min(Math.max(2 * longest, 256), config.max_length ?? Infinity);
    const fields = {
      num_ids: config.vocab_size,
      embedding_scale: config.embedding_scale ? Math.fround(Math.sqrt(config.d_model)) : 1,
      embedding_norm: this.#norm(`${embedding}.norm`),
      embedding: arrays.place(`${embedding}.weight`),
    };
    if (config.positions.startsWith("sinusoidal")) fields.positions = core.put(sinusoids(room, config));
    if (config.positions === "learned") fields.positions = arrays.place(`${embedding}.positions.weight`);
    if (config.positions === "rotary") Object.assign(fields, rotations(core, room, config.key_dim));
    if (arrays.has(`${embedding}.segments.weight`)) fields.segment = arrays.place(`${embedding}.segments.weight`);
    this.embeddings[embedding] = { room, at: core.make("Tokens", fields) };
    return this.embeddings[embedding];
  }

  /**
   * Encode sentences; return for each the address of the keys and values of cross-attention. Throws RangeError if an id
   * is not in the vocabulary: the core uses ids as addresses.
   * @param {number[][]} sources
   * @param {object} [outputs] - Addresses of other arrays to fill, by their names in `Sources`.
   */
  encode(sources, outputs = {}) {
    const { core, config, lanes } = this;
    const known = config.source_vocab_size ?? config.vocab_size;
    for (const id of sources.flat())
      if (!(id >= 0 && id < known)) throw new RangeError(`id ${id} is not in the vocabulary of ${known}`);
    const lengths = sources.map((source) => source.length);
    const rows = lengths.reduce((sum, length) => sum + length, 0);
    const longest = Math.max(...lengths);
    const tokens = this.tokens("source_embedding", longest);
    const columns = core.allocate(5 * rows * 4);
    let [row, block] = [0, 0];
    const blocks = sources.map((source) => {
      const [first, at] = [row, block];
      source.forEach((id, position) => {
        [id, position, first, source.length, at].forEach((value, column) => {
          core.view.setInt32(columns + 4 * (column * rows + row), value, true);
        });
        row++;
      });
      block += Math.ceil(source.length / lanes);
      return at;
    });
    const bytes = 4 * lanes * this.memoryWidth; // of a block
    const memory = core.allocate(block * bytes);
    const fields = { ...outputs, num_rows: rows, longest, memory };
    ["token", "position", "first", "length", "block"].forEach((name, n) => (fields[name] = columns + 4 * n * rows));
    fields.scratch = core.allocate(this.scratch(this.encoder, rows, longest, 0, false));
    core.functions.encode(this.encoder, tokens.at, core.make("Sources", fields));
    return blocks.map((at) => memory + at * bytes);
  }

  scratch(stack, rows, longest, count, isSearch) {
    const numbers = [rows, longest, count].map(BigInt);
    return Number(this.core.functions.scratch_size(stack, ...numbers, Number(isSearch)));
  }

  #stack(side, count, output) {
    const { core, config } = this;
    const layers = Array.from({ length: count }, (_, number) => this.#layer(`${side}.layers.${number}`, side));
    return core.make("Stack", {
      d_model: config.d_model,
      num_heads: config.num_heads,
      d_k: config.key_dim,
      d_v: config.value_dim,
      d_ff: config.d_ff,
      num_layers: count,
      is_pre: config.norm === "pre",
      divides_scores: config.attention_scale,
      divides_output: config.output_scale && side === "decoder",
      activation: core.layout.constants[config.activation.toUpperCase()],
      layers: core.makeAll("Layer", layers),
      final_norm: this.#norm(`${side}.final_norm`),
      output,
    });
  }

  #layer(name, side) {
    const of = (part) => this.#product([`${name}.${part}`]);
    const layer = {
      self_norm: this.#norm(`${name}.self_attn_residual.norm`),
      qkv: this.#product(["q_proj", "k_proj", "v_proj"].map((part) => `${name}.self_attn.${part}`)),
      self_out: of("self_attn.out_proj"),
      ff_norm: this.#norm(`${name}.feed_forward_residual.norm`),
      up: of("feed_forward.up_proj"),
      down: of("feed_forward.down_proj"),
    };
    if (this.config.gated) layer.gate = of("feed_forward.gate_proj");
    if (side === "encoder") return layer;
    return {
      ...layer,
      cross_norm: this.#norm(`${name}.cross_attn_residual.norm`),
      query: of("cross_attn.q_proj"),
      cross_out: of("cross_attn.out_proj"),
    };
  }

  /** Pack one product that applies several projections to the same rows. */
  #product(projections) {
    const { core, arrays, precision, panel } = this;
    const shapes = projections.map((name) => arrays.shape(`${name}.weight`));
    const inputs = shapes[0][1];
    const count = shapes.reduce((sum, [outputs]) => sum + outputs, 0);
    const outputs = Math.ceil(count / panel) * panel;
    const fields = { inputs, outputs, precision };
    const size = core.functions.packed_size(...[count, inputs, precision].map(BigInt));
    fields.panels = core.allocate(Number(size));
    if (precision === core.layout.constants.INT8) fields.scales = core.allocate(4 * outputs);
    if (projections.some((name) => arrays.has(`${name}.bias`))) {
      fields.bias = core.put(new Float32Array(0), outputs);
      shapes.reduce((at, [length], number) => {
        arrays.read(`${projections[number]}.bias`, core.floats(at, length));
        return at + 4 * length;
      }, fields.bias);
    }
    const before = core.end;
    const matrix = core.allocate(4 * count * inputs);
    shapes.reduce((at, [rows], number) => {
      arrays.read(`${projections[number]}.weight`, core.floats(at, rows * inputs));
      return at + 4 * rows * inputs;
    }, matrix);
    const product = core.make("Product", { inputs, outputs, precision });
    core.functions.pack(product, matrix, 0, BigInt(count), fields.panels, fields.scales ?? 0);
    core.release(before);
    return fields;
  }

  #norm(name) {
    const { arrays } = this;
    if (!arrays.has(`${name}.weight`)) return {};
    const { norm_eps: eps, norm_kind } = this.config;
    const norm = { weight: arrays.place(`${name}.weight`), eps, is_rms: norm_kind === "rms" };
    if (arrays.has(`${name}.bias`)) norm.bias = arrays.place(`${name}.bias`);
    return norm;
  }
}

function sinusoids(length, { d_model: width, positions, first_position: first }) {
  const half = width / 2;
  const step = -Math.log(10_000) / Math.max(positions === "sinusoidal_t2t" ? half - 1 : half, 1);
  const table = new Float32Array(length * width);
  for (let wave = 0; wave < half; wave++) {
    const frequency = Math.exp(wave * step);
    const [sine, cosine] = positions === "sinusoidal" ? [2 * wave, 2 * wave + 1] : [wave, half + wave];
    for (let position = 0; position < length; position++) {
      table[position * width + sine] = Math.sin((first + position) * frequency);
      table[position * width + cosine] = Math.cos((first + position) * frequency);
    }
  }
  return table;
}

function rotations(core, length, width) {
  const half = width / 2;
  const of = (wave) => Float32Array.from(
    { length: length * half },
    (_, n) => wave(Math.floor(n / half) * 10_000 ** ((-2 * (n % half)) / width)),
  );
  return { cos: core.put(of(Math.cos)), sin: core.put(of(Math.sin)) };
}
