// A learned vocabulary (tokenizers/learned.py): BPE, Unigram or WordPiece over the bytes of UTF-8.

import { RULES } from "./rules.js";

// White space of the tokenizers library; that of JavaScript and that of Python are others.
const GAP = "\t-\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const WORDS = new RegExp(
  `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${GAP}\\p{L}\\p{N}]+|[${GAP}]+(?![^${GAP}])|[${GAP}]+`,
  "gu",
);

// Each byte as a character: itself if it can be printed, otherwise one from U+0100 on.
const CHARACTERS = [];
for (let byte = 0, others = 256; byte < 256; byte++) {
  const isPrinted = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  CHARACTERS.push(String.fromCharCode(isPrinted ? byte : others++));
}
const BYTES = new Map(CHARACTERS.map((character, byte) => [character, byte]));

export class Vocabulary {
  /** @param {object} file - Content of tokenizer.json. */
  constructor({ model, added_tokens, pre_tokenizer }) {
    const pieces = model.type === "Unigram" ? model.vocab.map(([name], id) => [name, id]) : Object.entries(model.vocab);
    this.ids = new Map(pieces);
    this.names = [];
    for (const [name, id] of pieces) this.names[id] = name;
    this.special = new Set();
    this.signs = new Map();
    for (const { id, content, special } of added_tokens) {
      this.names[id] = content;
      if (special) this.special.add(id);
      else this.signs.set(content, id);
    }
    this.splitsDigits = pre_tokenizer.pretokenizers.some(({ type }) => type === "Digits");
    this.split = SPLITTERS[model.type](model, this.ids);
    this.known = new Map();
  }

  /** The ids of a text, without language tag and end token. */
  encode(text) {
    const ids = [];
    let rest = "";
    const flush = () => {
      if (rest) this.#encodeText(` ${rest}`, ids);
      rest = "";
    };
    if (!this.signs.size) rest = text;
    else
      for (const character of text) {
        const sign = this.signs.get(character);
        if (sign === undefined) rest += character;
        else {
          flush();
          ids.push(sign);
        }
      }
    flush();
    return ids;
  }

  #encodeText(text, ids) {
    const parts = this.splitsDigits ? text.split(/(\p{N})/u).filter(Boolean) : [text];
    for (const part of parts)
      for (const [word] of part.matchAll(WORDS)) {
        const known = this.known.get(word);
        if (known) ids.push(...known);
        else this.#encodeWord(word, ids);
      }
  }

  #encodeWord(word, ids) {
    const characters = Array.from(new TextEncoder().encode(word), (byte) => CHARACTERS[byte]);
    for (let at = 0; at < characters.length; at += RULES.LONGEST_WORD) {
      const found = this.split(characters.slice(at, at + RULES.LONGEST_WORD));
      ids.push(...found);
      if (characters.length > RULES.LONGEST_WORD) continue; // rare, and perhaps very long
      if (this.known.size > 10_000) this.known.clear();
      this.known.set(word, found);
    }
  }

  /** The readable text of each id, names for special tokens; part of a character is shown as U+FFFD. */
  pieces(ids) {
    return ids.map((id) => (this.special.has(id) ? this.names[id] : textOf(this.#bytes(id))));
  }

  /** The text of ids. */
  decode(ids) {
    const text = textOf(ids.flatMap((id) => (this.special.has(id) ? [] : this.#bytes(id)))).replace(/^ /, "");
    return this.signs.size ? text.replace(new RegExp(`([${[...this.signs.keys()].join("")}]) `, "gu"), "$1") : text;
  }

  #bytes(id) {
    const name = this.names[id];
    return this.signs.has(name) ? [...new TextEncoder().encode(name)] : [...name].map((one) => BYTES.get(one));
  }
}

const textOf = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));

const SPLITTERS = {
  /** Merge the pair that was learned first, until none is left. */
  BPE({ merges }, ids) {
    const ranks = new Map(merges.map((pair, rank) => [typeof pair === "string" ? pair : pair.join(" "), rank]));
    return (symbols) => {
      symbols = [...symbols];
      for (;;) {
        let [best, at] = [Infinity, -1];
        for (let i = 0; i + 1 < symbols.length; i++) {
          const rank = ranks.get(`${symbols[i]} ${symbols[i + 1]}`);
          if (rank < best) [best, at] = [rank, i];
        }
        if (at < 0) return symbols.map((symbol) => ids.get(symbol));
        symbols.splice(at, 2, symbols[at] + symbols[at + 1]);
      }
    };
  },

  /** Find the pieces of the largest total score (Viterbi). */
  Unigram({ vocab }, ids) {
    const longest = Math.max(...vocab.map(([name]) => name.length));
    return (symbols) => {
      const best = [{ score: 0 }];
      for (let end = 1; end <= symbols.length; end++) {
        best[end] = { score: -Infinity };
        for (let start = Math.max(0, end - longest); start < end; start++) {
          const id = ids.get(symbols.slice(start, end).join(""));
          if (id === undefined) continue;
          const score = best[start].score + vocab[id][1];
          if (score > best[end].score || best[end].start === undefined) best[end] = { score, start, id };
        }
      }
      const found = [];
      for (let end = symbols.length; end > 0; end = best[end].start) found.push(best[end].id);
      return found.reverse();
    };
  },

  /** Take the longest piece again and again. */
  WordPiece({ vocab }, ids) {
    const longest = Math.max(...Object.keys(vocab).map((name) => name.length));
    return (symbols) => {
      const found = [];
      for (let start = 0; start < symbols.length; ) {
        let end = Math.min(symbols.length, start + longest);
        while (!ids.has(symbols.slice(start, end).join(""))) end--;
        found.push(ids.get(symbols.slice(start, end).join("")));
        start = end;
      }
      return found;
    };
  },
};
