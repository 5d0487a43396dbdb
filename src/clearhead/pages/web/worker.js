/** The worker of a page without a server: opens the model, translates and explains, one call after another. */

import { explain } from "./explaining.js";
import { FileError, opened } from "./opening.js";

/** Numbers of the calls that the page has ended. */
const ended = new Set();
const turns = new MessageChannel();
let translator;
let last = Promise.resolve();

/** Lets the messages of the page come in; returns whether a call goes on. */
async function goesOn(call) {
  await new Promise((resolve) => {
    turns.port1.onmessage = resolve;
    turns.port2.postMessage(null);
  });
  return !ended.has(call);
}

const FUNCTIONS = {
  async open({ settings, files }, { take }) {
    let form;
    ({ translator, form } = await opened(settings, files, take));
    return { form };
  },
  translate: ({ lines, ...fields }, of) => translator.translate(lines, fields, of),
  explain: (body, of) => explain(translator, body, of),
};

self.onmessage = ({ data: { call, name, body, isEnded } }) => {
  if (isEnded) {
    ended.add(call);
    return;
  }
  last = last.then(async () => {
    const of = { goesOn: () => goesOn(call), take: (part) => self.postMessage({ call, part }) };
    try {
      const found = ended.has(call) ? null : await FUNCTIONS[name](body, of);
      self.postMessage({ call, found });
    } catch (error) {
      self.postMessage({ call, error: reasonOf(error) });
    }
    ended.delete(call);
  });
};

/** What an error says and what may help; the browser's own words for a lack of memory say little. */
function reasonOf(error) {
  if (error instanceof FileError) return `${error.message}; reload the page`;
  const isMemory = error instanceof RangeError && /memory|allocat|length/i.test(error.message);
  return isMemory ? `the browser gives no more memory (${error.message}); shorten the text, close other tabs, or use a smaller model` : error.message;
}
