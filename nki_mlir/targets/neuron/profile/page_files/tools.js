// What the timeline is asked: a slice and its text, search, a measured range, and a link to what is shown.
const sourceOf = line => line < 0 ? "" : ((profile.files[lines[line].file] || [])[lines[line].line - 1] || "").trim();
function sliceText(k) {
  const n = slices.instruction[k], track = profile.tracks[slices.track[k]], line = instructions.line[n];
  const waited = slices.stalled[k] ? `, waited ${duration(slices.stalled[k])} for ${profile.causes[slices.cause[k]]}` : "";
  const several = slices.count[k] > 1 ? ` (${slices.count[k]} instructions, the longest)` : "";
  return `${track.name}: ${instructions.name[n]}${several} ${duration(slices.begin[k])} to ${duration(slices.end[k])} (${duration(slices.end[k] - slices.begin[k])}${waited})\n${lineName(line)}  ${sourceOf(line)}`;
}
const HINT = "Wheel or + and - zoom, dragging or arrow keys move, Shift and dragging measures, a click selects an instruction, at a name folds.";
function select(k) {
  view.selected = k;
  at("detail").textContent = k < 0 ? HINT : sliceText(k) + "\n" + instructions.text[slices.instruction[k]];
  selectLine(k < 0 ? -1 : instructions.line[slices.instruction[k]]);
}

// -- tooltip
function showTip(e, text) {
  const tip = at("tip");
  tip.textContent = text;
  tip.hidden = !text;
  if (!text) return;
  tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = (e.clientY + 18 + tip.offsetHeight > innerHeight ? Math.max(4, e.clientY - tip.offsetHeight - 12) : e.clientY + 18) + "px";
}
function hideTip() { at("tip").hidden = true; }

// -- search: instructions whose name, text, engine, line or source has the words; their slices in order of time
let hits = [], hit = -1;
function search(text) {
  view.search = text;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  hit = -1;
  hits = [];
  view.matches = null;
  if (words.length) {
    view.matches = new Set();
    instructions.name.forEach((name, n) => {
      const whole = [name, instructions.text[n], instructions.engine[n], lineName(instructions.line[n]), sourceOf(instructions.line[n])].join(" ").toLowerCase();
      if (words.every(word => whole.includes(word))) view.matches.add(n);
    });
    for (let k = 0; k < slices.track.length; k++) if (view.matches.has(slices.instruction[k])) hits.push(k);
    hits.sort((a, b) => slices.begin[a] - slices.begin[b]);
  }
  showHits();
  timeline.changed();
}
function showHits() {
  const ns = hits.reduce((sum, k) => sum + slices.end[k] - slices.begin[k], 0);
  at("hits").textContent = !view.matches ? "" : hits.length ? `${hit < 0 ? "" : hit + 1 + " of "}${hits.length}, ${duration(ns)}` : "nothing has these words";
}
function toHit(step) {
  if (!hits.length) return;
  hit = hit < 0 ? (step > 0 ? 0 : hits.length - 1) : (hit + step + hits.length) % hits.length;
  const k = hits[hit], middle = (slices.begin[k] + slices.end[k]) / 2, width = Math.max(view.end - view.begin, slices.end[k] - slices.begin[k]);
  const group = groupOf(profile.tracks[slices.track[k]]);
  if (view.folded.has(group)) timeline.fold(group);
  if (slices.begin[k] < view.begin || slices.end[k] > view.end) timeline.show(middle - width / 2, width);
  select(k);
  showHits();
}
at("search").oninput = () => search(at("search").value);
at("search").onkeydown = e => { if (e.key === "Enter") { toHit(e.shiftKey ? -1 : 1); e.preventDefault(); } };
at("next").onclick = () => toHit(1);
at("previous").onclick = () => toHit(-1);

// -- a measured range: how long, how busy each engine is in it, what is moved
function measure(from, to) {
  view.measure = from === undefined ? null : [Math.max(0, Math.min(from, to)), Math.min(total, Math.max(from, to))];
  at("measured").textContent = view.measure ? measuredText(...view.measure) : "";
  timeline.changed();
}
function measuredText(begin, end) {
  const busy = {};
  let bytes = 0;
  profile.tracks.forEach((track, t) => {
    for (let k = firstEnding(t, begin); k < spans[t][1] && slices.begin[k] < end; k++) {
      const inside = Math.min(end, slices.end[k]) - Math.max(begin, slices.begin[k]);
      if (track.kind !== "engine") bytes += instructions.hbm_bytes[slices.instruction[k]] * slices.count[k] * inside / (slices.end[k] - slices.begin[k] || 1);
      else busy[(several ? track.core + " " : "") + track.name] = (busy[(several ? track.core + " " : "") + track.name] || 0) + inside;
    }
  });
  const width = end - begin || 1;
  return `${duration(end - begin)} from ${duration(begin)} to ${duration(end)}: ${Object.entries(busy).map(([name, ns]) => `${name} ${percent(ns / width)}`).join(", ")}${bytes ? `; ${megabytes(bytes)}, ${(bytes / width).toFixed(0)} GB/s` : ""}`;
}
at("clear").onclick = () => { measure(); select(-1); at("search").value = ""; search(""); };

// -- a link to what is shown, behind the # of the address
function state() {
  const fields = { t: view.begin || view.end < total ? `${view.begin.toFixed(1)}-${view.end.toFixed(1)}` : "", s: view.selected >= 0 ? view.selected : "",
    l: view.selected < 0 && view.line >= 0 ? view.line : "", m: view.measure ? view.measure.map(t => t.toFixed(1)).join("-") : "",
    q: view.search, f: String([...view.folded]) === String(foldedAtFirst()) ? "" : [...view.folded].join(",") || "none", a: at("arrows").value === "longest" ? "" : at("arrows").value };
  return new URLSearchParams(Object.entries(fields).filter(([, value]) => value !== "")).toString();
}
function restore(text) {
  const fields = new URLSearchParams(text), range = key => (fields.get(key) || "").split("-").map(Number);
  view.folded = new Set(fields.has("f") ? fields.get("f").split(",").filter(key => trackGroups.has(key)) : foldedAtFirst());
  at("arrows").value = ["selected", "none"].includes(fields.get("a")) ? fields.get("a") : "longest";
  timeline.layout();
  at("search").value = fields.get("q") || "";
  search(at("search").value);
  const [begin, end] = range("t"), [from, to] = range("m"), slice = fields.has("s") ? +fields.get("s") : -1, line = fields.has("l") ? +fields.get("l") : -1;
  if (slice >= 0 && slice < slices.track.length) select(slice);
  else { select(-1); if (line >= 0 && line < lines.length) selectLine(line); }
  if (to > from) measure(from, to); else measure();
  if (end > begin) timeline.show(begin, end - begin); else timeline.show(0, total);
}
let written = 0, shownState = "";
view.listeners.push(() => {
  clearTimeout(written);
  written = setTimeout(() => { shownState = state(); try { history.replaceState(null, "", shownState ? "#" + shownState : location.pathname + location.search); } catch { /* of a page inside of another one */ } }, 200);
});
addEventListener("hashchange", () => { if (location.hash.slice(1) !== shownState) restore(location.hash.slice(1)); });
at("link").onclick = async () => {
  const link = location.href.split("#")[0] + "#" + state();
  try { await navigator.clipboard.writeText(link); at("hits").textContent = "the link is on the clipboard"; } catch { at("detail").textContent = link; }
};
