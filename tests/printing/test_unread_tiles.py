# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts have no operations whose results nothing needs: those of the source, and those that passes of the printer leave."""

import numpy as np

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from ..random_programs.comparing import EXECUTORS
from .reading import printed, reread
from .test_kernel_text import HEAD

X = np.random.default_rng(0).random((32, 8), np.float32)


def assert_is(kernel, lines):
    """Compare the text of a kernel, and its values on all executors."""
    text = printed(kernel, [X])
    assert text == HEAD + lines
    for executor in EXECUTORS:
        np.testing.assert_array_equal(reread(text).on(executor)(X), kernel.on(executor)(X))


@nki.jit
def with_spare_results(x):
    out, tile = nl.ndarray((32, 8), nl.float32, buffer=nl.shared_hbm), nl.load(x)
    largest = nl.max(tile, axis=1)
    spare = nl.subtract(tile, largest)
    spare[...] = nl.exp(spare)
    for _ in nl.affine_range(3):
        nl.add(tile, 1.0)
    nl.device_print("tile", tile)
    nl.store(out, tile)
    return out


def test_chains_that_no_result_needs_are_not_printed():
    assert_is(with_spare_results, '''\
def with_spare_results(x):
    """x [32, 8] float32."""
    tile = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nl.device_print('tile', tile)
    out = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
''')


@nki.jit
def computed_anew(x):
    """The difference is copied under the mask; the text computes it there."""
    out, tile = nl.ndarray((32, 8), nl.float32, buffer=nl.shared_hbm), nl.load(x, dtype=nl.float16)
    p, total = nl.arange(32)[:, None], nl.full((32, 8), 1, nl.float32)
    total[...] = nl.maximum(tile, tile, mask=(p < 8) | (p < 9))
    nl.store(out, total)
    return out


def test_a_result_that_a_copy_computes_anew():
    assert_is(computed_anew, '''\
def computed_anew(x):
    """x [32, 8] float32."""
    tile = nl.ndarray((32, 8), dtype=nl.float16, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    total = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=1.0)
    staged = nl.ndarray((1, 8), dtype=nl.float16, buffer=nl.sbuf)
    nisa.dma_copy(dst=staged, src=tile[8:9, :])
    staged_2 = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=staged_2, data1=staged, data2=staged, op=nl.maximum)
    nisa.dma_copy(dst=total[8:9, :], src=staged_2)
    nisa.tensor_tensor(dst=total[0:8, :], data1=tile[0:8, :], data2=tile[0:8, :], op=nl.maximum)
    out = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out
''')


@nki.jit
def of_late_rows(x):
    """Nothing reads the elements that the instruction also writes."""
    out, tile = nl.ndarray((32, 1), nl.float32, buffer=nl.shared_hbm), nl.load(x)
    totals = nl.zeros((32, 1), nl.float32)
    nisa.tensor_scalar_reduce(data=tile, op0=np.multiply, operand0=2.0, reduce_op=np.add, reduce_res=totals,
                              mask=nl.arange(32)[:, None] >= 9)
    nl.store(out, totals)
    return out


def test_rows_that_nothing_reads_are_not_moved_back():
    assert_is(of_late_rows, '''\
def of_late_rows(x):
    """x [32, 8] float32."""
    tile = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    totals = nl.ndarray((32, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=totals, value=0.0)
    staged = nl.ndarray((23, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=staged, src=tile[9:32, :])
    staged_2 = nl.ndarray((23, 8), dtype=nl.float32, buffer=nl.sbuf)
    staged_3 = nl.ndarray((23, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar_reduce(dst=staged_2, data=staged, op0=nl.multiply, operand0=2.0, reduce_op=nl.add, reduce_res=staged_3)
    nisa.dma_copy(dst=totals[9:32, :], src=staged_3)
    out = nl.ndarray((32, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=totals)
    return out
''')
