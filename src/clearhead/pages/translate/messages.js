/** Error messages in place of the translation, and announcements for screen readers. */

import { byId } from "../explain/dom.js";
import { upper } from "./words.js";

const MOST_SECONDS = 30;

/** Shows errors, and retries automatically after temporary ones. */
export class Messages {
  #timer = null;
  #failures = 0;
  /** Time before which no request is sent, in milliseconds. */
  #notBefore = 0;
  #again;

  /** `again` repeats the request. */
  constructor(again) {
    this.#again = again;
    byId("retry").addEventListener("click", () => this.#retry());
    addEventListener("online", () => this.#timer !== null && this.#retry());
  }

  /** Milliseconds to wait before the next request. */
  get pause() {
    return Math.max(0, this.#notBefore - Date.now());
  }

  /** Shows a message until the next one. */
  say(text, { isSerious = false, mayRetry = false } = {}) {
    clearTimeout(this.#timer);
    this.#timer = null;
    byId("message-text").textContent = text;
    byId("message").classList.toggle("serious", isSerious);
    byId("retry").hidden = !mayRetry;
  }

  /** Clears the message, and the count of failures. */
  clear() {
    this.#failures = 0;
    this.#notBefore = 0;
    this.say("");
  }

  /** Cancels the automatic retry. */
  stop() {
    if (this.#timer !== null) this.say("");
  }

  /** Shows why a request failed; retries later if the failure is temporary. */
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

/** Announces a text to screen readers. */
export function announce(text) {
  byId("announcement").textContent = text;
}
