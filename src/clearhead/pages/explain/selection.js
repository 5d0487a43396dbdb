/** What is chosen on the page: a head, a row and a column of it, a step of the decoder. Every view follows it. */

export class Selection {
  #listeners = [];

  constructor(attentions, numSteps) {
    this.attentions = attentions;
    this.numSteps = numSteps;
    this.attention = attentions[0];
    this.layer = this.attention.numLayers - 1;
    this.head = 0;
    this.row = 0;
    this.column = 0;
    this.step = numSteps > 0 ? 0 : null;
  }

  /** Calls back after every change, with the names of what changed. */
  onChange(listener) {
    this.#listeners.push(listener);
  }

  /** Chooses; a row of the decoder is a step, and a step is a row, of which the largest weight is chosen. */
  choose(wanted) {
    const before = { ...this };
    Object.assign(this, wanted);
    const { firstStep, queries, keys } = this.attention;
    if (firstStep !== null && (wanted.step !== undefined || (wanted.attention && wanted.row === undefined))) {
      this.row = firstStep + this.step;
    }
    this.row = Math.min(this.row, queries.length - 1);
    if (wanted.step !== undefined && wanted.column === undefined) this.column = this.#highest();
    this.column = Math.min(this.column, this.attention.isCausal ? this.row : keys.length - 1);
    if (firstStep !== null && this.row >= firstStep) this.step = this.row - firstStep;
    const changed = new Set(
      ["attention", "layer", "head", "row", "column", "step"].filter((name) => this[name] !== before[name]),
    );
    if (changed.size > 0) this.#listeners.forEach((listener) => listener(changed));
  }

  /** Where the chosen row looks most. */
  #highest() {
    const { values } = this.attention.weights().part(this.layer, this.head, this.row);
    return values.indexOf(Math.max(...values));
  }

  /** The row of an attention that belongs to the chosen step; null if it has none. */
  rowOf(attention) {
    return attention.firstStep === null || this.step === null ? null : attention.firstStep + this.step;
  }
}
