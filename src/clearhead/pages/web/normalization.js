// Lines in the Unicode form, case and white space of the training text: translation/normalization.py.

import { numCharacters } from "../translate/words.js";
import { innerSpan, inTitleCase, isLowerCase, isUpperCase, stripped, withSingleSpaces } from "./characters.js";
import { RULES } from "./rules.js";
import { cutLine } from "./sentences.js";

const CASED_WORD = new RegExp(RULES.CASED_WORD, "gu");
const SINGLE_WORD = new RegExp(`^${RULES.SINGLE_WORD}$`, "u");
const CASED_WORDS = new RegExp(RULES.CASED_WORDS, "gu");
const WITHOUT_CAPITAL = new RegExp(`[${RULES.WITHOUT_CAPITAL}]`, "gu");
const { OTHER_I, MOST_WORDS, LONGEST_CASED } = RULES;

/** `capitals`, `small letters`, or null: the case of all letters of a text of two words or more; line_statistics.py. */
export function letterCase(text) {
  const plain = text.replace(WITHOUT_CAPITAL, "");
  const isCapitals = isUpperCase(plain);
  if (!(isCapitals || isLowerCase(plain)) || (plain.match(CASED_WORDS)?.length ?? 0) < 2) return null;
  for (const letter of new Set(plain))
    if (/\p{L}/u.test(letter) && letter.toLowerCase() === letter.toUpperCase()) return null;
  if (isCapitals) return "capitals";
  return /\p{L}/u.test(/[\p{L}\p{N}]/u.exec(plain)[0]) ? "small letters" : null;
}

export class Normalizer {
  #cases = new Map();

  /**
   * @param {Placeholders} placeholders
   * @param {{familiar: TextForm, source: TextForm}} forms - Those of sources, and of sources whose white space stays.
   * @param {?object} training - Facts of the training lines (browser/text.py); null if unknown.
   * @param {Set<string>} written - The characters of the training targets.
   */
  constructor(vocabulary, placeholders, forms, training, written) {
    Object.assign(this, { vocabulary, placeholders, forms, written });
    this.rareCases = training?.rare_cases ?? [];
    this.dropsStraySpace = training?.drops_stray_space ?? false;
  }

  /**
   * The normalized form of a line, in sentences.
   * @param {boolean} [asText] - Whether a list marker at the beginning is read as text.
   * @returns {{text: string, sentences: string[], gaps: string[], original: string[], inCapitals: boolean,
   *   marker: string}} `original` are the sentences before; `inCapitals` says that the translation must be converted to
   *   capitals; `marker` is the list marker before it, which is in none of the others.
   */
  normalize(line, settings, targetLanguage, asText = false) {
    const { familiar, source_lang: sourceLanguage } = settings;
    const { text, starts } = (familiar ? this.forms.familiar : this.forms.source).aligned(line);
    if (!stripped(text)) // nothing is left of it but marks
      return { text: line, sentences: [line], gaps: [], original: [line], inCapitals: false, marker: "" };
    const marked = asText ? 0 : this.placeholders.listMarker(text).length;
    if (marked) {
      const begins = starts ? starts[marked] : marked;
      const rest = this.normalize(line.slice(begins), settings, targetLanguage, true);
      return { ...rest, marker: this.forms.source.of(line.slice(0, begins)) };
    }
    const { sentences, gaps } = cutLine(text, sourceLanguage);
    const cut = starts ? originalCut(line, text, { sentences, gaps }, starts) : { sentences, gaps };
    const unchanged = { text, sentences, gaps: cut.gaps, original: cut.sentences, inCapitals: false, marker: "" };
    if (!familiar) return unchanged;
    const drops = this.dropsStraySpace && text !== withSingleSpaces(stripped(text));
    const read = drops
      ? sentences.map((one) => this.placeholders.changeWords(stripped(one), withSingleSpaces))
      : sentences;
    const letters = this.#rareCase(text, sourceLanguage, targetLanguage);
    const usual = letters ? read.map((sentence) => this.#inUsualCase(sentence)) : read;
    if (!drops && usual.every((one, number) => one === sentences[number])) return unchanged;
    const own = drops ? gaps.map((gap) => gap && " ") : gaps;
    const whole = usual.map((sentence, number) => (number ? own[number - 1] : "") + sentence).join("");
    const inCapitals = letters === "capitals" && usual.some((one, number) => one !== read[number]);
    return { ...unchanged, text: whole, sentences: usual, inCapitals };
  }

  /** The case of all words of a line if it is rare in the training text. */
  #rareCase(text, sourceLanguage, targetLanguage) {
    if (!this.rareCases.length) return null;
    const words = this.placeholders.wordsAlone(text);
    let found = letterCase(words);
    const single = found === null ? SINGLE_WORD.exec(words)?.[1] : undefined;
    if (single !== undefined && isUpperCase(single)) {
      const [usual, capitals] = [this.#usualCase(single), single].map((form) => this.vocabulary.encode(form).length);
      found = usual === 1 && capitals > 2 ? "capitals" : null; // a word known in capitals is a name
    }
    if (!this.rareCases.includes(found)) return null;
    const isAsLong = numCharacters(text.toLowerCase()) === numCharacters(text);
    return isAsLong && !hasOtherI(sourceLanguage, text) && !hasOtherI(targetLanguage, this.written) ? found : null;
  }

  #inUsualCase(sentence) {
    let begins = this.rareCases.includes("small letters"); // sentences of the training text begin with a capital
    const isMarkedUp = sentence.startsWith("<"); // a tag is not the beginning of the sentence
    return this.placeholders.changeWords(sentence, (words) => {
      let usual = words.replace(CASED_WORD, (word) => this.#usualCase(word));
      const begun = /[\p{L}\p{N}]/u.exec(words)?.[0];
      let isFirst = begins && begun !== undefined && /\p{L}/u.test(begun);
      if (isFirst)
        usual = usual.replace(CASED_WORD, (word) => {
          const changed = isFirst ? capitalised(word) : word;
          isFirst = false;
          return changed;
        });
      begins &&= begun === undefined && isMarkedUp;
      return usual;
    });
  }

  /** A word in the case with the fewest tokens, then with the pieces learned first. */
  #usualCase(word) {
    if (numCharacters(word) > LONGEST_CASED) return word;
    if (!this.#cases.has(word)) {
      if (this.#cases.size > MOST_WORDS) this.#cases.clear();
      const [small, capitals] = [word.toLowerCase(), word.toUpperCase()];
      const forms = [...new Set([small, capitalised(small), capitals])];
      const keys = forms
        .filter((form) => numCharacters(form) === numCharacters(word))
        .map((form) => {
          const ids = this.vocabulary.encode(form);
          return [ids.length, Number(form === capitals), ids.reduce((sum, id) => sum + id, 0), form];
        });
      keys.sort((one, other) => one[0] - other[0] || one[1] - other[1] || one[2] - other[2]);
      this.#cases.set(word, keys[0][3]);
    }
    return this.#cases.get(word);
  }
}

/** The sentences of a line before it was brought to another form, and the white space between them. */
function originalCut(line, text, { sentences, gaps }, starts) {
  if (!gaps.length) return { sentences: [line], gaps };
  const inner = innerSpan(line);
  const found = { sentences: [], gaps: [] };
  let [first] = inner;
  let [end] = innerSpan(text);
  for (const [number, gap] of gaps.entries()) {
    end += sentences[number].length;
    found.sentences.push(line.slice(first, starts[end]));
    first = gap ? starts[end + gap.length - 1] + 1 : starts[end]; // marks that are left out belong to a sentence
    found.gaps.push(line.slice(starts[end], first));
    end += gap.length;
  }
  found.sentences.push(line.slice(first, inner[1]));
  return found;
}

function capitalised(word) {
  const [first] = word;
  const capital = inTitleCase(first);
  return numCharacters(capital) === 1 ? capital + word.slice(first.length) : word; // that of `ß` is two letters
}

/** Whether a text has two letters i by its language; by its characters if that is unknown. */
function hasOtherI(language, characters) {
  if (language) return OTHER_I.some((code) => language.toLowerCase().startsWith(code));
  const known = new Set(characters);
  return known.has("ı") || known.has("İ");
}
