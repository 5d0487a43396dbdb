/** Texts that are typed and not saved: kept in this browser until they are, also when it is closed. */

import { forEver, keep, kept } from "../translate/storage.js";

/** The drafts of a document. */
export class Drafts {
  #prefix;
  /** Maps the number of a segment to its draft, {source, text}. */
  #drafts = new Map();

  /** `name` is that of the document. */
  constructor(name) {
    this.#prefix = `review-${name}-`;
    for (const key of storedKeys()) {
      if (!key.startsWith(`clearhead-${this.#prefix}`)) continue;
      const number = Number(key.slice(key.lastIndexOf("-") + 1));
      const draft = kept(forEver, `${this.#prefix}${number}`);
      if (typeof draft?.source === "string" && typeof draft.text === "string") this.#drafts.set(number, draft);
    }
  }

  /** Numbers of the segments with a draft. */
  get numbers() {
    return [...this.#drafts.keys()];
  }

  /** The text typed for a segment; null if it is saved, or was of another document with this name. */
  textOf({ number, source, text }) {
    const draft = this.#drafts.get(number);
    return draft?.source === source && draft.text !== text ? draft.text : null;
  }

  /** Keeps what is typed for a segment; what is its saved text is no draft. */
  set({ number, source, text: saved }, text) {
    if (text === saved) {
      this.#drafts.delete(number);
      keep(forEver, `${this.#prefix}${number}`, null);
    } else {
      this.#drafts.set(number, { source, text });
      keep(forEver, `${this.#prefix}${number}`, { source, text });
    }
  }
}

function storedKeys() {
  try {
    return Object.keys(localStorage);
  } catch {
    return [];
  }
}
