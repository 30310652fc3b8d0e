"use strict";
// Tooltips of marks, for the pointer and for arrow keys: the row of the figure's table with the number of the mark.
(() => {
  const NEAR = 24;
  const states = new WeakMap();
  let tip = null;
  let voice = null;
  let shown = null;

  function tooltip() {
    if (!tip) {
      tip = document.createElement("div");
      tip.className = "chart-tip";
      tip.setAttribute("aria-hidden", "true");
      tip.hidden = true;
      document.body.append(tip);
    }
    return tip;
  }

  // What the tooltip says, read aloud: never hidden, as what is filled while it is hidden is not read. It is there from
  // when a figure gets the focus, before there is anything to say.
  function spoken() {
    if (!voice) {
      voice = document.createElement("div");
      voice.className = "unseen chart-voice";
      voice.setAttribute("role", "status");
      voice.setAttribute("aria-live", "polite");
      document.body.append(voice);
    }
    return voice;
  }

  // Boxes of all marks in the picture's own units: read once, as nothing in it moves.
  function stateOf(figure) {
    let state = states.get(figure);
    if (!state) {
      const svg = figure.querySelector(".drawing svg");
      const series = [];
      const marks = [];
      const groups = new Map();
      for (const element of svg.querySelectorAll("[data-i]")) {
        const box = element.getBBox();
        const mark = { element, row: Number(element.dataset.i), left: box.x, top: box.y,
                       right: box.x + box.width, bottom: box.y + box.height };
        marks.push(mark);
        const group = element.closest(".series") || svg;
        if (!groups.has(group)) {
          groups.set(group, []);
          series.push(groups.get(group));
        }
        groups.get(group).push(mark);
      }
      for (const list of series) list.sort((a, b) => a.row - b.row);
      state = { svg, marks, series, rows: figure.querySelector(".numbers tbody")?.rows,
                heads: figure.querySelector(".numbers thead tr")?.cells, at: null };
      states.set(figure, state);
    }
    return state;
  }

  function nearest(state, event) {
    const matrix = state.svg.getScreenCTM();
    if (!matrix) return null;
    const x = (event.clientX - matrix.e) / matrix.a;
    const y = (event.clientY - matrix.f) / matrix.d;
    const reach = NEAR / matrix.a;
    let best = null;
    let least = reach * reach;
    let middle = Infinity;
    for (const mark of state.marks) {
      const across = Math.max(mark.left - x, 0, x - mark.right);
      const down = Math.max(mark.top - y, 0, y - mark.bottom);
      const away = across * across + down * down;
      if (away > least) continue;
      const off = Math.hypot((mark.left + mark.right) / 2 - x, (mark.top + mark.bottom) / 2 - y);
      if (away < least || off < middle) [best, least, middle] = [mark, away, off];
    }
    return best;
  }

  // The first cell names the mark; the others have the names of their columns in front.
  function words(state, row) {
    const cells = state.rows?.[row]?.cells ?? [];
    const first = document.createElement("strong");
    first.textContent = cells[0]?.textContent ?? "";
    let others = "";
    for (let k = 1; k < cells.length; k++) {
      const said = cells[k].textContent;
      if (said) others += `\n${state.heads[k].textContent}: ${said}`;
    }
    return [first, others];
  }

  function link(state) {
    return state.at ? state.rows?.[state.at.row]?.querySelector("a[href]") : null;
  }

  function show(figure, mark) {
    const state = stateOf(figure);
    if (shown && shown !== figure) hide();
    if (state.at !== mark) {
      state.at?.element.classList.remove("at");
      state.at = mark;
      mark.element.classList.add("at");
      tooltip().replaceChildren(...words(state, mark.row));
      spoken().textContent = tip.textContent;
    }
    shown = figure;
    tooltip().hidden = false;
    figure.querySelector(".drawing").classList.toggle("linked", Boolean(link(state)));
    place(state, mark);
  }

  // Places the tooltip next to the mark, on the side that has room, in the coordinates of the page.
  function place(state, mark) {
    const matrix = state.svg.getScreenCTM();
    if (!matrix) return;
    const right = mark.right * matrix.a + matrix.e;
    const left = mark.left * matrix.a + matrix.e;
    const y = ((mark.top + mark.bottom) / 2) * matrix.d + matrix.f;
    const { offsetWidth: wide, offsetHeight: high } = tip;
    const room = document.documentElement.clientWidth;
    let x = Math.min(right, room) + 12;
    if (x + wide > room - 4) x = Math.max(4, Math.min(left - 12 - wide, room - wide - 4));
    const top = Math.max(4, Math.min(y - high / 2, window.innerHeight - high - 4));
    tip.style.left = `${x + window.scrollX}px`;
    tip.style.top = `${top + window.scrollY}px`;
  }

  function hide() {
    if (!shown) return;
    const state = states.get(shown);
    state.at?.element.classList.remove("at");
    state.at = null;
    shown.querySelector(".drawing").classList.remove("linked");
    tip.hidden = true;
    tip.textContent = "";
    spoken().textContent = "";
    shown = null;
  }

  const drawingOf = (event) => (event.target instanceof Element ? event.target.closest("figure.chart .drawing") : null);
  const figureOf = (drawing) => drawing.closest("figure.chart");

  function hover(event) {
    const drawing = drawingOf(event);
    const mark = drawing && nearest(stateOf(figureOf(drawing)), event);
    if (mark) show(figureOf(drawing), mark);
    else if (shown && !(drawing && drawing.matches(":focus-visible"))) hide();
  }

  function moved(state, key) {
    const lists = state.series;
    if (!lists.length) return null;
    let k = lists.findIndex((list) => list.includes(state.at));
    if (k < 0) return lists[0][0];
    let i = lists[k].indexOf(state.at);
    if (key === "ArrowLeft") i -= 1;
    else if (key === "ArrowRight") i += 1;
    else if (key === "Home") i = 0;
    else if (key === "End") i = lists[k].length - 1;
    else k = (k + (key === "ArrowDown" ? 1 : lists.length - 1)) % lists.length;
    return lists[k][Math.max(0, Math.min(i, lists[k].length - 1))];
  }

  const MOVES = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"]);

  function pressed(event) {
    if (event.key === "Escape") return hide();
    const drawing = drawingOf(event);
    if (!drawing || event.ctrlKey || event.altKey || event.metaKey) return;
    const figure = figureOf(drawing);
    const state = stateOf(figure);
    if (event.key === "Enter") link(state)?.click();
    else if (MOVES.has(event.key)) {
      const mark = moved(state, event.key);
      if (!mark) return;
      event.preventDefault();
      mark.element.scrollIntoView({ block: "nearest", inline: "nearest" });
      show(figure, mark);
    }
  }

  // A tap shows the tooltip; a click with a mouse follows the link of the mark that is shown already.
  function clicked(event) {
    const drawing = drawingOf(event);
    if (!drawing) return hide();
    const state = stateOf(figureOf(drawing));
    const mark = nearest(state, event);
    if (!mark) return hide();
    const before = state.at === mark;
    show(figureOf(drawing), mark);
    if (before && event.pointerType !== "touch") link(state)?.click();
  }

  document.addEventListener("pointermove", hover, { passive: true });
  document.addEventListener("click", clicked);
  document.addEventListener("keydown", pressed);
  document.addEventListener("focusin", (event) => { if (drawingOf(event)) spoken(); });
  document.addEventListener("focusout", (event) => { if (drawingOf(event)) hide(); });
  window.addEventListener("resize", hide);
})();
