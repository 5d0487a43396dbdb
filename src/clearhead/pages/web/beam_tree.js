// A beam search recorded as a tree: decoding/beam_search.py and inspection/beam_tree.py.

import { maskAfter } from "./masks.js";
import { endsInLoop, lengthPenalty, mostTimes } from "./search.js";

/**
 * Run a beam search of one sentence and return every hypothesis that it considered.
 * @param {Weights} weights
 * @param {number[]} source - Source ids, ended by eos.
 * @param {object} options - As for `search`, whose `nbest` is not used.
 * @param {() => Promise<boolean>} goesOn - Asked between the steps; false ends the search.
 * @returns {Promise<object | null>} `BeamTree` in Python, its `hypothesis` as `{ tokens, wasEnded }`.
 */
export async function recordSearch(weights, source, options, goesOn) {
  const { core, config } = weights;
  const limit = Math.min(source.length + options.extraLength, config.max_length ?? Infinity);
  const alpha = options.beam > 1 ? options.lengthPenalty : 0;
  const penalty = (length) => lengthPenalty(length, alpha, options.lengthPenaltyForm);
  // Before what is freed at the end.
  weights.tokens("source_embedding", source.length);
  const tokens = weights.tokens("target_embedding", limit);
  const before = core.end;
  try {
    const steps = new Steps(weights, tokens, source, limit, options.beam);
    const nodes = [];
    const finished = [];
    const timesInSource = mostTimes(source);
    let open = [{ tokens: [], score: 0, beam: 0, node: null }];
    for (let length = 1; open.length; length++) {
      if (!(await goesOn())) return null;
      const isLast = length === limit;
      const masks = open.map((one) =>
        maskAfter(
          config, source, one.tokens, limit, options.endLoops && endsInLoop(one.tokens, timesInSource), options,
        ));
      const candidates = steps.take(open, masks, length - 1);
      const after = [];
      for (const [rank, { beam, token, logProb, score }] of candidates.entries()) {
        const parent = open[beam];
        const ends = token === config.eos_id;
        const isKept = !ends && after.length < options.beam;
        const node = {
          number: nodes.length, parent: parent.node, step: length, token, log_prob: logProb, score,
          rank_score: score / penalty(length), fate: isKept ? "kept" : ends ? "late end" : "beam",
        };
        if (ends && rank < options.beam) {
          node.fate = "finished";
          finished.push({ node, tokens: [...parent.tokens, token], wasEnded: masks[beam]?.isEnd ?? false });
        }
        nodes.push(node);
        if (isKept) after.push({ tokens: [...parent.tokens, token], score, beam, node: node.number });
      }
      const best = Math.max(...finished.map(({ node }) => node.rank_score)); // -Infinity if there is none
      const canWin = after.length && after[0].score / penalty(limit) > best;
      if (isLast || !canWin) {
        for (const { node } of after) nodes[node].fate = "hopeless";
        open = [];
      } else open = after;
    }
    if (!finished.length) throw new Error("the model found no translation: its probabilities are not numbers");
    finished.sort((one, other) => other.node.rank_score - one.node.rank_score); // a stable order
    return {
      beam_size: options.beam, length_penalty: alpha, max_length: limit, nodes,
      finished: finished.map(({ node }) => node.number), hypothesis: finished[0],
    };
  } finally {
    core.release(before);
  }
}

/** The decoding steps of one sentence, with the log-probabilities of all tokens. */
class Steps {
  constructor(weights, tokens, source, limit, beam) {
    const { core, config } = weights;
    Object.assign(this, { weights, tokens, beam });
    this.most = 2 * beam; // so many of the best tokens of one hypothesis can be candidates
    const [memory] = weights.encode([source]);
    const longest = Math.max(source.length, limit);
    const size = config.vocab_size;
    const slot = core.make("Slot", {
      memory, source_length: source.length, newest: core.allocate(8 * beam), parents: core.allocate(4 * limit * beam),
      past: core.allocate(4 * limit * beam * weights.memoryWidth),
    });
    this.masks = core.allocate(size * (1 + beam)); // anything, then one of each hypothesis
    this.bytes(0).fill(1);
    for (const token of config.never_written) this.bytes(0)[token] = 0;
    this.at = { masks: this.masks, log_probs: core.allocate(4 * beam * size) };
    for (const name of ["slot", "beam", "parent", "position", "token", "mask", "score"])
      this.at[name] = core.zeros(4 * beam);
    for (const name of ["candidate_score", "candidate_beam", "candidate_token"])
      this.at[name] = core.allocate(4 * this.most);
    this.step = core.make("Step", {
      ...this.at, num_slots: 1, beam_size: beam, longest, count: this.most, num_candidates: this.most, vocab_size: size,
      slots: slot, scratch: core.allocate(weights.scratch(weights.decoder, beam, longest, this.most, true)),
    });
  }

  bytes(mask) {
    const { vocab_size: size } = this.weights.config;
    return new Uint8Array(this.weights.core.memory.buffer, this.masks + mask * size, size);
  }

  /** Extend each hypothesis by a token; return the candidates, best first, without impossible ones. */
  take(open, masks, position) {
    const { core, config, decoder } = this.weights;
    open.forEach((one, row) => {
      const token = one.tokens.at(-1) ?? config.bos_id;
      if (masks[row]) this.bytes(row + 1).set(masks[row].bytes());
      const numbers = { beam: row, parent: one.beam, position, token, mask: masks[row] ? row + 1 : 0 };
      for (const [name, number] of Object.entries(numbers)) core.ints(this.at[name] + 4 * row, 1)[0] = number;
      core.floats(this.at.score + 4 * row, 1)[0] = one.score;
    });
    core.set("Step", this.step, { num_rows: open.length });
    core.functions.take_step(decoder, this.tokens.at, this.step);
    const scores = core.floats(this.at.candidate_score, this.most);
    const [beams, ids] = ["candidate_beam", "candidate_token"].map((name) => core.ints(this.at[name], this.most));
    const logProbs = core.floats(this.at.log_probs, open.length * config.vocab_size);
    return Array.from(scores, (score, n) => {
      return { beam: beams[n], token: ids[n], logProb: logProbs[beams[n] * config.vocab_size + ids[n]], score };
    }).filter(({ score }) => score > -Infinity);
  }
}
