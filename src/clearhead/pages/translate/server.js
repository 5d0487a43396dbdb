/** Requests to the server of the translation page. */

import { Refused } from "./refused.js";
import { ask, json, reached } from "./request.js";
import { forTab, keep, kept } from "./storage.js";

/** Address of the page that explains a sentence. */
export const INSIDE = "inside";
/** Whether `detectLanguage` can tell languages. */
export const DETECTS = true;

export const apiKey = () => kept(forTab, "key") ?? "";

export const useKey = (key) => keep(forTab, "key", key || null);

/** Asks with the API key, if there is one. */
function askWithKey(path, { headers = {}, ...rest } = {}) {
  const key = apiKey();
  return ask(path, { ...rest, headers: key === "" ? headers : { ...headers, authorization: `Bearer ${key}` } });
}

/** Languages of the server: code, name and targets of each. */
export const servedLanguages = async () => reached((await askWithKey("languages")).json());

/** Models of the server, and its term lists, which are undefined if the server does not support terms. */
export const servedModels = async () => reached((await askWithKey("v1/models")).json());

/** Translates texts, each whole or sentence by sentence; calls back with each answer as it arrives. */
export async function translateTexts(body, signal, take) {
  const response = await askWithKey("v1/translate", json({ ...body, alignments: true, stream: true }, signal));
  for await (const { name, data } of events(response.body)) {
    if (name === "translation") take(data);
    else if (name === "done") return;
    else if (name === "error") throw new Refused(data.error, data.status, data.status === 503 ? 1 : null);
  }
  throw new Refused("The server broke off", 0);
}

/** Alternative translations of one sentence, the best first. */
export async function translateSentence(body, signal) {
  const response = await askWithKey("v1/translate", json(body, signal));
  return (await reached(response.json())).translations[0].alternatives;
}

/** Explanation of a translation. */
export async function explained(body) {
  const response = await askWithKey("v1/explain", json({ ...body, search: true, packed: true }));
  return (await reached(response.json())).explanation;
}

/** Draws the page of the explanation that is in the document. */
export const drawExplanation = () => import("./explain.js");

/** Most probable language of a text. */
export async function detectLanguage(text, signal) {
  const response = await askWithKey("detect", json({ q: text }, signal));
  return (await reached(response.json()))[0].language;
}

/** Translates a file; returns the address and the name of the result, the address of the report, and its counts. */
export async function translateFile(file, fields, signal) {
  const body = new FormData();
  body.append("file", file);
  for (const [name, value] of Object.entries(fields)) body.append(name, value);
  const { translatedFileUrl, segments, toCheck } = await reached((await askWithKey("translate_file", { signal, body })).json());
  const name = translatedFileUrl.split("/").pop();
  // Relative addresses also work behind a proxy that serves the page under another address.
  const [address, report] = [`download_file/${name}`, `file_report/${name}`];
  return { address, name: name.slice(name.indexOf(".") + 1), report, segments, toCheck };
}

/** Begins the review of a translated file, given the address of the file; returns the address of the review. */
export async function beginReview(address) {
  const response = await askWithKey("reviews", json({ file: address.split("/").pop() }));
  return `reviews/${(await reached(response.json())).reviewUrl.split("/").at(-2)}/`;
}

/** Yields server-sent events as they arrive. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reached(reader.read());
    if (done) return;
    const blocks = (waiting + value).split("\n\n");
    waiting = blocks.pop();
    for (const block of blocks) {
      const fields = block.split("\n").map((line) => line.split(/: ?(.*)/s, 2));
      const of = (name) => fields.filter(([own]) => own === name).map(([, text]) => text);
      if (of("data").length > 0) yield { name: of("event")[0], data: JSON.parse(of("data").join("\n")) };
    }
  }
}
