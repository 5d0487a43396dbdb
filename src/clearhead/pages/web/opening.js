/** Opening of a model: its files are read and compared with their checksums, and its golden sentences are translated. */

import { bestForm, Core } from "./core.js";
import { RULES } from "./rules.js";
import { Translator } from "./translator.js";
import { Vocabulary } from "./vocabulary.js";
import { StoredArrays, Weights } from "./weights.js";

/** A file that cannot be read, or is not the one of the export; reading it again may help. */
export class FileError extends Error {}

/**
 * Opens a model, with the best form of the core that is computed correctly here.
 * @param {object} settings - Those of browser/writer.py.
 * @param {Object<string, string | Uint8Array | {address: string}>} files - Each file: packed and as base 64, as it is,
 *   or its address.
 * @param {(share: number) => void} take - Told how much of the weights was read, from 0 to 1.
 * @returns {Promise<{translator: Translator, form: string}>}
 * @throws {Error} If a file is damaged or cannot be read (FileError), or a golden sentence is not translated as it was
 *   at export.
 */
export async function opened(settings, files, take) {
  if (typeof WebAssembly === "undefined")
    throw new Error("this browser has no WebAssembly, or it is switched off (as in the lockdown mode of Apple's devices)");
  const read = (name, onShare) => checkedContent(name, files[name], settings.files[name], onShare);
  const vocabulary = new Vocabulary(JSON.parse(new TextDecoder().decode(await read("tokenizer.json"))));
  const file = (await read("model.safetensors", take)).buffer;
  let problem;
  for (const form of RULES.FORMS.slice(RULES.FORMS.indexOf(bestForm()))) {
    const module = await WebAssembly.compile(await read(`core-${form}.wasm`));
    const core = await Core.load(module, settings.layout);
    const arrays = new StoredArrays(file, settings.aliases, core);
    const inPrecision = (precision) => new Weights(settings.config, arrays, precision);
    const weights = inPrecision(settings.precision);
    const makeScorer = () => (settings.precision === "fp32" ? weights : inPrecision("fp32"));
    const translator = new Translator(weights, vocabulary, settings, makeScorer);
    problem = await difference(translator, settings.golden);
    if (problem === null) return { translator, form };
  }
  throw new Error(problem);
}

/** A file if its length and checksum are right; what the browser or the service worker kept may be of an older export. */
async function checkedContent(name, file, { bytes, crc32 }, onShare) {
  let problem;
  for (const cache of file.address ? ["default", "reload"] : ["default"]) {
    const found = await contentOf(name, file, bytes, onShare, cache);
    if (found.length !== bytes)
      problem = `the file ${name} has ${found.length} bytes and should have ${bytes}: it was not loaded whole`;
    else if (checksum(found) !== crc32) problem = `the file ${name} is damaged (its checksum is wrong)`;
    else return found;
  }
  throw new FileError(problem);
}

/** Bytes of a file that is given, packed or not, or at an address. */
async function contentOf(name, file, bytes, onShare, cache) {
  if (typeof file === "string") return unpacked(name, file);
  if (file instanceof Uint8Array) return file;
  const response = await fetch(file.address, { cache }).catch(() => null);
  if (!response?.ok) throw new FileError(`the file ${name} cannot be read`);
  const parts = [];
  let length = 0;
  const reader = response.body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    length += part.value.length;
    onShare?.(length / bytes);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** Bytes that are packed by deflate, as base 64. */
async function unpacked(name, file) {
  if (!globalThis.DecompressionStream) throw new Error("this browser is too old to unpack the model; use a newer one");
  try {
    const stream = new Blob([fromBase64(file)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch (error) {
    if (error instanceof RangeError) throw error; // of memory
    throw new Error(`the file ${name} is damaged (it cannot be unpacked); reload the page, or copy it again`);
  }
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text); // many times as fast
  const characters = atob(text);
  const found = new Uint8Array(characters.length);
  for (let place = 0; place < found.length; place += 1) found[place] = characters.charCodeAt(place);
  return found;
}

const REMAINDERS = Int32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit += 1) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});

/** CRC-32, as of zlib: `crypto.subtle` has none, and is missing where a page comes over plain HTTP. */
function checksum(bytes) {
  let sum = -1;
  for (let place = 0; place < bytes.length; place += 1) sum = REMAINDERS[(sum ^ bytes[place]) & 255] ^ (sum >>> 8);
  return ~sum >>> 0;
}

/** What is wrong with the golden sentences (translation/golden.py), or null. */
async function difference(translator, golden) {
  const found = await translator.found(golden.map(({ source }) => source));
  for (const [place, { source, text, score }] of golden.entries()) {
    const own = found[place];
    const isNear = Math.abs(own.score - score) <= 1e-2 + 1e-3 * Math.abs(score); // without fused multiply-add, products are rounded twice
    if (own.text !== text || !isNear)
      return `nothing is translated, because other numbers are computed here than at the export: the golden sentence “${source}” became “${own.text}” (${own.score.toFixed(3)}), and should be “${text}” (${score.toFixed(3)})`;
  }
  return null;
}
