/** Display of tokens and numbers: signs for invisible characters, text direction, true minus signs. */

import { make } from "./dom.js";

const SIGNS = new Map([
  ["\t", ["⇥", "tab"]],
  ["\n", ["↵", "line break"]],
  ["\r", ["␍", "carriage return"]],
  ["\u00a0", ["NBSP", "no-break space"]],
  ["\u00ad", ["SHY", "soft hyphen"]],
  ["\u061c", ["ALM", "Arabic letter mark"]],
  ["\u2009", ["THSP", "thin space"]],
  ["\u200b", ["ZWSP", "zero-width space"]],
  ["\u200c", ["ZWNJ", "zero-width non-joiner"]],
  ["\u200d", ["ZWJ", "zero-width joiner"]],
  ["\u200e", ["LRM", "left-to-right mark"]],
  ["\u200f", ["RLM", "right-to-left mark"]],
  ["\u202f", ["NNBSP", "narrow no-break space"]],
  ["\u2060", ["WJ", "word joiner"]],
  ["\u3000", ["IDSP", "ideographic space"]],
  ["\ufeff", ["BOM", "byte order mark"]],
]);
const INVISIBLE = /[\p{Z}\p{Cc}\p{Cf}]/u;
const JOINED_EMOJI = /[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f]\u200d\p{Extended_Pictographic}/u;
const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

/** Splits a token into text and signs for invisible characters: [shown, name or null] each. */
export function visibleParts(token) {
  if (token === "") return [["∅", "nothing"]];
  const characters = [...token];
  const parts = [];
  characters.forEach((character, place) => {
    const around = characters.slice(Math.max(0, place - 1), place + 2).join("");
    if (character === " ") parts.push(["␣", "space"]);
    else if (INVISIBLE.test(character) && !(character === "\u200d" && JOINED_EMOJI.test(around))) {
      const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
      const [sign, name] = SIGNS.get(character) ?? [`U+${code}`, `character U+${code}`];
      parts.push([sign, name]);
    } else if (parts.length > 0 && parts[parts.length - 1][1] === null) parts[parts.length - 1][0] += character;
    else parts.push([/\p{M}/u.test(character) ? `◌${character}` : character, null]);
  });
  return parts;
}

/** A token as an element; a sign shows its name on hover. */
export function tokenElement(token, className = "") {
  return make(
    "bdi",
    { class: `token ${className}`.trim(), dir: directionOf(token) },
    visibleParts(token).map(([shown, name]) =>
      name === null ? shown : make("span", { class: name === "space" ? "gap" : "sign", title: name }, shown),
    ),
  );
}

/** A token or text for use in a sentence and for screen readers. */
export function spoken(text) {
  const isBlank = text.trim() === "";
  const words = visibleParts(isBlank ? text : text.trim()).map(([shown, name]) => {
    if (name === "space") return isBlank ? shown : " ";
    return name === null || text === "" ? shown : `[${name}]`;
  });
  // Isolation marks: right-to-left text does not change the order of the sentence around it.
  return `“\u2068${words.join("")}\u2069”`;
}

/** Direction of a text, from its first letter. */
export function directionOf(text) {
  const letter = text.match(/\p{L}/u);
  return letter !== null && RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
}

/** A number with a fixed number of decimals, and a true minus sign. */
export function fixed(value, digits = 4) {
  if (value === -Infinity) return "−∞";
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** A probability in percent; a value above 0 that would round to 0.0 % is shown as less than 0.1 %. */
export function percent(probability) {
  return probability > 0 && probability < 0.0005 ? "<0.1 %" : `${(100 * probability).toFixed(1)} %`;
}

/** A share in whole percent; a value above 0 that would round to 0 % is shown as less than 1 %. */
export function wholePercent(share) {
  return share > 0 && share < 0.005 ? "<1 %" : `${Math.round(100 * share)} %`;
}

/** A count with its noun, in singular or plural. */
export function counted(count, noun, nouns = `${noun}s`) {
  return `${count} ${count === 1 ? noun : nouns}`;
}
