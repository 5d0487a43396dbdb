/** Links within the page, followed by script: in a notebook, the page has no address of its own. */

import { byId } from "./dom.js";

/** Makes links scroll to their sections, after calling `prepare()`. Links to hidden sections are hidden. */
export function followLinks(prepare = () => {}) {
  const goTo = (section) => {
    section.open = true; // if it can be folded
    prepare();
    section.tabIndex = -1;
    section.focus({ preventScroll: true });
    section.scrollIntoView();
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
