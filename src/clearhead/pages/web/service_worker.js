/** Keeps the files of the page, so that it works without a network. `FILES` and `VERSION` come before. */

const name = `clearhead ${self.registration.scope} `;
const { pathname } = new URL(self.registration.scope);

self.addEventListener("install", (event) => {
  const all = FILES.map((file) => new Request(file, { cache: "no-cache" })); // none of an older export
  const kept = caches.open(name + VERSION).then((cache) => cache.addAll(all));
  event.waitUntil(kept.then(() => self.skipWaiting()));
});
self.addEventListener("activate", (event) => {
  const removed = async () => {
    for (const one of await caches.keys()) if (one.startsWith(name) && one !== name + VERSION) await caches.delete(one);
  };
  event.waitUntil(removed());
});
self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method === "GET" && request.url.startsWith(self.registration.scope)) event.respondWith(answer(request));
});

async function answer(request) {
  const path = new URL(request.url).pathname;
  const isPage = request.mode === "navigate" && [pathname, `${pathname}index.html`].includes(path);
  const cache = await caches.open(name + VERSION);
  const kept = await cache.match(isPage ? "./" : request);
  if (kept && request.cache !== "reload") return kept;
  const found = await fetch(request);
  if (kept && found.ok) await cache.put(request, found.clone()); // the page asks again for what is damaged
  return found;
}
