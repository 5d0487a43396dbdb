/** Panel of one sentence: its alternative translations, and a link to its explanation. */

import { comparedText } from "../explain/differences.js";
import { byId, make } from "../explain/dom.js";
import { announce } from "./messages.js";
import { translateSentence } from "./server.js";

/** Maximum number of translations to request. */
const MOST_CHOICES = 5;

/** The panel below the translation. */
export class SentencePanel {
  #controller = new AbortController();
  #most;
  #choose;

  /** `most` is the maximum number of alternatives; `choose` is called with the text that the reader chooses. */
  constructor(most, choose) {
    this.#most = Math.min(MOST_CHOICES, most + 1);
    this.#choose = choose;
  }

  get isOpen() {
    return !byId("sentence").hidden;
  }

  /** Shows the alternative translations of a sentence. */
  async open(sentence, fields, isKeyboard) {
    this.close();
    const { signal } = this.#controller;
    byId("sentence").hidden = false;
    byId("sentence-source").textContent = sentence.source;
    byId("sentence-choices").replaceChildren(make("li", { class: "soft" }, "Asking …"));
    if (isKeyboard) byId("sentence-title").focus();
    let others;
    try {
      const body = { ...fields, text: sentence.source, num_best: this.#most };
      others = this.#most > 1 ? await translateSentence(body, signal) : [];
    } catch (error) {
      if (signal.aborted) return;
      byId("sentence-choices").replaceChildren(make("li", { class: "serious" }, `${error.message}.`));
      announce(error.message);
      return;
    }
    if (signal.aborted) return;
    const texts = [...new Set([sentence.own, ...others.map(({ text }) => text.trim())])];
    const none = "The model found no other.";
    byId("sentence-choices").replaceChildren(
      ...(texts.length > 1 ? texts.map((text) => this.#choice(text, sentence)) : [make("li", { class: "soft" }, none)]),
    );
    announce(texts.length > 1 ? `${texts.length} translations to choose from.` : none);
  }

  #choice(text, sentence) {
    const isShown = text === sentence.text;
    const button = make(
      "button",
      {
        type: "button",
        "aria-pressed": String(isShown),
        onclick: () => {
          for (const other of byId("sentence-choices").querySelectorAll("button")) {
            other.setAttribute("aria-pressed", String(other === button));
          }
          this.#choose(text);
        },
      },
      comparedText(text, sentence.own),
    );
    return make("li", {}, button);
  }

  close() {
    this.#controller.abort();
    this.#controller = new AbortController();
    byId("sentence").hidden = true;
  }
}
