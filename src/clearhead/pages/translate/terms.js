/** Required terms in translations: the reader's own, stored in this browser, or a term list of the server. */

import { byId, make } from "../explain/dom.js";
import { forEver, keep, kept } from "./storage.js";

/** Selection of terms below the panes, if the server supports terms. */
export class Terms {
  #own = byId("terms-own");
  #list = byId("terms-list");
  #isTaken = false;

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

  /** Sets the term lists of the server; undefined means that it does not support terms. */
  take(lists) {
    this.#isTaken = lists !== undefined;
    byId("terms").hidden = !this.#isTaken;
    if (!this.#isTaken) return;
    const before = this.#list.value || kept(forEver, "terms")?.list;
    const named = lists.map(({ name, size }) => make("option", { value: `list ${name}` }, `${name} (${size})`));
    this.#list.replaceChildren(
      make("option", { value: "" }, lists.length > 0 ? "the server's for these languages" : "none"),
      ...named,
      make("option", { value: "own" }, "my own"),
    );
    if ([...this.#list.options].some(({ value }) => value === before)) this.#list.value = before;
    this.#say();
  }

  #say() {
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
