/** The review page: segments, the most doubtful first, to accept or to edit. */

import { byId } from "../explain/dom.js";
import { counted } from "../explain/text.js";
import { onTheme } from "../explain/theme.js";
import { announce, Messages } from "../translate/messages.js";
import { Refused } from "../translate/refused.js";
import { keepTheme } from "../translate/storage.js";
import { upper } from "../translate/words.js";
import { Changes } from "./changes.js";
import { Drafts } from "./drafts.js";
import { Editor } from "./editor.js";
import { Progress } from "./progress.js";
import { SegmentList, setSide } from "./segment_list.js";
import { insideOf, saveSegment, segmentAt, segmentsFrom, undoLast } from "./server.js";
import { listenToReviewKeys } from "./shortcuts.js";

/** Number of segments that are shown at once. */
const PAGE = 50;
const BEGINNING = { start: 0 };

const review = JSON.parse(byId("review").textContent);
const drafts = new Drafts(review.output);
const messages = new Messages(() => void again());
const progress = new Progress(review, lost);
const editor = new Editor(review, (segment, text) => {
  drafts.set(segment, text);
  progress.unsaved = drafts.numbers.length;
});
const list = new SegmentList(byId("list"), byId("editor"), review, (number) => activate(number, matchMedia("(pointer: fine)").matches));
const changes = new Changes(lost);

/** The revision of each segment that the server is known to have. */
const revisions = new Map();
/** Why a change was not saved, by the number of its segment: {error, text, segment}; `segment` is what another made of it. */
const problems = new Map();
/** Texts that were undone, by the number of their segment: they can be chosen again. */
const undone = new Map();
/** Segments that are shown before those of the page, wherever they are in the order. */
const extra = new Set();
/** What is shown: `open`, `done` or `all` segments, of those that have a text; an empty one is everywhere. */
const filter = { show: "open", find: "" };
let start = 0;
let total = 0;
/** What is to be loaded as soon as the server answers again. */
let waiting = null;
/** What the message is about: `lost`, `problem`, or `notice`, which goes with the next step; null for no message. */
let said = null;

/** Loads segments, see `segmentsFrom`; activates the last if `isBackward`, else the first. */
async function load(from, isBackward = false) {
  const isTyping = editor.isTyping;
  const own = { from, isBackward };
  waiting = own;
  await changes.send(); // the order is that of what the server has
  let answer;
  try {
    answer = await segmentsFrom(from, PAGE, filter);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (waiting === own) refuse(error);
    return;
  }
  if (waiting !== own) return;
  waiting = null;
  settle();
  const { segments } = answer;
  if (segments.length === 0 && answer.total > 0 && answer.start > 0) {
    await load(BEGINNING);
    tell("That was the last one; from the beginning again.");
    return;
  }
  ({ start, total } = answer);
  editor.close();
  extra.clear();
  segments.forEach(({ number, revision }) => revisions.set(number, revision));
  list.show(segments);
  segments.forEach(showSegment);
  progress.done = answer.done;
  layOutPages(segments.length);
  if (segments.length === 0) byId("list").focus();
  else activate((isBackward ? segments.at(-1) : segments[0]).number, isTyping);
}

function layOutPages(count) {
  const none = { open: "All segments are done.", done: "No segment is done yet.", all: "This document has nothing to translate." };
  const why = filter.find === "" ? none[filter.show] : "No segment of these has this text.";
  byId("none").textContent = count > 0 ? "" : why;
  byId("none").hidden = count > 0;
  byId("range").textContent = count === 0 ? "" : `${start + 1}–${start + count} of ${total.toLocaleString("en")}`;
  byId("page-before").hidden = start === 0;
  byId("page-after").hidden = start + count >= total;
}

/** Shows a segment in its row, with what is not saved of it. */
function showSegment(segment) {
  const isDraft = drafts.textOf(segment) !== null;
  list.update(segment, problems.has(segment.number) ? "not saved" : isDraft ? "typed, not accepted" : "");
}

function activate(number, isTyping = false) {
  const before = list.active;
  if (said === "notice") tell("");
  editor.close();
  list.activate(number);
  if (before !== null && before !== number && list.segmentOf(before)) showSegment(list.segmentOf(before));
  open();
  if (isTyping) editor.focus();
  else byId("editor").focus({ preventScroll: true });
}

/** Shows the active segment in the editor. */
function open() {
  const segment = list.segmentOf(list.active);
  editor.open(segment, drafts.textOf(segment), undone.get(segment.number) ?? null);
  progress.unsaved = drafts.numbers.length;
  const problem = problems.get(segment.number);
  byId("problem").hidden = problem === undefined;
  byId("problem-text").textContent = upper(problem?.error.message ?? "");
  byId("theirs").hidden = !problem?.segment;
  byId("take-theirs").hidden = !problem?.segment;
  byId("theirs").textContent = problem?.segment?.text ?? "";
}

function go(step) {
  const number = list.beside(step);
  if (number !== null) activate(number, editor.isTyping);
  else if (step > 0) void nextPage();
  else if (start > 0) void load(pageBefore(), true);
}

/** Activates the next segment that is to do; the next one if others are shown. */
function toNext() {
  const number = list.beside(1, ({ state }) => filter.show !== "open" || state === "open");
  if (number !== null) activate(number, editor.isTyping);
  else void nextPage();
}

function nextPage() {
  const last = list.segments.findLast(({ number }) => !extra.has(number));
  return load(last === undefined ? BEGINNING : { after: last.number });
}

const pageBefore = () => ({ start: Math.max(0, start - PAGE) });

/** Accepts what is in the field, and moves to the next segment. */
function accept() {
  const segment = list.segmentOf(list.active);
  if (segment === undefined) return;
  const { text } = editor;
  const isChanged = text !== segment.text || problems.has(segment.number);
  const isOwn = text === segment.machine || (!isChanged && segment.state === "open");
  if (isChanged || segment.state === "open") save(segment, text, isOwn ? "accepted" : "edited");
  toNext();
}

/** Saves what is in the field, still to do, and moves to the next segment. */
function keepForLater() {
  const segment = list.segmentOf(list.active);
  if (segment === undefined) return;
  if (editor.isEdited || segment.state !== "open") save(segment, editor.text, "open");
  go(1);
}

function save(segment, text, state) {
  const { number } = segment;
  drafts.set(segment, text); // until the server has it
  problems.delete(number);
  progress.done += Number(state !== "open") - Number(segment.state !== "open");
  list.update({ ...segment, text, state });
  changes.add({
    send: async () => {
      const saved = await saveSegment(number, { text, state, revision: revisions.get(number) });
      // Open segments with this source get the same translation.
      const alike = list.segments.filter((one) => one.source === saved.source && one.number !== number && one.state === "open");
      return [saved, ...(await Promise.all(alike.map((one) => segmentAt(one.number))))];
    },
    done: ([saved, ...alike]) => {
      settle();
      [saved, ...alike].forEach((one) => revisions.set(one.number, one.revision));
      drafts.set(saved, list.active === number ? editor.text : saved.text);
      progress.done += Number(saved.state !== "open") - Number(state !== "open");
      [saved, ...alike].forEach(showSaved);
      progress.changed();
    },
    refused: (error) => {
      const other = error.said.segment ?? null;
      const before = other ?? segment;
      if (other !== null) revisions.set(number, other.revision);
      drafts.set(before, text);
      progress.done += Number(before.state !== "open") - Number(state !== "open");
      if (other?.text !== text) problems.set(number, { error, text, segment: other });
      showSaved(before);
      if (!problems.has(number)) return;
      messages.say(`Not saved, ${segment.place}: ${error.message}`, { isSerious: true });
      said = "problem";
    },
  });
}

/** Shows what the server has of a segment; the editor shows it anew unless something is typed there. */
function showSaved(segment) {
  showSegment(segment);
  if (list.active !== segment.number) progress.unsaved = drafts.numbers.length;
  else open();
}

/** Undoes the last saved change, and goes to its segment. */
function undo() {
  changes.add({
    send: undoLast,
    done: (segment) => {
      settle();
      if (segment === null) {
        tell("There is nothing to undo.");
        return;
      }
      revisions.set(segment.number, segment.revision);
      problems.delete(segment.number);
      const before = list.segmentOf(segment.number);
      if (before !== undefined) undone.set(segment.number, before.text);
      const isTyping = editor.isTyping;
      arrive(segment);
      activate(segment.number, isTyping);
      progress.changed();
      announce(`Undone: ${segment.place}.`);
    },
    refused: refuse,
  });
}

/** Shows a segment in its row, or before the others if it has none here. */
function arrive(segment) {
  if (list.segmentOf(segment.number) === undefined) {
    extra.add(segment.number);
    list.prepend(segment);
  }
  showSegment(segment);
}

/** Goes to a segment with typed text that is not saved. */
async function goToUnsaved() {
  const numbers = drafts.numbers;
  const number = numbers[(numbers.indexOf(list.active) + 1) % numbers.length];
  if (number === undefined) return;
  try {
    if (list.segmentOf(number) === undefined) {
      const segment = await segmentAt(number);
      revisions.set(number, segment.revision);
      arrive(segment);
    }
    activate(number);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    refuse(error);
  }
}

/** Takes what another has made of the segment in place of what is typed. */
function takeTheirs() {
  const { segment } = problems.get(list.active);
  problems.delete(list.active);
  drafts.set(segment, segment.text);
  showSegment(segment);
  activate(segment.number);
  settle();
}

function lookInside() {
  if (list.active === null) return;
  if (window.open(insideOf(list.active), "_blank") === null) {
    tell("The browser did not let this page open a tab; allow it, and choose “Look inside” again.");
  }
}

/** Says that the server cannot be reached, and asks again. */
function lost(error) {
  said = "lost";
  const kept = changes.count > 0 ? `; ${counted(changes.count, "change")} waiting here, nothing is lost` : "";
  messages.refused(new Refused(`${error.message.replace(/(; ask again)?\.?$/, "")}${kept}`, error.status, error.seconds));
}

/** Clears the message if what it is about is over. */
function settle() {
  if (said === "notice" || (said === "problem" && problems.size > 0)) return;
  messages.clear();
  said = null;
}

function tell(text) {
  messages.say(text);
  said = "notice";
}

function refuse(error) {
  if (error.passes) lost(error);
  else {
    said = "notice";
    messages.refused(error);
  }
}

async function again() {
  await changes.send();
  if (changes.count > 0) return;
  if (waiting !== null) await load(waiting.from, waiting.isBackward);
  else await progress.ask();
  if (progress.isAnswered) settle();
}

function choose(show) {
  filter.show = show;
  byId(`show-${show}`).checked = true;
  void load(BEGINNING);
}

function find(text) {
  if (text === filter.find) return;
  filter.find = text;
  byId("find").value = text;
  void load(BEGINNING);
}

/** Leaves the field; that of a text to find is emptied. */
function leave() {
  if (document.activeElement === byId("find")) find("");
  byId("editor").focus({ preventScroll: true });
}

const actions = {
  accept,
  keepForLater,
  undo,
  lookInside,
  next: () => go(1),
  previous: () => go(-1),
  edit: () => list.active !== null && editor.focus(),
  leave,
  insert: (number) => list.active !== null && editor.take(number),
  insertMissing: () => list.active !== null && editor.putMissing(),
  show: choose,
  find: () => byId("find").focus(),
  showShortcuts: () => {
    byId("shortcuts").showModal();
    byId("shortcuts-title").focus(); // by the attribute autofocus the browser would also do it when the page opens
  },
};

onTheme(keepTheme);
setSide(byId("theirs"), review, 1);
listenToReviewKeys(actions, byId("target"), () => editor.isEdited);
for (const [id, action] of Object.entries({
  accept,
  later: keepForLater,
  inside: lookInside,
  undo,
  unsaved: goToUnsaved,
  "take-theirs": takeTheirs,
  "keep-mine": accept,
  "shortcuts-open": actions.showShortcuts,
  before: actions.previous,
  after: actions.next,
  "page-before": () => load(pageBefore()),
  "page-after": nextPage,
})) {
  byId(id).addEventListener("click", () => void action());
}
byId("find").addEventListener("change", () => find(byId("find").value));
byId("find").addEventListener("search", () => find(byId("find").value)); // it was emptied by its own button
for (const what of ["open", "done", "all"]) byId(`show-${what}`).addEventListener("change", () => choose(what));
addEventListener("beforeunload", (event) => changes.count > 0 && event.preventDefault());
progress.unsaved = drafts.numbers.length;
void load(BEGINNING);
