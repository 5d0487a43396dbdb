// Log-probabilities of given translations by the core: decoding/native/engine.py.

/**
 * The log-probability of each target given its source, in nats; in fp32 bit for bit that of a search.
 * @param {Weights} weights
 * @param {number[][]} sources - Ids, ended by eos.
 * @param {number[][]} targets - Ids, ended by eos, of the vocabulary.
 */
export function forcedScores(weights, sources, targets) {
  const { core } = weights;
  makePositions(weights, sources, targets); // before what is freed at the end
  const before = core.end;
  try {
    const memories = weights.encode(sources);
    const pairs = targets.map((target, number) => ({ memory: memories[number], source: sources[number], target }));
    const totals = core.allocate(4 * pairs.length); // of log_probs
    const logProbs = core.allocate(4 * targets.reduce((sum, { length }) => sum + length, 0));
    runTargets(weights, pairs, { totals, log_probs: logProbs });
    return [...core.floats(totals, pairs.length)];
  } finally {
    core.release(before);
  }
}

/** Prepare as many positions as these ids have; returns the most. */
export function makePositions(weights, sources, targets) {
  const longest = Math.max(...[...sources, ...targets].map((ids) => ids.length));
  for (const embedding of ["source_embedding", "target_embedding"]) weights.tokens(embedding, longest);
  return longest;
}

/**
 * Compute given translations, a row for each of their tokens.
 * @param {Weights} weights - With positions, by `makePositions`.
 * @param {{memory: number, source: number[], target: number[]}[]} pairs - `memory` is what `encode` returned.
 * @param {object} outputs - Addresses of the arrays to fill, by their names in `Targets`.
 */
export function runTargets(weights, pairs, outputs) {
  const { core, config } = weights;
  const longest = Math.max(...pairs.flatMap(({ source, target }) => [source.length, target.length]));
  let first = 0;
  const rows = pairs.flatMap(({ target }, slot) => {
    const from = first;
    first += target.length;
    return target.map((wanted, position) => {
      const token = position ? target[position - 1] : config.bos_id;
      return { slot, position, first: from, length: position + 1, token, wanted };
    });
  });
  const slots = pairs.map(({ memory, source }) => ({ memory, source_length: source.length }));
  const fields = { num_rows: rows.length, num_slots: slots.length, longest, slots: core.makeAll("Slot", slots), ...outputs };
  for (const name of ["slot", "position", "first", "length", "token", "wanted"])
    fields[name] = core.put(Int32Array.from(rows, (row) => row[name]));
  fields.scratch = core.allocate(weights.scratch(weights.decoder, rows.length, longest, 1, false));
  core.functions.score(weights.decoder, weights.tokens("target_embedding", longest).at, core.make("Targets", fields));
}
