// Roles of attention heads, in words: inspection/head_roles.py, from which words, bounds and distances come.

import { upper } from "../translate/words.js";
import { stripped } from "./characters.js";
import { nearest, sixDigits } from "./packing.js";
import { RULES } from "./rules.js";

/**
 * Return the role of each self-attention head, [layers][heads].
 * @param {object} rules - `roles` of the settings: words, bounds and distances.
 * @param {{values: Float32Array, shape: number[]}} weights - [layers, heads, rows, columns]; rows sum to 1.
 * @param {string[]} tokens - Their texts.
 */
export function selfRoles(rules, weights, tokens, isCausal) {
  const sees = (row, column) => !isCausal || column <= row;
  const distance = (row, column) => column - row;
  return rolesOf(rules, weights, sees, distance, rules.in_self_attention, [tokens, tokens]);
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
  const distance = (row, column) => column - aligned[row];
  return rolesOf(rules, weights, () => true, distance, rules.in_cross_attention, tokens);
}

/** Return the most specific pattern of each head that receives enough of its weight. */
function rolesOf({ words, bounds }, { values, shape }, sees, distance, patterns, tokens) {
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
  const single = Object.entries(patterns.at).map(([kind, steps]) => (
    { kind, least: bounds.least_share, ...pattern((row, column) => distance(row, column) === steps) }));
  const several = Object.entries(patterns.within).map(([kind, steps]) => (
    { kind, least: bounds.least_wide, ...pattern((row, column) => Math.abs(distance(row, column)) <= steps) }));
  const found = (patterns, head) =>
    patterns
      .map((one) => ({ ...one, share: one.share(head) }))
      .filter(({ share, usual, least }) => share >= Math.max(least, bounds.least_ratio * usual));

  const role = (kind, share, named = {}) => {
    const { does, do: plural, label, sentence } = words[kind];
    const values = { does, percent: nearest(100 * share), share: (nearest(100 * share) / 100).toFixed(2), ...named };
    const filled = (text) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
    return { kind, share: sixDigits(share), label: filled(label), does, do: plural, sentence: upper(filled(sentence)) };
  };

  const roleOf = (head) => {
    const ofOne = found(single, head);
    let [key, gathered] = [0, -1];
    for (let column = 0; column < columns; column++) {
      const mean = rowMean((row) => head(row, column));
      if (mean > gathered) [key, gathered] = [column, mean];
    }
    const usual = rowMean((row) => even(row, key));
    if (gathered >= Math.max(bounds.least_share, bounds.least_ratio * usual, ...ofOne.map(({ share }) => share))) {
      return role("gathers", gathered, { token: quoted(tokens[1][key]) });
    }
    if (ofOne.length) {
      const { kind, share } = ofOne.reduce((best, one) => (one.share > best.share ? one : best));
      return role(kind, share);
    }
    for (const { kind, share } of found(several, head).slice(0, 1)) return role(kind, share);
    let entropy = 0;
    eachCell((row, column) => {
      const weight = head(row, column);
      if (weight > 0) entropy -= weight * Math.log(weight);
    });
    const evenness = mostEntropy > 0 ? entropy / mostEntropy : 0;
    if (evenness >= bounds.even) return role("spread", evenness);
    const peakOf = (of) => rowMean((row) => {
      let peak = 0;
      for (let column = 0; column < columns; column++) peak = Math.max(peak, of(row, column));
      return peak;
    });
    const peak = peakOf(head);
    if (peak >= Math.max(bounds.least_peak, bounds.least_ratio * peakOf(even))) return role("picks", peak);
    let most = { above: -Infinity };
    eachCell((row, column) => {
      const above = head(row, column) - even(row, column);
      if (above > most.above) most = { above, row, column };
    });
    const named = { query: quoted(tokens[0][most.row]), key: quoted(tokens[1][most.column]) };
    return role("mixed", head(most.row, most.column), named);
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
