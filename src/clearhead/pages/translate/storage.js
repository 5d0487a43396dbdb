/** Browser storage, for browsers that allow it. */

/** Returns a stored value, or null. `where` returns the storage, since even accessing it may be forbidden. */
export function kept(where, name) {
  try {
    return JSON.parse(where().getItem(`clearhead-${name}`));
  } catch {
    return null;
  }
}

/** Stores a value; null removes it. If storage is full or forbidden, nothing is stored. */
export function keep(where, name, value) {
  try {
    if (value === null) where().removeItem(`clearhead-${name}`);
    else where().setItem(`clearhead-${name}`, JSON.stringify(value));
  } catch {
    // The page works without storage.
  }
}

/** Storage for all tabs and sessions. */
export const forEver = () => localStorage;

/** Storage for this tab, and for tabs that it opens. */
export const forTab = () => sessionStorage;

/** Stores the theme that the reader chose; `theme.js` reads it before the next page is drawn. */
export const keepTheme = () => keep(forEver, "theme", document.documentElement.dataset.theme ?? null);
