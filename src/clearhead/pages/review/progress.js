/** How far the review is, and whether the document has what was saved. */

import { byId } from "../explain/dom.js";
import { counted } from "../explain/text.js";
import { Refused } from "../translate/refused.js";
import { reviewStatus } from "./server.js";

/** Milliseconds after a change before the server is asked whether the document has it. */
const SOON = 1_500;
/** Milliseconds between questions while nothing happens. */
const SELDOM = 15_000;

/** The progress in the header. */
export class Progress {
  #review;
  #onLost;
  #document;
  #done = 0;
  #timer = null;
  /** Whether the server answered the last question. */
  isAnswered = true;

  /** `onLost` is called with the error when the server cannot be reached. */
  constructor(review, onLost) {
    this.#review = review;
    this.#onLost = onLost;
    this.#document = review.output.split(/[\\/]/).at(-1);
    byId("name").textContent = review.name;
    byId("languages").textContent = review.languages.every(Boolean) ? review.languages.map(nameOfLanguage).join(" → ") : "";
    this.done = review.done;
    byId("saved").title = review.output;
    byId("download").hidden = !review.is_download;
    this.#askIn(SELDOM);
    addEventListener("visibilitychange", () => document.visibilityState === "visible" && void this.ask());
  }

  get done() {
    return this.#done;
  }

  set done(done) {
    this.#done = done;
    const { count, name } = this.#review;
    const [doneText, countText] = [done, count].map((number) => number.toLocaleString("en"));
    byId("done").textContent = `${doneText} of ${countText} done`;
    byId("progress").max = Math.max(1, count);
    byId("progress").value = done;
    const counts = { open: count - done, done, all: count };
    for (const [what, number] of Object.entries(counts)) byId(`count-${what}`).textContent = number.toLocaleString("en");
    document.title = `${doneText}/${countText} · ${name} · review`;
  }

  /** Number of segments with typed text that is not saved. */
  set unsaved(count) {
    const text = `${counted(count, "text")} typed, not saved`;
    byId("unsaved").hidden = count === 0;
    if (byId("unsaved").textContent !== text) byId("unsaved").textContent = text; // see `Editor.#layOut`
  }

  /** A change was saved: the document will have it soon. */
  changed() {
    byId("saved").textContent = "saved; writing the document …";
    this.#askIn(SOON);
  }

  /** Asks the server how far it is. */
  async ask() {
    clearTimeout(this.#timer);
    try {
      const { done, saved, problem } = await reviewStatus();
      this.isAnswered = true;
      this.done = done;
      byId("saved").textContent = problem ?? (saved ? `written to ${this.#document}` : "saved; writing the document …");
      byId("saved").classList.toggle("serious", problem !== null);
      this.#askIn(saved ? SELDOM : SOON);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.isAnswered = false;
      this.#onLost(error);
    }
  }

  #askIn(milliseconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.ask(), milliseconds);
  }
}

function nameOfLanguage(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code) ?? code;
  } catch {
    return code; // no code of a language
  }
}
