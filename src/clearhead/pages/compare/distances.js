/** Distances between the heads of two explanations, and the head that is chosen in both. */

import { css, inkOn, legend, weightColour, weightLegend } from "../explain/colours.js";
import { byId, make } from "../explain/dom.js";
import { headGrid } from "../explain/head_grid.js";
import { bringIntoView, headColours, headName, rowName } from "../explain/heads.js";
import { HeatMap } from "../explain/heat_map.js";
import { stopAt } from "../explain/keys.js";
import { fixed, spoken } from "../explain/text.js";
import { namesOf } from "./sides.js";

/** Heads that can be compared: their attentions on both sides, positions and distances. */
export function distancesOf({ heads }, ...sides) {
  const [firsts, seconds] = sides;
  return firsts.flatMap((attention) => {
    const other = seconds.find(({ name }) => name === attention.name);
    return (heads[attention.name] ?? []).flatMap((ofLayer, layer) =>
      ofLayer.map((distance, head) => ({ attention, other, layer, head, distance })),
    );
  });
}

/** Draws the grids and the chosen head; returns functions that choose a head and redraw everything. */
export function drawDistances(comparison, heads) {
  byId("no-heads").hidden = heads.length > 0;
  byId("head").hidden = heads.length === 0;
  if (heads.length === 0) return { choose: () => {}, redraw: () => {} };
  let chosen = heads.reduce((most, one) => (one.distance > most.distance ? one : most));
  const names = namesOf(comparison);
  const maps = ["first", "second"].map((side, place) => {
    byId(`${side}-name`).textContent = names[place];
    return new HeatMap(byId(`${side}-map`), (row, column) => follow(place, row, column));
  });
  // A token common to both sides is chosen in both maps.
  const follow = (side, row, column) => {
    const rows = chosen.attention.name === "encoder" ? comparison.source_changes : comparison.read_changes;
    const columns = chosen.attention.name === "decoder" ? comparison.read_changes : comparison.source_changes;
    const place = [counterpart(rows, side, row), counterpart(columns, side, column)];
    if (!place.includes(null)) maps[1 - side].pick(...place);
  };
  const grids = [...new Set(heads.map(({ attention }) => attention))].map((attention) => {
    const own = heads.filter((one) => one.attention === attention);
    const at = (layer, head) => own[layer * attention.numHeads + head];
    const { grid, rows } = headGrid(attention, "", (layer, head) => ({
      properties: {
        class: "thumbnail",
        "aria-label": `Layer ${layer + 1}, head ${head + 1}: ${fixed(at(layer, head).distance, 2)} apart`,
        onclick: (event) => choose(at(layer, head), event.detail > 0),
      },
      children: [make("span", { class: "distance", "aria-hidden": "true" }, fixed(at(layer, head).distance, 2).replace(/^0/u, ""))],
    }));
    return { attention, own, rows, element: make("div", { class: "attention" }, make("h3", {}, attention.title), grid) };
  });
  const show = () => {
    const { attention, other, layer, head, distance } = chosen;
    byId("head-title").textContent = headName(attention, layer, head);
    byId("head-distance").textContent = `Its rows are ${fixed(distance, 3)} apart.`;
    [attention, other].forEach((one, side) => {
      const weights = one.weights().part(layer, head);
      byId(["first-role", "second-role"][side]).textContent = one.roles[layer][head].sentence;
      maps[side].show({
        rows: one.queries,
        columns: one.keys,
        rowName: rowName(one),
        columnName: "looks at",
        label: `${names[side]}, weights of ${headName(one, layer, head)}`,
        colour: headColours(one, weights),
        text: (row, column) => fixed(weights.at(row, column), 2).replace(/^0/u, ""),
        describe: (row, column) =>
          one.isCausal && column > row
            ? `${spoken(one.keys[column])} comes later.`
            : `${spoken(one.queries[row])} to ${spoken(one.keys[column])}: ${fixed(weights.at(row, column))}.`,
        canPick: (row, column) => !one.isCausal || column <= row,
      });
    });
    byId("head-legend").replaceChildren(weightLegend(attention.isCausal));
  };
  const mark = () => {
    for (const { own, rows } of grids) {
      rows.flat().forEach((cell, place) => {
        cell.setAttribute("aria-selected", String(own[place] === chosen));
        if (own[place] === chosen) stopAt(rows, cell);
      });
    }
  };
  const colour = () => {
    for (const { own, rows } of grids) {
      rows.flat().forEach((cell, place) => {
        const shade = weightColour(own[place].distance);
        cell.firstChild.style.background = css(shade);
        cell.firstChild.style.color = inkOn(shade);
      });
    }
    const entries = [0, 0.05, 0.25, 0.5, 1].map((distance) => [String(distance), weightColour(distance)]);
    byId("distance-legend").replaceChildren(legend("Distance, the share of attention that moved", entries));
  };
  const choose = (head, isToBeSeen) => {
    chosen = head;
    mark();
    show();
    if (isToBeSeen) bringIntoView(byId("head"));
  };
  const redraw = () => {
    colour();
    show();
  };
  byId("distance-grids").replaceChildren(...grids.map(({ element }) => element));
  colour();
  mark();
  show();
  return { choose, redraw };
}

/** Position of a token on the other side; null if it does not occur there. */
function counterpart(changes, side, place) {
  for (const { is_same: isSame, first, second } of changes) {
    const [own, other] = side === 0 ? [first, second] : [second, first];
    if (place >= own[0] && place < own[1]) return isSame ? other[0] + place - own[0] : null;
  }
  return null;
}
