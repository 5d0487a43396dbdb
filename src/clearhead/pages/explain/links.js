/** Links within the page, followed by script: in a notebook, the page has no address of its own. */

import { byId } from "./dom.js";

/** Unfolds the section of an element and scrolls to it, after calling `prepare()`. */
export function showPart(element, prepare) {
  const section = element.closest("details.part");
  if (section !== null) section.open = true;
  prepare();
  element.scrollIntoView();
}

/** Makes links scroll to their sections, after calling `prepare()`. Links to hidden sections are hidden. */
export function followLinks(prepare = () => {}) {
  const goTo = (section) => {
    section.tabIndex = -1;
    section.focus({ preventScroll: true });
    showPart(section, prepare);
  };
  document.querySelectorAll('a[href^="#"]').forEach((link) => {
    const section = byId(link.hash.slice(1));
    link.hidden = section.hidden;
    link.addEventListener("click", (event) => {
      event.preventDefault();
      goTo(section);
    });
  });
  const section = location.hash === "" ? null : byId(location.hash.slice(1));
  if (section !== null) goTo(section);
}
