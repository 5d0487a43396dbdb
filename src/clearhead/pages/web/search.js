// Greedy and beam search by the core, many steps a call: decoding/native/slots.py and search.py.

import { maskAfter, placeholderIds } from "./masks.js";
import { RULES } from "./rules.js";

const MOST_SECONDS = 0.01; // after which a call begins no further step, so that a new text does not wait
const FIXED_MASKS = 2 + RULES.NUM_STATES * RULES.NUM_ROOMS; // ANYTHING, END_ALONE and those of UTF-8

export const lengthPenalty = (length, alpha, form) => (form === "gnmt" ? ((5 + length) / 6) ** alpha : length ** alpha);

/** The options of a search that the settings of the model say. */
export const settingsOf = (decode) => ({
  lengthPenalty: decode.length_penalty, lengthPenaltyForm: decode.length_penalty_form, extraLength: decode.extra_length,
  endLoops: decode.end_loops, minLength: decode.min_length, noRepeatNgramSize: decode.no_repeat_ngram_size,
});

/** The largest number of consecutive repetitions of any tokens; decoding/repetition.py:most_times. */
export function mostTimes(ids) {
  let most = 1;
  for (let period = 1; period <= ids.length >> 1 && Math.floor(ids.length / period) > most; period++) {
    let run = 0;
    for (let at = period; at < ids.length; at++) {
      run = ids[at] === ids[at - period] ? run + 1 : 0;
      most = Math.max(most, Math.floor(run / period) + 1);
    }
  }
  return most;
}

/** Whether a translation ends by repeating tokens far more often than its source; decoding/repetition.py:is_loop. */
export function endsInLoop(written, timesInSource) {
  const repeats = (times) => {
    for (let period = 1; period <= Math.floor(written.length / (times + 1)); period++) {
      const same = Math.max(times * period, RULES.LOOP_TOKENS + 1 - period); // tokens equal to those one period earlier
      let at = written.length - 1;
      const first = written.length - same;
      while (at >= first && at >= period && written[at] === written[at - period]) at--;
      if (at < first) return true;
    }
    return false;
  };
  return written.length > RULES.LOOP_TOKENS && repeats(RULES.LOOP_TIMES) && repeats(RULES.LOOP_TIMES * timesInSource);
}

/**
 * Translate sentences together.
 * @param {Weights} weights
 * @param {number[][]} sources - Ids, ended by eos. The placeholders of a source are in its translation as often
 *   (masks.js).
 * @param {{beam: number, nbest: number, lengthPenalty: number, lengthPenaltyForm: string, extraLength: number,
 *   endLoops: boolean, minLength: number, noRepeatNgramSize: number, scores: boolean}} options - `settingsOf` the
 *   model, and a beam. Without `scores` (by default with them), those of a greedy search are 0: it only compares the
 *   tokens.
 * @param {() => Promise<boolean>} [goesOn] - Asked between calls of the core; false ends the search.
 * @returns {Promise<{tokens: number[], score: number, wasEnded: boolean}[][] | null>}
 */
export async function search(weights, sources, options, goesOn = async () => true) {
  const { core, config } = weights;
  const lengths = sources.map((source) => source.length);
  const limits = lengths.map((length) => Math.min(length + options.extraLength, config.max_length ?? Infinity));
  // Before what is freed at the end.
  weights.tokens("source_embedding", Math.max(...lengths));
  const tokens = weights.tokens("target_embedding", Math.max(...limits));
  const before = core.end;
  try {
    const slots = new Slots(weights, sources, limits, options);
    while (slots.open.length) {
      if (!(await goesOn())) return null;
      slots.advance(tokens);
    }
    return slots.found;
  } finally {
    core.release(before);
  }
}

class Slots {
  constructor(weights, sources, limits, options) {
    const { core, config, memoryWidth } = weights;
    const { beam, nbest } = options;
    const guidesAll = options.minLength > 1 || options.noRepeatNgramSize > 0;
    const guides = sources.map((source) => guidesAll || placeholderIds(config, source).length > 0);
    Object.assign(this, { weights, core, options });
    this.found = sources.map(() => null);
    this.count = beam === 1 ? 1 : beam + 1;
    this.decoder = beam > 1 || (options.scores ?? true)
      ? weights.decoder
      : core.copy("Stack", weights.decoder, { finds_best_alone: true });
    const [most, rows] = [beam === 1 ? 1 : 2 * beam, sources.length * beam];
    const memories = weights.encode(sources);
    this.open = sources.map((source, number) => {
      const [limit, room] = [limits[number], (source.length + 16) * beam];
      const tokens = 4 * beam + 2 * beam * limit + nbest * limit;
      const numbers = core.put(new Int32Array(tokens + 2 * beam), tokens + 2 * beam);
      const at = (place) => numbers + 4 * place;
      core.view.setInt32(at(beam), config.bos_id, true);
      const hypotheses = core.make("Hypotheses", {
        max_length: limit, guided_until: guides[number] ? limit : 0,
        longest_penalty: beam === 1 ? 1 : lengthPenalty(limit, options.lengthPenalty, options.lengthPenaltyForm),
        num_open: 1, scores: at(0), newest: at(beam), parents: at(2 * beam), masks: at(3 * beam), written: at(4 * beam),
        finished: core.makeAll("Finished", Array(nbest).fill({})), finished_tokens: at(4 * beam + 2 * beam * limit),
        states: at(tokens),
      });
      const slot = { number, source, limit, hypotheses, masks: at(3 * beam), written: at(4 * beam), places: 0 };
      slot.isGuided = guides[number];
      slot.fields = { memory: memories[number], source_length: source.length, newest: core.allocate(8 * beam) };
      this.#makeRoom(slot, room);
      return slot;
    });
    const size = config.vocab_size;
    // Those of guided sentences, of which a step has one a row at most, come last.
    const masks = new Uint8Array(size * (FIXED_MASKS + (guides.some(Boolean) ? rows : 0)));
    masks.fill(1, 0, size);
    for (const token of config.never_written) masks[token] = 0;
    if (options.parts) masks.set(options.parts.written, core.layout.constants.UTF8_MASKS * size);
    masks[core.layout.constants.END_ALONE * size + config.eos_id] = 1;
    const penalties = Float64Array.from({ length: 2 * Math.max(...limits) }, (_, length) =>
      (beam === 1 || !length ? 1 : lengthPenalty(length, options.lengthPenalty, options.lengthPenaltyForm)));
    const column = () => core.allocate(4 * rows);
    const best = () => core.allocate(4 * most * sources.length);
    this.masks = core.put(masks);
    this.step = core.make("Step", {
      beam_size: beam, count: this.count, num_candidates: most, vocab_size: size, masks: this.masks,
      slot: column(), beam: column(), parent: column(), position: column(), token: column(), mask: column(),
      score: column(), candidate_score: best(), candidate_beam: best(), candidate_token: best(),
    });
    this.sentences = core.allocate(4 * sources.length);
    this.slots = core.makeAll("Slot", sources.map(() => ({})));
    this.search = core.make("Search", {
      step: this.step, sentences: this.sentences, eos_id: config.eos_id, num_best: nbest, ends_loops: options.endLoops,
      loop_tokens: RULES.LOOP_TOKENS, loop_times: RULES.LOOP_TIMES, penalties: core.put(penalties), seconds: MOST_SECONDS,
      changes: core.put(new BigInt64Array(1)), next_states: options.parts ? core.put(options.parts.nextStates) : 0,
    });
    this.scratch = 0;
  }

  advance(tokens) {
    const { core, open, options } = this;
    const { beam, nbest } = options;
    const of = (slot, field) => core.get("Hypotheses", slot.hypotheses, field);
    const lengths = open.map((slot) => of(slot, "length"));
    this.placed = new Map(); // masks of guided sentences, by what they allow
    open.forEach((slot, place) => {
      const length = lengths[place];
      if (slot.isGuided) this.#guide(slot, length, of(slot, "num_open"));
      if ((length + 1) * beam > slot.places) this.#makeRoom(slot, 2 * (length + 1) * beam);
      core.view.setUint32(this.sentences + 4 * place, slot.hypotheses, true);
      core.set("Slot", this.slots + place * core.layout.structs.Slot.size, slot.fields);
    });
    const most = Math.max(...lengths);
    const steps = Math.min(tokens.room - most, ...open.map((slot, n) => Math.floor(slot.places / beam) - lengths[n]));
    const longest = Math.max(most + steps, ...open.map(({ source }) => source.length));
    const needed = this.weights.scratch(this.decoder, open.length * beam, longest, this.count, true);
    if (needed > this.scratch) {
      this.scratch = needed + (needed >> 2);
      core.set("Step", this.step, { scratch: core.allocate(this.scratch) });
    }
    core.set("Step", this.step, { num_slots: open.length, longest, slots: this.slots });
    core.set("Search", this.search, { most_steps: steps });
    if (core.functions.advance(this.decoder, tokens.at, this.search))
      for (const slot of open)
        if (of(slot, "times_in_source") < 0)
          core.set("Hypotheses", slot.hypotheses, { times_in_source: mostTimes(slot.source) });
    for (const slot of open) {
      if (of(slot, "num_open")) continue;
      const finished = of(slot, "finished");
      this.found[slot.number] = Array.from({ length: Math.min(nbest, of(slot, "num_finished")) }, (_, number) => {
        const at = finished + number * core.layout.structs.Finished.size;
        const [length, place] = ["length", "place"].map((field) => core.get("Finished", at, field));
        const tokens = core.ints(of(slot, "finished_tokens") + 4 * place * slot.limit, length);
        const [score, wasEnded] = ["log_prob", "was_ended"].map((field) => core.get("Finished", at, field));
        return { tokens: [...tokens], score, wasEnded: wasEnded !== 0 };
      });
    }
    this.open = open.filter((slot) => of(slot, "num_open"));
  }

  /** Set the masks of the hypotheses of a guided sentence. */
  #guide(slot, length, numOpen) {
    const { core, weights, options } = this;
    const { config } = weights;
    slot.timesInSource ??= mostTimes(slot.source);
    for (let beam = 0; beam < numOpen; beam++) {
      const at = slot.written + 4 * ((length % 2) * options.beam + beam) * slot.limit;
      const written = [...core.ints(at, length)];
      const isOver = options.endLoops && endsInLoop(written, slot.timesInSource);
      const mask = maskAfter(config, slot.source, written, slot.limit, isOver, options);
      let number = mask === null ? core.layout.constants.ANYTHING : this.placed.get(mask.key);
      if (mask?.isEnd) number = core.layout.constants.END_ALONE;
      else if (number === undefined) {
        number = FIXED_MASKS + this.placed.size;
        this.placed.set(mask.key, number);
        const bytes = new Uint8Array(core.memory.buffer, this.masks + number * config.vocab_size, config.vocab_size);
        bytes.set(mask.bytes());
      }
      core.view.setInt32(slot.masks + 4 * beam, number, true);
    }
  }

  /** Make room for keys and values, and copy what is there. */
  #makeRoom(slot, places) {
    const { core, weights } = this;
    const { past, parents } = slot.fields;
    const room = { past: core.allocate(4 * places * weights.memoryWidth), parents: core.allocate(4 * places) };
    if (slot.places) {
      const numbers = slot.places * weights.memoryWidth;
      core.floats(room.past, numbers).set(core.floats(past, numbers));
      core.ints(room.parents, slot.places).set(core.ints(parents, slot.places));
    }
    Object.assign(slot.fields, room);
    slot.places = places;
  }
}
