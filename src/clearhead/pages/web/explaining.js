// The explanation of one translation, made by the core: inspection/explain.py and inspection/explanation.py.
//
// It has the keys of docs/explanation-json.md, is drawn by the page of an explanation, and has one key more, for the
// page: `computation` (computation.js). Its numbers are those of the model in the page: one in 8 bits is rounded.

import { ALL_OF_A_PASS, forcedPass, ofEach } from "./attention.js";
import { recordSearch } from "./beam_tree.js";
import { stripped } from "./characters.js";
import { computationOf } from "./computation.js";
import { crossRoles, selfRoles } from "./head_roles.js";
import { headStatistics } from "./head_statistics.js";
import { attentionOfHead, linkWords } from "./links.js";
import { packed, packedRows, packedWeights, plain, sixDigits } from "./packing.js";
import { entropyOf, predict, prediction } from "./predictions.js";
import { RULES } from "./rules.js";
import { settingsOf } from "./search.js";
import { shownSpans } from "./spans.js";
import { tokenWords } from "./token_words.js";

/**
 * Explain the translation of one sentence.
 * @param {Translator} translator
 * @param {object} request - `text`, the sentence; `translation`, or null for the model's own; `target`, the language,
 *   if the model has several; `beam`, the beam size, or null for the model's own.
 * @param {{goesOn: () => Promise<boolean>}} [hooks] - Asked between calls of the core; false ends the work.
 * @returns {Promise<object | null>} What `Explanation.to_dict(packed=True)` returns, and `computation`; null if it was
 *   ended. Throws an Error in Python's words if the text is empty or too long.
 */
export async function explain(translator, { text: line, translation: told = null, target = null, beam = null }, hooks = {}) {
  const { scorer: weights, vocabulary, placeholders, settings } = translator;
  const { goesOn = async () => true } = hooks;
  const { decode, explanation: rules } = settings;
  if ([line, told ?? ""].some((one) => /\p{Cs}/u.test(one)))
    throw new Error("the text holds an unpaired surrogate, which is half a character");
  const asked = translator.tags.size ? (target ?? decode.target_lang) : null;
  const [language, given] = translator.splitSource(line, asked, 1);
  const words = translator.forms.source.of(given);
  const text = line.slice(0, line.length - given.length) + words;
  const translation = told && translator.forms.target.of(told);
  if (!stripped(words))
    throw new Error("there is nothing to explain: the text is empty; give a sentence to translate");
  const masked = placeholders.protect(words, decode.protect_numbers);
  const sourceIds = translator.sourceIds(masked.text, language);
  requireAtMost(decode.max_input_tokens, sourceIds, "text");
  requireRoom(rules, weights.config, sourceIds.length, 0);
  const options = { beam: beam ?? decode.beam_size, ...settingsOf(decode), parts: translator.parts };
  const tree = await recordSearch(weights, sourceIds, options, goesOn);
  if (tree === null) return null;
  const textOf = (ids) => masked.restored(vocabulary.decode(ids));
  const isGiven = translation !== null;
  const signed = isGiven
    ? withSignsOf(masked, placeholders, words, translation, decode.protect_numbers)
    : vocabulary.decode(tree.hypothesis.tokens);
  const ids = isGiven ? translator.targetIds(signed) : tree.hypothesis.tokens;
  const shown = isGiven ? translation : textOf(ids);
  requireAtMost(decode.max_input_tokens, ids, "target");
  requireRoom(rules, weights.config, sourceIds.length, ids.length);

  const pass = forcedPass(weights, sourceIds, ids, ALL_OF_A_PASS);
  const piecesOf = (some) => vocabulary.pieces(some).map((piece) => masked.restored(piece));
  const predicted = await predictions(weights, pass.states.decoder, ids, piecesOf, rules, goesOn);
  if (predicted === null) return null;
  const computation = await computationOf(weights, pass, ids, predicted.likely, goesOn);
  if (computation === null && !(await goesOn())) return null;

  const tag = [...text].length - [...words].length; // characters of the language tag before the text
  const spans = shownSpans(vocabulary, masked, sourceIds);
  const sourceSpans = spans.map((span) => span?.map((at) => at + tag) ?? null);
  const targetSpans = shownSpans(vocabulary, masked, ids, signed);
  const tokens = { source: piecesOf(sourceIds), target: piecesOf(ids) };
  tokens.decoder = [rules.start_token, ...tokens.target.slice(0, -1)];
  const wordsOfSides = { source: tokenWords(text, sourceSpans), target: tokenWords(shown, targetSpans) };
  const rows = attentionOfHead(pass.cross, rules.alignment_head);
  const alignment = {
    values: Float32Array.from(rows.flatMap((row) => [...row])), shape: [ids.length, sourceIds.length],
  };
  const hasText = sourceSpans.map((span) => span !== null);
  return {
    clearhead_explanation: rules.version,
    kind: "encoder-decoder",
    model: { ...rules.model, beam_size: options.beam },
    source: text,
    translation: shown,
    is_given: isGiven,
    score: predicted.score,
    source_tokens: tokens.source,
    source_spans: sourceSpans,
    source_words: wordsOfSides.source,
    decoder_tokens: tokens.decoder,
    target_tokens: tokens.target,
    target_spans: targetSpans,
    target_words: wordsOfSides.target,
    first_step: 0,
    num_told: 0,
    encoder: packedWeights(pass.encoder),
    decoder: packedWeights(pass.decoder),
    cross: packedWeights(pass.cross),
    alignment: packedWeights(alignment),
    alignment_head: rules.alignment_head,
    links: linksOf(rows, sourceSpans, targetSpans, wordsOfSides),
    head_statistics: {
      encoder: statisticsOf(pass.encoder, { isSelf: true, isCausal: false }),
      decoder: statisticsOf(pass.decoder, { isSelf: true, isCausal: true }),
      cross: statisticsOf(pass.cross, { isSelf: false, isCausal: false }),
    },
    head_roles: {
      encoder: selfRoles(rules.roles, pass.encoder, tokens.source, false),
      decoder: selfRoles(rules.roles, pass.decoder, tokens.decoder, true),
      cross: crossRoles(rules.roles, pass.cross, alignment, [tokens.target, tokens.source], hasText),
    },
    steps: predicted.steps,
    logit_lens: predicted.lens,
    residual_norms: ofEach(pass.states, normsOf),
    search: searchOf(tree, shown, piecesOf, textOf),
    attribution: null,
    ablation: null,
    vectors: vectorsOf(pass, rules),
    computation,
  };
}

/** A target with the source's signs in place of the placeholders that both have: `protect_target` in Python. */
function withSignsOf(masked, placeholders, source, target, withNumbers) {
  if (!masked.originals.size) return target;
  const { SIGNS, NUM_ALONE, NUM_PAIRS } = RULES;
  const signsOf = new Map(); // by the texts of a placeholder, one, or an opening and a closing one
  for (const [sign, text] of masked.originals) {
    const number = SIGNS.indexOf(sign);
    const closing = SIGNS[number + NUM_PAIRS];
    if (number < NUM_ALONE) signsOf.set(JSON.stringify([text]), [sign]);
    else if (number < NUM_ALONE + NUM_PAIRS)
      signsOf.set(JSON.stringify([text, masked.originals.get(closing)]), [sign, closing]);
  }
  const waiting = new Map();
  for (const unit of placeholders.unitsOf(target, withNumbers)) {
    const key = JSON.stringify(unit.texts);
    if (!waiting.has(key)) waiting.set(key, []);
    waiting.get(key).push(unit);
  }
  const spots = placeholders.unitsOf(source, withNumbers).flatMap(({ texts }) => {
    const signs = signsOf.get(JSON.stringify(texts));
    const unit = signs && waiting.get(JSON.stringify(texts))?.shift();
    return unit ? unit.starts.map((start, number) => [start, texts[number], signs[number]]) : [];
  });
  let [signed, end] = ["", 0];
  for (const [start, text, sign] of spots.sort(([one], [other]) => one - other)) {
    signed += target.slice(end, start) + sign;
    end = start + text.length;
  }
  return signed + target.slice(end);
}

function requireAtMost(limit, ids, what) {
  if (ids.length <= limit) return;
  throw new Error(
    `the ${what} has ${counting(ids.length)} tokens; at most ${counting(limit)} can be explained ` +
      "(decode.max_input_tokens): split it into sentences",
  );
}

/** Refuse a sentence that is too long for a page. */
function requireRoom({ max_page_weights: most }, config, sources, targets) {
  const held = config.num_heads *
    (config.num_encoder_layers * sources ** 2 + config.num_decoder_layers * (targets ** 2 + targets * sources));
  if (held <= most) return;
  throw new Error(
    `a page holds at most ${counting(most)} attention weights, and this sentence has ${counting(held)}; split it ` +
      "into sentences",
  );
}

const counting = (number) => number.toLocaleString("en-US");

/** Steps, score and most probable tokens of a target, and predictions after each layer; null if `goesOn` ended it. */
async function predictions(weights, { values, shape }, ids, piecesOf, rules, goesOn) {
  const [states, targets, width] = shape;
  const steps = [];
  const likely = [];
  const lens = Array.from({ length: states }, () => []);
  let score = 0;
  for (let state = 0; state < states; state++) {
    const isLast = state === states - 1;
    const take = (step, logProbs) => {
      const { probability, rank, best } = prediction(logProbs, ids[step], rules.num_candidates);
      const pieces = piecesOf(best);
      const candidates = best.map((id, n) => ({ token: pieces[n], probability: Math.exp(logProbs[id]) }));
      const few = candidates.slice(0, rules.num_lens_candidates);
      lens[state].push({
        probability: sixDigits(probability),
        rank,
        candidates: few.map((one) => ({ token: one.token, probability: sixDigits(one.probability) })),
      });
      if (!isLast) return;
      const [token] = piecesOf([ids[step]]);
      score += logProbs[ids[step]];
      steps.push({ token, probability, candidates, entropy: entropyOf(logProbs), rank });
      likely.push(best.map((id, n) => ({ id, token: pieces[n], logProb: logProbs[id] })));
    };
    const own = values.subarray(state * targets * width, (state + 1) * targets * width);
    if (!(await predict(weights, own, isLast, take, goesOn))) return null;
  }
  return { steps, likely, lens, score };
}

function linksOf(rows, sourceSpans, targetSpans, words) {
  if (!words.source.length || !words.target.length) return [];
  const [sources, targets] = [sourceSpans, targetSpans].map((spans) => spans.map((span) => span ?? [0, 0]));
  return linkWords(rows, sources, targets, ...[words.source, words.target].map((all) => all.map(({ span }) => span)));
}

const statisticsOf = (weights, kind) =>
  ofEach(headStatistics(weights, kind), (layers) => layers.map((heads) => heads.map(sixDigits)));

/** The lengths of state vectors, [state][token]. */
function normsOf({ values, shape: [states, tokens, width] }) {
  const norms = Float64Array.from({ length: states * tokens }, (_, row) =>
    Math.hypot(...values.subarray(row * width, (row + 1) * width)));
  return plain({ values: norms, shape: [states, tokens] });
}

function searchOf(tree, translation, piecesOf, textOf) {
  const idsOf = (number) => {
    const path = [];
    for (let at = number; at !== null; at = tree.nodes[at].parent) path.push(at);
    return path.reverse();
  };
  const chosen = new Set(tree.finished.length ? idsOf(tree.finished[0]) : []);
  const pieces = piecesOf(tree.nodes.map(({ token }) => token));
  const text = textOf(tree.hypothesis.tokens);
  return {
    beam_size: tree.beam_size,
    length_penalty: tree.length_penalty,
    max_length: tree.max_length,
    text,
    is_translation: text === translation,
    was_ended: tree.hypothesis.wasEnded,
    nodes: tree.nodes.map((node) => ({
      ...node,
      log_prob: sixDigits(node.log_prob),
      score: sixDigits(node.score),
      rank_score: sixDigits(node.rank_score),
      token: pieces[node.number],
      is_chosen: chosen.has(node.number),
    })),
    finished: tree.finished.map((node) => ({
      node,
      text: textOf(idsOf(node).map((number) => tree.nodes[number].token)),
      score: tree.nodes[node].score,
      rank_score: tree.nodes[node].rank_score,
    })),
  };
}

/** Queries, keys and values of all heads, as exactly as fits in a page; null if they do not fit. */
function vectorsOf(pass, rules) {
  const size = Object.values(pass.vectors)
    .flatMap(({ queries, keys, values }) => [queries, keys, values])
    .reduce((sum, { values }) => sum + values.length, 0);
  if (size > rules.most_rounded) return null;
  const rows = size <= rules.most_exact ? packed : packedRows;
  return ofEach(pass.vectors, ({ queries, keys, values }, name) => ({
    queries: rows(queries),
    keys: rows(keys),
    values: rows(values),
    log_sums: packed(logSums(queries, keys, rules.model.scale, name === "decoder")),
    position_scores: null,
  }));
}

/** The log-sum-exp of the scores of every row: a score is the logarithm of its weight plus this. */
function logSums(queries, keys, scale, isCausal) {
  const [layers, heads, rows, width] = queries.shape;
  const columns = keys.shape[2];
  const found = new Float32Array(layers * heads * rows);
  found.forEach((_, place) => {
    const [head, row] = [Math.floor(place / rows), place % rows];
    const query = queries.values.subarray(place * width, (place + 1) * width);
    const scores = Array.from({ length: isCausal ? row + 1 : columns }, (_, column) => {
      const at = (head * columns + column) * width;
      return scale * query.reduce((sum, value, n) => sum + value * keys.values[at + n], 0);
    });
    const highest = Math.max(...scores);
    found[place] = highest + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - highest), 0));
  });
  return { values: found, shape: [layers, heads, rows] };
}
