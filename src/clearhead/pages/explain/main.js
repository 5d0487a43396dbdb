/** Fills the page with the explanation embedded in it. */

import { drawAlignment } from "./alignment.js";
import { drawAttribution } from "./attribution.js";
import { drawBeams } from "./beams.js";
import { drawComputation } from "./computation.js";
import { attentionsOf } from "./data.js";
import { byId, lazily } from "./dom.js";
import { drawConsidered, drawFacts, drawRoles } from "./glance.js";
import { drawHead, drawHeads } from "./heads.js";
import { drawLens } from "./lens.js";
import { followLinks } from "./links.js";
import { drawMemory } from "./memory.js";
import { drawRow } from "./row.js";
import { Selection } from "./selection.js";
import { drawStatistics } from "./statistics.js";
import { drawSteps } from "./steps.js";
import { onTheme } from "./theme.js";
import { offerTour } from "./tour.js";

const explanation = JSON.parse(byId("explanation").textContent);
const attentions = attentionsOf(explanation);
const selection = new Selection(attentions, explanation.steps.length);
selection.choose({ ...openingHead(attentions[0], explanation.alignment_head), step: selection.step });
const redraws = [];

byId("without-script").remove();
byId("page").hidden = false;
drawFacts(explanation, attentions);
redraws.push(drawAlignment(selection, explanation, attentions));
drawRoles(selection, attentions, explanation.alignment_head);
if (explanation.steps.length > 0) {
  byId("considered-card").hidden = false;
  drawConsidered(explanation);
}
const paintHeads = drawHeads(byId("head-grids"), attentions, selection);
redraws.push(() => paintHeads());
redraws.push(drawHead(selection, explanation.model.scale));

const hasSteps = explanation.steps.length > 0;
const sections = [
  ["row", true, () => redraws.push(drawRow(selection, explanation.model))],
  ["computation", Boolean(explanation.computation), () => drawComputation(selection, explanation)],
  ["steps", hasSteps, () => drawSteps(selection, explanation)],
  ["memory", Boolean(explanation.memory), () => drawMemory(selection, explanation)],
  ["search", explanation.search !== null, () => drawBeams(selection, explanation.search)],
  ["lens", hasSteps && explanation.logit_lens !== null, () => redraws.push(drawLens(selection, explanation))],
  ["attribution", explanation.attribution !== null, () => redraws.push(drawAttribution(selection, explanation))],
  ["statistics", true, () => drawStatistics(selection, attentions, explanation)],
];
const parts = sections.filter(([, isThere]) => isThere).map(([id, , draw]) => [byId(id), lazily(byId(id), draw)]);
const isNarrow = matchMedia("(max-width: 40rem)").matches;
parts.forEach(([part]) => (part.open = !isNarrow));
// A link scrolls to the right position only if everything above its target has been drawn.
const drawAll = () => parts.filter(([part]) => part.open).forEach(([, draw]) => draw());
addEventListener("beforeprint", () => {
  parts.forEach(([part]) => (part.open = true));
  drawAll();
  paintHeads(true);
});
followLinks(drawAll);
offerTour(selection, attentions, explanation, drawAll);

/** The initially chosen head: the one that was found to align words, otherwise the clearest (`clearest_head` in Python). */
function openingHead({ name, roles }, aligning) {
  if (name === "cross" && aligning.head !== null) return { layer: aligning.layer, head: aligning.head };
  const heads = roles.flatMap((ofLayer, layer) => ofLayer.map((role, head) => ({ role, layer, head })));
  const clear = heads.filter(({ role }) => !["mixed", "picks", "spread"].includes(role.kind));
  const [{ layer, head }] = (clear.length > 0 ? clear : heads).sort((one, other) => other.role.share - one.role.share);
  return { layer, head };
}

onTheme(() => redraws.forEach((redraw) => redraw()));
