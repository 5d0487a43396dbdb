// Translations of pieces as translations of lines and texts, and as answers: translation/result.py.

import { joinedLinks, wordSpans } from "./links.js";
import { joinSentences, spaceBefore } from "./sentences.js";

/** A translation, of a piece, a line or a text; `links` is null if they were not asked for. */
export const translationOf = (fields) => ({
  tokens: [], alternatives: [], sourceTruncated: false, outputTruncated: false, sentences: [], warnings: [], ...fields,
});

/**
 * The translation of a text from those of the pieces of its lines; white space around lines stays.
 * @param {{text: string, lines: object[]}} read - The text, and its lines as `Translator` reads them.
 * @param {number} nbest - Translations of the text, at most.
 * @param {boolean} alignments - Whether words are linked.
 * @param {{flags: Flags, placeholders: Placeholders}} tools
 */
export function joinedText({ text, lines }, nbest, alignments, tools) {
  const own = lines.filter(({ line }) => line);
  const made = own.map((line) => joinedLine(line, nbest, tools));
  if (!made.length) return translationOf({ source: text, text, score: 0, links: alignments ? [] : null });
  if (made.length === 1 && made[0].source === text) return made[0];
  const withSpaces = (texts) => {
    const rest = texts.values();
    return lines.map(({ before, line, after }) => before + (line ? rest.next().value : "") + after).join("");
  };
  const joined = joinedParts(text, made, nbest, withSpaces, tools);
  if (made.length === 1) joined.sentences = made[0].sentences;
  if (alignments) {
    const parts = [own.map((line) => line.text), made.map((one) => one.text)];
    joined.links = joinedLinks(made.map(({ links }) => links), ...parts, text, withSpaces(parts[1]));
  }
  return joined;
}

/**
 * The parts of a text that are answered one by one: its lines, and the sentences of a line that is split; see
 * serving/event_stream.py. The sources of the parts joined are the text, their texts joined are its translation.
 * @returns {{pieces: object[], made: function(): object}[]} The pieces that must be translated first, and the function
 *   that then returns the translation; to be called in order.
 */
export function partsOf({ text, lines }, nbest, alignments, tools) {
  const parts = [];
  let before = ""; // white space that belongs to the next part
  for (const line of lines) {
    before += line.before;
    if (line.line) {
      const from = parts.length;
      if (line.pieces.length === 1 || line.inCapitals || line.marker)
        parts.push({ pieces: line.pieces, source: line.line, found: () => joinedLine(line, nbest, tools) });
      else {
        const tag = line.line.slice(0, line.line.length - line.text.length);
        let written = "";
        line.pieces.forEach((piece, number) => {
          const gap = number ? line.gaps[number - 1] : tag;
          const found = () => {
            const own = number ? spaceBefore(piece.translation.text, written, gap) : "";
            written += own + piece.translation.text;
            return { ...piece.translation, text: own + piece.translation.text };
          };
          parts.push({ pieces: [piece], source: gap + piece.original, found });
        });
      }
      Object.assign(parts[from], { before });
      before = "";
    }
    before += line.after;
  }
  if (!parts.length) return [{ pieces: [], made: () => joinedText({ text, lines }, nbest, alignments, tools) }];
  parts.at(-1).after = before;
  return parts.map(({ pieces, source, found, before: ahead = "", after = "" }) => ({
    pieces,
    made() {
      const one = found();
      return { ...one, source: ahead + source + after, text: ahead + one.text + after };
    },
  }));
}

function joinedLine({ line, read, pieces, gaps, marker, inCapitals }, nbest, tools) {
  const sentences = pieces.map(({ translation }) => translation);
  if (sentences.length === 1 && sentences[0].source === line) return sentences[0];
  const capitals = (text) => tools.placeholders.changeWords(text, (words) => words.toUpperCase());
  const whole = (texts) =>
    marker + (inCapitals ? capitals(joinSentences(texts, gaps)) : joinSentences(texts, gaps));
  const joined = joinedParts(line, sentences, nbest, whole, tools);
  if (sentences[0].links !== null) {
    const [parts, texts] = [pieces.map((piece) => piece.text), sentences.map((one) => one.text)];
    const links = joinedLinks(sentences.map((one) => one.links), parts, texts, read, joinSentences(texts, gaps));
    const own = wordSpans(marker).length;
    joined.links = [...Array(own).keys()].map((word) => [word, word]);
    joined.links.push(...links.map(([source, target]) => [source + own, target + own]));
  }
  return joined;
}

/** Translations of parts as that of the whole; its alternatives are the best combinations of theirs. */
function joinedParts(source, parts, nbest, join, { flags }) {
  const choices = parts.map((one) => (one.alternatives.length ? one.alternatives : [one]));
  const different = new Map();
  for (const row of bestCombinations(choices, nbest)) {
    const text = join(row.map((one) => one.text));
    const isScored = row.every(({ score }) => score !== null);
    const score = isScored ? row.reduce((sum, one) => sum + one.score, 0) : null;
    if (!different.has(text)) different.set(text, { text, score });
  }
  const best = [...different.values()];
  return translationOf({
    source, ...best[0], tokens: parts.flatMap(({ tokens }) => tokens), alternatives: nbest > 1 ? best : [],
    sourceTruncated: parts.some((one) => one.sourceTruncated), sentences: parts,
    outputTruncated: parts.some((one) => one.outputTruncated), links: null,
    warnings: flags.merged(parts.map(({ warnings }) => warnings)),
  });
}

/** The best combinations of one choice from each group, by the sum of their ranks, then by probability. */
function bestCombinations(choices, count) {
  let best = [{ ranks: 0, cost: 0, chosen: null }];
  for (const group of choices) {
    // Both sums can only grow by adding a choice, so a combination outside the best so far cannot return.
    const longer = best.flatMap(({ ranks, cost, chosen: before }) =>
      group.map((one, rank) => ({ ranks: ranks + rank, cost: cost - (one.score ?? 0), chosen: { one, before } })));
    best = longer.sort((a, b) => a.ranks - b.ranks || a.cost - b.cost).slice(0, count);
  }
  return best.map(({ chosen }) => {
    const row = [];
    for (let link = chosen; link !== null; link = link.before) row.push(link.one);
    return row.reverse();
  });
}

/** A translation as POST /v1/translate returns it, but for `tokens`, which are ids; translation/result.py. */
export function answerOf(translation) {
  const judged = ({ text, score }) => ({ text, score: score === null ? null : Number(score.toFixed(6)) });
  const { source, tokens, links, alternatives, sourceTruncated, outputTruncated, sentences, warnings } = translation;
  return {
    source, ...judged(translation), tokens, ...(links === null ? {} : { alignment: links }),
    alternatives: alternatives.map(judged), truncated: sourceTruncated || outputTruncated,
    source_truncated: sourceTruncated, output_truncated: outputTruncated,
    sentences: sentences.map((one) => ({ source: one.source, ...judged(one) })),
    warnings: warnings.map(({ kind }) => kind),
    warning_details: Object.fromEntries(warnings.map(({ kind, detail }) => [kind, detail])),
  };
}
