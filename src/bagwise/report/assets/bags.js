"use strict";
/* One bag: bars with error bars, heat maps, thumbnails. */

const LONGEST_BARS = 120;

function value(x) { return x / data.scale; }

function instanceName(bag, i) {
  const inst = data.instances[bag];
  if (inst.id) return inst.id[i];
  return "instance " + ((inst.row ? inst.row[i] : i) + 1);
}

function instanceText(bag, i) {
  const inst = data.instances[bag];
  const truth = inst.truth ? ", " + TRUTH[kindOf(inst, i)].text : "";
  const given = inst.given ? `, ${value(inst.given[i]).toFixed(3)} given the label of the bag` : "";
  const range = inst.low ? `, range ${value(inst.low[i]).toFixed(3)} to ${value(inst.high[i]).toFixed(3)}` : "";
  return `${instanceName(bag, i)}: ${value(inst.p[i]).toFixed(3)} ± ${value(inst.std[i]).toFixed(3)}${range}${given}${truth}`;
}

/* What is known of an instance; where no label is known on the whole page, nothing is to be told apart. */
const TRUTH = {
  positive: { colour: "positive", dot: "dot yes", text: "truly positive" },
  negative: { colour: "accent", dot: "dot no", text: "truly negative" },
  unknown: { colour: "unknown", dot: "dot unknown", text: "not labelled" },
};

function kindOf(inst, i) { return inst.truth[i] === 1 ? "positive" : inst.truth[i] === 0 ? "negative" : "unknown"; }

function truthKey(inst) {
  const there = Object.keys(TRUTH).filter((kind) => inst.truth.some((_, i) => kindOf(inst, i) === kind));
  return there.map((kind) => {
    const item = element("span", { class: "item" });
    item.append(element("span", { class: TRUTH[kind].dot }), TRUTH[kind].text);
    return item;
  });
}

function instanceOrder(bag, sorted) {
  const inst = data.instances[bag];
  const order = inst.p.map((_, i) => i);
  if (sorted) order.sort((a, b) => inst.p[b] - inst.p[a] || a - b);
  else if (inst.coords && inst.coords.axes.length === 1) order.sort((a, b) => inst.coords.axes[0][a] - inst.coords.axes[0][b]);
  return order;
}

/* Bars with whiskers; above LONGEST_BARS instances a line with a band, which stays readable. */
function drawInstances(bag, sorted) {
  const inst = data.instances[bag], order = instanceOrder(bag, sorted), n = order.length;
  const width = 640, height = 215, left = 40, bottom = 38, top = 8, right = 8;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", id: "bars",
    "aria-label": `Probabilities of ${n} instances` });
  const slot = (width - left - right) / n;
  const x = (k) => left + (k + 0.5) * slot;
  const y = (v) => height - bottom - Math.min(1, Math.max(0, v)) * (height - top - bottom);
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    svg("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), stroke: "var(--line)" }, root);
    svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, root).textContent = tick;
  }
  const draw = n <= LONGEST_BARS ? drawBars : drawBand;
  draw(root, inst, order, x, y, slot, bag);
  const axis = sorted ? "instances, most probable first" : "instances, in their order";
  svg("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle", class: "strong" }, root).textContent = axis;
  if (n > 1) {
    svg("text", { x: x(0), y: height - bottom + 17, "text-anchor": "middle" }, root).textContent = 1;
    svg("text", { x: x(n - 1), y: height - bottom + 17, "text-anchor": "end" }, root).textContent = n;
  }
  return root;
}

function drawBars(root, inst, order, x, y, slot, bag) {
  const wide = Math.max(1.5, Math.min(26, slot * 0.72));
  order.forEach((i, k) => {
    const p = value(inst.p[i]), std = value(inst.std[i]);
    const group = svg("g", { class: "bar" }, root);
    svg("rect", { x: x(k) - slot / 2, width: slot, y: y(1), height: y(0) - y(1), fill: "transparent" }, group);
    svg("rect", { x: x(k) - wide / 2, width: wide, y: y(p), height: Math.max(0.8, y(0) - y(p)),
      rx: Math.min(2, wide / 4), fill: `var(--${inst.truth ? TRUTH[kindOf(inst, i)].colour : "accent"})` }, group);
    if (inst.low) svg("line", { x1: x(k), x2: x(k), y1: y(value(inst.low[i])), y2: y(value(inst.high[i])), class: "range",
      stroke: "var(--ink)", "stroke-opacity": 0.2, "stroke-width": Math.min(6, wide) }, group);
    svg("line", { x1: x(k), x2: x(k), y1: y(p - std), y2: y(p + std), stroke: "var(--ink)", "stroke-width": 1.3 }, group);
    if (inst.given) drawDiamond(group, x(k), y(value(inst.given[i])), Math.min(4.5, Math.max(2, wide / 2)));
    tipOn(group, instanceText(bag, i));
  });
}

function drawDiamond(parent, x, y, r) {
  svg("path", { d: `M${x} ${y - r}L${x + r} ${y}L${x} ${y + r}L${x - r} ${y}Z`, class: "given",
    fill: "var(--panel)", stroke: "var(--ink)", "stroke-width": 1.3 }, parent);
}

function drawBand(root, inst, order, x, y, slot, bag) {
  const at = (f) => order.map((i, k) => `${x(k).toFixed(1)} ${y(f(i)).toFixed(1)}`);
  const p = (i) => value(inst.p[i]), s = (i) => value(inst.std[i]);
  const upper = at((i) => p(i) + s(i)), lower = at((i) => p(i) - s(i)).reverse();
  svg("path", { d: "M" + [...upper, ...lower].join("L") + "Z", fill: "var(--band)", class: "band" }, root);
  svg("path", { d: "M" + at(p).join("L"), fill: "none", stroke: "var(--accent)", "stroke-width": 1.6 }, root);
  if (inst.given) svg("path", { d: "M" + at((i) => value(inst.given[i])).join("L"), class: "given", fill: "none",
    stroke: "var(--ink)", "stroke-width": 1.2, "stroke-dasharray": "3 3" }, root);
  if (inst.truth) order.forEach((i, k) => {
    svg("line", { x1: x(k), x2: x(k), y1: y(0) + 2, y2: y(0) + 6, class: "tick",
      stroke: `var(--${TRUTH[kindOf(inst, i)].colour})`, "stroke-width": Math.max(0.8, slot) }, root);
  });
  const hit = svg("rect", { x: x(0), y: y(1), width: x(order.length - 1) - x(0), height: y(0) - y(1), fill: "transparent" }, root);
  hit.addEventListener("mousemove", (event) => {
    const box = root.getBoundingClientRect(), here = (event.clientX - box.left) / box.width * 640;
    const k = Math.min(order.length - 1, Math.max(0, Math.round((here - x(0)) / slot)));
    showTip(event, instanceText(bag, order[k]));
  });
  hit.addEventListener("mouseleave", hideTip);
}

/* Where instances lie: one map of probability, one of uncertainty, on the same places. */
function drawMap(canvas, bag, kind, top) {
  const inst = data.instances[bag], places = mapPlaces(inst, canvas);
  const ratio = window.devicePixelRatio || 1;
  canvas.width = places.width * ratio;
  canvas.height = places.height * ratio;
  canvas.style.aspectRatio = places.width + " / " + places.height;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const values = { probability: inst.p, uncertainty: inst.std, truth: inst.truth }[kind];
  const order = values.map((_, i) => i).sort((a, b) => values[a] - values[b]);
  for (const i of order) {
    pen.fillStyle = kind === "truth" ? colour(TRUTH[kindOf(inst, i)].colour) : scaleColour(kind, value(values[i]) / top);
    pen.strokeStyle = colour("quiet");
    pen.lineWidth = 0.4;
    pen.beginPath();
    if (places.square) pen.rect(places.x[i] - places.r, places.y[i] - places.r, 2 * places.r, 2 * places.r);
    else pen.arc(places.x[i], places.y[i], places.r, 0, 7);
    pen.fill();
    if (!places.square) pen.stroke();
  }
  canvas.onmousemove = (event) => {
    const box = canvas.getBoundingClientRect(), f = places.width / box.width;
    const i = nearest(places, (event.clientX - box.left) * f, (event.clientY - box.top) * f);
    if (i < 0) hideTip(); else showTip(event, instanceText(bag, i));
  };
  canvas.onmouseleave = hideTip;
}

function mapPlaces(inst, canvas) {
  const c = inst.coords, spanX = c.high[0] - c.low[0] || 1, spanY = c.high[1] - c.low[1] || 1;
  const width = 420, n = inst.p.length;
  const height = Math.max(120, Math.min(620, width * spanY / spanX));
  const cell = Math.sqrt(width * height / Math.max(n, 1));
  const grid = gridStep(c, spanX, width);
  const r = grid ? grid / 2 : Math.min(11, Math.max(1.6, cell * 0.32));
  const pad = r + 4;
  const scale = Math.min((width - 2 * pad) / spanX, (height - 2 * pad) / spanY);
  const shiftX = (width - scale * spanX) / 2, shiftY = (height - scale * spanY) / 2;
  return { width, height, square: grid > 0, r: grid ? Math.max(0.6, gridStep(c, spanX, scale * spanX) / 2) : r,
    x: c.axes[0].map((v) => shiftX + v / c.grid * spanX * scale),
    y: c.axes[1].map((v) => shiftY + v / c.grid * spanY * scale) }; // image rows grow downwards
}

/* Edge of a tile in pixels if the places are tiles of a regular grid, else 0. */
function gridStep(c, span, width) {
  const xs = [...new Set(c.axes[0])].sort((a, b) => a - b);
  const ys = new Set(c.axes[1]);
  if (xs.length < 3 || ys.size < 3 || xs.length * ys.size > 6 * c.axes[0].length) return 0;
  const gaps = xs.slice(1).map((v, i) => v - xs[i]), step = Math.min(...gaps);
  const regular = gaps.every((g) => Math.abs(g / step - Math.round(g / step)) < 0.2);
  return regular ? step / c.grid * width : 0;
}

function nearest(places, x, y) {
  let best = -1, least = Math.max(places.r, 5) ** 2 * 2;
  for (let i = 0; i < places.x.length; i++) {
    const d = (places.x[i] - x) ** 2 + (places.y[i] - y) ** 2;
    if (d < least) { least = d; best = i; }
  }
  return best;
}

function mapsOf(bag) {
  const inst = data.instances[bag];
  const box = element("div", { class: "maps" });
  const [topP, topStd] = scaleTops(state.stretched ? [inst] : data.instances);
  const kinds = [
    ["probability", `Probability of ${data.positive}`, topP, ["", ""]],
    ["uncertainty", "Uncertainty (±)", topStd, [" sure", " unsure"]],
  ];
  if (inst.truth) kinds.push(["truth", "Truth, for comparison", 1]);
  for (const [kind, title, top, ends] of kinds) {
    const figure = element("figure");
    figure.append(element("figcaption", {}, title));
    const canvas = element("canvas", { class: "map", "data-kind": kind, role: "img",
      "aria-label": `${title} of each instance at its place in the bag` });
    figure.append(canvas, kind === "truth" ? truthLegend(inst) : scaleLegend(kind, top, ends));
    box.append(figure);
    drawMap(canvas, bag, kind, top);
  }
  return box;
}

/* Tops of the two scales: those of all bags, so that colours can be compared between them, or of
   one bag, to see what stands out in it. */
function scaleTops(bags) {
  let p = 0, std = 0;
  for (const inst of bags) {
    for (const v of inst.p) if (v > p) p = v;
    for (const v of inst.std) if (v > std) std = v;
  }
  const up = (v) => Math.min(1, Math.max(0.001, Number(value(v).toPrecision(2))));
  return value(p) > 0.6 ? [1, up(std)] : [up(p), up(std)];
}

function truthLegend(inst) {
  const box = element("div", { class: "scale" });
  box.append(...truthKey(inst));
  return box;
}

function thumbnailsOf(bag) {
  const [height, width] = data.image, t = data.instances[bag].thumbnails;
  const bytes = Uint8Array.from(atob(t.pixels), (c) => c.charCodeAt(0));
  const list = element("ul", { class: "thumbs" });
  t.p.forEach((p, k) => {
    const canvas = element("canvas", { width, height, role: "img", "aria-label": `image with probability ${value(p).toFixed(2)}` });
    const image = new ImageData(width, height);
    for (let i = 0; i < width * height; i++) {
      const grey = 255 - bytes[k * width * height + i];
      image.data.set([grey, grey, grey, 255], 4 * i);
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    const item = element("li");
    item.append(canvas, element("span", {}, `${value(p).toFixed(2)} ± ${value(t.std[k]).toFixed(2)}`));
    list.append(item);
  });
  return list;
}
