/** What looks wrong with the text in the field, its terms and its placeholders. */

import { byId, make } from "../explain/dom.js";
import { counted, spoken } from "../explain/text.js";
import { announce } from "../translate/messages.js";
import { upper } from "../translate/words.js";

/** Maximum number of terms, and of placeholders, that are listed. */
const MOST_LISTED = 50;

/** The list of checks in the editor. */
export class Checks {
  #put;
  #shown = "";
  #numFlags = 0;
  #found = { terms: [], placeholders: [] };

  /** `put` writes a text at the cursor. */
  constructor(put) {
    this.#put = put;
  }

  /** The first placeholder or term that the text lacks, as it would be written; null if it lacks none. */
  get missing() {
    const placeholder = this.#found.placeholders.find(({ found }) => !found);
    return placeholder?.text ?? this.#found.terms.find(({ found }) => !found)?.target[0] ?? null;
  }

  /** Shows an answer of `POST /check`; `isQuiet` leaves it to the reader to notice. */
  show(found, isQuiet = false) {
    const shown = JSON.stringify(found);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const { terms, placeholders, problem = null } = found;
    const cannot = problem === null ? [] : [{ meaning: "this text cannot be saved", detail: problem, severity: "serious" }];
    const flags = [...cannot, ...found.flags];
    if (!isQuiet && flags.length !== this.#numFlags) {
      announce(flags.length === 0 ? "Nothing looks wrong." : `${counted(flags.length, "warning")}: ${flags[0].meaning}.`);
    }
    this.#found = found;
    this.#numFlags = flags.length;
    const reason = ({ meaning, detail, severity }) => make("li", { class: severity }, `${upper(meaning)}${detail ? `: ${detail}` : ""}`);
    const none = [make("li", { class: "soft" }, "Nothing looks wrong.")];
    byId("flags").replaceChildren(...(flags.length === 0 ? none : flags.map(reason)));
    const button = (isFound, text, title, shown) =>
      make(
        "button",
        { type: "button", class: isFound ? "code found" : "code missing", title, onclick: () => this.#put(text) },
        make("span", { "aria-hidden": "true" }, isFound ? "✓ " : "✗ "),
        make("bdi", {}, shown),
        make("span", { class: "unseen" }, isFound ? ", is there" : ", is missing"),
      );
    byId("placeholders").replaceChildren(
      ...placeholders.slice(0, MOST_LISTED).map(({ text, found: isFound }) => button(isFound, text, "Write it at the cursor", text)),
      ...terms.slice(0, MOST_LISTED).map(({ source, target, found: isFound }) =>
        button(isFound, target[0], `Term: ${spoken(source)}. Write it at the cursor`, `${source} = ${target.join(" | ")}`),
      ),
    );
  }
}
