"use strict";
// Sorts and filters tables in the page.
//
// <table data-sortable>: a click on a button in a head sorts by that column; numbers by `data-v` of their cells.
// <form class=filters data-for=ID>: hidden without script. `input[type=search]` wants all of its words somewhere in a
// row (its text, or its `data-t`); a `select` named NAME wants its value in `data-NAME`. <p class=shown data-for=ID>
// says how many rows are left. A row that is filtered away takes what its first link leads to with it, if that is a
// <details> of the page.
//
// Of a long table only the first rows are laid out (class `beyond` hides the others, on screens only), because a
// browser takes half a second for thousands; a button below it shows all.
(() => {
  const MOST = 200;
  const number = (value) => value.toLocaleString("en");
  const rowsOf = (table) => Array.from(table.tBodies[0].rows);
  const order = new Intl.Collator("en", { numeric: true }).compare;

  // Shows the first rows of those that fit, and says so.
  const cut = (view) => {
    const rows = rowsOf(view.table);
    let fitting = 0;
    for (const row of rows) {
      if (!row.hidden) fitting += 1;
      row.classList.toggle("beyond", !row.hidden && !view.whole && fitting > MOST);
    }
    const some = !view.whole && fitting > MOST;
    view.more.hidden = !some;
    if (some) view.more.firstElementChild.textContent = `Show all ${number(fitting)} rows`;
    if (!view.told) return;
    let said = `${number(fitting)} of ${number(rows.length)} rows shown`;
    if (some) said = `the first ${MOST} of ${number(fitting)} rows shown`;
    if (some && fitting < rows.length) said += `, which fit among ${number(rows.length)}`;
    if (view.told.textContent !== said) view.told.textContent = said;
  };

  const viewOf = (table) => {
    const more = document.createElement("p");
    const button = document.createElement("button");
    button.type = "button";
    more.className = "more";
    more.append(button);
    more.hidden = true;
    (table.closest(".scroll") || table).after(more);
    const told = table.id ? document.querySelector(`.shown[data-for="${CSS.escape(table.id)}"]`) : null;
    const view = { table, more, told, whole: false };
    button.addEventListener("click", () => {
      const next = table.querySelector("tbody tr.beyond:not([hidden]) a[href]");
      view.whole = true;
      cut(view);
      if (next) next.focus(); // the button is gone: on to what it showed
    });
    return view;
  };

  const sortBy = (view, head, place) => {
    const table = view.table;
    const down = head.getAttribute("aria-sort") === "ascending";
    const sign = down ? -1 : 1;
    const keyed = rowsOf(table).map((row) => {
      const cell = row.cells[place];
      const told = cell.dataset.v;
      return { row, number: told === undefined ? NaN : Number(told), text: cell.textContent.trim() };
    });
    const numeric = keyed.some((one) => !Number.isNaN(one.number));
    // rows without a value stay last in either direction
    const none = numeric ? (one) => Number.isNaN(one.number) : (one) => one.text === "";
    const compare = numeric ? (a, b) => a.number - b.number : (a, b) => order(a.text, b.text);
    keyed.sort((a, b) => (none(a) ? (none(b) ? 0 : 1) : none(b) ? -1 : sign * compare(a, b)));
    const body = table.tBodies[0];
    const sorted = document.createDocumentFragment();
    for (const one of keyed) sorted.append(one.row);
    body.append(sorted);
    cut(view);
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  };

  const wireSorting = (view) => {
    const table = view.table;
    Array.from(table.tHead.rows[0].cells).forEach((head, place) => {
      const button = head.querySelector("button");
      if (button) button.addEventListener("click", () => sortBy(view, head, place));
    });
  };

  const detailsOf = (row) => {
    const link = row.querySelector('a[href^="#"]');
    const found = link && document.getElementById(decodeURIComponent(link.hash.slice(1)));
    return found && found.tagName === "DETAILS" ? found : null;
  };

  const wireFilters = (form, view) => {
    const all = rowsOf(view.table).map((row) => ({
      row,
      text: `${row.textContent} ${row.dataset.t || ""}`.toLowerCase(),
      details: detailsOf(row),
    }));
    const apply = () => {
      const words = Array.from(form.querySelectorAll('input[type="search"]'))
        .flatMap((input) => input.value.toLowerCase().split(/\s+/))
        .filter(Boolean);
      const wanted = Array.from(form.querySelectorAll("select")).filter((select) => select.value !== "");
      for (const { row, text, details } of all) {
        const fits =
          words.every((word) => text.includes(word)) &&
          wanted.every((select) => row.dataset[select.name] === select.value);
        if (row.hidden === fits) row.hidden = !fits;
        if (details && details.hidden === fits) details.hidden = !fits;
      }
      cut(view);
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(apply));
    form.hidden = false;
    apply(); // a browser fills in again what stood there before it was reloaded
  };

  // Opens the element that the address names, and shows it if a filter had hidden it.
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
    for (const table of document.querySelectorAll("table[data-sortable]")) {
      const view = viewOf(table);
      const form = table.id && document.querySelector(`form.filters[data-for="${CSS.escape(table.id)}"]`);
      wireSorting(view);
      if (form) wireFilters(form, view);
      else cut(view);
    }
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
