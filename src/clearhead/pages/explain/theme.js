/** Light or dark theme: that of the system, until the page's button changes it. */

import { forgetColours } from "./colours.js";
import { byId } from "./dom.js";

/** Calls back when the colours have changed. */
export function onTheme(callback) {
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  const recolour = () => {
    forgetColours();
    callback();
  };
  darkness.addEventListener("change", recolour);
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme === undefined ? darkness.matches : root.dataset.theme === "dark";
    root.dataset.theme = isDark ? "light" : "dark";
    recolour();
  });
}
