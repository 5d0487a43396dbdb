/** What goes wrong, said in the place of the translation; and what is read aloud when all goes well. */

import { byId } from "../explain/dom.js";

const MOST_SECONDS = 30;

/** Says what is wrong, and asks again by itself where that may help. */
export class Messages {
  #timer = null;
  #failures = 0;
  /** Until when nothing is to be asked, in milliseconds. */
  #notBefore = 0;
  #again;

  /** `again` asks again. */
  constructor(again) {
    this.#again = again;
    byId("retry").addEventListener("click", () => this.#retry());
    addEventListener("online", () => this.#timer !== null && this.#retry());
  }

  /** Milliseconds that the server wants to be left alone for. */
  get pause() {
    return Math.max(0, this.#notBefore - Date.now());
  }

  /** Says something that stays until the next message. */
  say(text, { isSerious = false, mayRetry = false } = {}) {
    clearTimeout(this.#timer);
    this.#timer = null;
    byId("message-text").textContent = text;
    byId("message").classList.toggle("serious", isSerious);
    byId("retry").hidden = !mayRetry;
  }

  /** All is well. */
  clear() {
    this.#failures = 0;
    this.#notBefore = 0;
    this.say("");
  }

  /** Asks no more by itself. */
  stop() {
    if (this.#timer !== null) this.say("");
  }

  /** Says why there is no answer. */
  refused(error) {
    const text = error.message.replace(/(; ask again)?\.?$/, "");
    if (!error.passes) {
      this.say(`${upper(text)}.`, { isSerious: true, mayRetry: error.status >= 500 });
      return;
    }
    this.#failures += 1;
    const seconds = Math.min(MOST_SECONDS, Math.max(error.seconds ?? 1, 2 ** (this.#failures - 1)));
    const when = seconds === 1 ? "in a second" : `in ${seconds} seconds`;
    this.say(`${upper(text)}. Asking again ${when}.`, { mayRetry: true });
    this.#notBefore = Date.now() + 1_000 * seconds;
    this.#timer = setTimeout(() => this.#retry(), 1_000 * seconds);
  }

  #retry() {
    this.#notBefore = 0;
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#again();
  }
}

/** Reads something aloud to whoever hears the page. */
export function announce(text) {
  byId("announcement").textContent = text;
}

const upper = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
