# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Launches through variables that may be several kernels, whose grids become arguments."""

import pytest

from nki_mlir.migration.kernel_aliases import UNCLEAR_LAUNCH
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

HEAD = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

"""
ON_GRID = """
@nki.jit
def {}(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    nl.store(out[i * 8:i * 8 + 8, :], nl.load(x[i * 8:i * 8 + 8, :]))
    return out

"""
PLAIN = """
@nki.jit
def plain(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out

"""


def migrated(host: str) -> tuple[str, list[str]]:
    report = MigrationReport("f.py")
    text = rewritten(HEAD + ON_GRID.format("first") + ON_GRID.format("second") + PLAIN + host, report)
    return text, [entry.text for entry in report.entries if entry.left]


@pytest.mark.parametrize("host", [
    "for k in (first, second):\n    k[4](x)\n",
    "several = [first, second]\nfor k in several:\n    k[4](x)\n",
    "for name, k in {'a': first, 'b': second}.items():\n    k[4](x)\n",
    "results = [k[4](x) for k in [first, nki.jit(second)]]\n",
    "for n, (k, size) in enumerate(zip((first, second), (1, 2))):\n    k[4](x)\n",
    "def run(k):\n    return k[4](x)\n\n\nrun(first)\nrun(k=second)\n"])
def test_all_get_their_grid(host):
    text, left = migrated(host)
    assert "k(x, grid=(4,))" in text and "k[4]" not in text and not left


@pytest.mark.parametrize("host", ["for k in (first, plain):\n    k[1](x)\n", "for k in [first, *others]:\n    k[1](x)\n",
                                  "def run(k):\n    return k[1](x)\n\n\nrun(first)\nrun(others[0])\n"])
def test_a_launch_of_what_may_have_no_grid__is_left(host):
    text, left = migrated(host)
    assert "k[1](x)" in text and left == [UNCLEAR_LAUNCH]


def test_launches_of_other_kernels_stay():
    text, left = migrated("for k in (plain,):\n    k[1](x)\n")
    assert "k[1](x)" in text and not left
