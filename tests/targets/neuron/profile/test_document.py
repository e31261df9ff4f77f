# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Profiles as JSON: sums, slices, waits, memory, bandwidth and the roofline say what the timed machine did."""

import io
import json
from itertools import pairwise
from pathlib import Path

import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.targets.neuron import profile as profile_package
from nki_mlir.targets.neuron.profile import check_folder, document, profile_of, write_profile, write_profile_files
from nki_mlir.targets.neuron.profile.document import covered, document_of, with_merged_neighbors
from nki_mlir.targets.neuron.profile.occupancy import Footprint, Occupant, _Memory, levels
from nki_mlir.targets.neuron.profile.summary import show
from nki_mlir.targets.neuron.timing.machine import TimedMachine
from tests.targets.neuron.profile.kernels import ROOT, streams

MATMUL, SOFTMAX = "examples/matmul.py:matmul_tiled", "examples/softmax.py:softmax"
KERNELS = [(MATMUL, "256x256xbf16", "256x1024xbf16"), (SOFTMAX, "256x512xf32")]


@pytest.fixture(scope="module", params=KERNELS, ids=lambda case: case[0].rpartition(":")[2])
def profile(request):
    return profile_of(streams(*request.param))


def test_busy_and_stalls_are_the_makespan(profile):
    timing = profile["timing"]
    for engine, busy in timing["busy_ns"].items():
        assert busy + sum(timing["stall_ns"][engine].values()) == pytest.approx(timing["total_ns"])


def test_summary__shows_texts_with_brackets_as_they_are(profile):
    named = {**profile, "cause": {**profile["cause"], "text": "x[bold] waits for y[/red]"},
             "timing": {**profile["timing"], "kernel": "k[red]"}}
    out = io.StringIO()
    show(named, out)
    assert "x[bold] waits for y[/red]\n" in out.getvalue() and out.getvalue().startswith("k[red] (")


def test_slices_of_an_engine_and_its_waits_are_the_makespan(profile):
    slices, timing = profile["slices"], profile["timing"]
    for number, track in enumerate(profile["tracks"]):
        indices = [k for k, at in enumerate(slices["track"]) if at == number]
        assert all(slices["end"][a] <= slices["begin"][b] + 1e-6 for a, b in pairwise(indices))
        if track["kind"] == "engine":
            ran = sum(slices["end"][k] - slices["begin"][k] + slices["stalled"][k] for k in indices)
            end = timing["stall_ns"][track["name"]].get("end", 0.0)
            assert timing["launch_ns"] + ran + end == pytest.approx(timing["total_ns"])


def test_segments_of_the_critical_path_have_no_gap(profile):
    path = profile["path"]
    assert path["begin"][0] == 0.0 and path["end"][-1] == profile["timing"]["total_ns"]
    assert path["begin"][1:] == path["end"][:-1]


def test_lines_have_all_of_the_path_but_the_launch(profile):
    assert sum(row["path_ns"] for row in profile["lines"]) == pytest.approx(
        profile["timing"]["total_ns"] - profile["timing"]["launch_ns"] - unnamed(profile))


def unnamed(profile):
    """ns of the path that instructions of no line have: waits."""
    path, lines = profile["path"], profile["instructions"]["line"]
    return sum(end - begin for begin, end, number in zip(path["begin"], path["end"], path["instruction"])
               if number >= 0 and lines[number] < 0)


def test_bytes_of_lines_and_bandwidth_are_those_of_the_machine(profile):
    total = profile["timing"]["hbm_bytes"]
    assert sum(row["hbm_bytes"] for row in profile["lines"]) == total
    assert sum(profile["dma"]["bytes_per_ns"]) * profile["dma"]["bin_ns"] == pytest.approx(total)
    assert max(profile["dma"]["bytes_per_ns"]) <= 1.01 * profile["roofline"]["ceilings"]["hbm_bytes_per_ns"]


def test_a_wait_ends_after_the_signal_began(profile):
    slices = profile["slices"]
    assert profile["edges"]
    for source, target in profile["edges"]:
        assert slices["begin"][source] <= slices["begin"][target]


def test_memory_holds_no_more_than_there_is(profile):
    memory = profile["memory"]
    for space, level in memory["cores"][0].items():
        room = memory["bytes_per_partition"][space] * memory["partitions"]
        assert len(level["time"]) == len(level["bytes"]) and level["bytes"][-1] == 0
        assert level["time"] == sorted(level["time"])
        assert 0 <= min(level["bytes"]) and max(level["bytes"]) == level["peak"] <= room
    columns = memory["held"]
    values = sorted(zip(*(columns[name] for name in ("space", "begin", "end", "p0", "p1", "b0", "b1"))))
    for k, a in enumerate(values):                  # no two values are in one byte at one time
        for b in values[k + 1:k + 40]:
            apart = a[0] != b[0] or a[2] <= b[1] or a[4] <= b[3] or b[4] <= a[3] or a[6] <= b[5] or b[6] <= a[5]
            assert apart, (a, b)


def test_operations_of_a_product():
    points = profile_of(streams(*KERNELS[0], as_written=True))["roofline"]["points"]        # each load as often as written
    assert points[0]["name"] == "matmul_tiled" and points[0]["hbm_bytes"] == 2 * 4 * 128 * 128 * 2 + 2 * 4 * 128 * 512 * 2 \
        + 256 * 1024 * 2
    products, copies = 2 * 256 * 256 * 1024, 256 * 1024
    assert points[0]["operations"] == products + copies
    inner = points[-1]
    assert inner["name"] == "for s in nl.affine_range(k // 128)" and inner["operations"] == products
    assert inner["hbm_bytes"] == points[0]["hbm_bytes"] - 256 * 1024 * 2 and inner["ns"] < points[0]["ns"]




def test_too_many_slices_are_thinned_with_a_note():
    run = TimedMachine(streams(*KERNELS[0]))
    run.run()
    full, cut = document_of(run), document_of(run, slice_limit=40)
    assert full["notes"] == [] and set(full["slices"]["count"]) == {1}
    count = len(full["slices"]["count"])
    assert len(cut["slices"]["count"]) <= 40 and sum(cut["slices"]["count"]) == count
    note, = cut["notes"]
    assert note.startswith(f"{count} slices are too many") and f"{len(cut['slices']['count'])} are left" in note
    assert cut["timing"] == full["timing"] and cut["lines"] == full["lines"]


def test_values_and_levels_on_chip_are_thinned_with_a_note(monkeypatch):
    run = TimedMachine(streams(*KERNELS[0]))
    run.run()
    unlimited = document_of(run)
    monkeypatch.setattr(document, "HELD", 5)
    monkeypatch.setattr(document, "LEVELS", 7)
    cut = document_of(run)
    count = len(unlimited["memory"]["held"]["begin"])
    assert unlimited["notes"] == [] and count > 5 and len(cut["memory"]["held"]["begin"]) == 5
    assert f"of {count} values on chip those 5 are shown that take the most bytes for the longest" in cut["notes"][0]
    points = len(unlimited["memory"]["cores"][0]["sbuf"]["time"])
    assert f"core 0 holds other bytes of SBUF at {points} times: " in cut["notes"][1]
    for space, level in cut["memory"]["cores"][0].items():
        full = unlimited["memory"]["cores"][0][space]
        assert len(level["time"]) == len(level["bytes"]) <= 7 and level["bytes"][-1] == 0
        assert level["peak"] == full["peak"] == max(level["bytes"])
        assert level["time"][0] == 0.0 and level["time"][-1] == full["time"][-1]


def test_neighbors_are_one_slice_with_the_name_of_the_longest():
    rows = [(0, 0.0, 1.0, 5, 0, 0.0, 1), (0, 1.0, 4.0, 6, 0, 0.0, 1), (0, 6.0, 7.0, 7, 1, 2.0, 1), (1, 0.0, 9.0, 8, 0, 0.0, 1)]
    assert with_merged_neighbors(rows, 4) == [(0, 0.0, 4.0, 6, 0, 0.0, 2), (0, 6.0, 7.0, 7, 1, 2.0, 1), (1, 0.0, 9.0, 8, 0, 0.0, 1)]


def test_values_on_chip():
    memory, tile = _Memory(0), Footprint("sbuf", 0, 128, 0, 4096)
    memory.write(tile, False, 0.0, 2.0, 1)
    memory.read(tile, 5.0)
    memory.read(Footprint("sbuf", 0, 64, 4000, 4100), 6.0)
    memory.write(tile, False, 8.0, 9.0, 2)                  # anew
    memory.write(tile, True, 9.0, 10.0, 3)                  # adds to it
    assert memory.all == [Occupant(0, tile, 0.0, 6.0, 1, True), Occupant(0, tile, 8.0, 10.0, 2)]
    assert levels(memory.all, 0, "sbuf") == ([0.0, 6.0, 8.0, 10.0], [524288, 0, 524288, 0])


def test_covered_time():
    assert covered([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0)]) == 4.0


def test_what_is_written_is_the_document(tmp_path, profile):
    files = write_profile(profile, tmp_path / "new" / "folder")
    assert json.loads(files[0].read_text()) == json.loads(json.dumps(profile))
    assert sorted(files) == sorted(Path(tmp_path / "new" / "folder").iterdir())


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NkiMlirError) as caught:
        check_folder(tmp_path / "file" / "below")
    with pytest.raises(NkiMlirError, match="cannot be written into None: it is not a path"):
        check_folder(None)
    at = caught.value.at
    assert at is not None and at.file == __file__
    line = "        check_folder(tmp_path / \"file\" / \"below\")"
    assert str(caught.value) == (
        f"{__file__}:{at.line}:9: error: a profile cannot be written into {tmp_path}/file/below: Not a directory "
        f"[NKI-PROFILE-FOLDER]\n  {at.line} | {line}\n  {' ' * len(str(at.line))} |         {'^' * len(line.strip())}\n"
        "  fix: name a directory that can be written to; it is created if it does not exist")


def test_write__to_an_empty_name(tmp_path, monkeypatch):
    """An empty name comes from a variable that is not set; files in the current folder are not what the user meant."""
    monkeypatch.chdir(tmp_path)
    for write in (check_folder, lambda name: write_profile({}, name)):
        with pytest.raises(NkiMlirError, match="a profile cannot be written into '': the name is empty"):
            write("")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name, reason", [("trace.json.gz", "trace.json.gz is a directory"),
                                          ("profile.html", "profile.html is a directory")])
def test_write__keeps_an_earlier_profile(tmp_path, name, reason):
    """All files are replaced, or none: the later ones cannot be."""
    (tmp_path / "profile.json").write_text("earlier")
    (tmp_path / name).mkdir()
    with pytest.raises(NkiMlirError, match=f"cannot be written into {tmp_path}: {reason}"):
        write_profile_files({"profile.json": "new", "trace.json.gz": b"", "profile.html": ""}, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(["profile.json", name])
    assert (tmp_path / "profile.json").read_text() == "earlier"
    (tmp_path / name).rmdir()
    files = write_profile_files({"profile.json": "new", "trace.json.gz": b"1", "profile.html": "2"}, tmp_path)
    assert [file.read_bytes() for file in files] == [b"new", b"1", b"2"] and len(list(tmp_path.iterdir())) == 3


def test_write__through_a_link(tmp_path):
    (tmp_path / "kept").write_text("old")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "profile.json").symlink_to(tmp_path / "kept")
    write_profile_files({"profile.json": "new"}, tmp_path / "folder")
    assert (tmp_path / "kept").read_text() == "new" and (tmp_path / "folder" / "profile.json").is_symlink()


def test_source_is_that_of_the_file(profile):
    for row in profile["lines"]:
        assert row["file"].startswith(str(ROOT)) and profile["files"][row["file"]][row["line"] - 1].strip()


def test_a_profile_without_advice_says_so(monkeypatch):
    monkeypatch.setattr(profile_package, "ADVISED", 20)
    report = profile_of(streams(*KERNELS[0]))
    count = report["timing"]["instructions"]
    assert report["advice"] == [] and count > 20
    assert report["notes"] == [f"no advice is given on {count} instructions: each rule would run them again."]


def test_the_ramp_of_the_tensor_engine_is_in_the_document():
    report = profile_of(streams(MATMUL, "256x256xbf16", "256x1024xbf16"))
    (ramp,), total = report["limited"], report["timing"]["total_ns"]
    assert (ramp["core"], ramp["engine"], ramp["speed"]) == (0, "tensor", 0.5)
    assert all(report["timing"]["launch_ns"] <= a < b <= total for a, b in zip(ramp["begin"], ramp["end"]))
    assert 0 < ramp["lost_ns"] <= (sum(ramp["end"]) - sum(ramp["begin"])) / 2
    assert profile_of(streams(MATMUL, "256x256xbf16", "256x1024xbf16", target="trn1"))["limited"] == []
