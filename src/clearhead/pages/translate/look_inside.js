/** Passes a sentence to the tab that explains it: through session storage, not through the address. */

import { INSIDE } from "./server.js";
import { forTab, keep, kept } from "./storage.js";

const NAME = "inside";

/** Opens the explanation for the fields of `POST /v1/explain`; returns whether the browser allowed the new tab. */
export function openInside(fields) {
  keep(forTab, NAME, fields);
  const tab = window.open(INSIDE, "_blank"); // the new tab gets a copy of this tab's session storage
  keep(forTab, NAME, null);
  return tab !== null;
}

/** Request fields for this tab's explanation; null if it was not opened for a sentence. */
export const toExplain = () => kept(forTab, NAME);
