# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every example on every executor against its own reference."""

import importlib

import numpy as np
import pytest

from .examples import NAMES, OF_RANKS, cases

pytestmark = pytest.mark.usefixtures("example_modules")
EXECUTORS = ("eager", "interpreter", "jit", "isa")


@pytest.mark.parametrize("on", EXECUTORS)
@pytest.mark.parametrize("name", NAMES)
def test_example(name, on, monkeypatch):
    for kernel, arguments, answer, tolerance in cases(name, monkeypatch):
        copies = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)
        result = kernel(*copies, on) if name in OF_RANKS else kernel.run(copies, {}, on)
        several = isinstance(answer, tuple)
        for one, wanted in zip(result if several else [result], answer if several else [answer], strict=True):
            assert np.shape(one) == wanted.shape
            error = np.max(np.abs(np.asarray(one, np.float64) - wanted))
            assert error <= tolerance, f"{kernel.__name__}: {error}"


@pytest.mark.parametrize("on", EXECUTORS)
@pytest.mark.parametrize("name", ["embedding", "current_gather_scatter"])
def test_gather_refuses_unknown_rows(name, on):
    table, indices = np.zeros((256, 8), np.float32), np.full((128, 1), 256, np.int32)
    with pytest.raises(IndexError, match="256"):
        importlib.import_module(name).gather.run((table, indices), {}, on)
