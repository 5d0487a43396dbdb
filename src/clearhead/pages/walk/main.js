/** Shows one stage at a time: buttons, links, arrow keys. The address has the stage, so the browser's Back works. */

import { moved } from "../explain/keys.js";

const stages = [...document.querySelectorAll(".stage")];
const links = [...document.querySelectorAll("nav a")];
const back = document.getElementById("back");
const next = document.getElementById("next");
let shown = 0;

function show(place) {
  shown = place;
  stages.forEach((stage, other) => stage.classList.toggle("current", other === place));
  links.forEach((link, other) => (other === place ? link.setAttribute("aria-current", "step") : link.removeAttribute("aria-current")));
  back.disabled = place === 0;
  next.disabled = place === stages.length - 1;
}

function showAddressed() {
  show(Math.max(0, stages.findIndex((stage) => `#${stage.id}` === location.hash)));
}

function go(place) {
  if (place === shown) return;
  location.hash = stages[place].id;
}

addEventListener("hashchange", () => {
  showAddressed();
  stages[shown].scrollIntoView();
  stages[shown].querySelector("h2").focus({ preventScroll: true }); // a screen reader then says which stage it is
});
addEventListener("keydown", (event) => {
  const isScrolling = event.target.closest(".matrix") !== null;
  const to = isScrolling ? null : moved(event, 0, shown, 1, stages.length);
  if (to === null || to[1] === shown) return;
  event.preventDefault();
  go(to[1]);
});
back.addEventListener("click", () => go(shown - 1));
next.addEventListener("click", () => go(shown + 1));
back.hidden = next.hidden = false;
document.querySelector("main").classList.add("stepping");
showAddressed();
