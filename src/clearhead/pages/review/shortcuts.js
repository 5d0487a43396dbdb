/** Keyboard shortcuts of the review; the page lists them. */

/** Keys in the list of segments, where nothing is typed. */
const IN_LIST = {
  ArrowDown: ["next"],
  ArrowUp: ["previous"],
  j: ["next"],
  k: ["previous"],
  Enter: ["edit"],
  e: ["edit"],
  i: ["lookInside"],
  u: ["undo"],
  o: ["show", "open"],
  d: ["show", "done"],
  a: ["show", "all"],
  "/": ["find"],
  "?": ["showShortcuts"],
};

/**
 * Calls functions of `actions`, by name, on key presses. `field` is the text area of the translation, and `isEdited`
 * says whether something typed in it can be undone there.
 */
export function listenToReviewKeys(actions, field, isEdited) {
  addEventListener("keydown", (event) => {
    if (event.isComposing || document.querySelector("dialog[open]") !== null) return;
    const [name, argument] = commandOf(event) ?? (event.target === field ? inField(event, isEdited) : inList(event)) ?? [];
    if (name === undefined) return;
    event.preventDefault();
    actions[name](argument);
  });
}

/** The command of a key that has a meaning everywhere: [name, argument]; null for others. */
function commandOf(event) {
  const { key, ctrlKey, metaKey, shiftKey, altKey } = event;
  if (key === "Escape") return ["leave"];
  if (altKey && !ctrlKey && !metaKey && key === "ArrowDown") return ["next"];
  if (altKey && !ctrlKey && !metaKey && key === "ArrowUp") return ["previous"];
  if (altKey || !(ctrlKey || metaKey)) return null;
  if (key === "Enter") return [shiftKey ? "keepForLater" : "accept"];
  if (key === "/") return ["showShortcuts"];
  if (key === "i" && !shiftKey) return ["lookInside"];
  if (key === ",") return ["insertMissing"];
  return digit(event);
}

/** With nothing left to undo in the field, Ctrl+Z undoes the last saved change; holding the key down stops before it. */
function inField({ key, ctrlKey, metaKey, shiftKey, altKey, repeat }, isEdited) {
  const isUndo = (ctrlKey || metaKey) && !shiftKey && !altKey && key.toLowerCase() === "z";
  return isUndo && !repeat && !isEdited() ? ["undo"] : null;
}

function inList(event) {
  const { key, ctrlKey, metaKey, altKey, target } = event;
  if (target.matches("[type=search]")) return null;
  if ((ctrlKey || metaKey) && !altKey && key === "z") return ["undo"];
  // Buttons, the filter and the like have their own use of these keys.
  const isControl = target.closest("button, input, a, summary") !== null;
  if (ctrlKey || metaKey || altKey || (isControl && /^(Arrow|Enter)/.test(key))) return null;
  return digit(event) ?? IN_LIST[key] ?? null;
}

/** The suggestion that a digit names; 0 is the source. */
function digit({ key, ctrlKey, metaKey, shiftKey }) {
  const isOwn = /^[1-9]$/.test(key) || (key === "0" && !ctrlKey && !metaKey); // with Ctrl, 0 is the browser's zoom
  return isOwn && !shiftKey ? ["insert", Number(key)] : null;
}
