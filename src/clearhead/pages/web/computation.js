// The computation of every decoding step with its first numbers, for the page of an explanation: sections 3.1 to 3.5.
//
// States, attention weights and values are those of the core; what is between them is computed here from the weights.

import { sixDigits } from "./packing.js";

const COMPONENTS = 4; // numbers of a vector that are shown
const MOST_PRODUCTS = 5e8; // multiplications in all: about a second

/**
 * Return the first numbers of what each decoder layer computes at each step; null if that would take too long, or if
 * `goesOn` ended it.
 * @param {Weights} weights
 * @param {object} pass - What `forcedPass` returned, with states and vectors.
 * @param {number[]} ids - Target ids, ended by eos.
 * @param {{id: number, token: string, logProb: number}[][]} likely - The most probable tokens of each step.
 * @param {() => Promise<boolean>} goesOn
 */
export async function computationOf(weights, pass, ids, likely, goesOn) {
  const { config } = weights;
  const { d_model: width, d_ff: hidden, num_decoder_layers: layers, num_heads: heads, value_dim: valueWidth } = config;
  const ofLayer = width * (2 * heads * valueWidth + (config.gated ? 3 : 2) * hidden);
  if (layers * ids.length * ofLayer > MOST_PRODUCTS) return null;
  const stateOf = (state, step) => {
    const at = (state * ids.length + step) * width;
    return pass.states.decoder.values.subarray(at, at + width);
  };
  const steps = ids.map((_, step) => {
    return { embedding: embeddingOf(weights, step ? ids[step - 1] : config.bos_id, step), layers: [] };
  });
  const isPre = config.norm === "pre";
  for (let layer = 0; layer < layers; layer++) {
    let xs = ids.map((_, step) => stateOf(layer, step));
    for (const { name, norm, compute } of sublayersOf(weights, layer, pass)) {
      if (!(await goesOn())) return null;
      const before = xs.map((x) => (isPre ? norm(x) : null));
      const computed = compute(xs.map((x, step) => before[step]?.output ?? x));
      xs = xs.map((x, step) => {
        const { inner, update } = computed[step];
        const sum = x.map((value, n) => value + update[n]);
        const after = isPre ? null : norm(sum);
        steps[step].layers[layer] ??= [];
        steps[step].layers[layer].push({
          name, input: firstOf(x), before: shownNorm(before[step]), ...inner, update: firstOf(update),
          sum: firstOf(sum), after: shownNorm(after),
        });
        return after?.output ?? sum;
      });
    }
    if (layer === layers - 1)
      for (const [step, x] of xs.entries())
        steps[step].output = outputOf(weights, x, stateOf(layers, step), likely[step]);
  }
  return { components: COMPONENTS, d_model: width, d_ff: hidden, scale: config.embedding_scale, steps };
}

const firstOf = (vector) => Array.from(vector.slice(0, COMPONENTS), sixDigits);

const shownNorm = (norm) => norm && { mean: norm.mean, deviation: norm.deviation, output: firstOf(norm.output) };

/** The embedded token and its position: section 3.4 and 3.5. */
function embeddingOf(weights, token, step) {
  const { core, config, arrays } = weights;
  const row = new Float32Array(config.d_model);
  arrays.read("target_embedding.weight", row, token);
  const { at } = weights.tokens("target_embedding", step + 1);
  const positions = core.get("Tokens", at, "positions");
  const position = positions ? core.floats(positions + 4 * step * config.d_model, COMPONENTS) : null;
  const scale = config.embedding_scale ? Math.sqrt(config.d_model) : 1;
  const scaled = row.map((value) => value * scale);
  const sum = scaled.map((value, n) => value + (position?.[n] ?? 0));
  return {
    row: firstOf(row), scaled: firstOf(scaled), position: position && firstOf(position), sum: firstOf(sum),
    hasNorm: arrays.has("target_embedding.norm.weight"),
  };
}

/** The sublayers of a decoder layer: each its norm, and what it computes of the states of all steps. */
function sublayersOf(weights, layer, pass) {
  const { config } = weights;
  const name = `decoder.layers.${layer}`;
  const attend = (part, attention, vectors) => {
    const project = linear(weights, `${name}.${part}.out_proj`);
    return (xs) => {
      const mixed = xs.map((_, step) => mixedValues(attention, vectors.values, layer, step));
      const updates = project(mixed);
      return mixed.map((values, step) => {
        const ofHeads = Array.from({ length: config.num_heads }, (_, head) =>
          firstOf(values.subarray(head * config.value_dim, (head + 1) * config.value_dim)));
        return { inner: { heads: ofHeads }, update: updates[step] };
      });
    };
  };
  const up = linear(weights, `${name}.feed_forward.up_proj`);
  const gate = config.gated ? linear(weights, `${name}.feed_forward.gate_proj`) : null;
  const down = linear(weights, `${name}.feed_forward.down_proj`);
  const activate = ACTIVATIONS[config.activation];
  const feedForward = (xs) => {
    const projected = up(xs);
    const gates = gate?.(xs);
    const hidden = projected.map((all, step) =>
      (gates ? all.map((value, n) => activate(gates[step][n]) * value) : all.map(activate)));
    const updates = down(hidden);
    return updates.map((update, step) => {
      return { inner: { projected: firstOf(projected[step]), hidden: firstOf(hidden[step]) }, update };
    });
  };
  return [
    { name: "self_attn", compute: attend("self_attn", pass.decoder, pass.vectors.decoder) },
    { name: "cross_attn", compute: attend("cross_attn", pass.cross, pass.vectors.cross) },
    { name: "feed_forward", compute: feedForward },
  ].map((one) => ({ ...one, norm: normOf(weights, `${name}.${one.name}_residual.norm`) }));
}

/** The sums of the values of all heads, weighted by attention, side by side. */
function mixedValues({ values: attention, shape }, { values, shape: [, , , width] }, layer, step) {
  const [, heads, rows, columns] = shape;
  const mixed = new Float32Array(heads * width);
  for (let head = 0; head < heads; head++)
    for (let column = 0; column < columns; column++) {
      const weight = attention[((layer * heads + head) * rows + step) * columns + column];
      const from = ((layer * heads + head) * columns + column) * width;
      for (let n = 0; n < width; n++) mixed[head * width + n] += weight * values[from + n];
    }
  return mixed;
}

/** The final norm, and the logits and probabilities of the most probable tokens. */
function outputOf(weights, x, final, likely) {
  const { config, arrays } = weights;
  const norm = arrays.has("decoder.final_norm.weight") ? normOf(weights, "decoder.final_norm")(x) : null;
  const state = config.output_scale ? final.map((value) => value / Math.sqrt(config.d_model)) : final;
  const bias = arrays.has("output_proj.bias") ? new Float32Array(config.vocab_size) : null;
  if (bias) arrays.read("output_proj.bias", bias);
  const row = new Float32Array(config.d_model);
  const logits = likely.map(({ id, token, logProb }) => {
    arrays.read("output_proj.weight", row, id);
    const logit = row.reduce((sum, value, n) => sum + value * state[n], bias?.[id] ?? 0);
    return { token, row: firstOf(row), logit, probability: Math.exp(logProb), log_sum: logit - logProb };
  });
  return { input: firstOf(x), norm: shownNorm(norm), isScaled: config.output_scale, state: firstOf(state), logits };
}

/** A linear layer as a function of several vectors: y = x W^T + b. */
function linear({ arrays }, name) {
  const [outputs, inputs] = arrays.shape(`${name}.weight`);
  const matrix = new Float32Array(outputs * inputs);
  arrays.read(`${name}.weight`, matrix);
  const bias = new Float32Array(outputs);
  if (arrays.has(`${name}.bias`)) arrays.read(`${name}.bias`, bias);
  return (xs) => {
    const ys = xs.map(() => bias.slice());
    // Each row of the matrix for all vectors, while it is in the cache; four at once take half the time.
    for (let row = 0; row < outputs; row++)
      for (let k = 0; k < xs.length; k += 4) {
        const [x0, x1, x2, x3] = [xs[k], xs[k + 1] ?? xs[k], xs[k + 2] ?? xs[k], xs[k + 3] ?? xs[k]];
        let [y0, y1, y2, y3] = [0, 0, 0, 0];
        for (let n = 0, at = row * inputs; n < inputs; n++, at++) {
          const weight = matrix[at];
          y0 += weight * x0[n];
          y1 += weight * x1[n];
          y2 += weight * x2[n];
          y3 += weight * x3[n];
        }
        [y0, y1, y2, y3].slice(0, xs.length - k).forEach((y, n) => (ys[k + n][row] += y));
      }
    return ys;
  };
}

/** LayerNorm or RMSNorm as a function, which returns the mean and the standard deviation too. */
function normOf({ arrays, config }, name) {
  const weight = new Float32Array(config.d_model);
  const bias = new Float32Array(config.d_model);
  arrays.read(`${name}.weight`, weight);
  if (arrays.has(`${name}.bias`)) arrays.read(`${name}.bias`, bias);
  return (x) => {
    const mean = config.norm_kind === "rms" ? 0 : x.reduce((sum, value) => sum + value, 0) / x.length;
    const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
    const deviation = Math.sqrt(variance + config.norm_eps);
    return { mean, deviation, output: x.map((value, n) => ((value - mean) / deviation) * weight[n] + bias[n]) };
  };
}

const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => (x / 2) * (1 + errorFunction(x / Math.SQRT2)),
  gelu_tanh: (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  silu: (x) => x / (1 + Math.exp(-x)),
};

/** erf to 1.5e-7: Abramowitz and Stegun 1964, 7.1.26. */
function errorFunction(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const terms = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
  return Math.sign(x) * (1 - t * terms.reduce((sum, factor) => sum * t + factor, 0) * Math.exp(-x * x));
}
