# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-run --time``: of kernels, graphs and streams, of two kernels, and what it does not go with."""

import json
from pathlib import Path, PurePath

import numpy as np
import pytest

from nki_mlir.cli import run
from nki_mlir.cli.arguments import parse_arguments

ROOT = Path(__file__).parent.parent.parent
SOFTMAX = str(ROOT / "examples/softmax.py") + ":softmax"
TILED, BLOCKED = (str(ROOT / "examples/matmul.py") + f":matmul_{name}" for name in ("tiled", "blocked"))
MATRICES = ["--arg", "512x512xbf16", "--arg", "512x512xbf16"]


def figures(capsys: pytest.CaptureFixture, *arguments: str) -> dict:
    assert run.main([*arguments, "--time", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_kernel_is_timed_without_values(capsys, monkeypatch):
    monkeypatch.setattr(np.random, "default_rng", None)         # nothing is filled
    report = figures(capsys, SOFTMAX, "--arg", "8192x8192xf32", "--on=isa")
    assert report["hbm_bytes"] == 2 * 8192 * 8192 * 4
    assert report["total_ns"] > report["hbm_bytes"] / (16 * 27.2)       # the rate of all DMA engines
    for engine, busy in report["busy_ns"].items():
        assert busy + sum(report["stall_ns"][engine].values()) == pytest.approx(report["total_ns"])
    assert sum(share["ns"] for share in report["critical_path"]) == pytest.approx(report["total_ns"], rel=1e-12)
    assert report["critical_path"][0]["location"].startswith(SOFTMAX.partition(":")[0])


def test_time_is_that_of_the_target(capsys):
    one, two = (figures(capsys, SOFTMAX, "--arg", "256x512xf32", "--target", name) for name in ("trn1", "trn2"))
    assert (one["target"], two["target"]) == ("trn1", "trn2") and one["total_ns"] != two["total_ns"]


def test_two_kernels_are_compared(capsys):
    report = figures(capsys, TILED, BLOCKED, *MATRICES)
    first, second = report["first"], report["second"]
    assert first == figures(capsys, TILED, *MATRICES) and second == figures(capsys, BLOCKED, *MATRICES)
    assert report["ratio"] == second["total_ns"] / first["total_ns"]
    assert sum(d["ns"] for d in report["difference"]) == pytest.approx(second["total_ns"] - first["total_ns"])
    assert run.main([TILED, BLOCKED, *MATRICES, "--time"]) == 0
    text = capsys.readouterr().out
    assert f"matmul_blocked takes {report['ratio']:.3f} times as long as matmul_tiled" in text
    sentence = {"first": "matmul_tiled is faster: ", "second": "matmul_blocked is faster: ", "": "these cannot be told apart: "}
    assert sentence[report["faster"]] in text and report["probability"] > 0.5


def test_two_that_are_alike_cannot_be_told_apart(capsys):
    assert figures(capsys, TILED, TILED, *MATRICES)["faster"] == ""
    assert run.main([TILED, TILED, *MATRICES, "--time"]) == 0
    text = capsys.readouterr().out
    assert "these cannot be told apart: the first takes " in text
    assert text.endswith("matmul_tiled takes 1.000 times as long as matmul_tiled (+0 ns)\n")


def test_a_linked_graph_is_timed(capsys):
    report = figures(capsys, str(ROOT / "examples/mlir/tensor_add.mlir"))
    assert report["total_ns"] > 0 and report["hbm_bytes"] > 0


def test_a_profile_and_its_summary(capsys, tmp_path):
    assert run.main([TILED, *MATRICES, "--profile", str(tmp_path / "new")]) == 0
    text = capsys.readouterr().out
    profile = json.loads((tmp_path / "new" / "profile.json").read_text())
    assert profile["timing"] == figures(capsys, TILED, *MATRICES)
    busy = profile["timing"]["busy_ns"]["tensor"] / profile["timing"]["total_ns"]
    assert f"{busy:.1%}" in next(line for line in text.splitlines() if line.startswith("tensor"))
    assert "█" in text and "matmul.py:31" in text and f"wrote {tmp_path / 'new' / 'trace.json.gz'}" in text


def test_a_profile_of_a_graph_has_its_operations(capsys, tmp_path):
    assert figures(capsys, str(ROOT / "examples/mlir/tensor_add.mlir"), "--profile", str(tmp_path))["total_ns"] > 0
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert [PurePath(group["file"]).name for group in profile["groups"]] == ["tensor_add.mlir"]


def test_a_profile_that_cannot_be_written_fails_before_anything_is_compiled(capsys, tmp_path):
    (tmp_path / "file").touch()
    assert run.main(["none.py:kernel", "--time", "--profile", str(tmp_path / "file")]) == 1
    assert f"a profile cannot be written into {tmp_path}/file: Not a directory" in capsys.readouterr().err


def test_nothing_is_left_of_a_profile_whose_kernel_does_not_exist(capsys, tmp_path):
    missing = tmp_path / "none.py"
    assert run.main([f"{missing}:kernel", "--time", "--profile", str(tmp_path / "new" / "folder")]) == 1
    assert f"cannot read {missing}: no such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments, message", [
    (["--on=jit"], "--time times instruction streams and computes no values: leave out --on=jit"),
    (["--save", "x.npz"], "leave out --save"),
    (["--verify-each"], "leave out --verify-each"),
    ([SOFTMAX, SOFTMAX], "--time compares two sources, 3 are given"),
    ([SOFTMAX, "--profile", "folder"], "--profile takes one kernel or module, two are given"),
])
def test_what_does_not_go_with_it(capsys, arguments, message):
    with pytest.raises(SystemExit, match="2"):
        run.main([SOFTMAX, *arguments, "--time"])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments, message", [
    (["--format", "page"], "--format selects what --profile writes: add --profile DIR"),
    (["--as-written"], "--as-written selects how --time compiles the streams: add --time"),
    (["--json"], "--json selects the form of --time and --check"),
    ([SOFTMAX], "give one kernel or module; --time compares two"),
])
def test_what_needs_it(capsys, arguments, message):
    with pytest.raises(SystemExit, match="2"):
        run.main([SOFTMAX, *arguments])
    assert message in capsys.readouterr().err


def test_name_behind_its_file__is_joined_to_it(capsys):
    with pytest.raises(SystemExit, match="2"):
        run.main(["k.py", "softmax", "--arg", "4x4xf32"])
    assert "give one kernel or module; --time compares two; did you mean k.py:softmax?" in capsys.readouterr().err


def test_arguments_without_values():
    (array, number), keywords = parse_arguments(["4x8xbf16=random:3", "2", "y=2xf32=ones"], values=False)
    assert array.shape == (4, 8) and not array.any() and number == 2 and not keywords["y"].any()


def test_as_written(capsys):
    written, default = figures(capsys, TILED, *MATRICES, "--as-written"), figures(capsys, TILED, *MATRICES)
    assert (written["mode"], default["mode"]) == ("as-written", "optimized")
    assert written["hbm_bytes"] == 2 * default["hbm_bytes"]          # which loads once what does not change
    assert run.main([TILED, *MATRICES, "--time", "--as-written"]) == 0
    assert "matmul_tiled (trn2, as-written): " in capsys.readouterr().out
