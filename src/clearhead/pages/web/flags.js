// Quality flags of a translation: text/quality_flags.py, and number_differences.py beside it.
//
// Left out: the syntax of ICU messages with branches (`{n, plural, ..}`), whose other placeholders are compared, and
// tags placed by word alignment (`placed_markup`), which a page does not do.

import { numCharacters } from "../translate/words.js";
import { stripped } from "./characters.js";
import { letterCase } from "./normalization.js";
import { SIGN } from "./placeholders.js";
import { RULES } from "./rules.js";
import { scriptOf, scriptsOf } from "./scripts.js";

const {
  RATIO_MARGIN, RATIO_FLOOR, MOST_SHOWN, LARGEST_SPELLED, MOST_RUNS, MOST_DECIMALS, GROUP, MOST_SENTENCES,
  COPY_WINDOW, COPY_STRIDE, LEAST_WINDOWS, COPIED_SHARE, LONGEST_UNIT, STATEMENT_SIGNS,
} = RULES;
const REPEATED = new RegExp(RULES.REPEATED, "u");
const REPEATED_A_LITTLE = new RegExp(RULES.REPEATED_A_LITTLE, "gu");
const NUMBER = new RegExp(RULES.NUMBER, "gu");
const INVISIBLE_CODE = /(?! )[\p{C}\p{Z}]/u;

export class Flags {
  #vocabularyScripts;

  /**
   * @param {object} settings - What text_settings in browser/text.py returns.
   * @param {{read: ?Set<string>, written: ?Set<string>}} characters - Those of the training lines; null if unknown.
   */
  constructor(vocabulary, placeholders, settings, characters) {
    Object.assign(this, { vocabulary, placeholders, settings, characters, training: settings.training });
  }

  /**
   * The warnings about a translation, each kind at most once.
   * @param {string} source - The text translated as a unit, without a language tag.
   * @param {string} text - Its translation.
   * @param {{tokens: number, sentences: number, masked: string, inPlace: string}} facts - Tokens and sentences of the
   *   source; the source with signs; what the text is if the model's best translation is empty.
   * @returns {{kind: string, detail: string}[]}
   */
  of(source, text, { tokens, sentences, masked, inPlace = "" }) {
    const details = {
      empty: inPlace || (this.placeholders.isBlank(text) ? "the model wrote nothing" : ""),
      ...this.#lengths(source, text, tokens, sentences),
      repetition: repetition(source, text),
      copied: this.#copy(source, text),
      unusual_case: this.#unusualCase(source),
      ...this.#unseen(source, text, masked.replace(SIGN, " ")),
      numbers: numbersDetail(source, text),
      placeholders: this.#placeholderChanges(source, text),
    };
    return this.settings.flags.filter((kind) => details[kind]).map((kind) => ({ kind, detail: details[kind] }));
  }

  /** The flags of a line's sentences: each kind once, with all details. */
  merged(groups) {
    const found = new Map(this.settings.flags.map((kind) => [kind, new Set()]));
    for (const { kind, detail } of groups.flat()) found.get(kind).add(detail);
    const some = [...found].filter(([, details]) => details.size);
    return some.map(([kind, details]) => ({ kind, detail: [...details].join("; ") }));
  }

  #lengths(source, text, tokens, sentences) {
    if (!this.training) return {};
    const { least_ratio: least, most_ratio: most, summary } = this.training;
    const lengths = [text, source].map(numCharacters);
    const detail = () => `${counted(lengths[0])} characters for ${counted(lengths[1])}`;
    const ratio = (lengths[0] + RATIO_FLOOR) / (lengths[1] + RATIO_FLOOR);
    const several = `${sentences} sentence${sentences > 1 ? "s" : ""}`;
    const tooMuch = () => `${counted(tokens)} tokens, ${several}; of the training lines ${summary}`;
    return {
      longer_than_trained: covers(this.training, sentences, tokens) ? "" : tooMuch(),
      too_short: ratio * RATIO_MARGIN < least ? detail() : "",
      too_long: ratio > most * RATIO_MARGIN ? detail() : "",
    };
  }

  #copy(source, text) {
    if (this.training?.copies_are_usual || !isCopied(source, text)) return "";
    const words = this.placeholders.wordsAlone(source); // addresses, code and figures are the same in every language
    const isCopy = /\p{L}/u.test(words) && isCopied(words, this.placeholders.wordsAlone(text));
    return isCopy ? "most of the source" : "";
  }

  #unusualCase(source) {
    if (!this.training?.rare_cases.length) return "";
    const words = this.placeholders.wordsAlone(stripped(source));
    const found = letterCase(words);
    if (found === "small letters" && words.startsWith(" ")) return ""; // `{name} ist da` does not begin with a word
    return this.training.rare_cases.includes(found) ? found : "";
  }

  #unseen(source, text, read) {
    const { read: known, written: writable } = this.characters;
    let letters = new Set([...read].filter((one) => !known?.has(one)));
    if (letters.size && read.includes("<")) {
      const untagged = new Set(this.placeholders.withoutTags(read));
      letters = new Set([...letters].filter((one) => untagged.has(one)));
    }
    const seen = this.#scriptsInTraining();
    const scripts = new Set([...scriptsOf(letters)].filter((script) => !seen.has(script)));
    const odd = known ? [...letters].filter((letter) => !scripts.has(scriptOf(letter))) : [];
    const own = new Set(source);
    const written = writable ? [...new Set(text)].filter((one) => !writable.has(one) && !own.has(one)) : [];
    const details = [odd.length ? shown(odd) : "", written.length ? `in the translation ${shown(written)}` : ""];
    return { unseen_script: [...scripts].sort().join(", "), unseen_characters: details.filter(Boolean).join(", ") };
  }

  #scriptsInTraining() {
    const { names } = this.vocabulary;
    this.#vocabularyScripts ??= scriptsOf(
      this.characters.read ?? new Set(this.vocabulary.pieces([...names.keys()]).join("")));
    return this.#vocabularyScripts;
  }

  /** The placeholders that a translation lacks, and those not in the source; added emphasis is allowed. */
  #placeholderChanges(source, text) {
    const missing = this.#missing(source, text);
    const torn = [...without(this.#pairs(source), this.#pairs(text))].flatMap(([pair, times]) =>
      Array(times).fill(JSON.parse(pair)).filter((codes) => !codes.some((code) => missing.includes(code))));
    const localized = this.#localizedChanges(source, text);
    const absent = [...missing, ...torn.flat(), ...localized.missing];
    const added = [...this.#missing(text, source).filter((one) => !/^\*+$/u.test(one)), ...localized.added];
    const isRst = /:`|``|`_/u.test(source) && !this.#besideWords(source).length;
    const beside = isRst ? this.#besideWords(text) : [];
    const told = [["", absent], ["not in the source: ", added], ["beside a letter: ", beside]];
    const finds = told.filter(([, some]) => some.length);
    return finds.map(([what, some]) => what + some.slice(0, MOST_SHOWN).join(" ")).join("; ");
  }

  /** The codes that a translation may write in another way (LOCALIZED_KINDS) and lacks, and what it has more. */
  #localizedChanges(source, text) {
    const [missing, added] = [[], []];
    if (!/[+$_&|]/u.test(source)) return { missing, added };
    const [read, written] = [source, text].map((one) => this.placeholders.withoutPlaceholders(one));
    for (const [inSource, inTranslation, isExact] of this.settings.localized) {
      const own = [...read.matchAll(new RegExp(inSource, "gu"))];
      if (!own.length) continue;
      const left = counts([...written.matchAll(new RegExp(inTranslation, "gu"))].map(([, one]) => one));
      for (const [whole, one] of own) {
        if (left.get(one)) left.set(one, left.get(one) - 1);
        else missing.push(whole);
      }
      if (isExact) for (const [one, times] of left) added.push(...Array(times).fill(one));
    }
    return { missing, added };
  }

  /** The marks of reStructuredText that a letter or digit is beside, where docutils does not see them. */
  #besideWords(text) {
    if (!text.includes("`")) return [];
    const isWord = (character) => character !== undefined && /[\p{L}\p{N}]/u.test(character);
    return this.placeholders.find(text).filter(({ 0: code, index }) => {
      if (!code.includes("`")) return false;
      const isOpening = code === "`" || /^:[^`]+`$/u.test(code);
      const before = [...text.slice(Math.max(0, index - 2), index)].at(-1);
      const [behind] = text.slice(index + code.length, index + code.length + 2);
      return (/^[:`]/u.test(code) && isWord(before)) || (!isOpening && /[`_]$/u.test(code) && isWord(behind));
    }).map(({ 0: code }) => stripped(code));
  }

  #missing(source, text) {
    const of = (one) => counts(this.placeholders.find(one).map(({ 0: found }) => this.#compared(found)));
    if (!this.placeholders.mayHave(source)) return [];
    return [...without(of(source), of(text))].flatMap(([placeholder, times]) => Array(times).fill(placeholder));
  }

  /** A placeholder as it is compared: a tag without its attributes, anything else without spaces. */
  #compared(placeholder) {
    const tag = this.placeholders.tag(placeholder);
    return tag ? `<${tag[1]}${tag[2]}>` : placeholder.replaceAll(" ", "");
  }

  /** How often each pair of codes is in a text; a template statement alone in one, as `{% else %}`, counts with it. */
  #pairs(text) {
    if (!/[<{_[`]/u.test(text)) return new Map();
    const found = [];
    const around = [];
    for (const { texts, starts } of this.placeholders.unitsOf(text)) {
      while (around.length && around.at(-1).starts[1] < starts[0]) around.pop();
      const own = texts.map((one) => this.#compared(one));
      const isStatement = STATEMENT_SIGNS.some((sign) => own[0].startsWith(sign));
      if (own.length === 2 && !own[0].includes("*")) {
        found.push(own);
        if (isStatement) around.push({ own, starts });
      } else if (around.length && isStatement) found.push([...own, ...around.at(-1).own]);
    }
    return counts(found.map((codes) => JSON.stringify(codes)));
  }
}

/** Whether a model trained on these lines should translate a line whole; text/line_statistics.py. */
export function covers({ most_tokens: most, sentences: lines }, sentences, tokens) {
  const asMany = lines.slice(Math.min(sentences, MOST_SENTENCES) - 1).reduce((sum, count) => sum + count, 0);
  return tokens <= most && (sentences === 1 || asMany >= Math.max(1, lines[0]));
}

const counted = (number) => number.toLocaleString("en");

function counts(items) {
  const found = new Map();
  for (const item of items) found.set(item, (found.get(item) ?? 0) + 1);
  return found;
}

/** How much more often items are in the first counts. */
function without(some, others) {
  const left = [...some].map(([item, times]) => [item, times - (others.get(item) ?? 0)]);
  return new Map(left.filter(([, times]) => times > 0));
}

function repetition(source, text) {
  const match = mayRepeat(text) ? REPEATED.exec(text) : null;
  if (!match) return "";
  const times = timesOf(match);
  // The source may have laughter, rows of dots or zeros, and in Chinese twelve characters of them are many.
  let inSource = 0;
  for (const other of source.matchAll(REPEATED_A_LITTLE)) inSource = Math.max(inSource, timesOf(other));
  if (times <= 2 * inSource) return "";
  const unit = unitOf(match);
  return `${inQuotes(stripped(unit) || unit)} ${times} times`;
}

/** A text as Python's repr writes it. */
function inQuotes(text) {
  const sign = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escapes = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", [sign]: `\\${sign}` };
  const shownOne = (one) => (INVISIBLE_CODE.test(one) ? escapeOf(one.codePointAt(0)) : one);
  const written = Array.from(text, (one) => escapes[one] ?? shownOne(one));
  return sign + written.join("") + sign;
}

function escapeOf(code) {
  const [letter, length] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(length, "0")}`;
}

const unitOf = ([, one, two, more]) => one ?? two ?? more;

const timesOf = (match) => Math.floor(match[0].length / unitOf(match).length);

/** Whether a text has a unit twice in a row: a quick look at every fifth character, which most texts do not pass. */
function mayRepeat(text) {
  for (let at = 0; at < text.length; at += 5) {
    const near = text.slice(at, at + 2 * LONGEST_UNIT + 3); // a character may be two units of JavaScript
    const start = near.slice(0, 3);
    for (let again = near.indexOf(start, 1); again >= 0; again = near.indexOf(start, again + 1))
      if (text.startsWith(near.slice(0, again), at + again)) return true;
  }
  return false;
}

/** Whether most of a source occurs unchanged in its target, by windows of bytes of UTF-8; text/line_statistics.py. */
function isCopied(source, target) {
  const [read, written] = [stripped(source), target].map((text) => bytesOf(text));
  const windows = [];
  for (let at = 0; at + COPY_WINDOW <= read.length; at += COPY_STRIDE) windows.push(read.slice(at, at + COPY_WINDOW));
  if (windows.length < LEAST_WINDOWS) return false;
  const known = new Set();
  for (let at = 0; at + COPY_WINDOW <= written.length; at++) known.add(written.slice(at, at + COPY_WINDOW));
  return windows.filter((one) => known.has(one)).length >= COPIED_SHARE * windows.length;
}

/** A text with a character for each byte of UTF-8. */
const bytesOf = (text) => Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");

function numbersDetail(source, text) {
  const [read, written] = [numbersOf(source), numbersOf(text)];
  const added = absentNumbers(written, read);
  const missing = missingNumbers(absentNumbers(read, written), added).slice(0, MOST_SHOWN);
  const invented = [...new Set([...added].filter(([run]) => isLarge(run)).map(([, number]) => number))];
  const details = missing.length ? [missing.join(", ")] : [];
  if (invented.length) details.push(`not in the source: ${invented.slice(0, MOST_SHOWN).join(", ")}`);
  return details.join("; ");
}

/** The missing numbers. A small one may have become a word, a month or, less 12, an hour of the afternoon. */
function missingNumbers(missing, added) {
  if ([...missing.keys()].some(isLarge)) return [...new Set(missing.values())];
  const hours = [...missing.keys()].flatMap((one) =>
    [...added.keys()].filter((other) => !isLarge(other) && Math.abs(Number(one) - Number(other)) === 12)
      .map((other) => [one, other]));
  if (![...added.keys()].some((run) => !hours.some(([, hour]) => hour === run))) return [];
  const left = [...missing].filter(([run]) => !hours.some(([hour]) => hour === run));
  return [...new Set(left.map(([, number]) => number))];
}

/** The numbers of a text, each with its runs of digits: `1.250,5` has three. */
function numbersOf(text) {
  return [...text.matchAll(NUMBER)].map(([number]) => ({
    number,
    runs: number.match(/\p{Nd}+/gu).map((run) => run.replace(/[^0-9]/gu, (digit) => digitOf(digit))),
  }));
}

/** The value of a decimal digit of another script: they follow each other from 0 to 9. */
function digitOf(digit) {
  const code = digit.codePointAt(0);
  let first = code;
  while (code - first < 50 && /\p{Nd}/u.test(String.fromCodePoint(first - 1))) first--;
  return String((code - first) % 10);
}

const isLarge = (run) => run.length >= GROUP || Number(run) > LARGEST_SPELLED;

/** The runs of digits that other numbers do not have, alone or joined with neighbouring runs, with their numbers. */
function absentNumbers(numbers, others) {
  const known = new Set();
  for (const { runs } of others)
    for (let start = 0; start < runs.length; start++) {
      if (start > 0 && runs[start] === "0".repeat(GROUP)) continue; // 5,000,000 is not 5,000
      for (let end = start + 1; end <= Math.min(start + MOST_RUNS, runs.length); end++)
        known.add(joinedRuns(runs, start, end));
    }
  const amounts = new Set(others.map(({ runs }) => amountOf(runs)));
  const absent = new Map();
  for (const { number, runs } of numbers) {
    let start = amounts.has(amountOf(runs)) ? runs.length : 0;
    while (start < runs.length) {
      let end = Math.min(start + MOST_RUNS, runs.length);
      while (end > start && !known.has(joinedRuns(runs, start, end))) end--;
      if (end === start) {
        const run = joinedRuns(runs, start, start + 1);
        if (!absent.has(run)) absent.set(run, number);
      }
      start = Math.max(end, start + 1);
    }
  }
  return absent;
}

/** The digits of some runs without meaningless leading zeros; those of `1,000` are kept. */
function joinedRuns(runs, start, end) {
  const digits = runs.slice(start, end).join("");
  return start > 0 && runs[start].length === GROUP ? digits : digits.replace(/^0+/u, "");
}

/** The digits before and after the decimal sign, without trailing zeros: `1.50` is `1.5`. */
function amountOf(runs) {
  const hasDecimals = runs.length > 1 && runs.at(-1).length <= MOST_DECIMALS;
  const [whole, decimals] = hasDecimals ? [runs.slice(0, -1), runs.at(-1)] : [runs, ""];
  return `${whole.join("").replace(/^0+/u, "")}.${decimals.replace(/0+$/u, "")}`;
}

/** A few characters, each with its code point: many are invisible. */
function shown(characters) {
  const codes = characters.map((one) => [one, one.codePointAt(0)]).sort(([, one], [, other]) => one - other);
  const named = codes.slice(0, MOST_SHOWN).map(([one, code]) => {
    const hex = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    return /[\p{L}\p{N}\p{P}\p{S}]/u.test(one) ? `${one} ${hex}` : hex;
  });
  const more = codes.length - MOST_SHOWN;
  return named.join(", ") + (more > 0 ? ` and ${counted(more)} more` : "");
}
