/** The selection on the page, which all views follow: a head with a row and a key of it, a source token and a step. */

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
    this.source = 0;
    this.step = numSteps > 0 ? 0 : null;
  }

  /** The listener is called after every change, with the names of what changed. */
  onChange(listener) {
    this.#listeners.push(listener);
  }

  /**
   * Changes the selection. The source token and the step, which is a token of the translation, stay the same tokens in
   * every head: its row, and in cross-attention its column, follow them. A new row without a key chooses its largest
   * weight.
   */
  choose(wanted) {
    const before = { ...this };
    Object.assign(this, wanted);
    const { attention } = this;
    if (wanted.row !== undefined) Object.assign(this, attention.tokenOf(this.row));
    else if (wanted.source !== undefined && attention.isAlone) this.row = this.source;
    else if (wanted.step !== undefined || wanted.source !== undefined || attention !== before.attention) {
      this.row = attention.rowOf(this);
    }
    const isMoved = this.row !== before.row || attention !== before.attention;
    const followsToken = attention.name === "cross" && (wanted.step === undefined || wanted.source !== undefined);
    if (wanted.column === undefined) {
      if (followsToken) this.column = this.source;
      else if (isMoved || wanted.step !== undefined) this.column = this.#highest();
    }
    if (attention.isCausal) this.column = Math.min(this.column, this.row);
    if (attention.name === "cross") this.source = this.column;
    const changed = new Set(
      ["attention", "layer", "head", "row", "column", "source", "step"].filter((name) => this[name] !== before[name]),
    );
    if (changed.size > 0) this.#listeners.forEach((listener) => listener(changed));
  }

  /** Column with the largest weight in the chosen row. */
  #highest() {
    const { values } = this.attention.weights().part(this.layer, this.head, this.row);
    return values.indexOf(Math.max(...values));
  }
}
