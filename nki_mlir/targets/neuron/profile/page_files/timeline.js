// The timeline: tracks of slices on a canvas. Slices of a track are in order of time, so that what is visible is found
// by bisection, and of those that fall on one pixel one is drawn: a frame costs what it shows, not what there is.
const profile = JSON.parse(document.getElementById("profile").textContent);
const total = profile.timing.total_ns, slices = profile.slices, instructions = profile.instructions, lines = profile.lines;
const at = id => document.getElementById(id);
const PALETTE = ["#3b6fb6", "#d0742b", "#3f9b5f", "#8a5bb0", "#b8863b", "#4aa3a8", "#c2567a", "#7a8b3a", "#5b6bd0", "#a1594b"];
const lineColor = line => line < 0 ? "#9aa5b1" : PALETTE[line % PALETTE.length];
// Units are those of the terminal: ms, us, ns; KiB and MiB of on-chip memory; MB of transfers, GB/s.
const duration = ns => Math.abs(ns) >= 1e6 ? (ns / 1e6).toFixed(2) + " ms" : Math.abs(ns) >= 1e3 ? (ns / 1e3).toFixed(2) + " us" : ns.toFixed(0) + " ns";
const megabytes = bytes => (bytes / 1e6).toFixed(1) + " MB";
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
// The first index from which on values are more than a bound.
function bisect(values, bound, low, high) {
  while (low < high) { const middle = (low + high) >> 1; if (values[middle] <= bound) low = middle + 1; else high = middle; }
  return low;
}
const firstEnding = (track, time) => bisect(slices.end, time, spans[track][0], spans[track][1]);


const ROW = 18, AXIS = 20;
const label = () => innerWidth < 600 ? 74 : 104;
const view = { begin: 0, end: total, selected: -1, line: -1, moment: total / 2, measure: null, search: "", matches: null, folded: new Set(), listeners: [] };

// Tracks in groups that fold into one row: a core's engines, its DMA queues.
const several = profile.memory.cores.length > 1;
const groupOf = track => (several ? `core ${track.core} ` : "") + (track.kind === "engine" ? "engines" : "queues");
const trackGroups = new Map();
profile.tracks.forEach((track, k) => { const key = groupOf(track); if (!trackGroups.has(key)) trackGroups.set(key, []); trackGroups.get(key).push(k); });

// When an engine had less than its full speed, below its track.
const limitedOf = track => (profile.limited || []).find(l => l.begin.length && track.kind === "engine" && l.core === track.core && l.engine === track.name);

// Where there is little room: queues of which there are many.
const foldedAtFirst = () => innerWidth < 600 ? [...trackGroups].filter(([key, tracks]) => key.endsWith("queues") && tracks.length > 8).map(([key]) => key) : [];

class Timeline {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.waiting = false;
    this.drag = null;
    this.pointers = new Map();
    this.layout();
    canvas.addEventListener("wheel", e => { e.preventDefault(); this.zoom(this.timeAt(e), e.deltaY > 0 ? 1.25 : 0.8); }, { passive: false });
    canvas.addEventListener("pointerdown", e => this.down(e));
    canvas.addEventListener("pointermove", e => this.move(e));
    canvas.addEventListener("pointerup", e => this.up(e));
    canvas.addEventListener("pointercancel", e => { this.pointers.delete(e.pointerId); this.drag = null; });
    canvas.addEventListener("pointerleave", () => hideTip());
    canvas.addEventListener("keydown", e => this.key(e));
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
  }
  // Rows from the top: operations of a graph, the critical path, then each group's heading and tracks.
  layout() {
    this.rows = [{ name: "critical path" }];
    if (profile.groups.length > 1) this.rows.unshift({ name: "groups" });
    for (const [key, tracks] of trackGroups) {
      const folded = view.folded.has(key);
      this.rows.push({ name: (folded ? "▸ " : "▾ ") + key, group: key, tracks: folded ? tracks : [] });
      if (!folded) for (const k of tracks) {
        this.rows.push({ name: profile.tracks[k].name, track: k });
        const limited = limitedOf(profile.tracks[k]);
        if (limited) this.rows.push({ name: limited.engine + " ramp", limited });
      }
    }
    this.rowOf = {};
    this.rows.forEach((row, k) => { if (row.track !== undefined) this.rowOf[row.track] = k; else for (const track of row.tracks || []) this.rowOf[track] = k; });
  }
  fold(key) {
    if (!view.folded.delete(key)) view.folded.add(key);
    this.layout();
    this.changed();
  }
  changed() {
    this.draw();
    for (const changed of view.listeners) changed();
  }
  get left() { return label(); }
  get width() { return this.canvas.clientWidth - this.left; }
  timeAt(e) { return view.begin + (e.offsetX - this.left) / this.width * (view.end - view.begin); }
  x(time) { return this.left + (time - view.begin) / (view.end - view.begin) * this.width; }
  rowAt(e) { return this.rows[Math.floor((e.offsetY - AXIS) / ROW)]; }
  zoom(around, factor) {
    const width = Math.max(0.5, (view.end - view.begin) * factor);
    this.show(around - (around - view.begin) / (view.end - view.begin) * width, width);
  }
  show(begin, width) {
    width = Math.min(width, total);
    view.begin = Math.max(0, Math.min(begin, total - width));
    view.end = view.begin + width;
    this.changed();
  }
  // -- pointer and keys: one pointer moves, or measures with Shift or the button; two zoom
  down(e) {
    this.pointers.set(e.pointerId, e.offsetX);
    hideTip();
    if (this.pointers.size === 2) { const [a, b] = this.pointers.values(); this.pinch = { apart: Math.abs(a - b) || 1, begin: view.begin, width: view.end - view.begin, around: this.timeAt({ offsetX: (a + b) / 2 }) }; this.drag = null; return; }
    this.drag = { x: e.clientX, y: e.clientY, begin: view.begin, end: view.end, moved: false, from: this.timeAt(e), measures: e.shiftKey || at("measure").checked };
    if (this.canvas.setPointerCapture && e.isTrusted) this.canvas.setPointerCapture(e.pointerId);
  }
  move(e) {
    if (this.pointers.has(e.pointerId)) this.pointers.set(e.pointerId, e.offsetX);
    if (this.pinch && this.pointers.size === 2) {
      const [a, b] = this.pointers.values(), width = Math.max(0.5, this.pinch.width * this.pinch.apart / (Math.abs(a - b) || 1));
      this.show(this.pinch.around - (this.pinch.around - this.pinch.begin) / this.pinch.width * width, width);
      return;
    }
    if (this.drag) {
      if (Math.abs(this.drag.x - e.clientX) > 3) this.drag.moved = true;
      if (!this.drag.moved) return;
      if (this.drag.measures) measure(this.drag.from, this.timeAt(e));
      else this.show(this.drag.begin + (this.drag.x - e.clientX) / this.width * (this.drag.end - this.drag.begin), this.drag.end - this.drag.begin);
      return;
    }
    if (e.offsetX > this.left) { setMoment(this.timeAt(e)); showTip(e, this.textAt(e)); } else hideTip();
  }
  up(e) {
    this.pointers.delete(e.pointerId);
    if (this.pointers.size < 2) this.pinch = null;
    if (this.drag && !this.drag.moved) { if (this.drag.measures) measure(); else this.click(e); }
    this.drag = null;
  }
  key(e) {
    const middle = (view.begin + view.end) / 2, width = view.end - view.begin;
    if (e.key === "+" || e.key === "=") this.zoom(middle, 0.5);
    else if (e.key === "-") this.zoom(middle, 2);
    else if (e.key === "ArrowLeft") this.show(view.begin - width / 5, width);
    else if (e.key === "ArrowRight") this.show(view.begin + width / 5, width);
    else if (e.key === "Escape") { measure(); select(-1); }
    else return;
    e.preventDefault();
  }
  click(e) {
    const row = this.rowAt(e);
    if (row && row.group && (e.offsetX < this.left || !row.tracks.length)) { this.fold(row.group); return; }
    const hit = this.hit(e);
    if (hit.slice !== undefined) select(hit.slice);
    else if (hit.path !== undefined) selectLine(profile.path.instruction[hit.path] < 0 ? -1 : instructions.line[profile.path.instruction[hit.path]]);
  }
  // What is under the pointer: a slice, a piece of the critical path, or a group.
  hit(e) {
    const row = this.rowAt(e), time = this.timeAt(e), slack = (view.end - view.begin) / this.width * 2;
    if (!row) return {};
    if (row.name === "groups") return { group: profile.groups.findLastIndex(g => g.begin <= time && g.end >= time) };
    if (row.limited) { const k = bisect(row.limited.end, time - slack, 0, row.limited.end.length); return k < row.limited.end.length && row.limited.begin[k] <= time + slack ? { limited: row.limited, piece: k } : {}; }
    if (row.track === undefined && !row.group) { const k = bisect(profile.path.end, time, 0, profile.path.end.length); return k < profile.path.end.length ? { path: k } : {}; }
    for (const track of row.track !== undefined ? [row.track] : row.tracks) { const k = this.find(track, time, slack); if (k >= 0) return { slice: k }; }
    return row.track !== undefined ? { slice: -1 } : {};
  }
  textAt(e) {
    const { slice, path, group, limited, piece } = this.hit(e);
    if (limited) return `${limited.engine} engine at ${percent(limited.speed)} of its speed, ${duration(limited.end[piece] - limited.begin[piece])}: it was not used enough in the 3 us before`;
    if (slice >= 0) return sliceText(slice);
    if (group >= 0) { const g = profile.groups[group]; return `${g.name}\n${duration(g.begin)} to ${duration(g.end)}`; }
    if (path === undefined) return "";
    const n = profile.path.instruction[path], span = duration(profile.path.end[path] - profile.path.begin[path]);
    return n < 0 ? `critical path: ${profile.path.what[path]}, ${span}` : `critical path: ${instructions.engine[n]} ${instructions.name[n]} ${profile.path.what[path]}, ${span}\n${lineName(instructions.line[n])}  ${sourceOf(instructions.line[n])}`;
  }
  find(track, time, slack) {
    const k = firstEnding(track, time - slack);
    return k < spans[track][1] && slices.begin[k] <= time + slack ? k : -1;
  }
  // -- drawing
  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }
  paint() {
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth, height = AXIS + ROW * this.rows.length + 4, left = this.left;
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
    this.arrows(c);
    this.measured(c, height);
    c.fillStyle = themed("card");
    c.fillRect(0, 0, left, height);
    this.rows.forEach((row, k) => { c.fillStyle = themed(row.group ? "dim" : "ink"); c.fillText(row.name, row.track === undefined && !row.limited ? 4 : 12, AXIS + k * ROW + ROW / 2, left - 14); });
    const x = this.x(view.moment);
    if (x >= left) { c.fillStyle = themed("mark"); c.fillRect(x, 0, 1, height); }
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
    if (row.group) { for (const track of row.tracks) this.track(c, track, y); return; }
    if (row.limited) {
      const { begin, end, speed } = row.limited, pixel = (view.end - view.begin) / this.width;
      for (let k = bisect(end, view.begin, 0, end.length); k < end.length && begin[k] < view.end;) {
        this.box(c, begin[k], end[k], y, "#a8632a", percent(speed) + " of its speed", 1);
        k = Math.max(k + 1, bisect(end, begin[k] + pixel, k, end.length));
      }
      return;
    }
    if (row.name === "groups") {
      profile.groups.forEach((g, k) => this.box(c, g.begin, g.end, y, PALETTE[k % PALETTE.length], g.name, g.kernel ? 0.9 : 0.5));
      return;
    }
    const path = profile.path, pixel = (view.end - view.begin) / this.width;
    for (let k = bisect(path.end, view.begin, 0, path.end.length); k < path.begin.length && path.begin[k] < view.end;) {
      const n = path.instruction[k], line = n < 0 ? -1 : instructions.line[n];
      this.box(c, path.begin[k], path.end[k], y, lineColor(line), n < 0 ? path.what[k] : instructions.name[n] + " " + path.what[k] + " " + lineName(line), this.alpha(n, line));
      k = Math.max(k + 1, bisect(path.end, path.begin[k] + pixel, k, path.end.length));
    }
  }
  alpha(n, line) {
    if (view.matches) return view.matches.has(n) ? 1 : 0.15;
    return view.line >= 0 && line !== view.line ? 0.25 : 1;
  }
  track(c, track, y) {
    const pixel = (view.end - view.begin) / this.width, last = spans[track][1];
    for (let k = firstEnding(track, view.begin); k < last && slices.begin[k] < view.end;) {
      const n = slices.instruction[k], line = instructions.line[n];
      const text = slices.count[k] > 1 ? slices.count[k] + " instructions" : instructions.name[n] + " " + lineName(line);
      this.box(c, slices.begin[k], slices.end[k], y, lineColor(line), text, this.alpha(n, line), k === view.selected);
      k = slices.end[k] - slices.begin[k] > pixel ? k + 1 : Math.max(k + 1, firstEnding(track, slices.begin[k] + pixel));
    }
  }
  box(c, begin, end, y, color, text, alpha, selected) {
    const left = Math.max(this.left, this.x(begin)), right = Math.min(this.left + this.width, this.x(end)), width = Math.max(right - left, 0.7);
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
  measured(c, height) {
    if (!view.measure) return;
    const [a, b] = view.measure.map(t => Math.max(this.left, Math.min(this.x(t), this.left + this.width)));
    c.fillStyle = themed("measure");
    c.fillRect(a, AXIS, b - a, height - AXIS);
    c.fillStyle = themed("ink");
    for (const x of [a, b]) c.fillRect(x, 0, 1, height);
  }
  // Those of the selected slice, each with its own color for what it waited for and what waited for it; else the
  // arrows of the visible range whose waits were longest.
  shownArrows() {
    const mode = at("arrows").value;
    if (mode === "none") return [];
    if (view.selected >= 0) return profile.edges.filter(([a, b]) => a === view.selected || b === view.selected);
    if (mode === "selected") return [];
    const visible = profile.edges.filter(([a, b]) => slices.begin[b] >= view.begin && slices.end[a] <= view.end);
    return visible.sort((p, q) => slices.stalled[q[1]] - slices.stalled[p[1]]).slice(0, innerWidth < 600 ? ARROWS / 4 : ARROWS).filter(([, b]) => slices.stalled[b] > 0);
  }
  arrows(c) {
    for (const [a, b] of this.shownArrows()) {
      const color = themed(view.selected < 0 ? "arrow" : b === view.selected ? "mark" : "signals");
      const x0 = this.x(slices.end[a]), x1 = this.x(slices.begin[b]), row0 = this.rowOf[slices.track[a]], row1 = this.rowOf[slices.track[b]];
      const down = row1 >= row0 ? 1 : -1, y0 = AXIS + row0 * ROW + ROW / 2, y1 = AXIS + row1 * ROW + (row0 === row1 ? ROW / 2 : down > 0 ? 1 : ROW - 1);
      c.strokeStyle = c.fillStyle = color;
      c.lineWidth = view.selected < 0 ? 1 : 1.8;
      c.beginPath(); c.arc(x0, y0, 2.2, 0, 7); c.fill();
      c.beginPath(); c.moveTo(x0, y0); c.bezierCurveTo(x0, y0 + (y1 - y0) / 2, x1, y0 + (y1 - y0) / 2, x1, y1 - 5 * down); c.stroke();
      c.beginPath(); c.moveTo(x1, y1); c.lineTo(x1 - 4, y1 - 7 * down); c.lineTo(x1 + 4, y1 - 7 * down); c.fill();
    }
  }
}
const ARROWS = 40;              // more hide what is below them

const timeline = new Timeline(at("timeline"));
drawings.push(() => timeline.paint());
at("closer").onclick = () => timeline.zoom((view.begin + view.end) / 2, 0.5);
at("farther").onclick = () => timeline.zoom((view.begin + view.end) / 2, 2);
at("all").onclick = () => timeline.show(0, total);
at("arrows").onchange = () => timeline.changed();
