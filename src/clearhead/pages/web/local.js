/** The interface of `translate/server.js` for a page without a server: a worker of the page translates and explains. */

import { byId } from "../explain/dom.js";
import { Refused } from "../translate/refused.js";
import { answerForPrograms, optionsOf, requireArguments } from "./programs.js";

export const INSIDE = "?inside";
export const DETECTS = false;

const model = JSON.parse(byId("exported-model").textContent);
const script = new Blob([JSON.parse(byId("worker").textContent)], { type: "text/javascript" });
const worker = "Worker" in globalThis ? new Worker(URL.createObjectURL(script)) : null;
/** Pending calls of the worker, by number. */
const calls = new Map();
let lastCall = 0;

worker?.addEventListener("message", ({ data: { call, part, found, error } }) => {
  const asked = calls.get(call);
  if (part !== undefined) {
    asked?.take(part);
    return;
  }
  if (error === undefined) asked?.resolve(found);
  else asked?.reject(new Refused(error, 400));
});
worker?.addEventListener("error", ({ message }) => {
  calls.forEach(({ reject }) => reject(new Refused(`the translator broke off: ${message}; reload the page`, 400)));
});

/**
 * Calls a function of worker.js when `start` is resolved; aborting `signal` ends it, also before. `take` is called with
 * each part of the answer.
 */
function call(name, body, { signal, take = () => {}, start = opened } = {}) {
  if (worker === null) return Promise.reject(new Refused("this browser has no web workers, which translate here", 400));
  if (signal?.aborted) return Promise.reject(signal.reason);
  const number = ++lastCall;
  let end;
  const done = new Promise((resolve, reject) => {
    calls.set(number, { resolve, reject, take });
    end = () => {
      worker.postMessage({ call: number, isEnded: true });
      reject(signal.reason);
    };
    start.then(() => worker.postMessage({ call: number, name, body })).catch(reject);
  });
  signal?.addEventListener("abort", end);
  return done.finally(() => {
    calls.delete(number);
    signal?.removeEventListener("abort", end);
  });
}

/** The files of the model: their contents (opening.js) where they are in the page, otherwise addresses. */
const contentOf = ([name, { crc32 }]) => {
  const pieces = [...document.querySelectorAll(`[data-file="${name}"]`)];
  if (pieces.length) return [name, pieces.map(({ value }) => value).join("")];
  // The checksum keeps files of another export of the same name apart, wherever they are cached.
  return [name, { address: new URL(`${name}?${crc32}`, document.baseURI).href }];
};
const files = Object.fromEntries(Object.entries(model.files).map(contentOf));

/** Shows a notice above the panes; the page of an explanation has no place for it. */
const notice = (text) => {
  const place = byId("notice");
  if (place === null) return;
  place.textContent = text;
  place.hidden = text === "";
};

const SLOW = {
  simd: "This browser has no relaxed SIMD: translating takes longer, and a few words can differ.",
  plain: "This browser computes one number at a time (it has no SIMD): translating takes several times as long.",
};

/** Resolves when the model is open and its golden sentences are translated as at the export. */
const opened = call("open", { settings: model, files }, {
  start: Promise.resolve(),
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

  /**
   * Translates a text; resolves to `{text, score, tokens, warnings, alternatives, source_truncated}`. Throws an Error
   * that says why not, or the reason of `signal` when it is aborted.
   */
  async translate(text, options) {
    const { signal, ...how } = optionsOf(options, { beam: null, nbest: 1, target: null, signal: null });
    requireArguments([text], how.target, signal, model.languages);
    const [answer] = await call("translate", { lines: [text], ...how }, { signal });
    return answerForPrograms(answer);
  },

  /** Explains the translation of a sentence; resolves to what docs/explanation-json.md describes, with arrays packed. */
  async explain(text, options) {
    const { translation, target, signal } = optionsOf(options, { translation: null, target: null, signal: null });
    requireArguments(translation === null ? [text] : [text, translation], target, signal, model.languages);
    return call("explain", { text, translation, target }, { signal });
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
  return { models: [{ name: model.name, ...model.languages, example: model.example }] };
}

export async function translateTexts({ text: lines, target }, signal, take) {
  await call("translate", { lines, target, alignments: true, scores: false, inParts: true }, { signal, take });
}

export async function translateSentence({ text, target, num_best: nbest }, signal) {
  const [answer] = await call("translate", { lines: [text], target, nbest, scores: false }, { signal });
  return answer.alternatives;
}

export async function explained({ text, translation, target }) {
  return call("explain", { text, translation, target });
}

export function drawExplanation() {
  document.body.append(document.importNode(byId("explain").content, true));
}

export const detectLanguage = () => Promise.reject(new Refused("no language is detected here", 400));

export const translateFile = () => Promise.reject(new Error("no file is translated here"));
export const beginReview = translateFile;
