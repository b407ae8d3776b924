"use strict";
/* Pictures of one instance in its bag: map, strip, features, and curves of what labels bought. */

const MARKS = { positive: "positive", negative: "accent", disputed: "ink" };

function fitCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.aspectRatio = width + " / " + height;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return pen;
}

function mark(pen, label, x, y, r) {
  if (!label) return;
  for (const [width, name] of [[5, "panel"], [2.4, MARKS[label]]]) { // seen on any colour of the scale
    pen.lineWidth = width;
    pen.strokeStyle = colour(name);
    pen.beginPath();
    pen.arc(x, y, r, 0, 7);
    pen.stroke();
  }
}

/* Instances at their places in the bag, the one that is asked about in a frame. */
function drawPlaces(canvas, shown, top, choose) {
  const xs = shown.coords.map((c) => c[0]), ys = shown.coords.map((c) => c[1]);
  const low = [Math.min(...xs), Math.min(...ys)], high = [Math.max(...xs), Math.max(...ys)];
  const span = [high[0] - low[0] || 1, high[1] - low[1] || 1];
  const width = 460, height = Math.max(130, Math.min(460, width * span[1] / span[0]));
  const step = tileStep(xs, ys), n = xs.length;
  const guess = Math.sqrt(width * height / n) * 0.3;
  let r = step ? 0.5 * step * Math.min(width / (span[0] + step), height / (span[1] + step)) : Math.min(11, Math.max(2, guess));
  const pad = r + 5, scale = Math.min((width - 2 * pad) / span[0], (height - 2 * pad) / span[1]);
  const off = [(width - scale * span[0]) / 2, (height - scale * span[1]) / 2];
  const place = (i) => [off[0] + (xs[i] - low[0]) * scale, off[1] + (ys[i] - low[1]) * scale];
  if (step) r = Math.max(1, step * scale / 2);
  const pen = fitCanvas(canvas, width, height);
  for (let i = 0; i < n; i++) {
    const [x, y] = place(i);
    pen.fillStyle = shown.p ? scaleColour("probability", shown.p[i] / top) : colour("track");
    pen.strokeStyle = colour("quiet");
    pen.lineWidth = 0.4;
    pen.beginPath();
    if (step) pen.rect(x - r, y - r, 2 * r, 2 * r); else pen.arc(x, y, r, 0, 7);
    pen.fill();
    if (!step) pen.stroke();
  }
  shown.labels.forEach((label, i) => mark(pen, label, ...place(i), Math.max(3, r * 0.6)));
  const [x, y] = place(shown.number - 1);
  pen.strokeStyle = colour("ink");
  pen.lineWidth = 2.5;
  pen.strokeRect(x - r - 3, y - r - 3, 2 * r + 6, 2 * r + 6);
  const nearestTo = (event) => {
    const box = canvas.getBoundingClientRect(), f = width / box.width;
    const [mx, my] = [(event.clientX - box.left) * f, (event.clientY - box.top) * f];
    let best = -1, least = Math.max(r, 6) ** 2 * 2;
    for (let i = 0; i < n; i++) {
      const [a, b] = place(i), d = (a - mx) ** 2 + (b - my) ** 2;
      if (d < least) { least = d; best = i; }
    }
    return best;
  };
  canvas.onclick = (event) => { const i = nearestTo(event); if (i >= 0) choose(shown.start + i); };
  canvas.onmousemove = (event) => tellOf(event, shown, nearestTo(event));
  canvas.onmouseleave = hideTip;
}

/* Edge of a tile if the places are those of a regular grid, else 0. */
function tileStep(xs, ys) {
  const sorted = [...new Set(xs)].sort((a, b) => a - b), rows = new Set(ys);
  if (sorted.length < 3 || rows.size < 3 || sorted.length * rows.size > 6 * xs.length) return 0;
  const gaps = sorted.slice(1).map((v, i) => v - sorted[i]), step = Math.min(...gaps);
  return gaps.every((g) => Math.abs(g / step - Math.round(g / step)) < 0.2) ? step : 0;
}

function tellOf(event, shown, i) {
  if (i < 0 || i >= shown.of) return hideTip();
  const p = shown.p ? ": " + shown.p[i].toFixed(3) : "";
  showTip(event, `instance ${i + 1}${p}${shown.labels[i] ? ", " + shown.labels[i] : ""}`);
}

/* Probabilities of all instances of the bag, in their order; rings are labels. */
function drawStrip(canvas, shown, top, choose) {
  const width = 460, height = 92, n = shown.of, slot = (width - 8) / n, base = height - 14;
  const pen = fitCanvas(canvas, width, height);
  pen.fillStyle = colour("line");
  pen.fillRect(4, base, width - 8, 1);
  for (let i = 0; i < n; i++) {
    const share = shown.p ? Math.sqrt(Math.min(1, shown.p[i] / top)) : 0, x = 4 + i * slot;
    const tall = Math.max(1, share * (base - 12));
    pen.fillStyle = shown.p ? scaleColour("probability", shown.p[i] / top) : colour("track");
    pen.fillRect(x + slot * 0.1, base - tall, Math.max(0.8, slot * 0.8), tall);
    mark(pen, shown.labels[i], x + slot / 2, base + 7, Math.max(2, Math.min(4, slot / 2)));
  }
  const x = 4 + (shown.number - 0.5) * slot;
  pen.fillStyle = colour("ink");
  pen.beginPath();
  pen.moveTo(x - 5, 1); pen.lineTo(x + 5, 1); pen.lineTo(x, 9);
  pen.fill();
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return Math.floor(((event.clientX - box.left) / box.width * width - 4) / slot);
  };
  canvas.onclick = (event) => { const i = at(event); if (i >= 0 && i < n) choose(shown.start + i); };
  canvas.onmousemove = (event) => tellOf(event, shown, at(event));
  canvas.onmouseleave = hideTip;
}

function figure(v) { return Math.abs(v) >= 1e4 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(2) : String(Number(v.toPrecision(4))); }

/* Each feature on a scale of its own, from the least to the most of the bag. */
function drawFeatures(box, features) {
  const width = Math.max(300, Math.min(560, box.clientWidth || 560)), line = 26, left = Math.round(width * 0.27), right = 80;
  const longest = Math.floor(left / 7), root = svg("svg", { viewBox: `0 0 ${width} ${features.length * line + 4}`,
    role: "img", "aria-label": "Features of the instance against those of its bag" });
  features.forEach((f, k) => {
    const y = k * line + line / 2 + 2, span = f.high - f.low;
    const x = (v) => left + (span ? (v - f.low) / span : 0.5) * (width - left - right);
    const name = svg("text", { x: left - 12, y: y + 4, "text-anchor": "end", class: "strong" }, root);
    name.textContent = f.name.length > longest ? f.name.slice(0, longest - 1) + "…" : f.name;
    tipOn(name, f.name);
    svg("line", { x1: left, x2: width - right, y1: y, y2: y, stroke: "var(--line)", "stroke-width": 2 }, root);
    svg("rect", { x: x(f.quartiles[0]), y: y - 6, width: Math.max(2, x(f.quartiles[2]) - x(f.quartiles[0])), height: 12, rx: 3, fill: "var(--band)" }, root);
    svg("line", { x1: x(f.quartiles[1]), x2: x(f.quartiles[1]), y1: y - 6, y2: y + 6, stroke: "var(--accent)", "stroke-width": 2 }, root);
    const at = x(f.value), d = svg("path", { d: `M${at} ${y - 7}L${at + 7} ${y}L${at} ${y + 7}L${at - 7} ${y}Z`, fill: "var(--ink)" }, root);
    tipOn(d, `${f.name}: ${figure(f.value)}, ${f.z >= 0 ? "+" : "−"}${Math.abs(f.z).toFixed(1)} standard deviations of the bag`);
    svg("text", { x: width - right + 12, y: y + 4 }, root).textContent = figure(f.value);
  });
  box.replaceChildren(root);
}

/* A figure after each refit against the number of labels. */
function drawCurve(box, title, points) {
  const width = 240, height = 96, left = 44, bottom = 18, top = 20, right = 8;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  svg("text", { x: 0, y: 11, class: "strong" }, root).textContent = title;
  const ys = points.map((p) => p[1]), xs = points.map((p) => p[0]);
  const low = Math.min(...ys), high = Math.max(...ys), most = Math.max(...xs, 1);
  const x = (v) => left + v / most * (width - left - right);
  const y = (v) => high === low ? (top + height - bottom) / 2 : top + 4 + (high - v) / (high - low) * (height - top - bottom - 8);
  svg("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, stroke: "var(--line)" }, root);
  for (const v of new Set([low, high])) svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, root).textContent = v.toFixed(3);
  svg("text", { x: left, y: height - 4 }, root).textContent = "0";
  svg("text", { x: width - right, y: height - 4, "text-anchor": "end" }, root).textContent = most + " labels";
  if (points.length > 1) svg("path", { d: "M" + points.map((p) => `${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("L"),
    fill: "none", stroke: "var(--accent)", "stroke-width": 2 }, root);
  for (const p of points) tipOn(svg("circle", { cx: x(p[0]), cy: y(p[1]), r: 3.2, fill: "var(--accent)" }, root), `${p[0]} labels: ${p[1].toFixed(4)}`);
  box.replaceChildren(root);
}
