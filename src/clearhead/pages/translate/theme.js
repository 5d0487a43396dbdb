/** Applies the stored light or dark theme, if any, before anything is drawn. */

try {
  const chosen = JSON.parse(localStorage.getItem("clearhead-theme"));
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage, the theme of the system is used.
}
