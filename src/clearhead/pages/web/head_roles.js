// Roles of attention heads, in words: inspection/head_roles.py, from which the words and the bounds come.

import { stripped } from "./characters.js";
import { nearest, sixDigits } from "./packing.js";
import { RULES } from "./rules.js";

/**
 * Return the role of each self-attention head, [layers][heads].
 * @param {object} rules - `roles` of the settings: words and bounds.
 * @param {{values: Float32Array, shape: number[]}} weights - [layers, heads, rows, columns]; rows sum to 1.
 * @param {string[]} tokens - Their texts.
 */
export function selfRoles(rules, weights, tokens, isCausal) {
  const apart = (distance) => (row, column) => column - row === distance;
  const within = (distance) => (row, column) => Math.abs(column - row) <= distance;
  const sees = (row, column) => !isCausal || column <= row;
  const narrow = { previous: apart(-1), same: apart(0), next: apart(1) };
  return rolesOf(rules, weights, sees, narrow, { near: within(1), local: within(3) }, [tokens, tokens]);
}

/**
 * Return the role of each cross-attention head, likewise.
 * @param {{values: Float32Array, shape: number[]}} alignment - [rows, columns]: the weights that align tokens.
 * @param {string[][]} tokens - Texts of the queries and of the keys.
 * @param {boolean[]} hasText - Whether a source token has text; the end token has none.
 */
export function crossRoles(rules, weights, alignment, tokens, hasText) {
  const [rows, columns] = alignment.shape;
  const withText = hasText.includes(true) ? hasText : hasText.map(() => true);
  const aligned = Array.from({ length: rows }, (_, row) => {
    const own = alignment.values.subarray(row * columns, (row + 1) * columns).map((one, n) => (withText[n] ? one : -1));
    return own.indexOf(Math.max(...own));
  });
  const apart = (distance) => (row, column) => column - aligned[row] === distance;
  const around = (row, column) => Math.abs(column - aligned[row]) <= 1;
  const narrow = { aligned: apart(0), ahead: apart(1), behind: apart(-1) };
  return rolesOf(rules, weights, () => true, narrow, { around }, tokens);
}

/** Return the most specific pattern of each head that receives enough of its weight. */
function rolesOf({ words, bounds }, { values, shape }, sees, narrow, wide, tokens) {
  const [layers, heads, rows, columns] = shape;
  const numSeen = Array.from({ length: rows }, (_, row) => {
    let count = 0;
    for (let column = 0; column < columns; column++) count += Number(sees(row, column));
    return count;
  });
  const even = (row, column) => (sees(row, column) ? 1 / numSeen[row] : 0); // attention without any pattern
  const mostEntropy = numSeen.reduce((sum, count) => sum + Math.log(count), 0);
  const eachCell = (visit) => {
    for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) visit(row, column);
  };
  const rowMean = (of) => {
    let total = 0;
    for (let row = 0; row < rows; row++) total += of(row);
    return total / rows;
  };

  // Rows without a cell of the pattern, such as the first token's for `previous`, are left out.
  const pattern = (isCell) => {
    const cells = [];
    const seen = new Set();
    eachCell((row, column) => {
      if (!isCell(row, column) || !sees(row, column)) return;
      cells.push([row, column]);
      seen.add(row);
    });
    const share = (head) => cells.reduce((total, cell) => total + head(...cell), 0) / (seen.size || 1);
    return { share, usual: share(even) };
  };
  const patternsOf = (all, least) =>
    Object.entries(all).map(([kind, isCell]) => ({ kind, least, ...pattern(isCell) }));
  const [single, several] = [patternsOf(narrow, bounds.least_share), patternsOf(wide, bounds.least_wide)];
  const found = (patterns, head) =>
    patterns
      .map((one) => ({ ...one, share: one.share(head) }))
      .filter(({ share, usual, least }) => share >= Math.max(least, bounds.least_ratio * usual));

  const role = (kind, share, sentence, token = "") => ({
    kind, share: sixDigits(share), label: words[kind].label.replace("{token}", () => token),
    does: words[kind].does, do: words[kind].do, sentence: sentence[0].toUpperCase() + sentence.slice(1),
  });
  const percentOf = (share) => `with ${nearest(100 * share)} % of its weight.`;

  const roleOf = (head) => {
    const ofOne = found(single, head);
    let [key, gathered] = [0, -1];
    for (let column = 0; column < columns; column++) {
      const mean = rowMean((row) => head(row, column));
      if (mean > gathered) [key, gathered] = [column, mean];
    }
    const usual = rowMean((row) => even(row, key));
    if (gathered >= Math.max(bounds.least_share, bounds.least_ratio * usual, ...ofOne.map(({ share }) => share))) {
      const token = quoted(tokens[1][key]);
      return role("gathers", gathered, `Gathers on ${token}, ${percentOf(gathered)}`, token);
    }
    if (ofOne.length) {
      const { kind, share } = ofOne.reduce((best, one) => (one.share > best.share ? one : best));
      return role(kind, share, `${words[kind].does}, ${percentOf(share)}`);
    }
    for (const { kind, share } of found(several, head).slice(0, 1))
      return role(kind, share, `${words[kind].does}, ${percentOf(share)}`);
    let entropy = 0;
    eachCell((row, column) => {
      const weight = head(row, column);
      if (weight > 0) entropy -= weight * Math.log(weight);
    });
    const evenness = mostEntropy > 0 ? entropy / mostEntropy : 0;
    if (evenness >= bounds.even)
      return role("spread", evenness, "Spreads its weight over all tokens that it may see.");
    const peakOf = (of) => rowMean((row) => {
      let peak = 0;
      for (let column = 0; column < columns; column++) peak = Math.max(peak, of(row, column));
      return peak;
    });
    const peak = peakOf(head);
    if (peak >= Math.max(bounds.least_peak, bounds.least_ratio * peakOf(even))) {
      const sentence = `${words.picks.does}: the largest weight of a row is ${twoDigits(peak)} on average.`;
      return role("picks", peak, sentence);
    }
    let most = { above: -Infinity };
    eachCell((row, column) => {
      const above = head(row, column) - even(row, column);
      if (above > most.above) most = { above, row, column };
    });
    const largest = head(most.row, most.column);
    const where = `${quoted(tokens[0][most.row])} to ${quoted(tokens[1][most.column])} (${twoDigits(largest)})`;
    return role("mixed", largest, `Has no single habit; what stands out most is ${where}.`);
  };

  return Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: heads }, (_, head) => {
      const start = (layer * heads + head) * rows * columns;
      return roleOf((row, column) => values[start + row * columns + column]);
    }));
}

/** A short token in quotation marks, its invisible characters shown: `visible` in inspection/tokens.py. */
function quoted(token) {
  const characters = [...(stripped(token) || token)].map((one) => RULES.SPACES[one] ?? one);
  const most = RULES.LONGEST_SHOWN;
  const short = characters.length > most ? [...characters.slice(0, most - 1), "…"] : characters;
  const coded = short.map((one) =>
    (/[\p{C}\p{Z}]/u.test(one) ? `[${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]` : one));
  return `“${coded.join("")}”`;
}

const twoDigits = (value) => (nearest(100 * value) / 100).toFixed(2);
