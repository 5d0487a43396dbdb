/** The alignment view: source and translation, with lines between aligned words. */

import { css, inkOn, weightColour } from "./colours.js";
import { byWords, unpack } from "./data.js";
import { byId, make, makeSvg, onWidth } from "./dom.js";
import { rove } from "./keys.js";
import { directionOf, spoken, visibleParts, wholePercent } from "./text.js";

/** Minimum weight for which a line is drawn. */
const LEAST_LINE = 0.08;

/** Draws source and translation with their alignment; returns a function that redraws it. */
export function drawAlignment(selection, explanation, attentions) {
  const { source_words: sourceWords, target_words: targetWords, steps } = explanation;
  const cross = attentions.find(({ name }) => name === "cross");
  const links = cross === undefined ? [] : alignmentsOf(explanation, cross);
  const source = wordElements(sourceWords, links.length > 0);
  const target = wordElements(targetWords, links.length > 0);
  byId("source-words").replaceChildren(...source);
  byId("source-words").dir = directionOf(explanation.source);
  byId("target-words").replaceChildren(...target);
  byId("target-words").dir = directionOf(explanation.translation);
  byId("target-side").hidden = targetWords.length === 0;
  byId("glance").classList.toggle("one-sided", targetWords.length === 0);
  targetWords.forEach(({ tokens }, place) => {
    const probability = tokens.reduce((product, token) => product * steps[token].probability, 1);
    target[place].append(make("small", { "aria-hidden": "true", dir: "ltr" }, wholePercent(probability)));
  });
  const choice = byId("alignment-by");
  byId("alignment-about").hidden = links.length === 0;
  byId("alignment-legend").hidden = links.length === 0;
  const isChosen = { source: () => selection.source, target: () => selection.step };
  const markChosen = () => {
    for (const [side, words, elements] of [["source", sourceWords, source], ["target", targetWords, target]]) {
      const token = isChosen[side]();
      words.forEach(({ tokens }, place) => elements[place].classList.toggle("chosen", tokens.includes(token)));
    }
  };
  selection.onChange(markChosen);
  markChosen();
  if (links.length === 0) return () => {};

  choice.replaceChildren(...links.map(({ title }, place) => make("option", { value: place }, title)));
  const lines = byId("alignment-lines");
  const followHead = () => {
    const isCross = selection.attention === cross;
    if (isCross) links[0] = headAlignment(explanation, cross, selection);
    choice.options[0].textContent = isCross ? links[0].title : `${links[0].title}, the last one chosen`;
  };
  followHead();
  const isMean = explanation.alignment_head.head === null;
  if (isMean) choice.value = 1; // until a head is chosen
  const shares = () => links[Number(choice.value)].shares;
  const isLink = (row, column) => links[Number(choice.value)].isLink(row, column);
  let pointed = null;
  const clear = () => {
    [...source, ...target].forEach((word) => {
      word.style.background = "";
      word.style.color = "";
      word.classList.remove("picked");
    });
  };
  const tint = (word, share) => {
    const shade = weightColour(share);
    word.style.background = css(shade);
    word.style.color = inkOn(shade);
  };
  const mark = () => {
    clear();
    if (pointed !== null) {
      const [side, place] = pointed;
      const others = side === "target" ? source : target;
      (side === "target" ? target : source)[place].classList.add("picked");
      const shareOf = (other) => (side === "target" ? shares().at(place, other) : shares().at(other, place));
      const found = others.map((_, other) => shareOf(other));
      found.forEach((share, other) => tint(others[other], share));
      const best = found.indexOf(Math.max(...found));
      const words = side === "target" ? [targetWords, sourceWords] : [sourceWords, targetWords];
      byId("alignment-reading").textContent =
        `${spoken(words[0][place].text)} ${side === "target" ? "comes most from" : "goes most into"} ` +
        `${spoken(words[1][best].text)} (${wholePercent(found[best])}).`;
    }
    drawLines();
  };
  const drawLines = () => {
    lines.replaceChildren();
    if (isWrapped) return;
    const box = byId("alignment").getBoundingClientRect();
    lines.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    const middle = (word) => {
      const { left, width, top, bottom } = word.getBoundingClientRect();
      return { x: left + width / 2 - box.left, top: top - box.top, bottom: bottom - box.top };
    };
    const from = source.map(middle);
    const to = target.map(middle);
    for (let row = 0; row < target.length; row += 1) {
      for (let column = 0; column < source.length; column += 1) {
        const share = shares().at(row, column);
        const isPointed = pointed !== null && (pointed[0] === "target" ? pointed[1] === row : pointed[1] === column);
        const isStrong = isLink(row, column);
        if ((share < LEAST_LINE && !isStrong) || (pointed !== null && !isPointed)) continue;
        const [start, end] = [from[column], to[row]];
        const half = (start.bottom + end.top) / 2;
        const line = makeSvg("path", {
          d: `M${start.x} ${start.bottom + 2}C${start.x} ${half} ${end.x} ${half} ${end.x} ${end.top - 2}`,
        });
        line.style.strokeWidth = `${(1 + 7 * share).toFixed(1)}px`;
        line.style.opacity = ((isStrong ? 0.4 : 0.1) + 0.5 * share).toFixed(2);
        lines.append(line);
      }
    }
  };
  // Lines require each text to fit on one row; a smaller font may achieve that.
  let isWrapped = false;
  const fit = () => {
    const area = byId("alignment");
    isWrapped = true;
    for (const size of ["large", "small"]) {
      area.className = size;
      if (![source, target].every((words) => words.every((word) => word.offsetTop === words[0].offsetTop))) continue;
      isWrapped = false;
      break;
    }
    if (isWrapped) area.className = "wrapped";
    unpoint();
  };
  const point = (side, place) => {
    pointed = [side, place];
    mark();
  };
  const unpoint = () => {
    pointed = null;
    const place = targetWords.findIndex(({ tokens }) => tokens.includes(selection.step));
    if (isWrapped && place >= 0) point("target", place);
    else {
      byId("alignment-reading").textContent = "Point at a word, or reach it with Tab and the arrow keys.";
      mark();
    }
  };
  for (const [side, words] of [["source", source], ["target", target]]) {
    words.forEach((word, place) => {
      word.addEventListener("pointerenter", () => point(side, place));
      word.addEventListener("focus", () => point(side, place));
      word.addEventListener("click", () => {
        point(side, place);
        if (side === "target") selection.choose({ step: targetWords[place].tokens[0] });
        else selection.choose({ source: sourceWords[place].tokens[0] });
      });
    });
    if (words.length > 0) rove(byId(`${side}-words`), [words], (word) => word.click());
  }
  byId("alignment").addEventListener("pointerleave", unpoint);
  byId("alignment").addEventListener("focusout", (event) => {
    if (!byId("alignment").contains(event.relatedTarget)) unpoint();
  });
  choice.addEventListener("change", mark);
  selection.onChange((changed) => {
    if (["attention", "layer", "head"].some((name) => changed.has(name))) {
      followHead();
      if (isMean && choice.value === "1" && selection.attention === cross) choice.value = 0;
      mark();
    }
    if (!changed.has("step") || byId("alignment").contains(document.activeElement)) return;
    const place = targetWords.findIndex(({ tokens }) => tokens.includes(selection.step));
    if (place >= 0) point("target", place);
    else unpoint();
  });
  onWidth(byId("alignment"), fit);
  fit();
  return mark;
}

function wordElements(words, isLinked) {
  const sign = (shown, name) => make("span", { class: "sign", title: name }, shown);
  return words.map(({ text }) =>
    make(
      isLinked ? "button" : "span",
      { type: isLinked && "button", class: "word" },
      make(
        "bdi",
        { dir: directionOf(text) },
        visibleParts(text).map(([shown, name]) => (name === null ? shown : sign(shown, name))),
      ),
    ),
  );
}

/** Returns what the links may show: the chosen head, the mean of heads if none was found to align, attribution. */
function alignmentsOf(explanation, cross) {
  const { alignment, alignment_head: aligning, attribution } = explanation;
  const found = [headAlignment(explanation, cross, { layer: 0, head: 0 })]; // until a head is chosen
  if (aligning.head === null) found.push(alignmentOf(explanation, aligning.name, unpack(alignment), true));
  if (attribution !== null) {
    found.push({
      ...alignmentOf(explanation, "", unpack(attribution.integrated_gradients), false),
      title: "attribution (integrated gradients)",
    });
  }
  return found;
}

/** Alignment by a head; the one that was found to align words may read them a step later. */
function headAlignment(explanation, cross, { layer, head }) {
  const { alignment, alignment_head: aligning } = explanation;
  if (aligning.layer === layer && aligning.head === head) {
    return alignmentOf(explanation, aligning.name, unpack(alignment), true);
  }
  return alignmentOf(explanation, `head ${head + 1} of layer ${layer + 1}`, cross.weights().part(layer, head), false);
}

/** Returns weights of tokens as shares [target words, source words], with the pairs that count as alignment links. */
function alignmentOf({ links, source_words: sourceWords, target_words: targetWords }, name, weights, isAligning) {
  const pairs = new Set(isAligning ? links.map(([column, row]) => `${row} ${column}`) : []);
  const shares = byWords(weights, targetWords, sourceWords);
  for (let row = 0; row < targetWords.length; row += 1) {
    const { values } = shares.part(row);
    // A negative attribution is no alignment.
    const sum = values.reduce((total, value) => total + Math.max(0, value), 0);
    values.forEach((value, column) => {
      values[column] = sum > 0 ? Math.max(0, value) / sum : 0;
    });
  }
  return { title: `attention: ${name}`, shares, isLink: (row, column) => pairs.has(`${row} ${column}`) };
}
