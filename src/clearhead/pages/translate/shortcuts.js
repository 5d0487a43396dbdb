/** Keyboard shortcuts that work everywhere on the page; the page lists them. */

/** Calls functions of `actions`, by name, on key presses. */
export function listenToKeys(actions) {
  addEventListener("keydown", (event) => {
    if (event.isComposing || document.querySelector("dialog[open]") !== null) return;
    const name = actionOf(event);
    if (name === null) return;
    event.preventDefault();
    actions[name]();
  });
}

function actionOf({ key, ctrlKey, metaKey, shiftKey, altKey }) {
  if (altKey) return null;
  const isCommand = ctrlKey || metaKey;
  if (key === "Escape") return "leave";
  if (isCommand && key === "Enter") return shiftKey ? "copy" : "translateNow";
  if (isCommand && shiftKey && key.toLowerCase() === "s") return "swap";
  if (isCommand && key === "/") return "showShortcuts";
  return null;
}
