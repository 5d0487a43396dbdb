/** Links within the page. They are followed by the page itself: one within a notebook has no address to go to. */

import { byId } from "./dom.js";

/** Makes links lead to their sections; `prepare()` is called before. A link to a section that is hidden is hidden too. */
export function followLinks(prepare = () => {}) {
  const goTo = (section) => {
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
