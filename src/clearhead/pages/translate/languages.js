/** Selection of the languages, and of the model if there are several. */

import { byId, make } from "../explain/dom.js";
import { DETECTS } from "./server.js";
import { forEver, keep, kept } from "./storage.js";

const AUTO = "auto";
/** Maximum number of languages that are listed in a sentence. */
const MOST_NAMED = 6;
const RIGHT_TO_LEFT_LANGUAGES = /^(ar|arc|ckb|dv|fa|he|iw|nqo|ps|sd|syr|ug|ur|yi)(?![a-z])|[-_](Arab|Hebr|Thaa|Nkoo|Adlm)\b/i;

/** The selected source and target language. */
export class Languages {
  #names = new Map();
  #targets = new Map();
  #models = [];
  #detected = null;
  /** The last selection, even if it is not available now. */
  #chosen = kept(forEver, "languages") ?? {};
  #onChange;

  /** `onChange` is called when the reader changes the selection. */
  constructor(onChange) {
    this.#onChange = onChange;
    byId("from").addEventListener("change", () => this.#choose(byId("from"), byId("into")));
    byId("into").addEventListener("change", () => this.#choose(byId("into"), byId("from")));
    byId("model").addEventListener("change", () => {
      this.#fill();
      this.#changed();
    });
  }

  /** Sets what the server offers: `languages` of `GET /languages`, `models` of `GET /v1/models`. */
  take(languages, models) {
    this.#names = new Map(languages.map(({ code, name }) => [code, name]));
    this.#models = models;
    const choice = byId("model");
    const before = choice.value || this.#chosen.model;
    // If every language pair has one model, the choice of models is hidden.
    const pairs = models.flatMap((one) => [...pairsOf(one)].flatMap(([from, targets]) => targets.map((into) => `${from} ${into}`)));
    const isClear = models.every(isKnown) && new Set(pairs).size === pairs.length;
    byId("model-choice").hidden = models.length < 2 || isClear;
    const names = models.map(({ name }) => make("option", { value: name }, name));
    const byLanguages = models.some(isKnown) ? [make("option", { value: "" }, "by languages")] : [];
    choice.replaceChildren(...byLanguages, ...names);
    if (!byId("model-choice").hidden && models.some(({ name }) => name === before)) choice.value = before;
    this.#targets = new Map(languages.map(({ code, targets }) => [code, targets]));
    this.#fill();
  }

  /** Source languages of the chosen model, each with its target languages. */
  #pairs() {
    const model = this.#models.find(({ name }) => name === byId("model").value);
    if (model === undefined) return new Map([...this.#targets].filter(([, targets]) => targets.length > 0));
    return pairsOf(model);
  }

  #fill() {
    const pairs = this.#pairs();
    const [from, into] = [byId("from"), byId("into")];
    const { source, target } = this.#models[0]?.example ?? {};
    const wanted = { from: from.value || this.#chosen.from || source, into: into.value || this.#chosen.into || target };
    const isUnknown = pairs.size === 0;
    from.disabled = isUnknown;
    into.disabled = isUnknown;
    byId("swap").hidden = isUnknown;
    if (isUnknown) {
      byId("pairs").textContent = "";
      const text = this.#models.length > 0 ? "As the model does" : "No language";
      from.replaceChildren(make("option", { value: "" }, text));
      into.replaceChildren(make("option", { value: "" }, text));
      return;
    }
    const name = (code) => this.nameOf(code);
    const sorted = (codes) => [...codes].sort((one, other) => this.#inOrder(one, other));
    const option = (code) => make("option", { value: code }, name(code));
    const sources = sorted(pairs.keys());
    from.replaceChildren(
      ...(DETECTS && sources.length > 1 ? [make("option", { value: AUTO }, "Detect language")] : []),
      ...sources.map(option),
    );
    if ([...from.options].some(({ value }) => value === wanted.from)) from.value = wanted.from;
    else if (!DETECTS) from.value = sources.find((code) => pairs.get(code).includes(wanted.into)) ?? from.value;
    const targets = sorted(new Set([...pairs.values()].flat()));
    into.replaceChildren(...targets.map(option));
    into.value = targets.includes(wanted.into) ? wanted.into : (this.#targetsOf(from.value)[0] ?? targets[0]);
    this.#name();
  }

  /** Shows what is possible: the targets of the source language, whether the two can be swapped, what was detected. */
  #name() {
    const [from, into] = [byId("from"), byId("into")];
    const targets = this.#targetsOf(from.value);
    const chosen = into.value;
    const [there, others] = [[], []];
    for (const option of [...into.options].sort((one, other) => this.#inOrder(one.value, other.value))) {
      const isThere = targets.includes(option.value);
      const sources = isThere ? "" : ` (from ${this.#named(this.#sourcesOf(option.value))})`;
      option.textContent = `${this.nameOf(option.value)}${sources}`;
      (isThere ? there : others).push(option);
    }
    if (others.length === 0) into.replaceChildren(...there);
    else {
      const group = (label, options) => (options.length > 0 ? [make("optgroup", { label }, ...options)] : []);
      const name = this.nameOf(from.value);
      into.replaceChildren(...group(`From ${name}`, there), ...group(`No model from ${name}`, others));
    }
    into.value = chosen;
    const problem = this.#swapProblem;
    const [swap, title] = [byId("swap"), "Swap the languages"];
    swap.setAttribute("aria-disabled", String(problem !== null));
    swap.title = problem === null ? title : `${title}: not possible. ${problem}`;
    byId("pairs").textContent = this.#possible;
    const auto = [...from.options].find(({ value }) => value === AUTO);
    if (auto) {
      auto.textContent = this.#detected === null ? "Detect language" : `${this.nameOf(this.#detected)} (detected)`;
    }
  }

  #inOrder(one, other) {
    return this.nameOf(one).localeCompare(this.nameOf(other), "en");
  }

  #targetsOf(source) {
    const pairs = this.#pairs();
    return source === AUTO ? [...pairs.values()].flat() : (pairs.get(source) ?? []);
  }

  #choose(side, other) {
    // Choosing the language of the other side swaps the two.
    const was = side === byId("from") ? this.#chosen.from : this.#chosen.into;
    if (side.value === other.value && [...other.options].some(({ value }) => value === was)) other.value = was;
    this.#changed();
  }

  #changed() {
    this.#detected = null;
    this.#chosen = { from: byId("from").value, into: byId("into").value, model: byId("model").value };
    keep(forEver, "languages", this.#chosen);
    this.#name();
    this.#onChange();
  }

  /** Returns the name of a language. */
  nameOf(code) {
    return this.#names.get(code) ?? code;
  }

  get from() {
    return byId("from").value;
  }

  get into() {
    return byId("into").value;
  }

  /** Language of the text, as chosen or detected; null if unknown. */
  get source() {
    return this.from === AUTO ? this.#detected : this.from || null;
  }

  get isDetecting() {
    return this.from === AUTO;
  }

  /**
   * Sets the detected language; null if there is no text. If it cannot be translated into the chosen language, another
   * target is chosen.
   */
  detected(code) {
    if (code === this.#detected) return;
    this.#detected = code;
    const targets = code === null ? [] : this.#targetsOf(code);
    if (targets.length > 0 && !targets.includes(this.into)) byId("into").value = targets[0];
    this.#name();
  }

  /** Request fields for languages and model. */
  get fields() {
    const model = byId("model").value;
    return {
      ...(model === "" ? {} : { model }),
      ...(this.source === null ? {} : { source: this.source }),
      ...(this.into === "" ? {} : { target: this.into }),
    };
  }

  /** Name of the model that the server uses; null if the language of the text is not known yet. */
  get model() {
    const isServed = (one) => pairsOf(one).get(this.source)?.includes(this.into);
    return byId("model").value || (this.#models.find(isServed)?.name ?? null);
  }

  /** Reason why nothing can be translated; null if it can. */
  get problem() {
    if (this.#models.length === 0) return "The server has no model yet.";
    return this.from === "" ? null : this.#problemOf(this.from, this.into);
  }

  #sourcesOf(target) {
    return [...this.#pairs()].filter(([, into]) => into.includes(target)).map(([code]) => code);
  }

  /** The names of languages; of many, their number. */
  #named(codes) {
    if (codes.length > MOST_NAMED) return `${codes.length} languages`;
    return codes.map((code) => this.nameOf(code)).join(", ") || "no language";
  }

  #problemOf(source, target) {
    const targets = this.#targetsOf(source);
    if (targets.includes(target)) return null;
    const [from, into] = [this.nameOf(source), this.nameOf(target)];
    return `No model translates ${from} into ${into}: here ${from} is translated into ${this.#named(targets)}, and ${into} from ${this.#named(this.#sourcesOf(target))}.`;
  }

  /** The pairs of languages that the models have, in words; empty if the languages are not known. */
  get #possible() {
    const pairs = [...this.#pairs()];
    if (pairs.length > MOST_NAMED) return `${pairs.length} languages can be translated; the lists say into which.`;
    const possible = pairs.map(([source, targets]) => `${this.nameOf(source)} into ${this.#named(targets)}`);
    return possible.length === 0 ? "" : `Here: ${possible.join("; ")}.`;
  }

  /** Selects languages, such as those of a history entry. */
  choose(from, into) {
    byId("from").value = from;
    byId("into").value = into;
    for (const side of ["from", "into"]) if (byId(side).selectedIndex < 0) byId(side).selectedIndex = 0;
    this.#changed();
  }

  /** Swaps the languages; returns the reason if that is impossible, otherwise null. */
  swap() {
    const problem = this.#swapProblem;
    if (problem === null) this.choose(this.into, this.source);
    return problem;
  }

  get #swapProblem() {
    if (this.source === null) return "The language of the text is not known yet.";
    return this.#problemOf(this.into, this.source);
  }
}

/** Text direction of a language; `auto` if the language is unknown. */
export function directionOfLanguage(code) {
  if (code === null || code === "" || code === AUTO) return "auto";
  return RIGHT_TO_LEFT_LANGUAGES.test(code) ? "rtl" : "ltr";
}

/** Source languages of a model with their targets; a language is its own target only if no source has another. */
function pairsOf({ sources, targets }) {
  const others = (source) => targets.filter((target) => target !== source);
  const isSame = sources.every((source) => others(source).length === 0);
  const pairs = sources.map((source) => [source, isSame ? targets : others(source)]);
  return new Map(pairs.filter(([, into]) => into.length > 0));
}

const isKnown = ({ sources, targets }) => sources.length > 0 && targets.length > 0;
