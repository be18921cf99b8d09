// What the pages do in the browser: each part looks for its own elements and leaves the others alone.
import { startDrafts } from "./drafts.js";
import { startOffline } from "./offline.js";

const { DEFAULTS, display } = window.portalDisplay;

function startDisplay() {
  const form = document.querySelector("[data-display-form]");
  if (!form) return;
  const state = form.querySelector("[data-display-state]");
  const show = (values) => {
    for (const name of ["theme", "text", "spacing", "size", "start"]) form.elements[name].value = values[name];
    for (const box of form.querySelectorAll("[name=column]")) box.checked = values.columns.includes(box.value);
    form.elements.save_data.checked = values.save_data;
  };
  show(display);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const values = {};
    for (const name of ["theme", "text", "spacing", "size", "start"]) values[name] = form.elements[name].value;
    values.columns = [...form.querySelectorAll("[name=column]:checked")].map((box) => box.value);
    values.save_data = form.elements.save_data.checked;
    localStorage.setItem("portal.display", JSON.stringify(values));
    const root = document.documentElement.dataset;
    [root.theme, root.text, root.spacing] = [values.theme, values.text, values.spacing];
    state.textContent = "Saved on this device.";
  });
  form.querySelector("[data-display-reset]").addEventListener("click", () => {
    localStorage.removeItem("portal.display");
    show(DEFAULTS);
    state.textContent = "Back to the defaults.";
  });
}

function startSuggestions() {
  const field = document.querySelector("[data-suggest]");
  const list = document.getElementById("suggestions");
  if (!field || display.save_data) return;
  let asked = 0;
  field.addEventListener("input", async () => {
    const mine = ++asked;
    await new Promise((done) => setTimeout(done, 150));
    if (mine !== asked) return;
    const answer = await fetch(`/api/search?q=${encodeURIComponent(field.value)}`);
    if (!answer.ok || mine !== asked) return;
    const { products } = await answer.json();
    list.replaceChildren(
      ...products.map((product) => {
        const item = document.createElement("li");
        const link = document.createElement("a");
        link.href = `/product/${product.sku}`;
        link.textContent = product.name;
        item.append(link);
        return item;
      }),
    );
    list.hidden = products.length === 0;
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) list.hidden = true;
  });
}

function startRecent() {
  const key = "portal.recent";
  const seen = JSON.parse(localStorage.getItem(key) || "[]");
  const product = document.querySelector("[data-viewed]");
  if (product) {
    const entry = { sku: product.dataset.viewed, name: product.dataset.name };
    localStorage.setItem(key, JSON.stringify([entry, ...seen.filter((each) => each.sku !== entry.sku)].slice(0, 6)));
  }
  const box = document.querySelector("[data-recent]");
  if (!box || seen.length === 0) return;
  box.hidden = false;
  for (const each of seen) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `/product/${each.sku}`;
    link.textContent = each.name;
    item.append(link);
    box.querySelector("ul").append(item);
  }
}

startDisplay();
startSuggestions();
startRecent();
startDrafts();
startOffline();
