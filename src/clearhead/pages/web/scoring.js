// Log-probabilities of given translations by the core: decoding/native/engine.py.

/**
 * The log-probability of each target given its source, in nats; in fp32 bit for bit that of a search.
 * @param {Weights} weights
 * @param {number[][]} sources - Ids, ended by eos.
 * @param {number[][]} targets - Ids, ended by eos, of the vocabulary.
 */
export function forcedScores(weights, sources, targets) {
  const { core, config } = weights;
  const longest = Math.max(...[...sources, ...targets].map((ids) => ids.length));
  // Before what is freed at the end.
  weights.tokens("source_embedding", Math.max(...sources.map((ids) => ids.length)));
  const tokens = weights.tokens("target_embedding", Math.max(...targets.map((ids) => ids.length)));
  const before = core.end;
  try {
    const memories = weights.encode(sources);
    const slots = sources.map((source, number) => ({ memory: memories[number], source_length: source.length }));
    let first = 0;
    const rows = targets.flatMap((target, slot) => {
      const from = first;
      first += target.length;
      return target.map((wanted, position) => {
        const token = position ? target[position - 1] : config.bos_id;
        return { slot, position, first: from, length: position + 1, token, wanted };
      });
    });
    const column = (name) => core.put(Int32Array.from(rows, (row) => row[name]));
    const fields = { num_rows: rows.length, num_slots: slots.length, longest, slots: core.makeAll("Slot", slots) };
    for (const name of ["slot", "position", "first", "length", "token", "wanted"]) fields[name] = column(name);
    fields.log_probs = core.allocate(4 * rows.length); // whose sums are the totals
    fields.totals = core.allocate(4 * slots.length);
    fields.scratch = core.allocate(weights.scratch(weights.decoder, rows.length, longest, 1, false));
    core.functions.score(weights.decoder, tokens.at, core.make("Targets", fields));
    return [...core.floats(fields.totals, slots.length)];
  } finally {
    core.release(before);
  }
}
