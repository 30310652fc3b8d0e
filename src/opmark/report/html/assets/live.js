"use strict";
// Shows the progress of a run every two seconds until it is done; a hidden page asks less often.
//
// <div data-progress=ADDRESS>: holds a <progress>, and elements with `data-of=records|tasks|state|remaining|failed`.
// <p data-runs=ADDRESS hidden>: shown as soon as the list of runs begins with another one than when the page was opened.
(() => {
  const EVERY = 2000;
  const RUNS = 5000;
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

  // Sends the request repeatedly until `done` of an answer is true.
  const poll = (address, every, done) => {
    let wait = every;
    const ask = async () => {
      try {
        const answer = await fetch(address, { headers: { accept: "application/json" } });
        if (!answer.ok) throw new Error(String(answer.status));
        wait = every;
        if (done(await answer.json())) return;
      } catch {
        wait = Math.min(MOST, wait * 2); // the server may be gone for a while
      }
      setTimeout(ask, document.hidden ? Math.max(HIDDEN, wait) : wait);
    };
    ask();
  };

  const follow = (box) =>
    poll(box.dataset.progress, EVERY, (told) => {
      show(box, told);
      return told.state === "finished";
    });

  const watch = (box) => {
    let newest = null;
    poll(box.dataset.runs, RUNS, (told) => {
      const first = told.runs.length ? told.runs[0].run.id : "";
      newest = newest === null ? first : newest;
      box.hidden = first === newest;
      return !box.hidden;
    });
  };

  const wire = () => {
    document.querySelectorAll("[data-progress]").forEach(follow);
    document.querySelectorAll("[data-runs]").forEach(watch);
    for (const link of document.querySelectorAll("[data-reload]")) {
      link.addEventListener("click", (event) => {
        event.preventDefault();
        location.reload();
      });
    }
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", wire);
  else wire();
})();
