/** The beam tree: every hypothesis that the search considered; each step is a column, the best on top. */

import { comparedText } from "./differences.js";
import { byId, make, makeSvg } from "./dom.js";
import { rove, stopAt } from "./keys.js";
import { counted, fixed, percent, spoken, tokenElement } from "./text.js";

const GAP = 28;
const ROW = 30;
const LETTER = 8;
const NARROWEST_NODE = 76;
const WIDEST_NODE = 180;
const NODE_HEIGHT = 24;
const FATES = {
  kept: "was extended",
  finished: "ended here, a finished hypothesis",
  beam: "was pruned: as many hypotheses as the beam size were better",
  "late end": "was pruned: it ended, but was not among the best of its step",
  hopeless: "was dropped at the end: no continuation could beat the finished hypotheses",
};

/** Draws the tree and the finished hypotheses. */
export function drawBeams(selection, search) {
  const { nodes } = search;
  const columns = [];
  for (const node of nodes) (columns[node.step - 1] ??= []).push(node);
  const longest = Math.max(...nodes.map(({ token }) => [...token].length));
  const nodeWidth = Math.max(NARROWEST_NODE, Math.min(WIDEST_NODE, (longest + 2) * LETTER));
  const columnWidth = nodeWidth + GAP;
  const height = Math.max(...columns.map((column) => column.length)) * ROW;
  const place = new Map();
  columns.forEach((column, step) =>
    column.forEach((node, rank) => place.set(node.number, [step * columnWidth, rank * ROW])),
  );
  const edges = makeSvg("svg", {
    "aria-hidden": "true",
    width: columns.length * columnWidth,
    height,
  });
  for (const node of nodes) {
    if (node.parent === null) continue;
    const [x, y] = place.get(node.number);
    const [fromX, fromY] = place.get(node.parent);
    const [startX, startY, endY] = [fromX + nodeWidth, fromY + NODE_HEIGHT / 2, y + NODE_HEIGHT / 2];
    const middle = (startX + x) / 2;
    edges.append(
      makeSvg("path", {
        d: `M${startX} ${startY}C${middle} ${startY} ${middle} ${endY} ${x} ${endY}`,
        class: `edge ${classOf(node)}`,
      }),
    );
  }
  const tree = byId("beam-tree");
  const buttons = new Map();
  const marks = columns.map((_, step) => {
    const mark = make("div", { class: "beam-step", "aria-hidden": "true" });
    mark.style.transform = `translateX(${step * columnWidth - 8}px)`;
    return mark;
  });
  tree.style.setProperty("--node", `${nodeWidth}px`);
  tree.style.width = `${columns.length * columnWidth}px`;
  tree.style.height = `${height}px`;
  tree.replaceChildren(...marks, edges);
  for (const node of nodes) {
    const button = make(
      "button",
      {
        type: "button",
        class: `node ${classOf(node)}`,
        "aria-label":
          `Step ${node.step}: ${spoken(node.token)}, ${percent(Math.exp(node.log_prob))}, ` +
          `${FATES[node.fate]}${node.is_chosen ? ", chosen" : ""}`,
        onclick: () => choose(node),
      },
      tokenElement(node.token),
    );
    const [x, y] = place.get(node.number);
    button.style.transform = `translate(${x}px, ${y}px)`;
    buttons.set(node.number, button);
    tree.append(button);
  }
  const numRows = Math.max(...columns.map((column) => column.length));
  // Each row of the grid is a rank; in a step with fewer hypotheses, the last one represents missing ranks.
  const rows = Array.from({ length: numRows }, (_, rank) =>
    columns.map((column) => buttons.get(column[Math.min(rank, column.length - 1)].number)),
  );
  rove(tree, rows, (button) => button.click());

  const choose = (node) => {
    buttons.forEach((button) => button.classList.remove("picked", "on-path"));
    const path = pathTo(nodes, node);
    path.forEach(({ number }) => buttons.get(number).classList.add("on-path"));
    buttons.get(node.number).classList.add("picked");
    stopAt(rows, buttons.get(node.number));
    byId("beam-reading").replaceChildren(
      `${spoken(textOf(path))} ${FATES[node.fate]}. Its last token had ${percent(Math.exp(node.log_prob))}; ` +
        `log-probability ${fixed(node.score, 3)}, ranked by ${fixed(node.rank_score, 3)}.`,
    );
    if (search.is_translation && node.is_chosen) selection.choose({ step: node.step - 1 });
  };
  drawFinished(search, (number) => {
    choose(nodes[number]);
    buttons.get(number).scrollIntoView({ block: "nearest", inline: "center" });
  });
  // Steps of the page belong to the explained translation; the search may have found another one.
  const mark = () =>
    marks.forEach((one, step) => one.classList.toggle("picked", search.is_translation && step === selection.step));
  selection.onChange((changed) => {
    if (!changed.has("step")) return;
    mark();
    const node = nodes.find((one) => one.is_chosen && one.step === selection.step + 1);
    if (node && search.is_translation) choose(node);
  });
  mark();
  const first = nodes.find((one) => one.is_chosen && one.step === (selection.step ?? 0) + 1) ?? nodes[0];
  choose(first);
  byId("beam-about").textContent =
    `${counted(nodes.length, "hypothesis", "hypotheses")} in ${counted(columns.length, "step")}; ` +
    `the beam keeps ${search.beam_size}. ` +
    (search.beam_size > 1
      ? `Finished ones are ranked by log-probability over the length penalty (α = ${search.length_penalty}; 6.1).`
      : "A beam of 1 takes the most probable token each time.") +
    (search.was_ended ? " Not the model ended the chosen one but the length limit, or the rule for repetition." : "") +
    (search.is_translation ? "" : " What it found is not the translation explained.");
}

function classOf(node) {
  if (node.is_chosen) return node.fate === "finished" ? "chosen finished" : "chosen";
  return { kept: "kept", finished: "finished", beam: "pruned", "late end": "pruned", hopeless: "hopeless" }[node.fate];
}

function pathTo(nodes, node) {
  const path = [];
  for (let at = node; at; at = at.parent === null ? null : nodes[at.parent]) path.unshift(at);
  return path;
}

function textOf(path) {
  return path
    .map(({ token }) => token)
    .join("")
    .trim();
}

function drawFinished(search, show) {
  const [best] = search.finished;
  const rows = search.finished.map(({ node, text, score, rank_score: rankScore }, place) =>
    make(
      "tr",
      {},
      make("td", { class: "number" }, String(place + 1)),
      make(
        "th",
        { scope: "row" },
        make("button", { type: "button", class: "plain", onclick: () => show(node) }, comparedText(text, best.text)),
      ),
      make("td", { class: "number optional" }, fixed(score, 3)),
      make("td", { class: "number" }, fixed(rankScore, 3)),
    ),
  );
  byId("finished-table").hidden = rows.length === 0;
  byId("finished-table").tBodies[0].replaceChildren(...rows);
}
