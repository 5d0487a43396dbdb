/** Elements made of names and text; no HTML is ever parsed, so that text stays text. */

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null));
  return element;
}

/** Makes an element. Properties are attributes, and listeners such as `onclick`; children are elements and text. */
export function make(name, properties = {}, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** Likewise an element of SVG. */
export function makeSvg(name, properties = {}, ...children) {
  return fill(document.createElementNS(byId("alignment-lines").namespaceURI, name), properties, children);
}

/** The element of the page with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Shows a section and fills it when it comes near the window; returns what fills it at once, if it is not yet. */
export function lazily(section, draw) {
  section.hidden = false;
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
  observer.observe(section);
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
