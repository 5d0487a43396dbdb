/** The translation page: requests translations of the typed text and shows them. */

import { byId } from "../explain/dom.js";
import { onTheme } from "../explain/theme.js";
import { Asking } from "./asking.js";
import { takeFiles } from "./files.js";
import { History } from "./history.js";
import { Languages } from "./languages.js";
import { isWhole, withSentence } from "./lines.js";
import { Linking } from "./linking.js";
import { openInside } from "./look_inside.js";
import { announce, Messages } from "./messages.js";
import { openReview } from "./opening_reviews.js";
import { SentencePanel } from "./sentence_panel.js";
import { Refused } from "./refused.js";
import { apiKey, servedLanguages, servedModels, translateFile, useKey } from "./server.js";
import { listenToKeys } from "./shortcuts.js";
import { SourcePane } from "./source_pane.js";
import { keepTheme } from "./storage.js";
import { Terms } from "./terms.js";
import { showReason, TranslationPane } from "./translation_pane.js";
import { WordCursor } from "./word_cursor.js";

/** Milliseconds after the last key press before a text is translated. */
const PAUSE = 250;
/** Maximum characters of a translation that are announced to screen readers. */
const MOST_ANNOUNCED = 300;

const settings = JSON.parse(byId("settings").textContent);
const asking = new Asking(settings.max_texts);
const messages = new Messages(() => again());
const source = new SourcePane(settings.max_characters, (isPaste) => changed({ pause: isPaste ? 0 : PAUSE }));
const translation = new TranslationPane(settings.warnings);
const linking = new Linking(source.list, translation.list, showReason);
const cursor = new WordCursor(translation.list, linking);
const languages = new Languages(() => changed({ pause: 0 }));
const terms = new Terms(() => changed({ pause: 0 }));
const panel = new SentencePanel(settings.max_alternatives, replaceSentence);
const history = new History(takeFromHistory, (code) => languages.nameOf(code));

let timer = null;
let isServed = false;
/** The chosen sentence as [line, number in it]; null for the sentence at the cursor. */
let chosen = null;

/** Handles a change of the text or the languages. */
function changed({ pause }) {
  clearTimeout(timer);
  asking.stop();
  closeSentence();
  linking.clear();
  layOut();
  if (source.text.trim() === "") {
    languages.detected(null);
    show([]);
    messages.clear();
    if (isServed && languages.problem !== null) messages.say(languages.problem);
    return;
  }
  translation.isStale = true;
  timer = setTimeout(translate, Math.max(pause, messages.pause));
}

async function translate() {
  clearTimeout(timer);
  if (!isServed) return; // the text is translated after the languages have been fetched
  const { text } = source;
  const problem = languages.problem ?? (source.isTooLong ? tooLong() : null);
  if (problem !== null) {
    show([]);
    messages.say(problem);
    return;
  }
  if (settings.key_required && apiKey() === "") {
    askForKey("This server asks for an API key.");
    return;
  }
  try {
    if (languages.isDetecting) {
      const code = await asking.detect(text);
      if (code === null) return; // a newer request has replaced this one
      languages.detected(code);
    }
    layOut();
    if ((await asking.translate(text, requestFields(), show)) === null) return;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    refuse(error);
    return;
  }
  messages.clear();
  translation.isStale = false;
  announce(`Translation: ${translation.text.slice(0, MOST_ANNOUNCED)}`);
  const { source: from = "", target: into = "" } = languages.fields;
  history.add({ from, into, text, translation: translation.text });
}

function refuse(error) {
  if (error.wantsKey) askForKey(error.status === 403 ? "The server does not know this API key." : error.message);
  else messages.refused(error);
  if (error.status === 400) {
    show([]); // this text cannot be translated
    void load({ isQuiet: true }); // the server's models may have changed
  }
}

/** Request fields besides the text. */
function requestFields() {
  return { ...languages.fields, ...terms.fields };
}

/** Shows the lines of a translation, complete or not. */
function show(lines) {
  translation.show(lines);
  source.show(lines);
  cursor.show();
  if (lines.length === 0) {
    translation.isStale = false;
    announce("");
  }
}

function layOut() {
  source.language = languages.source;
  translation.language = languages.into;
  terms.showDefault(languages);
  byId("files").hidden = !settings.takes_files;
  const problem = isServed ? fileProblem() : null;
  byId("file-open").disabled = problem !== null;
  byId("review").hidden = !settings.takes_reviews || problem !== null;
  byId("file-note").textContent = problem ?? "or drop it anywhere: documents keep their form.";
}

/** Reason why no file can be translated; null if one can. */
function fileProblem() {
  if (!settings.takes_files) return "No files are translated here.";
  const { from, into, problem } = languages;
  if (problem !== null) return problem;
  return from === "" || into === "" ? "This model does not say its languages, which files need." : null;
}

function tooLong() {
  const most = settings.max_characters.toLocaleString("en");
  return `The text has more than ${most} characters: shorten it${settings.takes_files ? ", or translate it as a file" : ""}.`;
}

/** Fetches languages, models and terms; after a failure, it is tried again later. */
async function load({ isQuiet = false } = {}) {
  try {
    const [served, models] = await Promise.all([servedLanguages(), servedModels()]);
    languages.take(served, models.models);
    terms.take(models.terms, models.default_terms);
    offer(models.models[0]?.example);
    isServed = true;
    layOut();
    if (!isQuiet) {
      messages.clear();
      changed({ pause: 0 });
    }
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (!isQuiet) messages.refused(error);
  }
}

/** Offers a text to try, in a page of one model. */
function offer(example) {
  const button = byId("example");
  if (button === null || example === undefined) return;
  button.hidden = false;
  button.onclick = () => {
    const into = example.target ?? languages.into;
    const other = languages.from === into ? languages.into : languages.from;
    takeFromHistory({ from: example.source ?? other, into, text: example.text });
  };
}

function again() {
  if (isServed) changed({ pause: 0 });
  else void load();
}

/** The current sentence as [line, number]; null if there is none. */
function currentSentence() {
  if (chosen !== null) return chosen;
  const lines = translation.list.lines;
  let start = 0;
  for (const [place, line] of lines.entries()) {
    const number = line.sentences.findIndex(({ sourceEnd }) => source.cursor <= start + sourceEnd);
    if (number >= 0) return [place, number];
    start += line.source.length;
  }
  const last = lines.findLastIndex(({ sentences }) => sentences.length > 0);
  return last < 0 ? null : [last, lines[last].sentences.length - 1];
}

function openSentence(place, isKeyboard) {
  if (place === null) return;
  const line = translation.list.lines[place[0]];
  if (!isWhole(line.source, line.answers)) {
    announce("The rest of this line is not translated yet."); // the rest, when it arrives, would replace the reader's choice
    return;
  }
  closeSentence();
  chosen = place;
  markSentence(true);
  void panel.open(line.sentences[place[1]], requestFields(), isKeyboard);
}

function closeSentence() {
  markSentence(false);
  chosen = null;
  panel.close();
}

function markSentence(isMarked) {
  if (chosen === null) return;
  const element = translation.list.elementOf(chosen[0])?.querySelectorAll(".sentence")[chosen[1]];
  element?.classList.toggle("chosen", isMarked);
}

function replaceSentence(text) {
  const [place, number] = chosen;
  const lines = [...translation.list.lines];
  lines[place] = withSentence(lines[place], number, text);
  asking.replace(lines[place], requestFields());
  linking.clear();
  show(lines);
  markSentence(true);
}

function lookInside(place) {
  if (place === null) return;
  const sentence = translation.list.lines[place[0]].sentences[place[1]];
  const isFound = sentence.isOwn && sentence.text === sentence.own;
  const given = isFound ? {} : { translation: sentence.text };
  const isOpen = openInside({ ...languages.fields, text: sentence.source, ...given });
  if (!isOpen) messages.say("The browser did not let this page open a tab; allow it, and choose “Look inside” again.");
}

async function copy() {
  const text = translation.text;
  if (text === "") return;
  const isCopied = await copied(text);
  byId("copy").textContent = isCopied ? "Copied" : "Not copied";
  announce(isCopied ? "Copied." : "The browser does not let this page copy.");
  setTimeout(() => {
    byId("copy").textContent = "Copy";
  }, 2_000);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without HTTPS, as in a private network, only the older way of copying works.
    getSelection().selectAllChildren(byId("translation"));
    const isCopied = document.execCommand("copy");
    getSelection().removeAllRanges();
    return isCopied;
  }
}

/** Reviews the text as a document of paragraphs. */
async function reviewText() {
  const file = new File([source.text], "text.txt");
  const fields = { source: languages.from, target: languages.into };
  try {
    const address = await openReview(async () => (await translateFile(file, fields)).address);
    messages.say(`The review is at ${new URL(address, document.baseURI)}`);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    messages.say(error.message, { isSerious: true });
  }
}

function swap() {
  const [text, isShown] = [translation.text, translation.list.lines.length > 0];
  const problem = languages.swap();
  if (problem !== null) messages.say(problem);
  else if (isShown) {
    source.text = text.trimEnd();
    changed({ pause: 0 });
  }
}

function takeFromHistory({ from, into, text }) {
  source.text = text;
  languages.choose(from, into);
  source.focus();
  scrollTo({ top: 0 });
}

function askForKey(why) {
  byId("key-open").hidden = false;
  byId("key-form").hidden = false;
  translation.isStale = false;
  messages.say(why, { isSerious: true });
  if (source.text === "" || document.activeElement !== byId("source")) byId("key").focus();
}

function showShortcuts() {
  byId("shortcuts").showModal();
}

/** Closes the sentence panel if it is open; otherwise stops translating. */
function leave() {
  if (panel.isOpen) {
    closeSentence();
    byId("translation").focus();
  } else {
    clearTimeout(timer);
    asking.stop();
    linking.clear();
    if (isServed) messages.stop();
    translation.isStale = false;
  }
}

function translateNow() {
  asking.forget();
  messages.clear();
  changed({ pause: 0 });
}

onTheme(keepTheme);
byId("key-open").hidden = !settings.key_required;
byId("key-open").addEventListener("click", () => {
  byId("key-form").hidden = !byId("key-form").hidden;
  if (!byId("key-form").hidden) byId("key").focus();
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("key").value.trim());
  byId("key").value = "";
  byId("key-form").hidden = true;
  messages.clear();
  again();
  source.focus();
});
byId("clear").addEventListener("click", () => {
  source.text = "";
  changed({ pause: 0 });
  source.focus();
});
byId("swap").addEventListener("click", swap);
byId("copy").addEventListener("click", copy);
byId("others").addEventListener("click", () => openSentence(currentSentence(), true));
byId("review").addEventListener("click", reviewText);
byId("inside").addEventListener("click", () => lookInside(currentSentence()));
byId("sentence-close").addEventListener("click", leave);
byId("shortcuts-open").addEventListener("click", showShortcuts);
listenToKeys({ translateNow, copy, swap, showShortcuts, leave });

const box = byId("translation");
box.addEventListener("pointerover", (event) => linking.point("target", translation.list.placeOf(event.target)));
box.addEventListener("pointerleave", () => linking.clear());
box.addEventListener("click", (event) => {
  const place = translation.list.placeOf(event.target);
  if (place === null || !getSelection().isCollapsed) return;
  cursor.place = place;
  const sentence = event.target.closest(".sentence");
  if (sentence !== null) openSentence([place[0], Number(sentence.dataset.number)], false);
});
cursor.onOpen((place, isInside) => (isInside ? lookInside(place) : openSentence(place, true)));
for (const name of ["pointermove", "click"]) {
  byId("source").addEventListener(name, (event) => linking.point("source", source.list.placeAt(event)));
}
byId("source").addEventListener("keyup", ({ key }) => /^(Arrow|Home|End)/.test(key) && linking.point("source", source.wordAtCursor()));
byId("source").addEventListener("pointerleave", () => linking.clear());

takeFiles(settings, () => {
  const problem = fileProblem();
  if (problem !== null) throw new Error(problem);
  if (settings.key_required && apiKey() === "") {
    askForKey("This server asks for an API key.");
    throw new Error("the API key is missing");
  }
  return { source: languages.from, target: languages.into };
});
addEventListener("visibilitychange", () => document.visibilityState === "visible" && isServed && load({ isQuiet: true }));
void load();
source.focus();
