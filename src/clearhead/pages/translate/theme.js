/** Before anything is drawn: light or dark, if the reader has chosen. */

try {
  const chosen = JSON.parse(localStorage.getItem("clearhead-theme"));
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing has its own theme.
}
