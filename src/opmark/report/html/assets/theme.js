"use strict";
// Light or dark theme: that of the system, until the button changes it. The choice is stored if the browser allows it.
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
      // a page without storage can still change its theme
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
