/** History of translations, stored only in this browser, if the reader wants it. */

import { byId, make } from "../explain/dom.js";
import { directionOfLanguage } from "./languages.js";
import { forEver, keep, kept } from "./storage.js";

const MOST_ENTRIES = 50;
/** Maximum characters of a stored text. */
const MOST_KEPT = 2_000;

/** The list below the panes; an entry is {from, into, text, translation}. */
export class History {
  #entries;
  #take;
  #nameOf;

  /** `take` is called with an entry to translate again; `nameOf` returns the name of a language. */
  constructor(take, nameOf) {
    this.#take = take;
    this.#nameOf = nameOf;
    this.#read();
    // Entries that were cleared in one tab must not be stored again by another.
    addEventListener("storage", () => {
      this.#read();
      this.#show();
    });
    byId("history-on").addEventListener("change", () => {
      keep(forEver, "history-off", byId("history-on").checked ? null : true);
      if (!byId("history-on").checked) this.#clear();
    });
    byId("history-clear").addEventListener("click", () => this.#clear());
    byId("history").addEventListener("toggle", () => this.#show());
    this.#show();
  }

  /** Stores a translation; it replaces the last entry if that is an earlier state of the same text. */
  add(entry) {
    if (!byId("history-on").checked || entry.text.length > MOST_KEPT || entry.text.trim() === "") return;
    const [last] = this.#entries;
    const isSame = ({ text, into }) => text === entry.text && into === entry.into;
    if (last !== undefined && last.into === entry.into && isEdited(last.text, entry.text)) this.#entries.shift();
    this.#entries = [entry, ...this.#entries.filter((one) => !isSame(one))].slice(0, MOST_ENTRIES);
    keep(forEver, "history", this.#entries);
    this.#show();
  }

  #read() {
    const entries = kept(forEver, "history");
    this.#entries = Array.isArray(entries) ? entries.filter(isEntry) : [];
    byId("history-on").checked = kept(forEver, "history-off") !== true;
  }

  #clear() {
    this.#entries = [];
    keep(forEver, "history", null);
    this.#show();
  }

  #show() {
    byId("history-count").textContent = this.#entries.length === 0 ? "" : String(this.#entries.length);
    byId("history-clear").hidden = this.#entries.length === 0;
    if (!byId("history").open) return;
    byId("history-list").replaceChildren(...this.#entries.map((entry) => this.#element(entry)));
  }

  #element(entry) {
    const { from, into, text, translation } = entry;
    const side = (code, of) => make("span", { dir: directionOfLanguage(code), lang: code }, of);
    const languages = [from, into].map((code) => this.#nameOf(code)).join(" → ");
    return make(
      "li",
      {},
      make(
        "button",
        { type: "button", onclick: () => this.#take(entry) },
        make("span", { class: "soft" }, languages),
        side(from, text),
        side(into, translation),
      ),
    );
  }
}

/** Returns whether one text is an edit of the other: their beginning and end share most of the shorter one. */
function isEdited(one, other) {
  const most = Math.min(one.length, other.length);
  let [before, behind] = [0, 0];
  while (before < most && one[before] === other[before]) before += 1;
  while (behind < most - before && one.at(-1 - behind) === other.at(-1 - behind)) behind += 1;
  return 2 * (before + behind) > most;
}

function isEntry(entry) {
  return [entry?.from, entry?.into, entry?.text, entry?.translation].every((one) => typeof one === "string");
}
