// Translation of lines from text to text: translation/translator.py, in the pieces that a page needs.
//
// Left out: terms, memories, given beginnings, sampling, quality estimates, and tags restored by word alignment for a
// model without signs for placeholders, whose translations may lack some and are then flagged.

import { linesOf } from "../translate/words.js";
import { forcedPass } from "./attention.js";
import { innerSpan, stripped } from "./characters.js";
import { covers, Flags } from "./flags.js";
import { attentionOfHead, linkWords, wordSpans } from "./links.js";
import { CharacterParts } from "./masks.js";
import { Normalizer } from "./normalization.js";
import { Placeholders } from "./placeholders.js";
import { answerOf, joinedText, partsOf, translationOf } from "./results.js";
import { RULES } from "./rules.js";
import { forcedScores } from "./scoring.js";
import { search, settingsOf } from "./search.js";
import { tokenSpans } from "./spans.js";
import { TextForm } from "./text_form.js";

const [MOST_PIECES, MOST_TOKENS] = [16, 512]; // translated together; their memory grows with both
const MOST_LINES = 64; // prepared before it is asked whether to go on
const MOST_WEIGHTS = 2 ** 26; // cross-attention of all heads of a sentence; without links beyond them

const TAG = new RegExp(`^${RULES.TAG}`, "u");
const CODE = new RegExp(`^${RULES.CODE}$`, "u");
const LINE_BREAK = new RegExp(RULES.LINE_BREAK, "gu");

/** What a translation cannot be made of, and how to solve it. */
class TranslationError extends Error {}

export class Translator {
  /**
   * @param {Weights} weights - The weights that search.
   * @param {Vocabulary} vocabulary
   * @param {object} settings - Settings of the model in the page; those in `text`: browser/text.py.
   * @param {function(): Weights} [makeScorer] - Returns weights in fp32, which score and explain; called when they are
   *   first needed. By default they are those that search, whose scores in int8 are the search's own.
   */
  constructor(weights, vocabulary, settings, makeScorer = () => weights) {
    Object.assign(this, { weights, vocabulary, settings });
    this.#makeScorer = makeScorer;
    const { config } = weights;
    const { training } = settings.text;
    this.limit = Math.min(settings.decode.max_input_tokens, config.max_length ?? Infinity);
    this.tags = new Map(
      [...vocabulary.special]
        .sort((one, other) => one - other)
        .map((id) => [vocabulary.names[id], id])
        .filter(([name]) => name.startsWith("<2") && name.endsWith(">"))
        .map(([name, id]) => [name.slice(2, -1), id]),
    );
    this.placeholders = new Placeholders(settings.text);
    this.parts = new CharacterParts(settings.text.utf8, config);
    const [read, written] = [training?.source_characters, training?.target_characters].map(charactersIn);
    const { source, target } = settings.text.forms;
    const formOf = (form) => new TextForm(form, this.placeholders);
    this.forms = { familiar: formOf(source), source: formOf({ ...source, spaces: null }), target: formOf(target) };
    this.normalizer = new Normalizer(vocabulary, this.placeholders, this.forms, training, written ?? new Set());
    this.flags = new Flags(vocabulary, this.placeholders, settings.text, { read, written });
    this.knownWithoutWords = training?.changes_without_words ? read : new Set();
  }

  #makeScorer;
  #scorer = null;

  get scorer() {
    this.#scorer ??= this.#makeScorer();
    return this.#scorer;
  }

  /** What the search finds for lines in their case and white space: text and score of each. For golden sentences. */
  async found(lines) {
    const { decode } = this.settings;
    const sources = lines.map((line, place) => {
      const [language, text] = this.splitSource(line, decode.target_lang, place + 1);
      const masked = this.placeholders.protect(this.forms.source.of(text), decode.protect_numbers);
      return this.sourceIds(masked.text, language);
    });
    const best = await search(this.weights, sources, this.#options(1, null));
    return best.map(([{ tokens, score }]) => ({ text: this.textOf(tokens), score }));
  }

  /** The text of the ids of a translation, in the form of targets. */
  textOf(tokens, oneLine = false) {
    const text = this.vocabulary.decode(tokens);
    return this.forms.target.of(oneLine ? text.replace(LINE_BREAK, " ") : text);
  }

  /**
   * Translate texts, lines as a rule: white space around each line stays, and a text of several lines is translated
   * line by line.
   * @param {string[]} texts
   * @param {{target: ?string, nbest: number, beam: ?number, alignments: boolean, scores: boolean, inParts: boolean,
   *   oneLine: boolean}} how - Target language of lines without a tag; number of translations of each text; beam size,
   *   by default the model's; whether to link words; whether scores are those of fp32, not the search's own; whether each
   *   line, and each sentence of a line that is split, is answered by itself, as in a stream of the server: the sources of
   *   the answers joined are the texts; whether line ends in the translation of a line are replaced by spaces.
   * @param {{goesOn: function(): Promise<boolean>, take: function(object)}} control - `goesOn` is asked between calls
   *   of the core, and ends the translation with false; `take` gets each answer as soon as it is done, in order.
   * @returns {Promise<?object[]>} The answers, as of POST /v1/translate, with `index`; `tokens` are ids. Null if ended.
   * Throws TranslationError if an argument is wrong, or a line has no target language or cannot be encoded. One call
   * at a time, also of what else uses the weights: the memory of the core is a stack, which a second call would release
   * under the first.
   */
  async translate(texts, how = {}, { goesOn = async () => true, take = () => {} } = {}) {
    const { target = null, nbest = 1, beam = null, alignments = false, scores = true } = how;
    const { inParts = false, oneLine = false } = how;
    const options = { ...this.#options(nbest, beam), scores, oneLine };
    if (!Array.isArray(texts) || texts.some((text) => typeof text !== "string"))
      throw new TranslationError("texts must be a list of texts");
    const read = [];
    let number = 0; // of lines that are not blank
    for (const [index, text] of texts.entries()) {
      if (index % MOST_LINES === 0 && !(await goesOn())) return null;
      const lines = linesOf(text).map((line) => {
        const [start, end] = innerSpan(line);
        const own = line.slice(start, end);
        const around = { before: line.slice(0, start), after: line.slice(end) };
        return own ? { ...around, ...this.#read(own, target, ++number) } : { before: line, after: "", line: "" };
      });
      read.push({ index, text, lines });
    }
    const parts = read.flatMap(({ index, ...one }) => {
      const whole = { pieces: one.lines.flatMap(({ pieces = [] }) => pieces) };
      whole.made = () => joinedText(one, nbest, alignments, this);
      return (inParts ? partsOf(one, nbest, alignments, this) : [whole]).map((part) => ({ index, ...part }));
    });
    const answers = [];
    const give = () => {
      while (answers.length < parts.length) {
        const { index, pieces, made } = parts[answers.length];
        if (pieces.some(({ translation }) => translation === null)) return;
        answers.push({ index, ...answerOf(made()) });
        take(answers.at(-1));
      }
    };
    const pieces = read.flatMap(({ lines }) => lines.flatMap((line) => line.pieces ?? []));
    for (const piece of pieces) if (!piece.isFilled) piece.translation = this.#unchanged(piece, nbest, alignments);
    give();
    for (const group of groupsOf(pieces.filter(({ isFilled }) => isFilled))) {
      if (!(await this.#translatePieces(group, options, alignments, goesOn))) return null;
      give();
    }
    return answers;
  }

  /** Ids of a source: the language tag if there is one, pieces, the end token. */
  sourceIds(text, language) {
    const tag = this.tags.get(language);
    return [...(tag === undefined ? [] : [tag]), ...this.vocabulary.encode(text), this.weights.config.eos_id];
  }

  /** Ids of a target: pieces, the end token. */
  targetIds(text) {
    return [...this.vocabulary.encode(text), this.weights.config.eos_id];
  }

  /** A source line as language and text; `number` is for messages. */
  splitSource(line, target, number) {
    const known = [...this.tags.keys()];
    if (known.length && target !== null && !this.tags.has(target))
      throw new TranslationError(`unknown target language '${target}'; known names: ${[...known].sort().join(", ")}`);
    const found = known.length ? TAG.exec(line) : null;
    const name = found && (found[1] ?? found[2]);
    const isTag = found && (this.tags.has(name) || (found[1] ? /^\p{L}/u.test(name) : CODE.test(name)));
    if (isTag && !this.tags.has(name)) {
      const tags = known.map((language) => `<2${language}>`).join(", ");
      throw new TranslationError(`line ${number}: unknown language tag <2${name}>; the model's tags are ${tags}`);
    }
    const [language, text] = isTag ? [name, line.slice(found[0].length)] : [target, line];
    if (known.length && language === null && stripped(text))
      throw new TranslationError(
        `line ${number}: into which language? This model translates into ${known.join(", ")}; start the line with ` +
          `its tag, <2${known[0]}>`,
      );
    return [language, text];
  }

  /** Whether a text is translated, not left as it is, such as `...` or `12345`. */
  translates(text) {
    const isKnown = (one) => stripped(one) !== "" && this.knownWithoutWords.has(one);
    return this.placeholders.hasWords(text) || [...text].some(isKnown);
  }

  #options(nbest, beam) {
    const { decode } = this.settings;
    const own = beam ?? decode.beam_size;
    for (const [name, number] of Object.entries({ nbest, beam: own }))
      if (!(Number.isInteger(number) && number >= 1 && number <= RULES.MOST_BEAMS))
        throw new TranslationError(`${name} must be a whole number from 1 to ${RULES.MOST_BEAMS}, not ${number}`);
    return { nbest, beam: Math.max(own, nbest), ...settingsOf(decode), parts: this.parts };
  }

  /** Normalize a line, and split it into the pieces that are translated by themselves. */
  #read(line, target, number) {
    const surrogate = /[\ud800-\udfff]/u.exec(line);
    if (surrogate) {
      const code = surrogate[0].charCodeAt(0).toString(16).toUpperCase();
      throw new TranslationError(
        `text ${number} holds an unpaired surrogate (U+${code}) at character ` +
          `${[...line.slice(0, surrogate.index)].length + 1}; it is half of a character and cannot be written as UTF-8`,
      );
    }
    const { decode } = this.settings;
    const [language, text] = this.splitSource(line, this.tags.size ? (target ?? decode.target_lang) : null, number);
    const form = this.normalizer.normalize(text, decode, language);
    const tag = line.slice(0, line.length - text.length);
    const piece = (own, original, sentences) => {
      const masked = this.placeholders.protect(own, decode.protect_numbers);
      const ids = this.sourceIds(masked.text, language);
      const isFilled = stripped(own) !== "" && this.translates(own);
      return { source: tag + own, text: own, original, masked, ids, sentences, isFilled, translation: null };
    };
    const whole = form.original.map((one, at) => (at ? form.gaps[at - 1] : "") + one).join("");
    const uncut = piece(form.text, whole, form.sentences.length);
    const isCut = this.#isCut(form.sentences.length, uncut.ids.length);
    const pieces = isCut ? form.sentences.map((one, at) => piece(one, form.original[at], 1)) : [uncut];
    const gaps = isCut ? form.gaps : [];
    return { line, text, read: form.text, gaps, marker: form.marker, inCapitals: form.inCapitals, pieces };
  }

  #isCut(sentences, tokens) {
    const { split } = this.settings.decode;
    if (sentences === 1 || split === "never") return false;
    if (split === "always" || tokens > this.limit) return true;
    const { training } = this.settings.text;
    return training !== null && !covers(training, sentences, tokens);
  }

  /** The translation of a piece that is left as it is. */
  #unchanged({ source, text, original }, nbest, alignments) {
    const isBlank = stripped(text) === "";
    const own = isBlank ? "" : original;
    const alternatives = nbest > 1 && !isBlank ? [{ text: own, score: null }] : [];
    return translationOf({ source, text: own, score: isBlank ? 0 : null, alternatives, links: alignments ? [] : null });
  }

  /** Search for the translations of pieces; false if `goesOn` ended it. */
  async #translatePieces(pieces, options, alignments, goesOn) {
    const ids = pieces.map((piece) =>
      piece.ids.length <= this.limit ? piece.ids : [...piece.ids.slice(0, this.limit - 1), piece.ids.at(-1)]);
    const groups = await this.#texts(ids, options, goesOn);
    if (groups === null) return false;
    const isBlank = (row, one) => this.placeholders.isBlank(pieces[row].masked.restored(one.text));
    const blank = groups.flatMap((group, row) => (isBlank(row, group[0]) ? [row] : []));
    if (blank.length && options.nbest < options.beam) {
      const wider = { ...options, nbest: options.beam };
      const again = await this.#texts(blank.map((row) => ids[row]), wider, goesOn);
      if (again === null) return false;
      blank.forEach((row, number) => (groups[row] = again[number]));
    }
    for (const [row, piece] of pieces.entries()) {
      const wasBlank = blank.includes(row);
      const all = groups[row];
      const visible = wasBlank || options.nbest > 1 ? all.filter((one) => !isBlank(row, one)) : all;
      const found = (visible.length ? visible : all.slice(0, 1)).slice(0, options.nbest);
      const links = alignments ? this.#links(piece, ids[row], found[0].tokens) : null;
      piece.translation = this.#translation(piece, ids[row], found, {
        nbest: options.nbest, links, followsBlank: wasBlank && visible.length > 0,
      });
      if (alignments && !(await goesOn())) return false;
    }
    return true;
  }

  /** The texts of each source, best first, each once and as the vocabulary encodes it; null if `goesOn` ended it. */
  async #texts(sources, options, goesOn) {
    const isScoredLater = options.scores && this.scorer !== this.weights;
    const find = async (rows, own) => {
      const searched = rows.map((row) => sources[row]);
      const groups = await search(this.weights, searched, { ...own, scores: !isScoredLater }, goesOn);
      return groups?.map((group, number) => {
        const texts = new Map();
        for (const one of group) {
          const text = this.textOf(one.tokens, options.oneLine);
          if (!texts.has(text)) texts.set(text, { ...one, text, source: searched[number] });
        }
        return { found: [...texts.values()], isShort: texts.size < group.length && group.length === options.nbest };
      });
    };
    const groups = await find([...sources.keys()], options);
    if (!groups) return null;
    // Rare. Asking for more at once would keep beams of every line running that can no longer win.
    const short = groups.flatMap(({ isShort }, row) => (isShort && options.nbest < options.beam ? [row] : []));
    if (short.length) {
      const again = await find(short, { ...options, nbest: options.beam });
      if (!again) return null;
      short.forEach((row, number) => (groups[row].found = again[number].found.slice(0, options.nbest)));
    }
    const every = groups.flatMap(({ found }) => found);
    if (!(await this.#encodeAgain(every, options.scores, goesOn))) return null;
    return groups.map(({ found }) => found);
  }

  /** Give texts the tokens that the vocabulary has for them, and the score of those tokens. */
  async #encodeAgain(found, scores, goesOn) {
    const longest = this.weights.config.max_length ?? Infinity;
    const scorer = scores ? this.scorer : this.weights;
    const isExact = scorer === this.weights; // a search in fp32 finds the scores itself
    const wanted = found.filter((one) => {
      const ids = this.targetIds(one.text);
      const isOther = ids.length <= longest && ids.join() !== one.tokens.join();
      if (isOther) one.tokens = ids;
      return isOther || !isExact;
    });
    for (const group of groupsOf(wanted.map((one) => ({ one, ids: one.tokens })))) {
      if (!(await goesOn())) return false;
      const own = group.map(({ one }) => one);
      const scores = forcedScores(scorer, own.map(({ source }) => source), own.map(({ tokens }) => tokens));
      own.forEach((one, number) => (one.score = scores[number]));
    }
    return true;
  }

  /** Links between the words of a piece and of its translation. */
  #links({ masked }, source, target) {
    const { config } = this.scorer;
    const { num_decoder_layers: layers, num_heads: heads } = config;
    if (layers * heads * target.length * Math.max(source.length, target.length) > MOST_WEIGHTS) return [];
    const text = this.vocabulary.decode(target);
    const { cross } = forcedPass(this.scorer, source, target, ["cross"]);
    const spans = (ids, own) => masked.restoredSpans(own, tokenSpans(this.vocabulary, ids, own));
    const sides = [spans(source, masked.text), spans(target, text)];
    // Of a source that was cut there may be very many words that no token is in.
    const words = [masked.text, text].map((own, side) => {
      const most = sides[side].reduce((farthest, [, end]) => Math.max(farthest, end), 0);
      return wordSpans(masked.restored(own)).filter(([start]) => start < most);
    });
    return linkWords(attentionOfHead(cross, this.settings.text.head), ...sides, ...words);
  }

  #translation(piece, ids, group, { nbest, links, followsBlank }) {
    const best = group.map(({ text, score }) => ({ text: piece.masked.restored(text), score }));
    const facts = { tokens: piece.ids.length, sentences: piece.sentences, masked: piece.masked.text };
    const translation = translationOf({
      source: piece.source, ...best[0], tokens: group[0].tokens, alternatives: nbest > 1 ? best : [], links,
      sourceTruncated: piece.ids.length > ids.length, outputTruncated: group[0].wasEnded,
    });
    const flagsOf = (text, inPlace) => this.flags.of(piece.text, text, { ...facts, inPlace });
    if (!this.placeholders.isBlank(translation.text)) {
      translation.warnings = flagsOf(translation.text, followsBlank ? "the next best translation" : "");
      return translation;
    }
    // The source takes the place of a blank translation.
    const own = { text: piece.original, score: null };
    const alternatives = translation.alternatives.length ? [own, ...translation.alternatives.slice(1)] : [];
    const warnings = flagsOf(own.text, "the source");
    return { ...translation, ...own, tokens: [], alternatives, warnings, links: links && [] };
  }

}

/** Pieces to translate together, in order: one at first, so that its translation is there early. */
function* groupsOf(pieces) {
  let [group, tokens, most] = [[], 0, 1];
  for (const piece of pieces) {
    if (group.length && (group.length === most || tokens + piece.ids.length > MOST_TOKENS)) {
      yield group;
      [group, tokens, most] = [[], 0, Math.min(2 * most, MOST_PIECES)];
    }
    group.push(piece);
    tokens += piece.ids.length;
  }
  if (group.length) yield group;
}

/** The characters of ranges of code points, such as `20 41-5A`; null if they are unknown. */
function charactersIn(ranges) {
  if (ranges === undefined) return null;
  const found = new Set();
  for (const range of ranges.split(" ").filter(Boolean)) {
    const [first, last = first] = range.split("-").map((code) => Number.parseInt(code, 16));
    for (let code = first; code <= last; code++) found.add(String.fromCodePoint(code));
  }
  return found;
}
