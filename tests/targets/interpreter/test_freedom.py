# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order in which the interpreter runs programs, unless one of them meets others, and parallel iterations: any."""

import warnings

import numpy as np
import pytest

from nki_mlir.language.beta import language as beta_language
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.current import collectives, nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets.interpreter import load_freely
from nki_mlir.targets.interpreter.module import Freedom

PROGRAMS = 2


@pytest.mark.parametrize("meeting", [(), (0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("backwards", [False, True])
def test_programs_run_backwards_where_none_of_them_meets_another(backwards, meeting):
    """Both write one element, which keeps what the last one wrote."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
        i = nl.program_id(0)
        for core in range(PROGRAMS):
            if i == core:
                if core in meeting:
                    collectives.rank_id("rank")
                tile = nl.ndarray(x.shape, x.dtype)
                nisa.memset(tile, core)
                nisa.dma_copy(out, tile)
        return out
    array = np.zeros((1, 1), np.float32)
    launched = kernel[PROGRAMS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                 # of the race that shows the order
        captured = launched.specialize(launched.bind((array,), {}, is_array, describe_array)).captured
    result = np.full((1, 1), 7, np.float32)
    load_freely(captured, (PROGRAMS,))([array], [result], Freedom(backwards=backwards))
    assert result[0, 0] == (0 if backwards and not meeting else PROGRAMS - 1)


@pytest.mark.parametrize("loop", ["affine_range", "sequential_range"])
@pytest.mark.parametrize("backwards", [False, True])
def test_iterations_run_backwards_where_they_may_run_in_any_order(backwards, loop):
    """A sum of floats depends on the order of its terms."""
    @beta.jit
    def kernel(x):
        out = beta_language.ndarray((1, 1), dtype=x.dtype, buffer=beta_language.shared_hbm)
        total = beta_language.zeros((1, 1), dtype=x.dtype)
        for i in getattr(beta_language, loop)(3):
            total += beta_language.load(x[i:i + 1, 0:1])
        beta_language.store(out, total)
        return out
    array = np.array([[1e8], [-1e8], [1]], np.float32)
    captured = kernel.specialize(kernel.bind((array,), {}, is_array, describe_array)).captured
    result = np.full((1, 1), 7, np.float32)
    load_freely(captured, (1,))([array], [result], Freedom(backwards=backwards))
    assert result[0, 0] == (0 if backwards and loop == "affine_range" else 1)


@pytest.mark.parametrize("space, fill", [("sbuf", 0xAB), ("hbm", 0xAB), ("psum", 0)])
def test_unwritten_memory_holds_the_fill(space, fill):
    """A bool is 0 or 1, and PSUM starts at 0."""
    numbers, truths = (Freedom(fill=0xAB).fresh((2, 3), dtype, space) for dtype in (np.float32, np.bool_))
    assert numbers.tobytes() == bytes([fill]) * 24
    assert truths.tobytes() == bytes([min(fill, 1)]) * 6
