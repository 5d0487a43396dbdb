/** A page of segments, one a row; the row of the active segment holds the editor. */

import { make } from "../explain/dom.js";

/** Maximum characters of a text in a row. */
const MOST_IN_A_ROW = 300;

const STATES = {
  open: ["○", "to do"],
  accepted: ["✓", "accepted"],
  edited: ["✎", "edited"],
  finished: ["▪", "finished in the file"],
};

/** Name of a state. */
export const nameOfState = (state) => STATES[state][1];

/** Sets the direction and the language of an element with a text of one side: 0 the source, 1 the translation. */
export function setSide(element, { direction, languages }, side) {
  element.dir = languages[side] === null ? "auto" : direction[side];
  element.lang = languages[side] ?? "";
}

/** The rows of segments. */
export class SegmentList {
  /** Maps the number of a segment to {segment, element}, in the order of the rows. */
  #rows = new Map();
  #list;
  #editor;
  #review;
  #choose;
  /** Number of the active segment; null if there is none. */
  active = null;

  /** `review` has the directions and languages; `choose` is called with the number of a row that is clicked. */
  constructor(list, editor, review, choose) {
    this.#list = list;
    this.#editor = editor;
    this.#review = review;
    this.#choose = choose;
  }

  /** The segments, in the order of the rows. */
  get segments() {
    return [...this.#rows.values()].map(({ segment }) => segment);
  }

  segmentOf(number) {
    return this.#rows.get(number)?.segment;
  }

  /** Shows other segments, none of them active. */
  show(segments) {
    this.#close();
    this.#rows.clear();
    this.#list.replaceChildren();
    for (const segment of segments) this.#list.append(this.#row(segment).element);
  }

  /** Shows a segment before the others. */
  prepend(segment) {
    const others = [...this.#rows];
    this.#list.prepend(this.#row(segment).element);
    others.forEach(([number, row]) => {
      this.#rows.delete(number);
      this.#rows.set(number, row);
    });
  }

  /** Shows the new state of a segment; `mark` says in a word what is with it beside that, such as “not saved”. */
  update(segment, mark = "") {
    const row = this.#rows.get(segment.number);
    if (row === undefined) return;
    row.segment = segment;
    row.button.replaceChildren(...this.#parts(segment, mark));
    row.element.className = `row ${segment.state}`;
  }

  /** Makes a segment the active one: its row shows the editor. */
  activate(number) {
    this.#close();
    const { element, button } = this.#rows.get(number);
    this.active = number;
    button.hidden = true;
    element.append(this.#editor);
    this.#editor.hidden = false;
    element.setAttribute("aria-current", "true");
    element.scrollIntoView({ block: "nearest" });
  }

  #close() {
    this.#editor.hidden = true;
    this.#list.after(this.#editor);
    const row = this.#rows.get(this.active);
    if (row !== undefined) {
      row.button.hidden = false;
      row.element.removeAttribute("aria-current");
    }
    this.active = null;
  }

  /** Number of the segment so many rows below or above the active one that `isWanted`; null if there is none. */
  beside(step, isWanted = () => true) {
    const all = this.segments;
    let place = all.findIndex(({ number }) => number === this.active) + step;
    while (place >= 0 && place < all.length && !isWanted(all[place])) place += step;
    return all[place]?.number ?? null;
  }

  #row(segment) {
    // The arrow keys go from row to row, so that Tab need not.
    const button = make("button", { type: "button", class: "segment", tabindex: "-1" }, ...this.#parts(segment, ""));
    button.addEventListener("click", () => this.#choose(segment.number));
    const element = make("li", { class: `row ${segment.state}` }, button);
    const row = { segment, element, button };
    this.#rows.set(segment.number, row);
    return row;
  }

  #parts({ state, source, text, flags, quality, origin, place }, mark) {
    const [sign, name] = STATES[state];
    const side = (of, number) => {
      const element = make("span", { class: "text" }, of.length > MOST_IN_A_ROW ? `${of.slice(0, MOST_IN_A_ROW)} …` : of);
      setSide(element, this.#review, number);
      return element;
    };
    const estimate = quality === null ? "" : `quality ${quality.toFixed(2)}`;
    const about = [place, estimate, origin === "memory" ? origin : ""].filter(Boolean).join(" · ");
    return [
      make("span", { class: "state", "aria-hidden": "true" }, sign),
      make("span", { class: "unseen" }, `${name}: `),
      side(source, 0),
      side(text, 1),
      make(
        "span",
        { class: "marks" },
        mark === "" ? [] : make("span", { class: "serious" }, mark, " "),
        flags.slice(0, 3).map(({ kind, severity }) => [make("span", { class: severity }, kind.replaceAll("_", " ")), " "]),
        make("span", { class: "soft about" }, about),
      ),
    ];
  }
}
