// Everything beside the timeline: tables, charts over time (uPlot), maps of memory, the roofline, source.
const cell = (text, cls, value) => {
  const made = document.createElement("td");
  if (text instanceof Node) made.append(text); else made.textContent = text;
  if (cls) made.className = cls;
  if (value !== undefined) made.dataset.value = value;
  return made;
};
function table(id, heads, rows) {
  const made = at(id), head = document.createElement("tr");
  for (const h of heads) { const th = document.createElement("th"); th.textContent = h.replace("#", ""); if (h[0] === "#") th.className = "n"; head.append(th); }
  made.replaceChildren(head, ...rows);
}
const row = (...cells) => { const made = document.createElement("tr"); made.append(...cells); return made; };
function bar(parts) {
  const made = document.createElement("div");
  made.className = "bar";
  for (const [share, color, title] of parts) { const i = document.createElement("i"); i.style.width = 100 * share + "%"; i.style.background = color; i.title = title; made.append(i); }
  return made;
}

// -- header, advice ---------------------------------------------------------------------------------------------------
const timing = profile.timing;
at("kernel").textContent = `${timing.kernel} (${timing.target}): ${duration(total)}`;
const [least, most] = timing.interval_ns.map(duration);
at("kernel").dataset.value = total;
at("facts").append(...[[`${Math.round(100 * timing.confidence)}% sure:`, `${least} to ${most}`], ["launch", duration(timing.launch_ns)], ["instructions", timing.instructions], ["HBM", megabytes(timing.hbm_bytes)],
  ["cores", profile.memory.cores.length], ["streams", timing.mode]].map(([k, v]) => { const s = document.createElement("span"); s.textContent = `${k} ${v}`; return s; }));
if (profile.cause) {
  at("cause").textContent = profile.cause.text;
  at("cause").dataset.value = profile.cause.share;
  at("cause").onclick = () => selectLine(lines.findIndex(l => l.file === profile.cause.file && l.line === profile.cause.line));
}
for (const advice of profile.advice) {
  const item = document.createElement("li");
  item.textContent = advice.text;
  item.dataset.value = advice.saves_ns;
  item.onclick = () => selectLine(lines.findIndex(l => l.file === advice.file && l.line === advice.line));
  at("advice").append(item);
}
if (!profile.advice.length && !profile.cause) at("advice-part").hidden = true;
at("notes").textContent = profile.notes.join(" ");

// -- utilization ------------------------------------------------------------------------------------------------------
const CAUSES = {};
const causeColor = cause => CAUSES[cause] ??= cause === "launch" ? "var(--launch)" : cause === "end" ? "var(--line)" : ["#f2b8a0", "#f0d58c", "#a9d3c1", "#c7b5e3", "#e8a8bd", "#b3d1ee", "#d8cfa8"][Object.keys(CAUSES).length % 7];
const engineRows = [];
timing.cores.forEach((core, number) => {
  for (const [engine, busy] of Object.entries(core.busy_ns)) {
    const stalls = Object.entries(core.stall_ns[engine]).sort((a, b) => b[1] - a[1]);
    engineRows.push(row(cell((timing.cores.length > 1 ? number + " " : "") + engine), cell(percent(busy / total), "n", busy),
      cell(bar([[busy / total, "#3b6fb6", "busy " + percent(busy / total)], ...stalls.map(([c, ns]) => [ns / total, causeColor(c), c + " " + percent(ns / total)])])),
      cell(stalls.filter(([, ns]) => ns / total >= 0.005).map(([c, ns]) => c + " " + percent(ns / total)).join(", "))));
  }
  engineRows.push(row(cell((timing.cores.length > 1 ? number + " " : "") + "dma"), cell(percent(core.dma_ns / total), "n", core.dma_ns), cell(bar([[core.dma_ns / total, "#3f9b5f", "moving data"]])), cell("moving data")));
});
table("engines", ["engine", "#busy", "", "stalls"], engineRows);
for (const [name, color] of [["busy", "#3b6fb6"], ...Object.entries(CAUSES)]) {
  const item = document.createElement("span"), box = document.createElement("i");
  box.style.background = color;
  item.append(box, name === "busy" ? name : name === "launch" || name === "end" ? name : "waits for " + name);
  at("legend").append(item);
}

// -- critical path, groups --------------------------------------------------------------------------------------------
const pathRows = lines.map((l, k) => [l, k]).filter(([l]) => l.path_ns > 0).sort((a, b) => b[0].path_ns - a[0].path_ns);
const SHOWN = 160;          // characters of a source line in a list: configs of kernels are long
const source = l => { const text = ((profile.files[l.file] || [])[l.line - 1] || "").trim(); return text.length > SHOWN ? text.slice(0, SHOWN) + "…" : text; };
table("path", ["line", "#share", "#time", "", "source"], pathRows.map(([l, k]) => {
  const made = row(cell(lineName(k)), cell(percent(l.path_ns / total), "n", l.path_ns), cell(duration(l.path_ns), "n"), cell(bar([[l.path_ns / total, lineColor(k), ""]])), cell(source(l), "code"));
  made.dataset.line = k;
  made.onclick = () => selectLine(k);
  return made;
}));
const rest = total - pathRows.reduce((sum, [l]) => sum + l.path_ns, 0);
at("path").append(row(cell("launch, waits"), cell(percent(rest / total), "n", rest), cell(duration(rest), "n"), cell(bar([[rest / total, "var(--launch)", ""]])), cell("")));
table("groups", ["", "#from", "#to", "#busy on all tracks"], profile.groups.map(g => row(cell(g.name), cell(duration(g.begin), "n"), cell(duration(g.end), "n"), cell(duration(g.ns), "n", g.ns))));

// -- source -----------------------------------------------------------------------------------------------------------
const lineAt = {};
lines.forEach((l, k) => { lineAt[l.file + ":" + l.line] = k; });
for (const [file, text] of Object.entries(profile.files)) {
  const head = document.createElement("h3");
  head.textContent = file;
  at("source").append(head);
  const used = lines.filter(l => l.file === file).map(l => l.line), first = Math.max(1, Math.min(...used) - 12), last = Math.min(text.length, Math.max(...used) + 6);
  for (let number = first; number <= last; number++) {
    const k = lineAt[file + ":" + number], made = document.createElement("div"), l = lines[k];
    made.className = "row" + (l ? " has" : "");
    const ns = l ? l.engine_ns + l.transfer_ns : 0;
    for (const t of [l ? duration(ns) : "", l && l.path_ns ? percent(l.path_ns / total) : "", number, text[number - 1]]) { const s = document.createElement("span"); s.textContent = t; made.append(s); }
    if (l) {
      made.dataset.line = k;
      made.dataset.value = ns;
      made.style.boxShadow = `inset 3px 0 ${lineColor(k)}`;
      made.onclick = () => selectLine(k === view.line ? -1 : k);
    }
    at("source").append(made);
  }
}
const ranOn = new Float64Array(instructions.name.length), times = new Int32Array(instructions.name.length);
for (let k = 0; k < slices.track.length; k++) { ranOn[slices.instruction[k]] += slices.end[k] - slices.begin[k]; times[slices.instruction[k]] += slices.count[k]; }
function selectLine(line) {
  view.line = line;
  for (const made of document.querySelectorAll("[data-line]")) made.classList.toggle("chosen", +made.dataset.line === line);
  at("line-name").textContent = line < 0 ? "the selected line" : lineName(line);
  const own = [];
  instructions.line.forEach((l, n) => { if (l === line && line >= 0) own.push(n); });
  own.sort((a, b) => ranOn[b] - ranOn[a]);
  table("instructions", ["engine", "#slices", "#time", "instruction"], own.slice(0, 200).map(n => row(cell(instructions.engine[n]), cell(times[n], "n"), cell(duration(ranOn[n]), "n", ranOn[n]), cell(instructions.text[n], "code"))));
  if (own.length > 200) at("instructions").append(row(cell(`${own.length - 200} more`)));
  timeline.draw();
}

// -- over time --------------------------------------------------------------------------------------------------------
const charts = [], LINES = { stroke: () => themed("dim"), grid: { stroke: () => themed("line"), width: 1 }, ticks: { stroke: () => themed("line"), width: 1 } };
const POWERS = Array.from({ length: 40 }, (_, k) => 2 ** k);         // distances of the ticks of bytes: whole KiB and MiB
function chart(title, times, values, unit, color, stepped) {
  const holder = document.createElement("div");
  at("charts").append(holder);
  const made = new uPlot({
    title, width: holder.clientWidth || 360, height: 130, legend: { show: false }, cursor: { sync: { key: "time" }, drag: { x: true, y: false } },
    scales: { x: { time: false, range: () => [view.begin, view.end] }, y: { range: (u, low, high) => [0, Math.max(high, 1e-9) * 1.05] } },
    axes: [{ ...LINES, values: (u, ticks) => ticks.map(duration), space: 90, size: 26 }, { ...LINES, values: (u, ticks) => ticks.map(unit), size: 78, space: 24, ...(unit === size ? { incrs: POWERS } : {}) }],
    series: [{}, { stroke: color, fill: color + "33", width: 1, points: { show: false }, paths: stepped ? uPlot.paths.stepped({ align: 1 }) : undefined }],
    hooks: { setCursor: [u => { if (u.cursor.left > 0) setMoment(u.posToVal(u.cursor.left, "x")); }],
      setSelect: [u => { if (u.select.width > 4) { const a = u.posToVal(u.select.left, "x"), b = u.posToVal(u.select.left + u.select.width, "x"); u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false); timeline.show(a, b - a); } }] },
  }, [times, values], holder);
  charts.push([made, holder]);
}
profile.memory.cores.forEach((core, number) => {
  for (const space of ["sbuf", "psum"]) chart(`${space.toUpperCase()} held${profile.memory.cores.length > 1 ? ", core " + number : ""}, peak ${size(core[space].peak)} of ${size(profile.memory.bytes_per_partition[space] * profile.memory.partitions)}`, [...core[space].time, total], [...core[space].bytes, 0], size, space === "sbuf" ? "#3b6fb6" : "#8a5bb0", true);
});
chart("HBM bandwidth, GB/s", [...profile.dma.bytes_per_ns.map((_, k) => k * profile.dma.bin_ns), total], [...profile.dma.bytes_per_ns, 0], v => v.toFixed(0), "#3f9b5f", true);
const fitCharts = () => { for (const [made, holder] of charts) made.setSize({ width: holder.clientWidth, height: 130 }); };
view.listeners.push(() => { for (const [made] of charts) made.setScale("x", { min: view.begin, max: view.end }); });

// -- maps -------------------------------------------------------------------------------------------------------------
const held = profile.memory.held;
const maps = [];                // a figure for each core and memory, with the boxes that are drawn in it
profile.memory.cores.forEach((_, core) => {
  const holder = document.createElement("div");
  holder.className = "maps";
  at("maps").append(holder);
  for (const space of ["sbuf", "psum"]) {
    const figure = document.createElement("figure"), canvas = document.createElement("canvas"), text = document.createElement("figcaption");
    figure.append(canvas, text);
    holder.append(figure);
    const map = { core, space, canvas, text, boxes: [] };
    canvas.addEventListener("pointermove", e => describeHeld(map, e));
    maps.push(map);
  }
});
let mapsWait = false;
function setMoment(time) {
  view.moment = Math.max(0, Math.min(time, total));
  timeline.draw();
  if (!mapsWait) { mapsWait = true; requestAnimationFrame(() => { mapsWait = false; drawMaps(); }); }
}
function drawMaps() {
  at("moment").textContent = duration(view.moment);
  for (const map of maps) {
    const { core, space, canvas } = map, ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = maps.length > 2 ? 110 : 160;
    canvas.style.height = height + "px";
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const c = canvas.getContext("2d"), room = profile.memory.bytes_per_partition[space], p = profile.memory.partitions;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = themed("quiet");
    c.fillRect(0, 0, width, height);
    let bytes = 0;
    map.boxes = [];
    for (let k = 0; k < held.begin.length && held.begin[k] <= view.moment; k++) {
      if (held.space[k] !== space || held.end[k] < view.moment || held.core[k] !== core) continue;
      bytes += (held.p1[k] - held.p0[k]) * (held.b1[k] - held.b0[k]);
      const box = [held.b0[k] / room * width, held.p0[k] / p * height, (held.b1[k] - held.b0[k]) / room * width, (held.p1[k] - held.p0[k]) / p * height];
      c.fillStyle = lineColor(instructions.line[held.instruction[k]]);
      c.fillRect(box[0], box[1], Math.max(box[2] - 0.5, 0.7), Math.max(box[3] - 0.5, 0.7));
      map.boxes.push([k, box]);
    }
    map.text.textContent = `${space.toUpperCase()}${several ? " of core " + core : ""}: ${size(bytes)} held of ${size(room * p)}; across: ${size(room)} a partition, down: ${p} partitions`;
  }
}
function describeHeld(map, e) {
  const hit = map.boxes.find(([, [x, y, w, h]]) => e.offsetX >= x && e.offsetX <= x + Math.max(w, 1) && e.offsetY >= y && e.offsetY <= y + h);
  if (!hit) return;
  const k = hit[0], n = held.instruction[k];
  at("holder").textContent = `bytes ${held.b0[k]} to ${held.b1[k]} of partitions ${held.p0[k]} to ${held.p1[k] - 1}, written by ${instructions.name[n]} of ${lineName(instructions.line[n])}, held from ${duration(held.begin[k])} to ${duration(held.end[k])}`;
}

// -- roofline ---------------------------------------------------------------------------------------------------------
(function roofline() {
  const { ceilings, points } = profile.roofline, svg = at("roofline"), W = 560, H = 340, L = 56, B = 36, T = 12, R = 20;
  const shown = points.filter(p => p.operations && p.hbm_bytes && p.ns), rate = p => p.operations / p.ns, intensity = p => p.operations / p.hbm_bytes;
  const bandwidth = ceilings.hbm_bytes_per_ns, tops = Object.entries(ceilings).filter(([n]) => n !== "hbm_bytes_per_ns"), highest = Math.max(...tops.map(t => t[1]));
  const low = Math.floor(Math.log10(Math.min(0.1, ...shown.map(intensity)))), high = Math.ceil(Math.log10(Math.max(highest / bandwidth * 4, ...shown.map(intensity))));
  const bottom = Math.floor(Math.log10(Math.min(bandwidth * 10 ** low, ...shown.map(rate)))), top = Math.ceil(Math.log10(highest));
  const x = v => L + (Math.log10(v) - low) / (high - low) * (W - L - R), y = v => H - B - (Math.log10(v) - bottom) / (top - bottom) * (H - B - T);
  let text = "";
  for (let k = low; k <= high; k++) text += `<line x1="${x(10 ** k)}" x2="${x(10 ** k)}" y1="${T}" y2="${H - B}" class="grid"/><text x="${x(10 ** k)}" y="${H - B + 14}" text-anchor="middle">${10 ** k >= 1 ? 10 ** k : (10 ** k).toPrecision(1)}</text>`;
  for (let k = bottom; k <= top; k++) text += `<line x1="${L}" x2="${W - R}" y1="${y(10 ** k)}" y2="${y(10 ** k)}" class="grid"/><text x="${L - 4}" y="${y(10 ** k) + 4}" text-anchor="end">${k >= 3 ? 10 ** (k - 3) + " T" : 10 ** k + " G"}</text>`;
  let above = -Infinity;        // names of ceilings that are near each other go below one another
  for (const [name, value] of tops.sort((p, q) => q[1] - p[1])) {
    above = Math.max(y(value) - 3, above + 13);
    text += `<line x1="${x(value / bandwidth)}" x2="${W - R}" y1="${y(value)}" y2="${y(value)}" class="roof"/><text class="ceiling" x="${W - R - 2}" y="${above}" text-anchor="end">${name} ${value >= 1e3 ? (value / 1e3).toFixed(1) + " T/s" : value.toFixed(0) + " G/s"}</text>`;
  }
  text += `<line x1="${x(10 ** low)}" y1="${y(bandwidth * 10 ** low)}" x2="${x(highest / bandwidth)}" y2="${y(highest)}" class="roof"/><text x="${x(10 ** (low + 0.2))}" y="${y(bandwidth * 10 ** (low + 0.2)) - 8}">HBM ${bandwidth.toFixed(0)} GB/s</text>`;
  shown.forEach((p, k) => { text += `<circle cx="${x(intensity(p))}" cy="${y(rate(p))}" r="5" fill="${PALETTE[k % PALETTE.length]}"/><text x="${x(intensity(p)) + 8}" y="${y(rate(p)) + 4}">${k + 1}</text>`; });
  svg.innerHTML = text + `<text x="${(L + W) / 2}" y="${H - 4}" text-anchor="middle">operations a byte of HBM; upwards operations a second</text>`;
  table("points", ["", "", "#op/byte", "#op/s", "#time"], shown.map((p, k) => row(cell(k + 1), cell(p.name + (p.location ? ` (${base(p.location)})` : ""), "code"), cell(intensity(p).toFixed(2), "n", intensity(p)), cell((rate(p) / 1e3).toFixed(3) + " T", "n", rate(p)), cell(duration(p.ns), "n"))));
})();

drawings.push(drawMaps, () => { for (const [made] of charts) made.redraw(false); });
new ResizeObserver(() => { fitCharts(); drawMaps(); }).observe(at("charts"));
restore(location.hash.slice(1));
drawMaps();
