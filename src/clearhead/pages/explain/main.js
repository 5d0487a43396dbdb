/** Fills the page with the explanation that it holds. */

import { drawAttribution } from "./attribution.js";
import { drawBeams } from "./beams.js";
import { forgetColours, weightLegend } from "./colours.js";
import { attentionsOf } from "./data.js";
import { byId, lazily } from "./dom.js";
import { drawAlignment, drawConsidered, drawFacts, drawRoles } from "./glance.js";
import { drawHead, drawHeads } from "./heads.js";
import { drawLens } from "./lens.js";
import { drawRow } from "./row.js";
import { Selection } from "./selection.js";
import { drawStatistics } from "./statistics.js";
import { drawSteps } from "./steps.js";

const explanation = JSON.parse(byId("explanation").textContent);
const attentions = attentionsOf(explanation);
const selection = new Selection(attentions, explanation.steps.length);
const redraws = [];

byId("without-script").remove();
byId("page").hidden = false;
drawFacts(explanation);
redraws.push(drawAlignment(selection, explanation));
drawRoles(selection, attentions);
if (explanation.steps.length > 0) {
  byId("considered-card").hidden = false;
  drawConsidered(explanation);
}
redraws.push(drawHeads(byId("head-grids"), attentions, selection));
redraws.push(drawHead(selection, explanation.model.scale));
lazily(byId("row"), () => redraws.push(drawRow(selection, explanation.model)));
if (explanation.steps.length > 0) lazily(byId("steps"), () => drawSteps(selection, explanation));
if (explanation.search !== null) lazily(byId("search"), () => drawBeams(selection, explanation.search));
if (explanation.logit_lens !== null) {
  lazily(byId("lens"), () => {
    redraws.push(drawLens(selection, explanation));
    byId("lens-legend").replaceChildren(weightLegend(false));
  });
}
if (explanation.attribution !== null) lazily(byId("attribution"), () => redraws.push(drawAttribution(selection, explanation)));
lazily(byId("statistics"), () => drawStatistics(selection, attentions, explanation));
document.querySelectorAll("nav a").forEach((link) => {
  link.hidden = byId(link.hash.slice(1)).hidden;
});

const darkness = matchMedia("(prefers-color-scheme: dark)");
const recolour = () => {
  forgetColours();
  redraws.forEach((redraw) => redraw());
};
darkness.addEventListener("change", recolour);
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme === undefined ? darkness.matches : root.dataset.theme === "dark";
  root.dataset.theme = isDark ? "light" : "dark";
  recolour();
});
