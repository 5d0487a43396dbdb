/** Equation 1 with the numbers of one row of a head: scores, their softmax, and the resulting output. */

import { fixed } from "./text.js";

/**
 * Returns one row of a head. `keys` are the keys that the query may attend to: their position, dot product, position
 * bias, score and weight. Without vectors, scores are known only up to a constant, which does not change the softmax.
 */
export function rowOf({ attention, layer, head, row }, scale) {
  const weights = attention.weights().part(layer, head, row).values;
  const vectors = attention.vectors();
  const numSeen = attention.isCausal ? row + 1 : weights.length;
  const query = vectors && vectors.queries.part(layer, head, row).values;
  const keys = Array.from({ length: numSeen }, (_, place) => {
    const weight = weights[place];
    if (!vectors) return { place, weight, score: Math.log(weight), product: null, position: 0 };
    const position = vectors.position_scores === null ? 0 : vectors.position_scores.at(head, row, place);
    const key = vectors.keys.part(layer, head, place).values;
    // If q and k were rounded for the page, ln weight + log sum is more exact; a weight of 0 has no logarithm.
    const score =
      attention.isRounded && weight > 0
        ? Math.log(weight) + vectors.log_sums.at(layer, head, row)
        : dot(query, key) * scale + position;
    return { place, weight, score, product: (score - position) / scale, position, key };
  });
  const values = vectors && keys.map(({ place }) => vectors.values.part(layer, head, place).values);
  return { weights, query, keys, values, numHidden: weights.length - numSeen };
}

function dot(left, right) {
  return left.reduce((sum, value, place) => sum + value * right[place], 0);
}

/** Softmax of scores divided by a temperature; the model's own temperature is 1. */
export function softmax(scores, temperature = 1) {
  const scaled = scores.map((score) => score / temperature);
  const highest = Math.max(...scaled);
  const powers = scaled.map((score) => Math.exp(score - highest));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

/** Entropy in nats. */
export function entropy(weights) {
  return -weights.reduce((sum, weight) => sum + (weight > 0 ? weight * Math.log(weight) : 0), 0);
}

/** Weighted sum of value vectors: the output of the head in this row. */
export function weightedSum(weights, values) {
  return values[0].map((_, place) => values.reduce((sum, value, key) => sum + weights[key] * value[place], 0));
}

/** The calculation for the chosen cell in one line: dot product, scale, score, softmax, weight. */
export function chainOf(selection, scale) {
  const { keys } = rowOf(selection, scale);
  const key = keys[selection.column];
  if (key.product === null) return "Queries and keys of so many tokens do not fit into a page.";
  const position = key.position === 0 ? "" : ` ${key.position < 0 ? "−" : "+"} ${fixed(Math.abs(key.position), 3)}`;
  return (
    `q·k = ${fixed(key.product, 3)}  →  × ${fixed(scale, 4)}${position} = ${fixed(key.score, 3)}` +
    `  →  softmax over ${keys.length}  →  ${fixed(key.weight)}`
  );
}
