# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers that only the next instruction reads, which copies them, are one call, also into a moving part."""

import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from ..language.generated import kernel_from_text
from ..random_programs.comparing import EXECUTORS
from .reading import printed, reread

X = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)
ONE_CALL = "nisa.rand2(dst=tile[:, 0:4], min=0.0, max=1.0)\n"
IN_A_LOOP = "for k in range(2):\n        nisa.rand2(dst=tile[:, nl.ds(k * 4, 4)], min=0.0, max=1.0)\n"
ANOTHER_TILE = "drawn = nl.rand((16, 4), dtype=nl.float32)\n"


@pytest.fixture(autouse=True)
def target(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


def kernel_with(statements):
    body = "\n    ".join(["tile = nl.load(x)", *statements.splitlines()])
    text = f"""def kernel(x):
    out = nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    {body}
    nisa.dma_copy(out, tile)
    return out
"""
    return kernel_from_text(text, {"nl": nl, "nisa": nisa}, jit=nki.jit)


@pytest.mark.parametrize(("statements", "lines"), [
    ("nisa.tensor_copy(tile[:, 0:4], nl.rand((16, 4), nl.float32))", [ONE_CALL]),
    ("for k in range(2):\n    nisa.tensor_copy(tile[:, nl.ds(4 * k, 4)], nl.rand((16, 4), nl.float32))", [IN_A_LOOP]),
    ("drawn = nl.rand((16, 4), nl.float32)\nnisa.tensor_copy(tile[:, 0:4], drawn)\nnisa.tensor_copy(tile[:, 4:8], drawn)",
     [ANOTHER_TILE, "nisa.tensor_copy(dst=tile[:, 0:4], src=drawn)", "nisa.tensor_copy(dst=tile[:, 4:8], src=drawn)"]),
    ("drawn = nl.rand((16, 4), nl.float32)\nnisa.tensor_copy(tile[:, 0:2], drawn[:, 0:2])",
     [ANOTHER_TILE, "nisa.tensor_copy(dst=tile[:, 0:2], src=drawn[:, 0:2])"]),
    ("drawn = nl.rand((16, 4), nl.float32)\ntile = nl.multiply(tile, 2)\nnisa.tensor_copy(tile[:, 0:4], drawn)",
     [ANOTHER_TILE, "nisa.tensor_copy(dst=tile_2[:, 0:4], src=drawn)"]),
    ("half = nl.ndarray((16, 8), nl.bfloat16)\nnisa.tensor_copy(half[:, 0:4], nl.rand((16, 4), nl.float32))\n"
     "nisa.tensor_copy(tile[:, 0:4], half[:, 0:4])", ["nl.rand((16, 4), dtype=nl.float32)"])])
def test_random_numbers(statements, lines):
    check(kernel_with(statements), lines)


def check(kernel, lines):
    text = printed(kernel, [X])
    assert all(line in text for line in lines), text
    again = reread(text)
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X), kernel.on(executor)(X))
