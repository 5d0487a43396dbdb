/** The guided tour: a panel that leads through the page, and says what to look for in the reader's own sentence. */

import { entropy, rowOf, weightedSum } from "./arithmetic.js";
import { unpack } from "./data.js";
import { byId } from "./dom.js";
import { showPart } from "./links.js";
import { counted, fixed, percent, spoken, wholePercent } from "./text.js";

/**
 * The stops: the part of the page, what one sees there, and what to look for in this sentence. A stop may `choose` what
 * it is about, and give the selector of what it `names`. Stops whose part the page does not have are left out.
 */
function stopsOf(selection, attentions, explanation) {
  const { model, steps, search, logit_lens: lens, attribution, source_tokens: source, num_told: numTold } = explanation;
  const head = () => `head ${selection.head + 1} of layer ${selection.layer + 1}`;
  const row = () => rowOf(selection, model.scale);
  const query = () => spoken(selection.attention.queries[selection.row]);
  const key = () => spoken(selection.attention.keys[selection.column]);
  const written = steps.map((step, place) => ({ ...step, place })).slice(numTold);
  const doubtful = written.reduce((least, step) => (step.probability < least.probability ? step : least), written[0]);
  const mostEffective = () => {
    const gains = unpack(attribution.integrated_gradients).part(selection.step).values;
    const gain = Math.max(...gains);
    return { place: gains.indexOf(gain), gain };
  };
  return [
    {
      at: "alignment",
      title: "What was read and written",
      see: "The source, and the translation below it. The number below a word is the probability that the model gave it.",
      look: () => {
        const read = `The model read ${counted(source.length, "token")}`;
        if (written.length === 0) return `${read}.`;
        const share = percent(Math.exp(explanation.score / written.length));
        return `${read} and wrote ${written.length}, with ${share} each on average. It was least sure of ${spoken(doubtful.token)}: ${percent(doubtful.probability)}.`;
      },
    },
    {
      at: "alignment",
      title: "Links",
      isThere: attentions[0].name === "cross",
      see: "The links are the attention that is named above them: the weights of a head, once you choose one. Attribution can draw them too. Point at a word to see its own.",
      choose: () => ({ attention: attentions[0] }),
      look: () => `Writing ${query()}, ${head()} looks at ${key()} with ${wholePercent(row().weights[selection.column])} of its weight.`,
    },
    {
      at: "roles-card",
      title: "What the heads do",
      see: "Heads with the same habit are in one line. A number such as 3.1 is layer 3, head 1; choose one to see it.",
      look: () => {
        const { attention, layer, head: number } = selection;
        const role = attention.roles[layer][number];
        const all = attention.roles.flat();
        const alike = all.filter(({ kind }) => kind === role.kind).length;
        return `${alike} of ${counted(all.length, "head")} in ${attention.title.toLowerCase()} ${alike === 1 ? role.does : role.do}.`;
      },
    },
    {
      at: "heads",
      title: "All heads",
      see: "A small picture for each head, a line for each layer. Strong colours are large weights; hatched cells are masked.",
      look: () => {
        const count = attentions.reduce((sum, { numLayers, numHeads }) => sum + numLayers * numHeads, 0);
        return `Look for diagonals (each token looks at its partner or neighbour) and for columns (one token gets the weight) among ${counted(count, "picture")}.`;
      },
    },
    {
      at: "head",
      title: "One head",
      names: "#head-map .cursor",
      see: "A row for each token that looks, a column for each one looked at. A row sums to 1.",
      look: () => `The largest weight in the row of ${query()} is ${fixed(Math.max(...row().weights))}; the frame is on ${key()}.`,
    },
    {
      at: "row-vectors",
      title: "Query and key",
      isThere: explanation.vectors !== null,
      see: "The numbers of the chosen query and key. Their products are added and scaled: that is the score.",
      look: () => {
        const { product, position, score } = row().keys[selection.column];
        const plus = position === 0 ? "" : ` plus ${fixed(position, 3)} for the position`;
        return `q·k of ${query()} and ${key()} is ${fixed(product, 3)}; times ${fixed(model.scale)}${plus}, the score is ${fixed(score, 3)}.`;
      },
    },
    {
      at: "row-softmax",
      title: "From scores to weights",
      names: "#row-table .picked",
      see: "The softmax makes weights of the scores of a row: positive, and 1 in sum. Move the slider to sharpen or soften it.",
      look: () => {
        const spread = entropy(row().weights);
        return `${key()} gets ${fixed(row().weights[selection.column])}. The entropy is ${fixed(spread, 3)} nats: as if the head looked at ${fixed(Math.exp(spread), 1)} tokens alike.`;
      },
    },
    {
      at: "row-output",
      title: "The sum of the values",
      isThere: explanation.vectors !== null,
      see: "Each key has a value vector. The output of the head is their sum, each times its weight.",
      look: () => {
        const { weights, keys, values } = row();
        const output = weightedSum(keys.map(({ place }) => weights[place]), values);
        return `The first number of the output is ${fixed(output[0])}; ${fixed(weights[selection.column] * values[selection.column][0])} of it comes from ${key()}.`;
      },
    },
    {
      at: "steps",
      title: "Step by step",
      names: "#steps-table .picked",
      see: "The decoder writes a token at each step. The most probable tokens of each are listed; the framed one was written.",
      choose: () => (doubtful ? { step: doubtful.place } : {}),
      look: () => {
        const { candidates, token, probability, entropy: spread } = steps[selection.step];
        const other = candidates.find((one) => one.token !== token);
        return `At step ${selection.step + 1}, ${spoken(token)} had ${percent(probability)} and ${spoken(other.token)} ${percent(other.probability)}. The entropy of the step is ${fixed(spread, 2)} nats.`;
      },
    },
    {
      at: "search",
      title: "The search",
      names: "#beam-tree button.picked",
      see: "A column for each step, the best hypothesis on top. The blue path was chosen; dashed ones were pruned.",
      look: () => {
        const { nodes, finished } = search;
        const ranks = finished.slice(0, 2).map(({ rank_score: score }) => fixed(score, 3));
        const best = { 0: "", 1: ` It is ranked ${ranks[0]}.`, 2: ` The best two are ranked ${ranks.join(" and ")}.` }[ranks.length];
        return `Considered: ${counted(nodes.length, "hypothesis", "hypotheses")}; finished: ${finished.length}.${best}`;
      },
    },
    {
      at: "lens",
      title: "Layer by layer",
      names: "#lens-table td.picked",
      see: "What each layer of the decoder would write if it were the last. The output is on top.",
      look: () => {
        const ranks = lens.map((ofSteps) => ofSteps[selection.step].rank);
        const from = ranks.findLastIndex((rank) => rank !== 1) + 1;
        const token = spoken(steps[selection.step].token);
        if (from === lens.length) return `${token} is not what the model would choose: at the output its rank is ${ranks[from - 1]}.`;
        return `${token} is the first token ${from === 0 ? "already as embedded" : `from layer ${from} of ${lens.length - 1} on`}.`;
      },
    },
    attribution === null
      ? {
          at: "statistics",
          title: "All heads in numbers",
          see: "A row for each head. A title sorts the table, and a row chooses its head.",
          look: () => {
            const all = attentions.flatMap(({ name, statistics }) =>
              statistics.entropy.flatMap((heads, layer) =>
                heads.map((value, number) => ({ value, name: `${name} ${layer + 1}.${number + 1}` })),
              ),
            );
            const sharpest = all.reduce((least, one) => (one.value < least.value ? one : least));
            return `The sharpest head is ${sharpest.name}, with an entropy of ${fixed(sharpest.value, 3)} nats on average.`;
          },
        }
      : {
          at: "attribution",
          title: "What had an effect",
          names: "#attribution-gradients .cursor",
          see: "Attention says where a head looked. Attribution says what changed the output; where both agree, trust the picture more.",
          choose: () => ({ source: mostEffective().place }),
          look: () => {
            const { place, gain } = mostEffective();
            const written = spoken(steps[selection.step].token);
            if (gain > 0) return `${spoken(source[place])} added most to ${written}: ${fixed(gain, 2)} nats of log-probability.`;
            return `No token made ${written} more probable; ${spoken(source[place])} lowered its log-probability least: ${fixed(gain, 2)} nats.`;
          },
        },
  ].filter(({ at, isThere = true }) => isThere && byId(at).closest("[hidden]") === null);
}

/** Prepares the tour; `prepare()` draws what is above a stop, so that it can be scrolled to. */
export function offerTour(selection, attentions, explanation, prepare) {
  const stops = stopsOf(selection, attentions, explanation);
  const [panel, start, next, back] = ["tour", "tour-start", "tour-next", "tour-back"].map(byId);
  let at = null;
  const say = () => {
    const { title, see, look } = stops[at];
    byId("tour-place").textContent = `${at + 1} of ${stops.length}`;
    byId("tour-title").textContent = title;
    byId("tour-see").textContent = see;
    byId("tour-look").textContent = look();
  };
  const mark = (isMarked) => at !== null && byId(stops[at].at).classList.toggle("toured", isMarked);
  const end = () => {
    mark(false);
    at = null;
    panel.hidden = true;
    document.body.classList.remove("touring");
    start.focus({ preventScroll: true });
  };
  const go = (place) => {
    if (place === stops.length) return end();
    mark(false);
    at = Math.max(0, place);
    back.disabled = at === 0;
    next.textContent = at === stops.length - 1 ? "Finish" : "Next →";
    const { at: part, names, choose } = stops[at];
    if (choose) selection.choose(choose());
    showPart(byId(part), prepare);
    if (names) document.querySelector(names)?.scrollIntoView({ block: "nearest", inline: "center" });
    mark(true);
    say();
    if (document.activeElement === document.body || back.disabled) next.focus({ preventScroll: true });
  };
  start.addEventListener("click", () => {
    panel.hidden = false;
    document.body.classList.add("touring");
    go(0);
    next.focus({ preventScroll: true });
  });
  next.addEventListener("click", () => go(at + 1));
  back.addEventListener("click", () => go(at - 1));
  byId("tour-end").addEventListener("click", end);
  panel.addEventListener("keydown", ({ key }) => {
    if (key === "ArrowRight") go(at + 1);
    if (key === "ArrowLeft") go(at - 1);
  });
  document.addEventListener("keydown", ({ key }) => key === "Escape" && at !== null && end());
  selection.onChange(() => at !== null && say());
}
