// Token probabilities at the output and after each decoder layer: inspection/token_steps.py.

const MOST_STATES = 16; // computed together: their logits of a large vocabulary take 2 MB

/**
 * Call `take` with the log-probabilities of all tokens for each decoder state, in order.
 *
 * The core computes them as a decoder without layers, whose embedded tokens are the states.
 * @param {Weights} weights
 * @param {Float32Array} states - [state][D].
 * @param {boolean} isNormed - Whether they are after the final norm.
 * @param {(state: number, logProbs: Float32Array) => void} take - The array is valid during the call.
 * @param {() => Promise<boolean>} goesOn - Asked between calls of the core.
 * @returns {Promise<boolean>} False if `goesOn` ended it.
 */
export async function predict(weights, states, isNormed, take, goesOn) {
  const { core, config } = weights;
  const [width, size] = [config.d_model, config.vocab_size];
  const count = states.length / width;
  for (let first = 0; first < count; first += MOST_STATES) {
    if (!(await goesOn())) return false;
    const before = core.end;
    try {
      const rows = Math.min(MOST_STATES, count - first);
      const norm = isNormed ? { final_norm: { weight: 0 } } : {};
      const stack = core.copy("Stack", weights.decoder, { num_layers: 0, ...norm });
      const embedding = core.put(states.subarray(first * width, (first + rows) * width));
      const column = (of) => core.put(Int32Array.from({ length: rows }, of));
      const zeros = column(() => 0);
      const logProbs = core.allocate(4 * rows * size);
      const slot = { newest: core.allocate(8 * rows), source_length: 1 };
      const step = core.make("Step", {
        num_rows: rows, num_slots: 1, beam_size: rows, longest: 1, count: rows, num_candidates: 1, vocab_size: size,
        slots: core.make("Slot", slot), slot: zeros, parent: zeros, position: zeros, mask: zeros, score: zeros,
        beam: column((_, row) => row), token: column((_, row) => row), masks: core.put(new Uint8Array(size).fill(1)),
        candidate_score: core.allocate(4), candidate_beam: core.allocate(4), candidate_token: core.allocate(4),
        log_probs: logProbs, scratch: core.allocate(weights.scratch(stack, rows, 1, rows, true)),
      });
      core.functions.take_step(stack, core.make("Tokens", { num_ids: size, embedding_scale: 1, embedding }), step);
      for (let row = 0; row < rows; row++) take(first + row, core.floats(logProbs + 4 * row * size, size));
    } finally {
      core.release(before);
    }
  }
  return true;
}

/** Probability and rank of a token, and the ids of the most probable tokens, best first. */
export function prediction(logProbs, token, numCandidates) {
  const own = logProbs[token];
  const best = []; // ids, best first; of equal ones the first
  let rank = 0;
  for (let id = 0; id < logProbs.length; id++) {
    const value = logProbs[id];
    if (value >= own) rank++;
    if (!(value > -Infinity) || (best.length === numCandidates && value <= logProbs[best.at(-1)])) continue;
    if (best.length === numCandidates) best.pop();
    let at = best.length;
    while (at > 0 && logProbs[best[at - 1]] < value) at--;
    best.splice(at, 0, id);
  }
  return { probability: Math.exp(own), rank, best };
}

/** Entropy of a distribution over the whole vocabulary, in nats. */
export function entropyOf(logProbs) {
  let sum = 0;
  for (const value of logProbs) if (value > -Infinity) sum -= Math.exp(value) * value;
  return sum;
}
