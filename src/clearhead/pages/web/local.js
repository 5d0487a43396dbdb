/** What `translate/server.js` offers, for a page without a server: a worker of the page translates and explains. */

import { byId } from "../explain/dom.js";
import { Refused } from "../translate/refused.js";
import { linesOf } from "../translate/words.js";

export const INSIDE = "?inside";
export const DETECTS = false;

const model = JSON.parse(byId("exported-model").textContent);
const worker = new Worker(URL.createObjectURL(new Blob([JSON.parse(byId("worker").textContent)], { type: "text/javascript" })));
/** What is to be done with the answers to each call, by its number. */
const calls = new Map();
let lastCall = 0;

worker.onmessage = ({ data: { call, part, found, error } }) => {
  const asked = calls.get(call);
  if (part !== undefined) {
    asked?.take(part);
    return;
  }
  calls.delete(call);
  if (error === undefined) asked?.resolve(found);
  else asked?.reject(new Refused(error, 400));
};
worker.onerror = ({ message }) => {
  calls.forEach(({ reject }) => reject(new Refused(`the translator broke off: ${message}; reload the page`, 400)));
  calls.clear();
};

/** Calls a function of worker.js; aborting `signal` ends it. `take` is called with each part of the answer. */
function call(name, body, { signal, take = () => {} } = {}) {
  const number = ++lastCall;
  const done = new Promise((resolve, reject) => {
    calls.set(number, { resolve, reject, take });
    signal?.addEventListener("abort", () => {
      calls.delete(number);
      worker.postMessage({ call: number, isEnded: true });
      reject(signal.reason);
    });
  });
  worker.postMessage({ call: number, name, body });
  return done;
}

/** The files of the model: as base 64 where they are in the page, otherwise addresses. */
const inPage = (name) => byId(`file-${name}`)?.textContent ?? null;
const fileNames = Object.keys(model.files);
const contents = fileNames.map((name) => inPage(name) ?? { address: new URL(name, document.baseURI).href });
const files = Object.fromEntries(fileNames.map((name, place) => [name, contents[place]]));

/** Shows a notice above the panes; the page of an explanation has no place for it. */
const notice = (text) => {
  const place = byId("notice");
  if (place === null) return;
  place.textContent = text;
  place.hidden = text === "";
};

const SLOW = {
  simd: "This browser has no fused products of four numbers (relaxed SIMD): translating takes longer, and a few words can differ.",
  plain: "This browser computes one number at a time (it has no SIMD): translating takes several times as long.",
};

/** Ends when the model is open and has translated its golden sentences right. */
const opened = call("open", { settings: model, files }, {
  take: (share) => notice(`Opening the model: ${Math.floor(100 * share)} %`),
}).then(
  ({ form }) => {
    notice(SLOW[form] ?? "");
    globalThis.clearhead.ready = true;
  },
  (error) => {
    notice("");
    throw error;
  },
);
opened.catch(() => {}); // each call says why

/** The interface for programs; docs/web.md. */
globalThis.clearhead = {
  ready: false,

  /** Translates a text; resolves to `{text, score, tokens, warnings, alternatives}`. Throws an Error that says why not. */
  async translate(text, { beam, nbest = 1, target } = {}) {
    await opened;
    const answers = await call("translate", { lines: linesOf(text), target, beam, nbest });
    const all = (of) => answers.flatMap((answer) => of(answer) ?? []);
    const scores = all(({ score }) => score);
    return {
      text: all((answer) => answer.text).join(""),
      score: scores.reduce((sum, score) => sum + score, 0),
      tokens: all(({ tokens }) => tokens),
      warnings: [...new Set(all(({ warnings }) => warnings))],
      alternatives: answers.length === 1 ? answers[0].alternatives : [],
    };
  },

  /** Explains the translation of a sentence; resolves to what docs/explanation-json.md describes, with arrays packed. */
  async explain(text, { translation, target } = {}) {
    await opened;
    return call("explain", { text, translation, target });
  },
};

export const apiKey = () => "";
export const useKey = () => {};

export async function servedLanguages() {
  await opened;
  return model.named_languages;
}

export async function servedModels() {
  await opened;
  return { models: [{ name: model.name, ...model.languages }] };
}

export async function translateTexts({ text: lines, target }, signal, take) {
  await opened;
  await call("translate", { lines, target, alignments: true, scores: false, inParts: true }, { signal, take });
}

export async function translateSentence({ text, target, num_best: nbest }, signal) {
  await opened;
  const [answer] = await call("translate", { lines: [text], target, nbest, scores: false }, { signal });
  return answer.alternatives;
}

export async function explained({ text, translation, target }) {
  await opened;
  return call("explain", { text, translation, target });
}

export function drawExplanation() {
  document.body.append(document.importNode(byId("explain").content, true));
}

export const detectLanguage = () => Promise.reject(new Refused("no language is detected here", 400));

export const translateFile = () => Promise.reject(new Error("no file is translated here"));
