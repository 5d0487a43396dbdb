/** Marks in a text without elements of their own, in browsers that can: placeholders, unusual spaces. */

/** White space that looks like an ordinary space, or like nothing. */
const UNUSUAL_SPACE = /[\t\u00a0\u2000-\u200d\u202f\u205f\u2060\u3000\ufeff]| (?= )|^ | $/gmu;

/** Marks placeholders and unusual spaces in elements. */
export function markUnwordly(elements, placeholders) {
  const highlights = globalThis.CSS?.highlights;
  if (highlights === undefined) return;
  const [codes, spaces] = [[], []];
  for (const element of elements) {
    const text = element.textContent;
    const nodes = textNodes(element);
    for (const placeholder of new Set(placeholders)) {
      if (placeholder === "") continue;
      for (let at = text.indexOf(placeholder); at >= 0; at = text.indexOf(placeholder, at + placeholder.length)) {
        codes.push(rangeOf(nodes, at, at + placeholder.length));
      }
    }
    for (const { index, 0: space } of text.matchAll(UNUSUAL_SPACE)) spaces.push(rangeOf(nodes, index, index + space.length));
  }
  highlights.set("placeholder", new Highlight(...codes));
  highlights.set("unusual-space", new Highlight(...spaces));
}

/** The text nodes of an element, each with its start. */
function textNodes(element) {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const nodes = [];
  let start = 0;
  while (walker.nextNode()) {
    nodes.push([walker.currentNode, start]);
    start += walker.currentNode.length;
  }
  return nodes;
}

function rangeOf(nodes, start, end) {
  const range = new Range();
  const at = (place) => nodes.findLast(([, from]) => from <= place);
  const [[first, from], [last, before]] = [at(start), at(end - 1)];
  range.setStart(first, start - from);
  range.setEnd(last, end - before);
  return range;
}
