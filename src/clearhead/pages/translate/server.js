/** Requests to the server, and their errors. */

import { Refused } from "./refused.js";
import { forTab, keep, kept } from "./storage.js";

/** Address of the page that explains a sentence. */
export const INSIDE = "inside";
/** Whether `detectLanguage` can tell languages. */
export const DETECTS = true;

export const apiKey = () => kept(forTab, "key") ?? "";

export const useKey = (key) => keep(forTab, "key", key || null);

async function ask(path, { signal, body, headers = {} } = {}) {
  const key = apiKey();
  const own = key === "" ? headers : { ...headers, authorization: `Bearer ${key}` };
  const response = await reached(fetch(path, { method: body === undefined ? "GET" : "POST", body, headers: own, signal }));
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  const seconds = Number.parseInt(response.headers.get("retry-after"), 10);
  const message = typeof said.error === "string" ? said.error : `the server answered with status ${response.status}`;
  throw new Refused(message, response.status, Number.isNaN(seconds) ? null : seconds);
}

/** Awaits a promise, and turns its failure, which only the network can cause, into a `Refused`. */
async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(navigator.onLine ? "The server does not answer" : "This device is offline", 0);
  }
}

const json = (body, signal) => ({
  signal,
  body: JSON.stringify(body),
  headers: { "content-type": "application/json" },
});

/** Languages of the server: code, name and targets of each. */
export const servedLanguages = async () => reached((await ask("languages")).json());

/** Models of the server, and its term lists, which are undefined if the server does not support terms. */
export const servedModels = async () => reached((await ask("v1/models")).json());

/** Translates texts, each whole or sentence by sentence; calls back with each answer as it arrives. */
export async function translateTexts(body, signal, take) {
  const response = await ask("v1/translate", json({ ...body, alignments: true, stream: true }, signal));
  for await (const { name, data } of events(response.body)) {
    if (name === "translation") take(data);
    else if (name === "done") return;
    else if (name === "error") throw new Refused(data.error, data.status, data.status === 503 ? 1 : null);
  }
  throw new Refused("The server broke off", 0);
}

/** Alternative translations of one sentence, the best first. */
export async function translateSentence(body, signal) {
  const response = await ask("v1/translate", json(body, signal));
  return (await reached(response.json())).translations[0].alternatives;
}

/** Explanation of a translation. */
export async function explained(body) {
  const response = await ask("v1/explain", json({ ...body, search: true, packed: true }));
  return (await reached(response.json())).explanation;
}

/** Draws the page of the explanation that is in the document. */
export const drawExplanation = () => import("./explain.js");

/** Most probable language of a text. */
export async function detectLanguage(text, signal) {
  const response = await ask("detect", json({ q: text }, signal));
  return (await reached(response.json()))[0].language;
}

/** Translates a file; returns the address and the name of the result, the address of the report, and its counts. */
export async function translateFile(file, fields, signal) {
  const body = new FormData();
  body.append("file", file);
  for (const [name, value] of Object.entries(fields)) body.append(name, value);
  const { translatedFileUrl, segments, toCheck } = await reached((await ask("translate_file", { signal, body })).json());
  const name = translatedFileUrl.split("/").pop();
  // Relative addresses also work behind a proxy that serves the page under another address.
  const [address, report] = [`download_file/${name}`, `file_report/${name}`];
  return { address, name: name.slice(name.indexOf(".") + 1), report, segments, toCheck };
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
