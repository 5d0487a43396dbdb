/** What the browser keeps, where it may keep anything. */

/** Returns the value kept under a name, or null. `where` returns the storage, since even naming it may be forbidden. */
export function kept(where, name) {
  try {
    return JSON.parse(where().getItem(`clearhead-${name}`));
  } catch {
    return null;
  }
}

/** Keeps a value under a name; null removes it. Where there is no room or no leave, nothing is kept. */
export function keep(where, name, value) {
  try {
    if (value === null) where().removeItem(`clearhead-${name}`);
    else where().setItem(`clearhead-${name}`, JSON.stringify(value));
  } catch {
    // The page does without.
  }
}

/** Kept for all tabs and times. */
export const forEver = () => localStorage;

/** Kept for this tab, and those it opens. */
export const forTab = () => sessionStorage;

/** Keeps the theme that the reader chose; `theme.js` reads it before the next page is drawn. */
export const keepTheme = () => keep(forEver, "theme", document.documentElement.dataset.theme ?? null);
