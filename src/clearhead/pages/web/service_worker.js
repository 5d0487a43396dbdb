/** Keeps the files of the page, so that it works without a network. `FILES` and `VERSION` come before. */

const name = `clearhead ${self.registration.scope} `;

self.addEventListener("install", (event) => {
  const kept = caches.open(name + VERSION).then((cache) => cache.addAll(FILES));
  event.waitUntil(kept.then(() => self.skipWaiting()));
});
self.addEventListener("activate", (event) => {
  const removed = async () => {
    for (const one of await caches.keys()) if (one.startsWith(name) && one !== name + VERSION) await caches.delete(one);
  };
  event.waitUntil(removed());
});
self.addEventListener("fetch", (event) => {
  const answer = async () => (await caches.match(event.request, { ignoreSearch: true })) ?? fetch(event.request);
  event.respondWith(answer());
});
