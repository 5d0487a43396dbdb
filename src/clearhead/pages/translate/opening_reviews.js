/** Opening the review of a translation in a tab of its own. */

import { beginReview } from "./server.js";

/**
 * Begins the review of the translated file whose address `translated` resolves to, and shows it; returns its address.
 * Must be called by a click: only then the browser lets the page open a tab, which stays empty until the review is there.
 */
export async function openReview(translated) {
  const tab = window.open("", "_blank");
  try {
    const address = await beginReview(await translated());
    if (tab !== null) tab.location.replace(new URL(address, document.baseURI));
    return address;
  } catch (error) {
    tab?.close();
    throw error;
  }
}
