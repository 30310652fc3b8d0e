"use strict";
// A run that is being written: how far it is, every two seconds, until it is done. A page nobody looks at asks less.
//
// <div data-progress=ADDRESS>: holds a <progress>, and elements with `data-of=records|tasks|state|remaining|failed`.
(() => {
  const EVERY = 2000;
  const HIDDEN = 15000;
  const MOST = 60000;

  const put = (box, name, value) => {
    for (const one of box.querySelectorAll(`[data-of="${name}"]`)) one.textContent = value;
  };

  const duration = (seconds) => {
    if (seconds === null || seconds === undefined) return "";
    if (seconds < 90) return `about ${Math.max(1, Math.round(seconds))} s left`;
    if (seconds < 5400) return `about ${Math.round(seconds / 60)} min left`;
    return `about ${Math.round(seconds / 3600)} h left`;
  };

  const show = (box, told) => {
    const bar = box.querySelector("progress");
    if (bar) {
      bar.max = Math.max(1, told.tasks);
      bar.value = told.records;
    }
    put(box, "records", told.records);
    put(box, "tasks", told.tasks);
    put(box, "failed", told.failed);
    put(box, "state", told.state);
    put(box, "remaining", told.state === "running" ? duration(told.remaining) : "");
    const again = box.querySelector("[data-reload]");
    if (again) again.hidden = told.records <= Number(box.dataset.records || 0);
  };

  const follow = (box) => {
    let wait = EVERY;
    const ask = async () => {
      try {
        const answer = await fetch(box.dataset.progress, { headers: { accept: "application/json" } });
        if (!answer.ok) throw new Error(String(answer.status));
        const told = await answer.json();
        show(box, told);
        wait = EVERY;
        if (told.state === "finished") return;
      } catch {
        wait = Math.min(MOST, wait * 2); // the server may be gone for a while
      }
      setTimeout(ask, document.hidden ? Math.max(HIDDEN, wait) : wait);
    };
    for (const link of box.querySelectorAll("[data-reload]")) {
      link.addEventListener("click", (event) => {
        event.preventDefault();
        location.reload();
      });
    }
    setTimeout(ask, EVERY);
  };

  const wire = () => document.querySelectorAll("[data-progress]").forEach(follow);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", wire);
  else wire();
})();
