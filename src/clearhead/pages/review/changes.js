/** Changes on their way to the server, one after another; one that the server cannot take now stays and is sent again. */

import { Refused } from "../translate/refused.js";

/** The changes that are not saved yet, in order. */
export class Changes {
  /** Each has functions: `send` returns a promise, `done` takes its answer, `refused` the error of one given up. */
  #waiting = [];
  #sending = null;
  #onLost;

  /** `onLost` is called with the error when the server cannot be reached or is busy; `send` tries again. */
  constructor(onLost) {
    this.#onLost = onLost;
  }

  /** Number of changes that are not saved yet. */
  get count() {
    return this.#waiting.length;
  }

  add(change) {
    this.#waiting.push(change);
    void this.send();
  }

  /** Sends what waits, and returns when nothing does, or the server cannot be reached. */
  send() {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
    });
    return this.#sending;
  }

  async #sendAll() {
    while (this.#waiting.length > 0) {
      const [change] = this.#waiting;
      try {
        const answer = await change.send();
        this.#waiting.shift();
        change.done(answer);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        if (error.passes) {
          this.#onLost(error);
          return;
        }
        this.#waiting.shift();
        change.refused(error);
      }
    }
  }
}
