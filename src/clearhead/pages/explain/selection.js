/** The selection on the page, which all views follow: head, row and column of it, and decoder step. */

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

  /** The listener is called after every change, with the names of what changed. */
  onChange(listener) {
    this.#listeners.push(listener);
  }

  /** Changes the selection. Decoder rows and steps are kept in agreement; a new row selects its largest weight. */
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

  /** Column with the largest weight in the chosen row. */
  #highest() {
    const { values } = this.attention.weights().part(this.layer, this.head, this.row);
    return values.indexOf(Math.max(...values));
  }

  /** Row of an attention for the chosen step; null if it has none. */
  rowOf(attention) {
    return attention.firstStep === null || this.step === null ? null : attention.firstStep + this.step;
  }
}
