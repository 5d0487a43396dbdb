/** The explanation in the page, and decoding of its packed arrays (docs/explanation-json.md). */

/** An array of numbers with a shape; a row is a slice along the last axis. */
class Numbers {
  constructor(values, shape) {
    this.values = values;
    this.shape = shape;
  }

  /** Number at the given indices, one for each axis. */
  at(...indices) {
    return this.values[this.#offset(indices)];
  }

  /** Subarray at the given indices of the first axes: a view, not a copy. */
  part(...indices) {
    const shape = this.shape.slice(indices.length);
    const size = shape.reduce((product, length) => product * length, 1);
    const start = this.#offset(indices) * size;
    return new Numbers(this.values.subarray(start, start + size), shape);
  }

  #offset(indices) {
    return indices.reduce((offset, index, axis) => offset * this.shape[axis] + index, 0);
  }
}

function bytes(text) {
  const characters = atob(text);
  const found = new Uint8Array(characters.length);
  for (let place = 0; place < found.length; place += 1) found[place] = characters.charCodeAt(place);
  return found;
}

/** Decodes a packed array; null stays null. */
export function unpack(packed) {
  if (packed === null) return null;
  const found = bytes(packed.data);
  if (packed.type === "root16") {
    const weights = new Float32Array(found.length / 2);
    for (let place = 0; place < weights.length; place += 1) {
      const root = (found[2 * place] + 256 * found[2 * place + 1]) / 65535;
      weights[place] = root ** 4;
    }
    return new Numbers(weights, packed.shape);
  }
  if (packed.type === "float24") {
    const padded = new Uint8Array((found.length / 3) * 4);
    for (let from = 0, to = 0; from < found.length; from += 3, to += 4) {
      // The lowest byte of each float32 is not stored.
      padded[to + 1] = found[from];
      padded[to + 2] = found[from + 1];
      padded[to + 3] = found[from + 2];
    }
    return new Numbers(new Float32Array(padded.buffer), packed.shape);
  }
  const width = packed.shape[packed.shape.length - 1];
  const scales = unpack(packed.scales).values;
  const scaled = (value, place) => value * scales[Math.floor(place / width)];
  return new Numbers(Float32Array.from(new Int8Array(found.buffer), scaled), packed.shape);
}

/** Returns a function that computes its value on the first call and then returns it. */
function once(compute) {
  let value;
  let isKnown = false;
  return () => {
    if (!isKnown) {
      value = compute();
      isKnown = true;
    }
    return value;
  };
}

/**
 * Attentions of the model, up to three, in the order of the page; arrays are decoded when used. `rowOf` returns the row of
 * the chosen tokens, `tokenOf` the token of a row (a step is the token that it writes), and `keysOf` the columns of the
 * chosen tokens.
 */
export function attentionsOf(explanation) {
  const isAlone = explanation.kind === "decoder";
  const { first_step: firstStep } = explanation;
  const decoderQueries = explanation.decoder_tokens;
  const all = [
    {
      name: "cross",
      title: "Cross-attention",
      about: "From each step of the decoder to the source. The row is named after the token that the step writes.",
      queries: explanation.target_tokens,
      keys: explanation.source_tokens,
      firstStep: 0,
      rowOf: ({ step }) => step,
      tokenOf: (row) => ({ step: row }),
      keysOf: ({ source }) => [source],
    },
    {
      name: "encoder",
      title: "Encoder self-attention",
      about: "From each source token to all source tokens.",
      queries: explanation.source_tokens,
      keys: explanation.source_tokens,
      firstStep: null,
      rowOf: ({ source }) => source,
      tokenOf: (row) => ({ source: row }),
      keysOf: ({ source }) => [source],
    },
    {
      name: "decoder",
      title: isAlone ? "Self-attention" : "Decoder self-attention",
      about: "From each token that the decoder has read to those it read before; what comes later is hidden from it.",
      queries: decoderQueries,
      keys: decoderQueries,
      written: explanation.target_tokens,
      firstStep,
      rowOf: ({ step }) => firstStep + step,
      tokenOf: (row) => ({ ...(row >= firstStep && { step: row - firstStep }), ...(isAlone && row <= firstStep && { source: row }) }),
      keysOf: ({ source, step }) => [firstStep + step + 1, ...(isAlone ? [source] : [])],
    },
  ];
  return all
    .filter(({ name }) => explanation[name] !== null)
    .map((attention) => {
      const vectors = explanation.vectors === null ? null : explanation.vectors[attention.name];
      return {
        ...attention,
        isAlone,
        isCausal: attention.name === "decoder",
        numLayers: explanation[attention.name].shape[0],
        numHeads: explanation[attention.name].shape[1],
        weights: once(() => unpack(explanation[attention.name])),
        vectors: once(() =>
          vectors && Object.fromEntries(Object.entries(vectors).map(([key, packed]) => [key, unpack(packed)])),
        ),
        isRounded: vectors !== null && vectors.queries.type === "int8",
        statistics: explanation.head_statistics[attention.name],
        roles: explanation.head_roles[attention.name],
      };
    });
}

/** Aggregates tokens to words: the mean over the tokens of a target word, the sum over those of a source word. */
export function byWords(numbers, rowWords, columnWords) {
  const values = new Float32Array(rowWords.length * columnWords.length);
  rowWords.forEach((rowWord, row) => {
    columnWords.forEach((columnWord, column) => {
      let sum = 0;
      for (const query of rowWord.tokens) for (const key of columnWord.tokens) sum += numbers.at(query, key);
      values[row * columnWords.length + column] = sum / rowWord.tokens.length;
    });
  });
  return new Numbers(values, [rowWords.length, columnWords.length]);
}
