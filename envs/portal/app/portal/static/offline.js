// Guides that are kept on this device, through the service worker and its caches.
const GUIDES = "portal-guides-v1";
const able = "serviceWorker" in navigator && "caches" in window;

async function startKeep(box) {
  const place = box.dataset.keep;
  const [add, remove, state] = ["add", "remove", "state"].map((name) => box.querySelector(`[data-keep-${name}]`));
  const show = async () => {
    const kept = Boolean(await (await caches.open(GUIDES)).match(place));
    [add.hidden, remove.hidden] = [kept, !kept];
    state.textContent = kept ? "Kept on this device." : "";
  };
  if (!able) {
    add.disabled = true;
    state.textContent = "This browser cannot keep pages.";
    return;
  }
  add.addEventListener("click", async () => {
    await navigator.serviceWorker.ready;
    await (await caches.open(GUIDES)).add(place);
    await show();
  });
  remove.addEventListener("click", async () => {
    await (await caches.open(GUIDES)).delete(place);
    await show();
  });
  await show();
}

async function showKept(list) {
  if (!able || !(await caches.has(GUIDES))) return;
  const cache = await caches.open(GUIDES);
  for (const request of await cache.keys()) {
    const text = await (await cache.match(request)).text();
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = new URL(request.url).pathname;
    link.textContent = (/<title>(.*?) · /.exec(text) || [null, link.href])[1];
    item.append(link);
    list.append(item);
    document.querySelector("[data-offline-none]").hidden = true;
  }
}

export function startOffline() {
  if (able && document.body.dataset.person) navigator.serviceWorker.register("/sw.js");
  const box = document.querySelector("[data-keep]");
  if (box) startKeep(box);
  const list = document.querySelector("[data-offline]");
  if (list) showKept(list);
}
