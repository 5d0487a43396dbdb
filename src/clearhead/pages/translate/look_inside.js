/** How a sentence gets into the tab that explains it: by what the two tabs share, and not by the address. */

import { forTab, keep, kept } from "./storage.js";

const NAME = "inside";

/** Opens the explanation of what `POST /v1/explain` takes; returns whether the browser let it. */
export function openInside(fields) {
  keep(forTab, NAME, fields);
  const tab = window.open("inside", "_blank"); // it gets a copy of what is kept for this one
  keep(forTab, NAME, null);
  return tab !== null;
}

/** What the tab is to explain; null if it was not opened for a sentence. */
export const toExplain = () => kept(forTab, NAME);
