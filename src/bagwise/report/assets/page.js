"use strict";
/* The page: theme, list of bags with sorting and filters, detail of the chosen bag. */

const data = JSON.parse(document.getElementById("data").textContent);
const PAGE = 200;
const state = { key: "p", descending: true, shown: PAGE, chosen: null, sorted: true, stretched: false };
const byId = (id) => document.getElementById(id);

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  if (state.chosen !== null) openBag(state.chosen, false);
}

function called(b) { return data.bags.called[b] === 1; }

/* The classes that a bag may have, in words. */
function possible(b) {
  return ["neither", data.negative, data.positive, `${data.negative} or ${data.positive}`][data.bags.possible[b]];
}

function matches(b) {
  const text = byId("find").value.trim().toLowerCase(), p = value(data.bags.p[b]);
  const label = data.bags.label ? data.bags.label[b] : null;
  const kept = { all: true, called: called(b), "not-called": !called(b), positive: label === 1,
    negative: label === 0, wrong: label !== null && called(b) !== (label === 1),
    undecided: p >= 0.2 && p <= 0.8, expert: data.bags.possible && [0, 3].includes(data.bags.possible[b]),
    novel: data.bags.novelty && value(data.bags.novelty[b]) <= data.novel };
  return kept[byId("which").value] && data.bags.id[b].toLowerCase().includes(text);
}

function compare(a, b) {
  const column = data.bags[state.key];
  const order = state.key === "id"
    ? column[a].localeCompare(column[b], undefined, { numeric: true }) : column[a] - column[b];
  return (state.descending ? -order : order) || a - b;
}

function listBags() {
  const found = data.bags.id.map((_, b) => b).filter(matches).sort(compare);
  const rows = byId("rows");
  rows.replaceChildren(...found.slice(0, state.shown).map(bagRow));
  byId("more").hidden = found.length <= state.shown;
  byId("count").textContent = `${found.length.toLocaleString("en")} of ${data.bags.id.length.toLocaleString("en")} bags`;
  for (const head of document.querySelectorAll("th[data-key]")) {
    if (head.dataset.key === state.key) head.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  keepInFilter(found);
}

/* The pane shows a bag of the list: one that the filter leaves out makes way for the first that it keeps. */
function keepInFilter(found) {
  if (found.includes(state.chosen)) return;
  if (found.length) return openBag(found[0], false);
  state.chosen = null;
  byId("detail").replaceChildren(element("p", { class: "note" }, "No bag matches the filter."));
}

function clearFilter() {
  byId("find").value = "";
  byId("which").value = "all";
  listBags();
}

function bagRow(b) {
  const row = element("tr", { "data-bag": b, "aria-selected": String(b === state.chosen) });
  const p = value(data.bags.p[b]), std = value(data.bags.std[b]);
  const name = element("td");
  name.append(element("button", { type: "button", class: "open" }, data.bags.id[b]));
  name.title = data.bags.id[b];
  row.append(name);
  if (data.bags.label) {
    const cell = element("td", { class: "truth" }), yes = data.bags.label[b] === 1, wrong = called(b) !== yes;
    const name = yes ? data.positive : data.negative;
    cell.title = name;
    cell.append(element("span", { class: yes ? "dot yes" : "dot" }), element("span", { class: "name" }, name));
    if (wrong) cell.append(element("span", { class: "wrong", title: "called wrongly" }, " ✗"));
    row.append(cell);
  }
  const bar = element("td"), inner = element("div", { class: "meter" });
  inner.append(meter(p, std, data.bags.label && data.bags.label[b] === 1), element("span", {}, p.toFixed(2)));
  bar.append(inner);
  row.append(bar, element("td", { class: "number" }, std.toFixed(2)),
    element("td", { class: "number size" }, data.bags.size[b].toLocaleString("en")));
  if (data.bags.possible) row.append(element("td", { class: "possible", title: possible(b) }, possible(b)));
  if (data.bags.novelty) {
    const p = value(data.bags.novelty[b]);
    row.append(element("td", { class: p <= data.novel ? "number novelty wrong" : "number novelty" }, p.toFixed(2)));
  }
  row.addEventListener("click", () => openBag(b, true));
  return row;
}

function openBag(b, focus) {
  state.chosen = b;
  for (const row of document.querySelectorAll("#rows tr")) row.setAttribute("aria-selected", String(Number(row.dataset.bag) === b));
  const box = byId("detail"), inst = data.instances[b];
  box.replaceChildren(detailHead(b), ...barsOf(b));
  if (inst.coords && inst.coords.axes.length > 1) {
    box.append(mapsHead(b), mapsOf(b));
  }
  if (inst.thumbnails) {
    const count = inst.thumbnails.p.length, all = data.bags.size[b];
    box.append(element("h4", {}, count < all ? `The ${count} most probable of ${all} images` : "Images, most probable first"), thumbnailsOf(b));
  }
  if (inst.row) {
    box.append(element("p", { class: "note" },
      `Shown are ${inst.p.length.toLocaleString("en")} of ${data.bags.size[b].toLocaleString("en")} instances: the most probable half, and others evenly spaced over the ranking.`));
  }
  if (focus) {
    box.focus({ preventScroll: true });
    if (box.getBoundingClientRect().top > window.innerHeight * 0.6 || box.getBoundingClientRect().top < 0) box.scrollIntoView({ block: "start" });
  }
}

function detailHead(b) {
  const head = element("div"), line = element("div", { class: "detail-head" });
  line.append(element("h3", {}, data.bags.id[b]));
  const close = element("button", { type: "button", id: "close" }, "Back to the list");
  close.addEventListener("click", () => { byId("bags").scrollIntoView(); focusRow(b); });
  line.append(close);
  const verdict = element("p", { class: "verdict" });
  const p = value(data.bags.p[b]), std = value(data.bags.std[b]);
  verdict.append(`Probability of ${data.positive}: `, element("b", {}, `${p.toFixed(3)} ± ${std.toFixed(3)}`));
  if (data.bags.label) {
    const yes = data.bags.label[b] === 1;
    verdict.append(", truly ", element("b", {}, yes ? data.positive : data.negative));
    if (called(b) !== yes) verdict.append(element("span", { class: "wrong" }, " ✗ called wrongly"));
  }
  verdict.append(`, ${data.bags.size[b].toLocaleString("en")} instances`);
  if (data.bags.possible) verdict.append(`; it may be ${possible(b)}`);
  if (data.bags.novelty && value(data.bags.novelty[b]) <= data.novel) verdict.append(element("span", { class: "wrong" }, "; unlike the bags of the fit"));
  head.append(line, verdict);
  return head;
}

function barsOf(b) {
  const inst = data.instances[b];
  const title = element("h4", {}, "Probability of each instance, with its uncertainty ");
  const toggle = element("button", { type: "button", class: "toggle", id: "order" }, state.sorted ? "show in their order" : "show most probable first");
  toggle.addEventListener("click", () => { state.sorted = !state.sorted; openBag(b, false); byId("order").focus(); });
  title.append(toggle);
  const scroller = element("div", { class: "scroller" });
  const box = element("div", { class: "bars", tabindex: "0", role: "group", "aria-label": "Chart of the instances" });
  box.append(drawInstances(b, state.sorted));
  scroller.append(box);
  const mark = () => markScroll(scroller, box);
  box.addEventListener("scroll", mark);
  new ResizeObserver(mark).observe(box);
  return [title, scroller, element("p", { class: "sideways" }, "← scroll sideways for all instances →"), barsKey(inst)];
}

/* Fades at the sides where a chart goes on beyond them. */
function markScroll(scroller, box) {
  const room = box.scrollWidth - box.clientWidth;
  scroller.classList.toggle("scrolls", room > 1);
  scroller.classList.toggle("more-left", box.scrollLeft > 1);
  scroller.classList.toggle("more-right", box.scrollLeft < room - 1);
}

function barsKey(inst) {
  const band = inst.p.length > LONGEST_BARS, box = element("div", { class: "note" });
  if (inst.truth) {
    const key = element("div", { class: "key" });
    key.append(band ? "Ticks below the axis:" : "Bars:", ...truthKey(inst));
    box.append(key);
  }
  if (inst.given) {
    const key = element("div", { class: "key" }), item = element("span");
    item.append(element("span", { class: "diamond" }, band ? "╌╌" : "◇"), "probability given the label of the bag");
    key.append(item);
    box.append(key);
  }
  box.append(band ? "The band spans ± one standard deviation, cut off at 0 and 1."
    : "The lines span ± one standard deviation, cut off at 0 and 1.");
  return box;
}

function mapsHead(b) {
  const title = element("h4", {}, "Where in the bag ");
  const toggle = element("button", { type: "button", class: "toggle", id: "stretch" },
    state.stretched ? "same colours for all bags" : "stretch colours to this bag");
  toggle.addEventListener("click", () => { state.stretched = !state.stretched; openBag(b, false); byId("stretch").focus(); });
  title.append(toggle);
  return title;
}

function focusRow(b) {
  const button = document.querySelector(`#rows tr[data-bag="${b}"] .open`);
  if (button) button.focus();
}

function moveInList(event) {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const row = event.target.closest("tr");
  const next = event.key === "ArrowDown" ? row.nextElementSibling : row.previousElementSibling;
  if (next) { event.preventDefault(); next.querySelector(".open").focus(); }
}

function start() {
  const dark = window.matchMedia && window.matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark ? "dark" : "light");
  byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  for (const head of document.querySelectorAll("th[data-key]")) {
    head.querySelector("button").addEventListener("click", () => {
      state.descending = state.key === head.dataset.key ? !state.descending : head.dataset.key !== "id";
      state.key = head.dataset.key;
      listBags();
    });
  }
  byId("find").addEventListener("input", () => { state.shown = PAGE; listBags(); });
  byId("which").addEventListener("change", () => { state.shown = PAGE; listBags(); });
  byId("more").addEventListener("click", () => { state.shown += PAGE; listBags(); });
  byId("rows").addEventListener("keydown", moveInList);
  const unsure = data.bags.std.map((_, b) => b).sort((a, b) => data.bags.std[b] - data.bags.std[a]).slice(0, 8);
  byId("uncertain").replaceChildren(...unsure.map((b) => {
    const item = element("li"), button = element("button", { type: "button", title: data.bags.id[b] }, data.bags.id[b]);
    button.append(element("span", {}, `${value(data.bags.p[b]).toFixed(2)} ± ${value(data.bags.std[b]).toFixed(2)}`));
    button.addEventListener("click", () => { if (!matches(b)) clearFilter(); openBag(b, true); byId("detail").scrollIntoView({ block: "nearest" }); });
    item.append(button);
    return item;
  }));
  if (data.reliability) byId("reliability").append(drawReliability(data.reliability, data.positive));
  if (data.roc) byId("roc").append(drawRoc(data.roc));
  listBags();
}

start();
