"use strict";
// Light or dark: as the system wishes, until the button says otherwise. What it said is kept, where keeping is allowed.
(() => {
  const NAME = "opmark-theme";
  const root = document.documentElement;
  const kept = () => {
    try {
      return localStorage.getItem(NAME);
    } catch {
      return null;
    }
  };
  const keep = (theme) => {
    try {
      localStorage.setItem(NAME, theme);
    } catch {
      // a page that may not keep anything still turns dark
    }
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme || (system.matches ? "dark" : "light");
  const chosen = kept();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;

  const wire = () => {
    for (const button of document.querySelectorAll("button.theme")) {
      const tell = () => {
        button.textContent = current() === "dark" ? "Light theme" : "Dark theme";
      };
      button.addEventListener("click", () => {
        root.dataset.theme = current() === "dark" ? "light" : "dark";
        keep(root.dataset.theme);
        tell();
      });
      system.addEventListener("change", tell);
      tell();
      button.hidden = false;
    }
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", wire);
  else wire();
})();
