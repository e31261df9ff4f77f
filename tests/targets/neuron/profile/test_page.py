# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page, in a browser: it shows the numbers of the document, at any width, and 100,000 slices cost what is seen."""

import re
from copy import deepcopy

import pytest
import quickjs

from nki_mlir.display import frame
from nki_mlir.targets.neuron.profile import page, profile_of
from tests.targets.neuron.profile.browser import BROWSER, rendered
from tests.targets.neuron.profile.kernels import streams

in_browser = pytest.mark.skipif(BROWSER is None, reason="no browser: chromium is not on the path")


@pytest.fixture(scope="module")
def profile():
    return profile_of(streams("examples/matmul.py:matmul_tiled", "256x256xbf16", "256x1024xbf16"))


def test_a_page_needs_nothing_else(profile):
    text = page(profile)
    assert not re.search(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=|@import|fetch\(|XMLHttpRequest", text)
    assert "The MIT License" in text and "Leon Sorokin" in text
    assert "@PROFILE@" not in text and text.count("</script>") == 2


def test_scripts_parse(profile):
    """Where there is no browser, too: a function is compiled, and not called."""
    for script in re.findall(r"<script>(.*?)</script>", page(profile), re.DOTALL):
        quickjs.Context().eval(f"(function() {{{script}\n}})")
    with pytest.raises(quickjs.JSException, match="SyntaxError"):
        quickjs.Context().eval("(function() { const { span } = {}; const span = 1; })")


def test_text_of_a_kernel_ends_no_element(profile):
    odd = deepcopy(profile)
    odd["timing"]["kernel"] = "</script><b>@STYLE@"
    text = page(odd)
    assert text.count("</script>") == 2 and "<title>&lt;/script&gt;&lt;b&gt;@STYLE@</title>" in text


@in_browser
@pytest.mark.parametrize("width", [400, 1600])
def test_it_shows_the_numbers_of_the_document(profile, tmp_path, width):
    wide = "document.getElementById('notes').textContent = document.documentElement.scrollWidth <= innerWidth"
    shown = rendered(page(profile), tmp_path, wide, width)
    assert shown.texts["notes"] == "true"                       # nothing is beyond the edge
    timing, total = profile["timing"], profile["timing"]["total_ns"]
    assert shown.values["kernel"] == [total] and f"{total / 1e3:.2f} us" in shown.texts["kernel"]
    assert shown.values["engines"] == [*timing["busy_ns"].values(), timing["dma_ns"]]
    assert f"dma {timing['stall_ns']['tensor']['dma'] / total:.1%}" in shown.texts["engines"]
    path = sorted((row["path_ns"] for row in profile["lines"] if row["path_ns"]), reverse=True)
    assert shown.values["path"][:-1] == path and sum(shown.values["path"]) == pytest.approx(total)
    assert shown.values["source"] == [row["engine_ns"] + row["transfer_ns"] for row in profile["lines"]]
    assert shown.values["groups"] == [group["ns"] for group in profile["groups"]]
    points = profile["roofline"]["points"]
    assert shown.values["points"][::2] == pytest.approx([p["operations"] / p["hbm_bytes"] for p in points])
    assert shown.values["points"][1::2] == pytest.approx([p["operations"] / p["ns"] for p in points])
    assert "total += nl.matmul(left, right, transpose_x=True)" in shown.texts["source"]
    assert shown.texts["cause"] == profile["cause"]["text"] and shown.values["cause"] == [profile["cause"]["share"]]
    assert [name.split()[0] for name in re.findall(r"[a-z]+(?: float32)? [\d.]+ [TG]/s", shown.texts["roofline"])] == \
        ["tensor", "tensor", "vector", "scalar", "gpsimd"]
    assert f"HBM {timing['hbm_bytes'] / 1e6:.1f} MB" in shown.texts["facts"]


@in_browser
def test_ticks_of_bytes_are_whole_kibibytes(profile, tmp_path):
    script = "document.getElementById('notes').textContent = charts.slice(0, 2).map(c => c[0].axes[1]._values).flat().join()"
    ticks = rendered(page(profile), tmp_path, script).texts["notes"].split(",")
    assert len(ticks) > 5 and all(re.fullmatch(r"\d+\.0 KiB|\d+\.(00|25|50|75) MiB", tick) for tick in ticks), ticks


COLORS = """(() => {
    const of = (element, name) => getComputedStyle(element).getPropertyValue(name);
    timeline.paint();
    const pixel = Array.from(timeline.context.getImageData(2, 2, 1, 1).data.slice(0, 3));
    return [root.dataset.theme, of(document.body, "background-color"), of(document.body, "color"), pixel,
        of(document.querySelector("#roofline text"), "fill"), charts[0][0].axes[0].stroke()].join("; ");
})()"""
LIGHT = "light; rgb(245, 246, 248); rgb(28, 37, 48); 255,255,255; rgb(28, 37, 48); #667280"
DARK = "dark; rgb(18, 22, 27); rgb(223, 229, 236); 26,32,39; rgb(223, 229, 236); #9aa7b4"


@in_browser
@pytest.mark.parametrize("dark, expected", [(False, LIGHT), (True, DARK)])
def test_it_is_light_or_dark_as_the_system(profile, tmp_path, dark, expected):
    text = f"at('notes').textContent = {COLORS}"
    assert rendered(page(profile), tmp_path, text, dark=dark).texts["notes"] == expected


@in_browser
@pytest.mark.parametrize("around, dark, expected", [
    ('data-theme="dark"', False, DARK), ('data-theme="light"', True, LIGHT), ('data-theme="auto"', True, DARK),
    ('data-jp-theme-light="false"', False, DARK), ('data-jp-theme-light="true"', True, LIGHT),
    ('class="vscode-body vscode-dark"', False, DARK)])
def test_it_is_light_or_dark_as_what_is_around_it(profile, tmp_path, around, dark, expected):
    """The site, JupyterLab, Visual Studio Code; once more after a change to the other one."""
    other = "light" if expected == DARK else "dark"
    outer = f"<html><head></head><body {around}><p id='notes'></p>{frame(page(profile))}</body></html>"
    ask = f"""const inner = document.querySelector("iframe").contentWindow, said = document.getElementById("notes");
        onload = () => {{
            said.textContent = inner.eval({COLORS!r});
            document.body.removeAttribute("data-jp-theme-light");
            document.body.className = "";
            document.body.dataset.theme = "{other}";
            setTimeout(() => {{ said.textContent += " | " + inner.eval({COLORS!r}); }}, 100);
        }};"""
    assert rendered(outer, tmp_path, ask.replace("\n", " "), dark=dark).texts["notes"] == \
        f"{expected} | {LIGHT if other == 'light' else DARK}"


@in_browser
def test_on_paper_nothing_is_beyond_the_edge(profile, tmp_path):
    """What was drawn for a wide screen fits a sheet of 700 pixels without being drawn again; the tools are gone."""
    sheet = """const style = document.querySelector("style");
        style.textContent = [...document.querySelectorAll("style")].map(s => s.textContent).join(" ")
            .replaceAll("@media print", "@media all");
        document.body.style.width = "700px";
        const beyond = [...document.querySelectorAll("canvas, svg, figure, .uplot")].filter(
            e => e.getBoundingClientRect().right > 700).length;
        const shown = [...document.querySelectorAll(".tools")].filter(e => e.getBoundingClientRect().height > 0).length;
        at("notes").textContent = [beyond, shown, charts.length].join(" ");"""
    assert rendered(page(profile), tmp_path, sheet).texts["notes"] == "0 0 3"


@in_browser
def test_a_click_shows_an_instruction_and_its_line(profile, tmp_path):
    slices = profile["slices"]
    number = next(k for k, n in enumerate(slices["instruction"]) if profile["instructions"]["name"][n] == "MATMUL")
    middle = (slices["begin"][number] + slices["end"][number]) / 2
    click = f"""timeline.paint();
        const row = timeline.rows.findIndex(r => r.track === {slices["track"][number]});
        timeline.click({{ offsetX: timeline.x({middle}), offsetY: AXIS + ROW * row + 5 }});"""
    shown = rendered(page(profile), tmp_path, click)
    instruction = slices["instruction"][number]
    line = profile["lines"][profile["instructions"]["line"][instruction]]
    assert profile["instructions"]["text"][instruction] in shown.texts["detail"]
    assert shown.texts["line-name"] == f"matmul.py:{line['line']}"
    assert sum(shown.values["instructions"]) == pytest.approx(line["engine_ns"] + line["transfer_ns"])


def said(script: str) -> str:
    """A script that shows what it says in the notes."""
    return f"at('notes').textContent = (() => {{ {script} }})();"


@in_browser
def test_search_goes_through_what_has_the_words(profile, tmp_path):
    slices, instructions = profile["slices"], profile["instructions"]
    has = [n for n, name in enumerate(instructions["name"]) if name == "MATMUL"]
    hits = [k for k, n in enumerate(slices["instruction"]) if n in has]
    hits.sort(key=slices["begin"].__getitem__)
    text = rendered(page(profile), tmp_path, said("""search("MATMUL tensor");
        const seen = [hits.length, view.matches.size]; toHit(1); toHit(1); seen.push(view.selected); toHit(-1);
        seen.push(view.selected, at("hits").textContent.split(",")[0]);
        search("no such words"); seen.push(at("hits").textContent); return seen.join(" | ");""")).texts["notes"]
    assert text == f"{len(hits)} | {len(has)} | {hits[1]} | {hits[0]} | 1 of {len(hits)} | nothing has these words"


@in_browser
def test_a_tooltip_says_what_is_below_the_pointer(profile, tmp_path):
    slices = profile["slices"]
    number = next(k for k, n in enumerate(slices["instruction"]) if profile["instructions"]["name"][n] == "MATMUL")
    text = rendered(page(profile), tmp_path, f"""timeline.paint();
        const row = timeline.rows.findIndex(r => r.track === slices.track[{number}]);
        timeline.move({{ pointerId: 1, clientX: 300, clientY: 300, offsetY: AXIS + ROW * row + 5,
            offsetX: timeline.x((slices.begin[{number}] + slices.end[{number}]) / 2) }});""").texts["tip"]
    assert text.startswith("tensor: MATMUL ") and "total += nl.matmul(left, right, transpose_x=True)" in text


@in_browser
def test_a_range_is_measured(profile, tmp_path):
    """Of the whole time: an engine runs as long as its slices, and all bytes are moved in it."""
    total, timing = profile["timing"]["total_ns"], profile["timing"]
    text = rendered(page(profile), tmp_path, f"measure({total}, 0);").texts["measured"]
    assert text.startswith(f"{total / 1e3:.2f} us from 0 ns to") and f"{timing['hbm_bytes'] / 1e6:.1f} MB" in text
    slices = profile["slices"]
    tensor = next(k for k, track in enumerate(profile["tracks"]) if track["name"] == "tensor")
    ran = sum(end - begin for track, begin, end in zip(slices["track"], slices["begin"], slices["end"]) if track == tensor)
    assert f"tensor {ran / total:.1%}" in text


@in_browser
def test_tracks_are_in_order_and_fold(profile, tmp_path):
    text = rendered(page(profile), tmp_path, said("""const names = () => timeline.rows.map(r => r.name).join(",");
        const open = names(); timeline.fold("queues"); const row = timeline.rows.findIndex(r => r.group === "queues");
        const k = slices.track.findIndex(t => profile.tracks[t].kind === "queue"); timeline.paint();
        timeline.click({ offsetX: timeline.x((slices.begin[k] + slices.end[k]) / 2), offsetY: AXIS + ROW * row + 5 });
        return [open, names(), profile.tracks[slices.track[view.selected]].kind].join(";");""")).texts["notes"]
    opened, folded, kind = text.split(";")
    engines = [track["name"] for track in profile["tracks"] if track["kind"] == "engine"]
    queues = [track["name"] for track in profile["tracks"] if track["kind"] == "queue"]
    assert engines == [name for name in ("tensor", "scalar", "vector", "gpsimd", "sync") if name in engines]
    rows = [row for name in engines for row in ([name, "tensor ramp"] if name == "tensor" else [name])]
    assert opened == ",".join(["critical path", "▾ engines", *rows, "▾ queues", *queues])
    assert folded == ",".join(["critical path", "▾ engines", *rows, "▸ queues"]) and kind == "queue"


@in_browser
def test_both_cores_are_there(tmp_path):
    """Tracks, charts and maps of each core."""
    both = profile_of(streams("examples/current_two_cores.py:centered", "128x512xf32", grid=(2,)))
    text = rendered(page(both), tmp_path, said("""return [timeline.rows.filter(r => r.group).map(r => r.group).join(","),
        charts.length, maps.map(m => m.space + m.core).join(",")].join(" | ");""")).texts["notes"]
    assert text == ("core 0 engines,core 0 queues,core 1 engines,core 1 queues | 5 | sbuf0,psum0,sbuf1,psum1")


@in_browser
def test_a_link_shows_the_same_state(profile, tmp_path):
    text = rendered(page(profile), tmp_path, said("""timeline.show(12000, 3000); measure(12500, 13000); search("tensor");
        timeline.fold("queues"); select(4); at("arrows").value = "selected"; const link = state();
        restore(""); const empty = state(); restore(link);
        const parts = [view.begin, view.end, view.measure.join("-"), view.search, view.selected, view.folded.has("queues")];
        return [empty, link === state(), ...parts].join(" | ");""")).texts["notes"]
    assert text == " | true | 12000 | 15000 | 12500-13000 | tensor | 4 | true"


@in_browser
def test_a_hundred_thousand_slices_cost_what_is_seen(profile, tmp_path):
    large = deepcopy(profile)
    count, step = 100_000, profile["timing"]["total_ns"] / 100_000
    large["tracks"], large["edges"] = large["tracks"][:1], []
    large["slices"] = {"track": [0] * count, "begin": [k * step for k in range(count)],
                       "end": [k * step + step / 2 for k in range(count)], "instruction": [0] * count,
                       "cause": [0] * count, "stalled": [0.0] * count, "count": [1] * count}
    seen = """let boxes = []; timeline.box = (c, begin) => boxes.push(begin);
        const drawn = () => { boxes = []; timeline.track(timeline.context, 0, 0); return boxes.length; };
        const all = drawn(); view.begin = slices.begin[77777] - 1e-6; view.end = slices.end[77777]; const one = drawn();
        at("notes").textContent = [all, timeline.width, one, boxes[0] === slices.begin[77777]].join(" ");"""
    every, width, one, right = rendered(page(large), tmp_path, seen).texts["notes"].split()
    assert 100 < int(every) <= 2 * int(width) and (one, right) == ("1", "true")
