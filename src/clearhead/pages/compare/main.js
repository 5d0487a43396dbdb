/** Fills the page with the two explanations embedded in it, and their differences. */

import { attentionsOf } from "../explain/data.js";
import { byId } from "../explain/dom.js";
import { followLinks } from "../explain/links.js";
import { onTheme } from "../explain/theme.js";
import { drawDistances, distancesOf } from "./distances.js";
import { drawChanged, drawSides } from "./sides.js";
import { drawTokens } from "./tokens.js";

const comparison = JSON.parse(byId("comparison").textContent);
const heads = distancesOf(comparison, attentionsOf(comparison.first), attentionsOf(comparison.second));
byId("without-script").remove();
byId("page").hidden = false;
drawSides(comparison);
const recolourTokens = drawTokens(comparison);
const { choose, redraw } = drawDistances(comparison, heads);
drawChanged(comparison, heads, choose);
followLinks();
onTheme(() => {
  recolourTokens();
  redraw();
});
