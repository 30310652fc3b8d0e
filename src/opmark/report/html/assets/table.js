"use strict";
// Tables that can be sorted and filtered where they stand.
//
// <table data-sortable>: a click on a button in a head sorts by that column; numbers by `data-v` of their cells.
// <form class=filters data-for=ID>: hidden without script. `input[type=search]` wants all of its words somewhere in a
// row (its text, or its `data-t`); a `select` named NAME wants its value in `data-NAME`. <p class=shown data-for=ID>
// says how many rows are left. A row that is filtered away takes what its first link leads to with it, if that is a
// <details> of the page.
(() => {
  const rowsOf = (table) => Array.from(table.tBodies[0].rows);
  const order = new Intl.Collator("en", { numeric: true }).compare;

  const sortBy = (table, head, place) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    const sign = down ? -1 : 1;
    const keyed = rowsOf(table).map((row) => {
      const cell = row.cells[place];
      const told = cell.dataset.v;
      return { row, number: told === undefined ? NaN : Number(told), text: cell.textContent.trim() };
    });
    const numeric = keyed.some((one) => !Number.isNaN(one.number));
    // what has no value stays last, whichever way
    const none = numeric ? (one) => Number.isNaN(one.number) : (one) => one.text === "";
    const compare = numeric ? (a, b) => a.number - b.number : (a, b) => order(a.text, b.text);
    keyed.sort((a, b) => (none(a) ? (none(b) ? 0 : 1) : none(b) ? -1 : sign * compare(a, b)));
    const body = table.tBodies[0];
    const sorted = document.createDocumentFragment();
    for (const one of keyed) sorted.append(one.row);
    body.append(sorted);
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  };

  const wireSorting = (table) => {
    Array.from(table.tHead.rows[0].cells).forEach((head, place) => {
      const button = head.querySelector("button");
      if (button) button.addEventListener("click", () => sortBy(table, head, place));
    });
  };

  const detailsOf = (row) => {
    const link = row.querySelector('a[href^="#"]');
    const found = link && document.getElementById(decodeURIComponent(link.hash.slice(1)));
    return found && found.tagName === "DETAILS" ? found : null;
  };

  const wireFilters = (form) => {
    const table = document.getElementById(form.dataset.for);
    const told = document.querySelector(`.shown[data-for="${CSS.escape(form.dataset.for)}"]`);
    const all = rowsOf(table).map((row) => ({
      row,
      text: `${row.textContent} ${row.dataset.t || ""}`.toLowerCase(),
      details: detailsOf(row),
    }));
    const apply = () => {
      const words = Array.from(form.querySelectorAll('input[type="search"]'))
        .flatMap((input) => input.value.toLowerCase().split(/\s+/))
        .filter(Boolean);
      const wanted = Array.from(form.querySelectorAll("select")).filter((select) => select.value !== "");
      let shown = 0;
      for (const { row, text, details } of all) {
        const fits =
          words.every((word) => text.includes(word)) &&
          wanted.every((select) => row.dataset[select.name] === select.value);
        if (row.hidden === fits) row.hidden = !fits;
        if (details && details.hidden === fits) details.hidden = !fits;
        if (fits) shown += 1;
      }
      if (told) told.textContent = `${shown.toLocaleString("en")} of ${all.length.toLocaleString("en")} rows shown`;
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(apply));
    form.hidden = false;
    apply(); // a browser fills in again what stood there before it was reloaded
  };

  // What an address names is opened, and shown again if a filter had hidden it.
  const openNamed = () => {
    let name = "";
    try {
      name = decodeURIComponent(location.hash.slice(1));
    } catch {
      return; // not an address of ours
    }
    const found = name && document.getElementById(name);
    if (!found || found.tagName !== "DETAILS") return;
    found.hidden = false;
    found.open = true;
    for (const other of document.querySelectorAll("details.found")) other.classList.remove("found");
    found.classList.add("found");
    found.scrollIntoView();
    const summary = found.querySelector("summary");
    if (summary) summary.focus({ preventScroll: true });
  };

  const begin = () => {
    document.querySelectorAll("table[data-sortable]").forEach(wireSorting);
    document.querySelectorAll("form.filters[data-for]").forEach(wireFilters);
    openNamed();
    addEventListener("hashchange", openNamed);
    document.addEventListener("click", (event) => {
      const link = event.target.closest && event.target.closest('a[href^="#"]');
      if (link && link.hash === location.hash) openNamed(); // the same again is no change of the address
    });
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
