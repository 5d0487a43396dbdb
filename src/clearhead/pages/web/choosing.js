/** Shows the page of this tab: the one that translates, or the one that explains a sentence. */

document.getElementById("incomplete").remove(); // this script is at the end of the page
const view = document.getElementById(location.search === "?inside" ? "looking-inside" : "translating");
document.body.prepend(document.importNode(view.content, true));
if (document.querySelector("link[rel=manifest]")) {
  void navigator.serviceWorker?.register("service-worker.js").catch(() => {}); // the page works without
}
