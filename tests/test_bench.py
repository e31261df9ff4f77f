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
from case import CASES, GOALS, Goal, largest_error  # noqa: E402
from contestants import CONTESTANTS  # noqa: E402
from costs import first_result  # noqa: E402

LARGE = {"matmul_4096", "matmul_4096_bf16", "add_8192"}         # smaller ones of the same kernels are tried


@pytest.mark.parametrize("name", [name for name in CASES if name not in LARGE])
def test_case__agrees_with_its_reference(name: str) -> None:
    pytest.importorskip("jax") if name == "linked" else None
    case = CASES[name]()
    assert largest_error(case.kernel(*case.arrays), case.answer()) < case.tolerance


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


@pytest.mark.parametrize("text", [first_result.KERNEL, first_result.JAX], ids=["kernel", "jax"])
def test_first_result__is_timed_by_a_process_of_its_own(text: str, tmp_path: Path) -> None:
    pytest.importorskip("jax") if "import jax" in text else None
    (tmp_path / "script.py").write_text(text)
    assert 0 < first_result.milliseconds(str(tmp_path / "script.py"), dict(os.environ)) < 600_000


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_limits__are_a_valid_program() -> None:
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", BENCH / "limits.cpp"],
                   check=True)


def test_goals__are_missed_beyond_noise_and_have_a_note() -> None:
    goal = Goal(faster=1.5, share=0.8, note="why")
    assert goal.missed(0.73, 0.8) == goal.missed(None, None) == Goal().missed(5.0, 0.1) == []
    assert goal.missed(0.75, 0.9) == ["0.75x the time of the best peer, at most 0.73x is asked"]
    assert goal.missed(0.5, 0.5) == ["50% of the limit, 80% is asked"]
    assert GOALS.keys() == CASES.keys()
    assert all(goal.note for name, goal in GOALS.items() if goal.share and name != "add_8192" and "bf16" not in name)
