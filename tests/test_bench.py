# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels of the benchmarks compute what their peers do: figures of a wrong kernel mean nothing."""

import importlib
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"
CASES = sorted(f.stem for f in (BENCH / "cases").glob("*.py") if "\ndef error(" in f.read_text())
ERROR = 1e-4            # float32 sums of 1024 products, against float64


def test_benchmarks__have_a_reference() -> None:
    assert {"average_pool", "giou", "matmul", "softmax", "tensor_add"} <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_case__agrees_with_its_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCH), str(BENCH.parent / "examples"), *sys.path])
    assert importlib.import_module(f"cases.{name}").error() < ERROR
