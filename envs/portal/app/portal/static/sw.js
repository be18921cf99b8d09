// The portal's service worker: pages come from the network; without one, from what was kept, else the list of what is kept.
const SHELL = "portal-shell-v1";
const GUIDES = "portal-guides-v1";
const FILES = ["/offline", "/static/style.css", "/static/display.js", "/static/app.js", "/static/drafts.js", "/static/offline.js", "/static/icon.svg"];

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(SHELL).then((cache) => cache.addAll(FILES)).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  event.waitUntil(
    caches.keys()
      .then((names) => Promise.all(names.filter((name) => name !== SHELL && name !== GUIDES).map((name) => caches.delete(name))))
      .then(() => self.clients.claim()),
  );
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const place = new URL(request.url);
  if (request.method !== "GET" || place.origin !== location.origin) return;
  if (request.mode === "navigate") {
    event.respondWith(fetch(request).catch(async () => (await caches.match(request, { ignoreSearch: true })) || caches.match("/offline")));
  } else if (place.pathname.startsWith("/static/")) {
    event.respondWith(fetch(request).catch(() => caches.match(request)));
  }
});
