/** Required terms in translations: the reader's own, stored in this browser, or a term list of the server. */

import { byId, make } from "../explain/dom.js";
import { forEver, keep, kept } from "./storage.js";

/** Selection of terms below the panes, if the server supports terms. */
export class Terms {
  #own = byId("terms-own");
  #list = byId("terms-list");
  #isTaken = false;
  /** The lists that the server applies unless the request says otherwise: `default_terms` of `GET /v1/models`. */
  #defaults = [];

  /** `onChange` is called when the terms change. */
  constructor(onChange) {
    const { own = "", list = "" } = kept(forEver, "terms") ?? {};
    this.#own.value = own;
    this.#list.value = list;
    const changed = () => {
      keep(forEver, "terms", { own: this.#own.value, list: this.#list.value });
      this.#say();
      onChange();
    };
    this.#own.addEventListener("change", changed);
    this.#list.addEventListener("change", changed);
  }

  /** Sets the term lists of the server, and which apply by default; undefined means that it does not support terms. */
  take(lists, defaults = []) {
    this.#defaults = defaults;
    this.#isTaken = lists !== undefined;
    byId("terms").hidden = !this.#isTaken;
    if (!this.#isTaken) return;
    const before = this.#list.value || kept(forEver, "terms")?.list;
    const named = lists.map(({ name, size }) => make("option", { value: `list ${name}` }, `${name} (${size})`));
    this.#list.replaceChildren(
      make("option", { value: "" }),
      ...named,
      make("option", { value: "own" }, "my own"),
    );
    if ([...this.#list.options].some(({ value }) => value === before)) this.#list.value = before;
    this.#say();
  }

  /** Shows which terms the server applies to a model and its languages; `source` is null if it is not known yet. */
  showDefault({ model, source, into }) {
    const fits = (own, code) => own === null || own === code;
    const found = this.#defaults.find((one) => one.model === model && fits(one.source, source) && fits(one.target, into));
    const text = found ? `the server's${found.name ? ` “${found.name}”` : ""} (${found.size.toLocaleString("en")})` : "none";
    const option = [...this.#list.options].find(({ value }) => value === "");
    const isUnknown = model === null && source === null && this.#defaults.length > 0;
    if (option) option.textContent = isUnknown ? "the server's for these languages" : text;
    this.#say();
  }

  #say() {
    const chosen = this.#list.selectedOptions[0]?.textContent ?? "none";
    byId("terms-used").textContent = chosen === "none" ? "" : chosen;
    byId("terms-own-part").hidden = this.#list.value !== "own";
    const wrong = this.#lines().filter((line) => !isTerm(line));
    byId("terms-problem").textContent =
      wrong.length === 0 ? "" : `Not understood: ${wrong.map(({ line }) => `“${line}”`).join(", ")}; write “term = translation”.`;
  }

  #lines() {
    const lines = this.#own.value.split("\n").map((line) => line.trim()).filter((line) => line !== "");
    return lines.map((line) => {
      const [source, ...rest] = line.split("=");
      const forms = rest.join("=").split("|").map((form) => form.trim());
      return { line, source: source.trim(), target: forms.filter((form) => form !== "") };
    });
  }

  /** Request fields for terms. */
  get fields() {
    const { value } = this.#list;
    if (!this.#isTaken || value === "") return {};
    if (value !== "own") return { terms: value.slice("list ".length) };
    return { terms: this.#lines().filter(isTerm).map(({ source, target }) => ({ source, target })) };
  }
}

const isTerm = ({ source, target }) => source !== "" && target.length > 0;
