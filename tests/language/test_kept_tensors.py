# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that a kernel keeps in a global: in another call, or another program, they are refused."""

import itertools
from typing import Any

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current

KEPT: list[Any] = []
NUMBERS = itertools.count()
EXECUTORS = ("eager", "jit", "isa")


@nki.jit
def beta(x, unused=0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    KEPT.append(nl.load(x))
    nl.store(out, nl.add(KEPT[0], 1))
    return out


@current.jit
def later(x, unused=0):
    out = current_nl.ndarray(x.shape, dtype=x.dtype, buffer=current_nl.shared_hbm)
    KEPT.append(current_nl.ndarray(x.shape, dtype=x.dtype, buffer=current_nl.sbuf))
    nisa.dma_copy(dst=KEPT[-1], src=x)
    nisa.dma_copy(dst=out, src=KEPT[0])
    return out


@pytest.mark.parametrize("kernel", [beta, later], ids=["beta", "current"])
@pytest.mark.parametrize("first, second", itertools.product(EXECUTORS, EXECUTORS))
def test_tensor_of_another_call(kernel, first, second):
    KEPT.clear()
    x = np.ones((4, 8), np.float32)
    kernel.on(first)(x, unused=next(NUMBERS))           # another constant is another capture
    with pytest.raises(NkiMlirError, match="was created in another call or program of a kernel, which has ended") as error:
        kernel.on(second)(x, unused=next(NUMBERS))
    assert error.value.at.file == __file__


def test_tensor_of_another_program():
    @nki.jit
    def each(x):
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        KEPT.append(nl.load(x))
        nl.store(out[nl.program_id(0)], KEPT[0])
        return out
    KEPT.clear()
    with pytest.raises(NkiMlirError, match="another call or program"):
        each[2].on("eager")(np.ones((4, 8), np.float32))
