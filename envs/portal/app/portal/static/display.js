// Applies the display settings of this device before anything is painted. Loaded without `defer` for that reason.
(() => {
  const DEFAULTS = { theme: "system", text: "normal", spacing: "normal", size: "24", start: "home", columns: ["pack", "rating", "lead"], save_data: false };
  let saved = {};
  try {
    saved = JSON.parse(localStorage.getItem("portal.display") || "{}");
  } catch {
    saved = {};
  }
  const display = { ...DEFAULTS, ...saved };
  const root = document.documentElement;
  root.dataset.theme = display.theme;
  root.dataset.text = display.text;
  root.dataset.spacing = display.spacing;
  root.dataset.hide = DEFAULTS.columns.filter((name) => !display.columns.includes(name)).join(" ");
  window.portalDisplay = { DEFAULTS, display };
  const here = new URL(location.href);
  if (here.pathname === "/" && here.searchParams.has("welcome") && display.start !== "home") location.replace(`/${display.start}`);
  if (here.pathname === "/catalogue" && !here.searchParams.has("size") && display.size !== DEFAULTS.size) {
    here.searchParams.set("size", display.size);
    location.replace(here);
  }
})();
