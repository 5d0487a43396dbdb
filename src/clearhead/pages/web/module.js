/** The module that `clearhead export --to web --module` writes, for Node.js, browsers and bundlers; see module.d.ts. */

import { FILES, SETTINGS } from "./model.js";
import { opened } from "./opening.js";
import { answerForPrograms, optionsOf, requireArguments } from "./programs.js";

const FILE_SYSTEM = "node:fs/promises"; // in a variable, as bundlers for browsers would look for it
const PAUSE_AFTER = 50; // milliseconds, then other events of the thread are handled

export async function load(options) {
  const { base, onProgress } = optionsOf(options, { base: null, onProgress: () => {} });
  const contents = Object.entries(FILES).map(async ([name, beside]) => {
    return [name, await contentAt(base === null ? beside : new URL(name, base))];
  });
  let { translator, form } = await opened(SETTINGS, Object.fromEntries(await Promise.all(contents)), onProgress);
  let last = Promise.resolve();

  async function translated(lines, how, signal) {
    if (translator === null) throw new Error("the translator was disposed of; load another");
    const answers = await translator.translate(lines, { ...how, oneLine: true }, { goesOn: pausing(signal) });
    if (answers === null) throw signal.reason;
    return answers.map(answerForPrograms).map(how.scores ? (answer) => answer : withoutScores);
  }

  return {
    name: SETTINGS.name,
    languages: SETTINGS.languages,
    form,
    async translate(texts, given) {
      const defaults = { beam: null, nbest: 1, target: null, alignments: false, scores: true, signal: null };
      const { signal, ...how } = optionsOf(given, defaults);
      const lines = Array.isArray(texts) ? [...texts] : [texts];
      requireArguments(lines, how.target, signal, SETTINGS.languages);
      const turn = last.then(() => translated(lines, how, signal)); // the translator takes one call at a time
      last = turn.catch(() => {});
      return Array.isArray(texts) ? turn : (await turn)[0];
    },
    dispose() {
      translator = null;
    },
  };
}

/** An answer without the scores of the search, which compares tokens alone if it is greedy. */
const withoutScores = (answer) => ({
  ...answer, score: null, alternatives: answer.alternatives.map(({ text }) => ({ text, score: null })),
});

/** The content of a file on disk, which Node.js does not fetch; otherwise its address. */
async function contentAt(address) {
  if (address.protocol !== "file:") return { address: address.href };
  const { readFile } = await import(/* webpackIgnore: true */ /* @vite-ignore */ FILE_SYSTEM);
  return new Uint8Array(await readFile(address));
}

/** Returns the function that tells whether a call goes on; it also lets other events of the thread be handled. */
function pausing(signal) {
  let start = performance.now();
  return async () => {
    if (performance.now() - start > PAUSE_AFTER) {
      await new Promise((resolve) => setTimeout(resolve));
      start = performance.now();
    }
    return !signal?.aborted;
  };
}
