/** Colour scales of the style sheet: weights from 0 to 1, and signed values around 0. */

import { make } from "./dom.js";
import { fixed } from "./text.js";

const SHADES = 256;
let scales = {};

/** Clears the cached colours, after the theme changed. */
export function forgetColours() {
  scales = {};
}

function shades(name) {
  scales[name] ??= read(name);
  return scales[name];
}

function read(name) {
  const probe = document.body.appendChild(make("span", { hidden: true }));
  const stops = [];
  for (let number = 0; getComputedStyle(probe).getPropertyValue(`--${name}-${number}`) !== ""; number += 1) {
    probe.style.color = `var(--${name}-${number})`;
    stops.push(getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number));
  }
  probe.remove();
  return Array.from({ length: SHADES }, (_, shade) => {
    const at = (shade / (SHADES - 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((value, channel) => Math.round(value + (at - low) * (stops[low + 1][channel] - value)));
  });
}

/** Colour of a weight, as [red, green, blue]; by its square root, so that small weights can be distinguished. */
export function weightColour(weight) {
  return shades("heat")[Math.round(Math.sqrt(Math.max(0, Math.min(1, weight))) * (SHADES - 1))];
}

/** Colour of a signed value, relative to the largest one. */
export function signedColour(value, largest) {
  const share = largest > 0 ? Math.max(-1, Math.min(1, value / largest)) : 0;
  return shades("signed")[Math.round((0.5 + (Math.sign(share) * Math.sqrt(Math.abs(share))) / 2) * (SHADES - 1))];
}

/** Black or white, whichever has more contrast on a colour. */
export function inkOn([red, green, blue]) {
  const light = [red, green, blue].map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] > 0.18 ? "#000" : "#fff";
}

/** A colour in CSS syntax. */
export function css(colour) {
  return `rgb(${colour.join(" ")})`;
}

/** Returns the legend of a scale: colour boxes with their values. */
export function legend(title, entries) {
  return make(
    "p",
    { class: "legend" },
    make("span", {}, title),
    entries.map(([label, colour]) => {
      const box = make("i", { "aria-hidden": "true" });
      if (colour === null) box.className = "hidden-cell";
      else box.style.background = css(colour);
      return make("span", {}, box, label);
    }),
  );
}

/** Returns the legend for signed numbers, coloured by their share of the largest. */
export function signedLegend(title) {
  return legend(
    title,
    [-1, -0.25, 0, 0.25, 1].map((share) => [`${fixed(100 * share, 0)} %`, signedColour(share, 1)]),
  );
}

/** Returns the legend for weights or probabilities. */
export function weightLegend(isCausal, title = "Weight, the share of the row’s attention") {
  const entries = [0, 0.05, 0.25, 0.5, 1].map((weight) => [String(weight), weightColour(weight)]);
  return legend(title, isCausal ? [...entries, ["masked", null]] : entries);
}
