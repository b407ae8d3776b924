"use strict";
/* The page: asks for the next instance, sends what people say, and shows what became of it. */

const byId = (id) => document.getElementById(id);
const POLL = 1000, RETRY = 700;
const page = { about: null, state: null, shown: null, wanted: null, kind: 0, sending: false, turn: 0, drawn: "" };

class Refused extends Error {}

async function ask(path, body) {
  const how = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, { cache: "no-store", ...how });
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text);
  let why = text;
  try { why = JSON.parse(text).detail; } catch { /* plain text of the guard */ }
  throw new Refused(typeof why === "string" ? why.trim() : "the server did not understand");
}

const rest = (ms) => new Promise((done) => setTimeout(done, ms));
const who = () => byId("who").value.trim();
const query = () => `annotator=${encodeURIComponent(who())}&second=${byId("second").checked}`;
const called = (action) => ({ positive: page.about.positive, negative: page.about.negative, skip: "cannot tell" })[action] || action;

function trouble(text) {
  byId("trouble").hidden = !text;
  byId("trouble").textContent = text || "";
}

/* An id that this page makes for each thing said: sent twice, it counts once. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

/* Said until the server has it on disk; nothing moves on before. Then `following` is shown, or the next question. */
async function send(event, following) {
  if (page.sending) return;
  page.sending = true;
  lock();
  for (;;) {
    try {
      await ask("api/events", event);
      trouble("");
      byId("saved").textContent = event.action === "undo" ? "Taken back." : `Saved: ${called(event.action)}.`;
      page.wanted = following;
      break;
    } catch (error) {
      if (error instanceof Refused) { trouble(`Not saved: ${error.message}`); break; }
      trouble("Not saved yet: the server does not answer. Trying again; if it was ended, start it again and open its new address.");
      await rest(RETRY);
    }
  }
  await update().catch(lost);
  page.sending = false;
  lock();
}

/* What is said is of the instance that is seen. */
function say(action) {
  if (!mayAnswer()) return;
  return send({ event: newId(), annotator: who(), action, row: page.shown.row }, null);
}

function undo() {
  const last = page.state && page.state.undo;
  if (last) return send({ event: newId(), annotator: who(), action: "undo", undoes: last.event }, last.row);
}

function mayAnswer() {
  return !page.sending && page.shown !== null && page.shown.own === null && Boolean(who());
}

function lock() {
  for (const id of ["positive", "negative", "skip"]) byId(id).disabled = !mayAnswer();
  byId("undo").disabled = page.sending || !(page.state && page.state.undo);
}

/* A question stays until it is answered: new suggestions must not slip under somebody's fingers. */
async function update() {
  if (!who()) return trouble("Say who you are: labels are kept with a name.");
  const turn = ++page.turn, asked = query(), state = await ask("api/state?" + asked);
  if (turn !== page.turn) return; // a later one is on its way
  page.state = state;
  if (page.wanted === null) page.wanted = state.next;
  showState(state);
  const drawn = `${state.version} ${page.wanted} ${asked}`;
  if (drawn !== page.drawn) {
    if (page.shown !== null && page.shown.row !== page.wanted) page.shown = null;
    lock();
    if (page.wanted === null) showNothing(state);
    else await show(page.wanted, turn);
    if (turn === page.turn) page.drawn = drawn;
  }
  lock();
}

function showNothing(state) {
  page.shown = null;
  byId("instance").textContent = state.refit.state === "starting" ? "Reading the model …"
    : state.refit.state === "refitting" ? "Looking for further questions …" : "Nothing is left to ask";
  byId("place").textContent = byId("second").checked ? "You have seen all that others labelled." : "";
  byId("chance").replaceChildren();
  byId("picture").hidden = byId("against").hidden = true;
}

async function show(row, turn) {
  const shown = await ask(`api/instance/${row}?` + query());
  if (turn !== page.turn) return;
  page.shown = shown;
  draw();
}

function draw() {
  const shown = page.shown;
  if (!shown) return;
  const p = shown.p ? shown.p[shown.number - 1] : null, top = shown.p ? scaleTop(shown.p) : 1;
  byId("instance").textContent = shown.name;
  byId("place").textContent = `instance ${shown.number} of ${shown.of} in bag ${shown.bag}`;
  byId("chance").replaceChildren(...(p === null ? [] : [element("strong", {}, p.toFixed(2)), `probability of ${page.about.positive}`]));
  showPicture(shown);
  const label = shown.bag_label === null ? "not labelled" : shown.bag_label ? page.about.positive : page.about.negative;
  byId("bag-title").textContent = `Bag ${shown.bag}`;
  byId("bag-note").textContent = `Label of the bag: ${label}. Click an instance to see it.`;
  byId("map-figure").hidden = !page.about.map || !shown.coords;
  if (!byId("map-figure").hidden) drawPlaces(byId("map"), shown, top, choose);
  drawStrip(byId("strip"), shown, top, choose);
  byId("strip-note").textContent = `${shown.of} instances in their order; rings are labels`;
  byId("legend").replaceChildren(...(shown.p ? [scaleLegend("probability", top, ["", ""])] : []));
  const others = Object.entries(shown.said).map(([name, action]) => `${name}: ${called(action)}`);
  byId("said").textContent = shown.own !== null ? `The table says: ${shown.own ? page.about.positive : page.about.negative}.`
    : others.length ? `Said so far: ${others.join("; ")}.` : "";
}

function scaleTop(p) {
  const most = Math.max(...p);
  return most > 0.6 ? 1 : Math.max(0.001, Number(most.toPrecision(2)));
}

function showPicture(shown) {
  byId("picture").hidden = !shown.picture;
  byId("against").hidden = shown.picture;
  if (!shown.picture) return drawFeatures(byId("features"), shown.features);
  const source = `api/picture/${shown.row}?kind=${page.kind}`;
  if (byId("image").getAttribute("src") !== source) byId("image").src = source;
  const kinds = page.about.pictures;
  byId("kinds").replaceChildren(...(kinds.length < 2 ? [] : kinds.map((name, k) => {
    const button = element("button", { type: "button", "aria-pressed": String(k === page.kind) }, name);
    button.addEventListener("click", () => { page.kind = k; showPicture(page.shown); });
    return button;
  })));
}

function choose(row) {
  page.wanted = row;
  update().catch(lost);
}

function showState(state) {
  const { refit, gains, counts } = state, number = (n) => (n || 0).toLocaleString("en");
  byId("counts").textContent = `${page.about.positive}: ${number(counts.positive)}, ${page.about.negative}: ${number(counts.negative)}, `
    + `skipped: ${number(counts.skip)}; by ${Object.keys(state.people).length || "nobody yet"}${Object.keys(state.people).length ? ` (${Object.keys(state.people).join(", ")})` : ""}.`;
  byId("recent").replaceChildren(...state.recent.map((r) => told(r, `${r.who}: ${called(r.what)}`, r.what)));
  byId("quarrels").replaceChildren(
    ...quarrel("People disagree", "Both labels are kept; a fit takes neither.", state.disputed),
    ...quarrel("Labels that contradict their bag", "A negative bag has no positive instance, a positive one has at least one: refits leave these out.", state.wrong));
  const missing = Math.max(0, page.about.every - refit.new);
  byId("refit").textContent = refit.problem ? `The refit failed: ${refit.problem}`
    : !page.about.refits ? "The bags have no labels, so that the model is not refitted."
    : refit.state === "refitting" ? "Refitting; go on labelling." : refit.state === "starting" ? "Reading the model …"
    : `${refit.seconds === null ? "" : `The last one took ${refit.seconds.toFixed(1)} s. `}${missing ? `The next refit is after ${missing} more ${missing === 1 ? "label" : "labels"}.` : ""}`;
  byId("refit-now").disabled = refit.state !== "idle" || !refit.new;
  showGains(gains);
}

function told(item, text, action) {
  const line = element("li"), open = element("button", { type: "button" }, `${item.instance} · ${item.bag}`);
  open.title = `${item.instance} · ${item.bag}`;
  open.addEventListener("click", () => choose(item.row));
  const dot = { positive: "dot yes", negative: "dot no" }[action] || "dot";
  line.append(element("span", { class: dot }), open, element("span", { class: "by" }, text));
  return line;
}

function quarrel(title, note, items) {
  if (!items.length) return [];
  const box = element("div", { class: "quarrel" }), list = element("ul", { class: "said" });
  for (const item of items) list.append(told(item, Object.entries(item.said).map(([name, a]) => `${name}: ${called(a)}`).join("; "), ""));
  box.append(element("h3", {}, title), element("p", { class: "note" }, note), list);
  return [box];
}

function showGains(gains) {
  const scored = gains.filter((g) => g.left_out !== null), first = gains[0], last = gains[gains.length - 1];
  if (!last) { byId("bought").textContent = "Counting what is open …"; return; }
  const parts = [];
  const change = (a, b, text, unit) => parts.push(`${text} ${a === b ? "" : a.toFixed(3) + " → "}${b.toFixed(3)} ${unit}`);
  const judged = scored[scored.length - 1];
  if (judged) change(scored[0].left_out, judged.left_out, "log-likelihood of left-out bags", judged === last ? "per bag" : `per bag with ${judged.labels}`);
  change(first.entropy, last.entropy, "open about instances", "bits each");
  byId("bought").textContent = `With ${last.labels} ${last.labels === 1 ? "label" : "labels"}: ${parts.join("; ")}.`;
  byId("curve-left").hidden = !scored.length;
  if (scored.length) drawCurve(byId("curve-left"), "left-out log-likelihood", scored.map((g) => [g.labels, g.left_out]));
  drawCurve(byId("curve-entropy"), "entropy of instances (bits)", gains.map((g) => [g.labels, g.entropy]));
}

function lost(error) {
  trouble(error instanceof Refused ? error.message : "The server does not answer. If it was ended, start it again and open its new address.");
}

async function poll() {
  for (;;) {
    if (!page.sending && !document.hidden) {
      try { await update(); if (byId("trouble").textContent.startsWith("The server")) trouble(""); } catch (error) { lost(error); }
    }
    await rest(POLL);
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  draw();
}

const KEYS = { p: () => say("positive"), 1: () => say("positive"), n: () => say("negative"), 0: () => say("negative"),
  s: () => say("skip"), u: undo, r: () => byId("refit-now").click() };

function onKey(event) {
  if (event.repeat || event.altKey || event.ctrlKey || event.metaKey || event.target.id === "who") return;
  const act = KEYS[event.key.toLowerCase()];
  if (act) { event.preventDefault(); act(); }
}

/* A name stays with its tab, so that two people may share a browser. */
function recall() {
  const given = new URLSearchParams(location.search).get("who");
  byId("who").value = sessionStorage.getItem("who") || given || "";
  byId("who").addEventListener("change", () => { sessionStorage.setItem("who", who()); trouble(""); page.wanted = null; update().catch(lost); });
}

async function begin() {
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  recall();
  byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  for (const button of document.querySelectorAll("[data-action]")) button.addEventListener("click", () => say(button.dataset.action));
  byId("undo").addEventListener("click", undo);
  byId("second").addEventListener("change", () => { page.wanted = null; update().catch(lost); });
  byId("refit-now").addEventListener("click", () => ask("api/refit", {}).then(update).catch(lost));
  document.addEventListener("keydown", onKey);
  page.about = await ask("api/session");
  const a = page.about;
  document.title = `Labelling ${a.name}`;
  byId("title").textContent = `Labelling ${a.name}`;
  byId("positive-name").textContent = a.positive;
  byId("negative-name").textContent = a.negative;
  byId("foot").textContent = `${a.bags.toLocaleString("en")} bags, ${a.instances.toLocaleString("en")} instances. Labels are kept in ${a.file}.`;
  poll();
}

begin().catch(lost);
