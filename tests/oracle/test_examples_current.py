# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples of the current generation, from their files, on the oracle against their own references."""

import importlib

import numpy as np
import pytest

from ..examples import NAMES, OF_RANKS, cases
from . import current, run
from .current.surroundings import Surroundings

pytestmark = pytest.mark.usefixtures("example_modules")


def results(kernel, arguments):
    outcome = run(kernel, arguments, generation=current, grid=kernel.grid)
    assert not outcome.findings
    return outcome.results


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("current_") and n not in OF_RANKS])
def test_example(name, monkeypatch):
    for kernel, arguments, answer, tolerance in cases(name, monkeypatch):
        copies = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)
        result = results(Surroundings("nki", "nki_mlir").kernel(kernel), copies)
        assert np.shape(result) == answer.shape
        np.testing.assert_allclose(np.asarray(result, np.float64), answer, rtol=0, atol=tolerance)


def test_example_of_ranks():
    module = importlib.import_module("current_all_reduce")
    (_, (a, b), answer, tolerance), = module.cases()
    kernel = Surroundings("nki", "nki_mlir").kernel(module.matmul_of_ranks)
    parts = list(zip(np.split(a, module.RANKS), np.split(b, module.RANKS)))
    stacked = np.stack([outcome.results for outcome in current.run_ranks(kernel, parts)])
    np.testing.assert_allclose(stacked.astype(np.float64), answer, rtol=0, atol=tolerance)


def test_rows_that_a_table_has_not_are_errors():
    gather = Surroundings("nki", "nki_mlir").kernel(importlib.import_module("current_gather_scatter").gather)
    with pytest.raises(IndexError, match="256"):
        results(gather, (np.zeros((256, 8), np.float32), np.full((128, 1), 256, np.int32)))
