/** Creation of elements from names and text; no HTML is ever parsed, so text cannot become markup. */

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null));
  return element;
}

/** Creates an element. `properties` are attributes, and listeners such as `onclick`; children are elements and text. */
export function make(name, properties = {}, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** Creates an SVG element, with the same arguments as `make`. */
export function makeSvg(name, properties = {}, ...children) {
  return fill(document.createElementNS(byId("alignment-lines").namespaceURI, name), properties, children);
}

/** Element of the page with an id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Shows a part, and draws it when it is open and near the visible area; returns a function that draws it at once. */
export function lazily(part, draw) {
  part.hidden = false;
  let isDrawn = false;
  const drawOnce = () => {
    if (isDrawn) return;
    isDrawn = true;
    observer.disconnect();
    draw();
  };
  const observer = new IntersectionObserver((entries) => entries.some((one) => one.isIntersecting) && drawOnce(), {
    rootMargin: "400px",
  });
  observer.observe(part.querySelector(":scope > summary + *"));
  return drawOnce;
}

/** Calls back when an element's width changes. */
export function onWidth(element, callback) {
  let width = element.clientWidth;
  new ResizeObserver(() => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    callback();
  }).observe(element);
}
