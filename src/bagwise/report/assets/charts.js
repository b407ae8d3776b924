"use strict";
/* Small drawing helpers: SVG for charts, canvas for heat maps and thumbnails. */

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, parent) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (parent) parent.appendChild(node);
  return node;
}

function element(name, attributes, text) {
  const node = document.createElement(name);
  for (const key in attributes || {}) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text; // never HTML: ids are the user's text
  return node;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

/* Colour scales from the page's own background to what stands out from it; their lightness runs
   one way, so they keep their order for colour-blind readers and in grey. */
const SCALES = {
  light: {
    probability: ["#f7efe2", "#fdc88b", "#f48a4b", "#c9412f", "#6d0b2f"],
    uncertainty: ["#edf2f6", "#b9d2e6", "#6fa8d0", "#2b70ad", "#0b2f5e"],
  },
  dark: {
    probability: ["#2e2823", "#74401f", "#bd5d20", "#f2923f", "#ffe6b5"],
    uncertainty: ["#232d38", "#29496b", "#3a78ac", "#6fb1e0", "#dcf1ff"],
  },
};

function scaleStops(name) { return SCALES[document.documentElement.dataset.theme][name]; }

/* Small values matter most, since instance probabilities of large bags are small: colours follow
   the square root, and the legend has its middle at a quarter of its end. */
function scaleColour(name, share) {
  const stops = scaleStops(name);
  const at = Math.sqrt(Math.min(Math.max(share, 0), 1)) * (stops.length - 1);
  const i = Math.min(Math.floor(at), stops.length - 2);
  const part = (hex, k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
  const mixed = [0, 1, 2].map((k) =>
    Math.round(part(stops[i], k) * (1 - (at - i)) + part(stops[i + 1], k) * (at - i)));
  return "rgb(" + mixed.join(",") + ")";
}

function scaleLegend(name, top, ends) {
  const box = element("div", { class: "scale" });
  const bar = element("i");
  bar.style.background = "linear-gradient(90deg," + scaleStops(name).join(",") + ")";
  const ticks = element("div", { class: "ticks" });
  for (const text of ["0" + ends[0], short(top / 4), short(top) + ends[1]]) ticks.append(element("span", {}, text));
  box.append(bar, ticks, element("span", { class: "root" }, "Colours follow the square root of the value."));
  return box;
}

function short(v) { return String(Number(v.toPrecision(2))); }

/* A square chart from 0 to 1 on both axes; returns the node and a map of data to pixels. */
function unitChart(xTitle, yTitle, label) {
  const size = 320, left = 44, bottom = 40, top = 10, right = 10;
  const root = svg("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": label });
  const x = (v) => left + v * (size - left - right);
  const y = (v) => size - bottom - v * (size - top - bottom);
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    svg("line", { x1: x(tick), x2: x(tick), y1: y(0), y2: y(1), stroke: "var(--line)" }, root);
    svg("line", { x1: x(0), x2: x(1), y1: y(tick), y2: y(tick), stroke: "var(--line)" }, root);
    svg("text", { x: x(tick), y: y(0) + 15, "text-anchor": "middle" }, root).textContent = tick;
    svg("text", { x: x(0) - 6, y: y(tick) + 4, "text-anchor": "end" }, root).textContent = tick;
  }
  svg("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), stroke: "var(--quiet)", "stroke-dasharray": "4 4" }, root);
  svg("text", { x: x(0.5), y: size - 6, "text-anchor": "middle", class: "strong" }, root).textContent = xTitle;
  const side = svg("text", { x: 0, y: 0, "text-anchor": "middle", class: "strong",
    transform: `translate(12 ${y(0.5)}) rotate(-90)` }, root);
  side.textContent = yTitle;
  return { root, x, y };
}

function drawReliability(points, positive) {
  const chart = unitChart("predicted probability", "share truly " + positive, "Reliability diagram");
  for (const d of points) {
    svg("line", { x1: chart.x(d.p), x2: chart.x(d.p), y1: chart.y(d.low), y2: chart.y(d.high),
      stroke: "var(--accent)", "stroke-width": 2 }, chart.root);
    const dot = svg("circle", { cx: chart.x(d.p), cy: chart.y(d.share), r: 4.5, fill: "var(--accent)" }, chart.root);
    tipOn(dot, `${d.n} bags: predicted ${d.p.toFixed(2)}, observed ${d.share.toFixed(2)}`);
  }
  return chart.root;
}

function drawRoc(curve) {
  const chart = unitChart("false positive rate", "true positive rate", "ROC curve, AUC " + curve.auc);
  const path = (xs, ys) => xs.map((v, i) => `${i ? "L" : "M"}${chart.x(v).toFixed(1)} ${chart.y(ys[i]).toFixed(1)}`).join("");
  const back = [...curve.x].reverse(), lower = [...curve.low].reverse();
  svg("path", { d: path([...curve.x, ...back], [...curve.high, ...lower]) + "Z", fill: "var(--band)" }, chart.root);
  svg("path", { d: path([0, ...curve.x], [0, ...curve.y]), fill: "none", stroke: "var(--accent)", "stroke-width": 2.5 }, chart.root);
  if (curve.point) {
    const ring = svg("circle", { cx: chart.x(curve.point[0]), cy: chart.y(curve.point[1]), r: 6, class: "point",
      fill: "var(--panel)", stroke: "var(--positive)", "stroke-width": 2.5 }, chart.root);
    tipOn(ring, `called so here: true positive rate ${curve.point[1].toFixed(3)}, false positive rate ${curve.point[0].toFixed(3)}`);
  }
  svg("text", { x: chart.x(0.97), y: chart.y(0.06), "text-anchor": "end", class: "strong", "font-weight": 600 },
    chart.root).textContent = "AUC " + curve.auc.toFixed(3);
  return chart.root;
}

/* A probability as a bar with its standard deviation as a whisker, on a track from 0 to 1. */
function meter(p, std, positive) {
  const root = svg("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg("rect", { x: 0, y: 3, width: 100, height: 8, rx: 2, fill: "var(--track)" }, root);
  svg("rect", { x: 0, y: 3, width: 100 * p, height: 8, rx: 2, fill: positive ? "var(--positive)" : "var(--accent)" }, root);
  const low = 100 * Math.max(0, p - std), high = 100 * Math.min(1, p + std);
  svg("line", { x1: low, x2: high, y1: 7, y2: 7, stroke: "var(--ink)", "stroke-width": 1.5,
    "vector-effect": "non-scaling-stroke" }, root);
  return root;
}

function tipOn(node, text) {
  node.addEventListener("mousemove", (event) => showTip(event, text));
  node.addEventListener("mouseleave", hideTip);
  node.setAttribute("aria-label", text);
}

function showTip(event, text) {
  const tip = document.getElementById("tip");
  tip.textContent = text;
  tip.hidden = false;
  const width = tip.offsetWidth;
  tip.style.left = Math.max(4, Math.min(event.clientX + 12, window.innerWidth - width - 8)) + "px";
  tip.style.top = event.clientY + 14 + "px";
}

function hideTip() { document.getElementById("tip").hidden = true; }
