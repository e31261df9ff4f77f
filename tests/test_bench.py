# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels of the benchmarks compute what their peers do: figures of a wrong kernel mean nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"
sys.path[:0] = [str(BENCH), str(BENCH.parent / "examples")]

import cases  # noqa: E402, F401
import run  # noqa: E402
from case import CASES, GOALS, NARROW, Goal, largest_error  # noqa: E402
from contestants import CONTESTANTS  # noqa: E402
from costs import first_result  # noqa: E402

LARGE = {"matmul_4096", "matmul_4096_bf16", "add_8192", "add_8192_bf16"}    # smaller ones of the same kernels are tried


@pytest.mark.share(3)
@pytest.mark.parametrize("name", [name for name in CASES if name not in LARGE])
def test_case__agrees_with_its_reference(name: str) -> None:
    pytest.importorskip("jax") if name == "linked" else None
    case = CASES[name]()
    assert largest_error(case.kernel(*case.arrays), case.answer()) < case.tolerance


@pytest.mark.share(3)
@pytest.mark.parametrize("contestant", ["numpy", "torch", "jax.jit"])
@pytest.mark.parametrize("name", ["giou_8732", "average_pool", "selective_scan", "attention_2048x128"])
def test_contestant__computes_the_case(name: str, contestant: str) -> None:
    pytest.importorskip(contestant.partition(".")[0])
    case = CASES[name]()
    assert largest_error(CONTESTANTS[contestant](case)(), case.answer()) < case.tolerance


def test_worker__answers_each_slice_with_a_time() -> None:
    done = subprocess.run([sys.executable, str(BENCH / "worker.py"), "giou_8732", "nki_mlir"], input="0.01\n0.01\n",
                          text=True, capture_output=True, check=True)
    ready, *slices = map(json.loads, done.stdout.splitlines())
    assert ready["error"] < 1e-4 and ready["first_call_s"] > 0
    assert len(slices) == 2 and all(0 < s < ready["first_call_s"] for s in slices)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes move between processors as the system likes")
def test_worker__runs_on_one_processor() -> None:
    text = ("import os, sys; sys.argv[1:] = ['giou_8732', 'nki_mlir', 'one-thread']; import worker; worker.main(); "
            "print(len(os.sched_getaffinity(0)), file=sys.stderr)")
    done = subprocess.run([sys.executable, "-c", text], input="", text=True, capture_output=True, cwd=BENCH)
    assert done.returncode == 0 and done.stderr.split()[-1] == "1"


def test_cases__have_one_in_bfloat16_beside_them() -> None:
    for name in ("softmax_4096", "rmsnorm_4096", "layernorm_gelu", "average_pool", "add_1024", "transpose_4096",
                 "gather_100000x512", "matmul_512", "matmul_1024_tiled", "giou_8732", "selective_scan", "top16_4096",
                 "mlp_512x1024x2048", "rmsnorm_product", "product_1000x777x1301", "cumulative_sum_1024"):
        wide, narrow = CASES[name](), CASES[name + NARROW]()
        assert [a.dtype.itemsize for a in narrow.arrays if a.dtype.kind != "i"] == [
            a.dtype.itemsize // 2 for a in wide.arrays if a.dtype.kind != "i"]
        assert narrow.amount == (wide.amount if wide.limit == "fma" else wide.amount / 2)


def test_ratio__is_that_to_the_best_peer() -> None:
    assert run.times_of_best({"seconds": {"nki_mlir": 2.0, "numpy": 4.0, "torch": 1.0}}) == 2
    assert run.times_of_best({"seconds": {"nki_mlir": 2.0}}) is None
    assert run.times_of_best({"seconds": {"numpy": 2.0}}) is None


RECORD = {"ready": {"nki_mlir": {"first_call_s": 0.25, "error": 1e-6}, "numpy": {"failed": "line\nno memory"}},
          "seconds": {"nki_mlir": 2e-3, "torch": 1e-3}, "limit": "copy", "amount": 1e6,
          "limits": [{"copy": 2e9, "read": 2e9, "fma": 1e9, "threads": 2}],
          "contended": {"seconds": {"nki_mlir": 3e-3, "torch": 2e-3}},
          "one_thread": {"seconds": {"nki_mlir": 3e-3, "torch": 4e-3}}}


def test_lines__of_a_case_have_its_figures_and_failures() -> None:
    assert run.lines_of("sums", RECORD) == [
        "sums, numpy: failed: no memory",
        "sums: 2000 us; 25% of copy; best peer 2.00x the time; contended 1.50x; one thread 0.75x; peers torch 1000; "
        "error 1e-06"]
    assert run.lines_of("cost", {"lines": ["3 ms", "4 ms"]}) == ["cost: 3 ms", "cost: 4 ms"]
    assert run.has_failed({"failed": "why"}) and not run.has_failed(RECORD)
    assert run.has_failed({"ready": {"nki_mlir": {"failed": "why"}}, "seconds": {}})


def test_lines__appear_case_by_case_and_figures_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    measured: list[str] = []
    results = tmp_path / "results.json"

    def case(name: str, contended: bool, rounds: int) -> dict[str, object]:
        assert contended and rounds == 3 and [line.split()[1] for line in capsys.readouterr().out.splitlines()] == (
            ["add_1024,", "add_1024:"] if measured else [])
        assert not measured or [*json.loads(results.read_text())["cases"]] == measured
        measured.append(name)
        return RECORD
    monkeypatch.setattr(run, "measured_case", case)
    monkeypatch.setattr(sys, "argv", ["run.py", "--cases", "add_1024,softmax_4096", "--contended", "--rounds",
                                      "3", "--output", str(results)])
    assert run.main() == 0 and measured == ["add_1024", "softmax_4096"]
    table = capsys.readouterr().out
    assert "one thread" in table and "2.00x the time" in table and "missed: softmax_4096" in table


@pytest.mark.parametrize("text", [first_result.KERNEL, first_result.JAX], ids=["kernel", "jax"])
def test_first_result__is_timed_by_a_process_of_its_own(text: str, tmp_path: Path) -> None:
    pytest.importorskip("jax") if "import jax" in text else None
    (tmp_path / "script.py").write_text(text)
    assert 0 < first_result.milliseconds(str(tmp_path / "script.py"), dict(os.environ)) < 600_000


def test_compilation__digests_are_those_of_another_process(tmp_path: Path) -> None:
    digests = tmp_path / "digests.json"
    command = [sys.executable, str(BENCH / "costs/compilation.py"), "--cases", "transpose2d.0", "--digests", str(digests)]
    for options in ([], ["--compare", str(digests)]):
        printed = subprocess.run([*command, *options], text=True, capture_output=True, check=True).stdout
        assert printed.startswith("transpose2d.0 ") and "before" not in printed
    before = json.loads(digests.read_text())
    digests.write_text(json.dumps({"transpose2d.0": ["another", before["transpose2d.0"][1]]}))
    compared = subprocess.run([*command, "--compare", str(digests)], text=True, capture_output=True, check=True).stdout
    assert compared.rstrip().endswith(f", before ['another', {before['transpose2d.0'][1]}]")


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_limits__are_a_valid_program() -> None:
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", BENCH / "limits.cpp"],
                   check=True)


def test_goals__are_missed_beyond_noise_and_have_a_note() -> None:
    goal = Goal(faster=1.5, share=0.8, note="why")
    assert goal.missed(0.73, 0.8) == goal.missed(None, None) == Goal().missed(5.0, 0.1) == []
    assert goal.missed(0.75, 0.9) == ["0.75x the time of the best peer; the goal is at most 0.73x"]
    assert goal.missed(0.5, 0.5) == ["50% of the limit; the goal is 80%"]
    assert GOALS.keys() == CASES.keys()
    assert all(goal.note for name, goal in GOALS.items() if goal.share and name != "add_8192" and "bf16" not in name)


def test_graphs__print_bytes_runs_and_times(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Bytes and runs follow from the streams alone; ``decode_read`` loads what it computes and short rows."""
    pytest.importorskip("jax")
    from cases import graphs  # start-up: loads JAX
    graphs.main(["--cases", "cross_layer,decode_read", "--json", str(tmp_path / "figures.json")])
    figures = json.loads((tmp_path / "figures.json").read_text())
    layer, token = figures["cross_layer"], figures["decode_read"]
    assert (layer["least"], layer["hbm_bytes"], layer["short_bytes"]) == (2_752_512, 2_752_512, 0)
    assert (token["least"], token["hbm_bytes"], token["short_bytes"]) == (7_342_080, 7_480_320, 74_752)
    assert all(f["us"] > f["busiest"] > f["larger_bound"] > 0 for f in figures.values())
    header, *lines = capsys.readouterr().out.splitlines()
    assert "least MB" in header and [line.split()[:4] for line in lines] == [
        ["cross_layer", "2.75", "1.00", "0.0%"], ["decode_read", "7.34", "1.02", "1.0%"]]
