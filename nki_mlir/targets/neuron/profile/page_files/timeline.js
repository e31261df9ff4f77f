// The timeline: tracks of slices on a canvas. Slices of a track are in order of time, so that what is visible is found
// by bisection, and of those that fall on one pixel one is drawn: a frame costs what it shows, not what there is.
const profile = JSON.parse(document.getElementById("profile").textContent);
const total = profile.timing.total_ns, slices = profile.slices, instructions = profile.instructions, lines = profile.lines;
const at = id => document.getElementById(id);
const PALETTE = ["#3b6fb6", "#d0742b", "#3f9b5f", "#8a5bb0", "#b8863b", "#4aa3a8", "#c2567a", "#7a8b3a", "#5b6bd0", "#a1594b"];
const lineColor = line => line < 0 ? "#9aa5b1" : PALETTE[line % PALETTE.length];
const duration = ns => Math.abs(ns) >= 1e6 ? (ns / 1e6).toFixed(3) + " ms" : Math.abs(ns) >= 1e3 ? (ns / 1e3).toFixed(2) + " us" : ns.toFixed(1) + " ns";
const size = bytes => bytes >= 1048576 ? (bytes / 1048576).toFixed(2) + " MiB" : (bytes / 1024).toFixed(1) + " KiB";
const percent = share => (100 * share).toFixed(1) + "%";
const base = file => file.split("/").pop();
const lineName = line => line < 0 ? "" : base(lines[line].file) + ":" + lines[line].line;

// Where each track's slices begin and end among all.
const spans = profile.tracks.map(() => [0, 0]);
for (let k = 0; k < slices.track.length; k++) {
  const own = spans[slices.track[k]];
  if (own[1] === 0) own[0] = k;
  own[1] = k + 1;
}
// Arrows by the slice that waited, for the selected and the visible ones.
const arrows = profile.edges;

const ROW = 18, LABEL = 96, AXIS = 20;
const view = { begin: 0, end: total, selected: -1, line: -1, moment: total / 2, listeners: [] };

class Timeline {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.rows = [{ name: "critical path" }, ...profile.tracks.map((t, k) => ({ name: (profile.memory.cores.length > 1 ? t.core + " " : "") + t.name, track: k }))];
    if (profile.groups.length > 1) this.rows.unshift({ name: "groups" });
    this.waiting = false;
    this.drag = null;
    canvas.addEventListener("wheel", e => { e.preventDefault(); this.zoom(this.timeAt(e), e.deltaY > 0 ? 1.25 : 0.8); }, { passive: false });
    canvas.addEventListener("pointerdown", e => { this.drag = { x: e.clientX, begin: view.begin, end: view.end, moved: false }; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointermove", e => this.move(e));
    canvas.addEventListener("pointerup", e => { if (this.drag && !this.drag.moved) this.click(e); this.drag = null; });
    canvas.addEventListener("keydown", e => this.key(e));
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
  }
  get width() { return this.canvas.clientWidth - LABEL; }
  timeAt(e) { return view.begin + (e.offsetX - LABEL) / this.width * (view.end - view.begin); }
  x(time) { return LABEL + (time - view.begin) / (view.end - view.begin) * this.width; }
  zoom(around, factor) {
    const width = Math.max(0.5, (view.end - view.begin) * factor);
    this.show(around - (around - view.begin) / (view.end - view.begin) * width, width);
  }
  show(begin, width) {
    width = Math.min(width, total);
    view.begin = Math.max(0, Math.min(begin, total - width));
    view.end = view.begin + width;
    this.draw();
    for (const changed of view.listeners) changed();
  }
  move(e) {
    if (this.drag) {
      const by = (this.drag.x - e.clientX) / this.width * (this.drag.end - this.drag.begin);
      if (Math.abs(this.drag.x - e.clientX) > 3) this.drag.moved = true;
      if (this.drag.moved) this.show(this.drag.begin + by, this.drag.end - this.drag.begin);
      return;
    }
    if (e.offsetX > LABEL) setMoment(this.timeAt(e));
  }
  key(e) {
    const middle = (view.begin + view.end) / 2, width = view.end - view.begin;
    if (e.key === "+" || e.key === "=") this.zoom(middle, 0.5);
    else if (e.key === "-") this.zoom(middle, 2);
    else if (e.key === "ArrowLeft") this.show(view.begin - width / 5, width);
    else if (e.key === "ArrowRight") this.show(view.begin + width / 5, width);
    else return;
    e.preventDefault();
  }
  click(e) {
    const row = this.rows[Math.floor((e.offsetY - AXIS) / ROW)];
    const time = this.timeAt(e), slack = (view.end - view.begin) / this.width * 2;
    if (row && row.track !== undefined) select(this.find(row.track, time, slack));
    else if (row && row.name === "critical path") {
      const k = profile.path.end.findIndex(end => end >= time);
      if (k >= 0) selectLine(profile.path.instruction[k] < 0 ? -1 : instructions.line[profile.path.instruction[k]]);
    }
  }
  find(track, time, slack) {
    const k = firstEnding(track, time - slack);
    return k < spans[track][1] && slices.begin[k] <= time + slack ? k : -1;
  }
  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }
  paint() {
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth, height = AXIS + ROW * this.rows.length + 4;
    this.canvas.style.height = height + "px";
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const c = this.context;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    this.axis(c, height);
    this.rows.forEach((row, k) => this.row(c, row, AXIS + k * ROW));
    if (at("arrows").checked) this.arrows(c);
    c.fillStyle = themed("card");
    c.fillRect(0, 0, LABEL, height);
    c.fillStyle = themed("ink");
    this.rows.forEach((row, k) => c.fillText(row.name, 4, AXIS + k * ROW + ROW / 2, LABEL - 6));
    const x = this.x(view.moment);
    if (x >= LABEL) { c.fillStyle = themed("mark"); c.fillRect(x, 0, 1, height); }
    at("range").textContent = duration(view.begin) + " to " + duration(view.end);
  }
  axis(c, height) {
    const rough = (view.end - view.begin) / Math.max(2, this.width / 110), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= rough);
    c.fillStyle = themed("dim");
    for (let t = Math.ceil(view.begin / step) * step; t <= view.end; t += step) {
      c.fillText(duration(t), this.x(t) + 3, AXIS / 2);
      c.fillRect(this.x(t), 0, 0.5, height);
    }
  }
  row(c, row, y) {
    if (row.track !== undefined) return this.track(c, row.track, y);
    if (row.name === "groups") {
      profile.groups.forEach((g, k) => this.box(c, g.begin, g.end, y, PALETTE[k % PALETTE.length], g.name, g.kernel ? 0.9 : 0.5));
      return;
    }
    const path = profile.path, pixel = (view.end - view.begin) / this.width;
    for (let k = bisect(path.end, view.begin, 0, path.end.length); k < path.begin.length && path.begin[k] < view.end;) {
      const n = path.instruction[k], line = n < 0 ? -1 : instructions.line[n];
      this.box(c, path.begin[k], path.end[k], y, lineColor(line), n < 0 ? path.what[k] : instructions.name[n] + " " + path.what[k] + " " + lineName(line), view.line >= 0 && line !== view.line ? 0.25 : 1);
      k = Math.max(k + 1, bisect(path.end, path.begin[k] + pixel, k, path.end.length));
    }
  }
  track(c, track, y) {
    const pixel = (view.end - view.begin) / this.width, last = spans[track][1];
    for (let k = firstEnding(track, view.begin); k < last && slices.begin[k] < view.end;) {
      const n = slices.instruction[k], line = instructions.line[n];
      const text = slices.count[k] > 1 ? slices.count[k] + " instructions" : instructions.name[n] + " " + lineName(line);
      this.box(c, slices.begin[k], slices.end[k], y, lineColor(line), text, view.line >= 0 && line !== view.line ? 0.25 : 1, k === view.selected);
      k = slices.end[k] - slices.begin[k] > pixel ? k + 1 : Math.max(k + 1, firstEnding(track, slices.begin[k] + pixel));
    }
  }
  box(c, begin, end, y, color, text, alpha, selected) {
    const left = Math.max(LABEL, this.x(begin)), right = Math.min(LABEL + this.width, this.x(end)), width = Math.max(right - left, 0.7);
    c.globalAlpha = alpha;
    c.fillStyle = color;
    c.fillRect(left, y + 1, width, ROW - 2);
    c.globalAlpha = 1;
    if (selected) { c.strokeStyle = themed("ink"); c.lineWidth = 2; c.strokeRect(left, y + 1, width, ROW - 2); }
    if (width > 34) {
      c.save(); c.beginPath(); c.rect(left, y, width - 3, ROW); c.clip();
      c.fillStyle = "#fff"; c.fillText(text, left + 4, y + ROW / 2); c.restore();
    }
  }
  arrows(c) {
    const rowOf = {};
    this.rows.forEach((row, k) => { if (row.track !== undefined) rowOf[row.track] = k; });
    c.strokeStyle = themed("arrow");
    c.lineWidth = 1;
    let drawn = 0;
    for (const [a, b] of arrows) {
      const chosen = view.selected >= 0 ? a === view.selected || b === view.selected : true;
      if (!chosen || slices.begin[b] < view.begin || slices.end[a] > view.end) continue;
      if (++drawn > 300 && view.selected < 0) break;        // more hide what is below them
      const x0 = this.x(slices.end[a]), x1 = this.x(slices.begin[b]);
      const y0 = AXIS + rowOf[slices.track[a]] * ROW + ROW / 2, y1 = AXIS + rowOf[slices.track[b]] * ROW + ROW / 2;
      c.beginPath(); c.moveTo(x0, y0); c.bezierCurveTo(x0 + 14, y0, x1 - 14, y1, x1, y1); c.stroke();
      c.beginPath(); c.moveTo(x1, y1); c.lineTo(x1 - 5, y1 - 3); c.lineTo(x1 - 5, y1 + 3); c.fillStyle = themed("arrow"); c.fill();
    }
  }
}
// The first index from which on values are more than a bound.
function bisect(values, bound, low, high) {
  while (low < high) { const middle = (low + high) >> 1; if (values[middle] <= bound) low = middle + 1; else high = middle; }
  return low;
}
const firstEnding = (track, time) => bisect(slices.end, time, spans[track][0], spans[track][1]);

const timeline = new Timeline(at("timeline"));
drawings.push(() => timeline.paint());
at("closer").onclick = () => timeline.zoom((view.begin + view.end) / 2, 0.5);
at("farther").onclick = () => timeline.zoom((view.begin + view.end) / 2, 2);
at("all").onclick = () => timeline.show(0, total);
at("arrows").onchange = () => timeline.draw();

function select(k) {
  view.selected = k;
  if (k < 0) { selectLine(-1); return; }
  const n = slices.instruction[k], waited = slices.stalled[k] ? ", waited " + duration(slices.stalled[k]) + " for " + profile.causes[slices.cause[k]] : "";
  at("detail").textContent = `${profile.tracks[slices.track[k]].name}: ${duration(slices.begin[k])} to ${duration(slices.end[k])} (${duration(slices.end[k] - slices.begin[k])}${waited}) ${lineName(instructions.line[n])}\n${instructions.text[n]}`;
  selectLine(instructions.line[n]);
}
