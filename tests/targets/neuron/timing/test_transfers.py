# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long transfers of kernels take: transposes, and rows of a table that data select."""

import numpy as np
import pytest

from nki_mlir.dialects.isa.program import Program
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.current import isa as current_nisa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki
from nki_mlir.language.kernel import Kernel, describe_array, is_array
from nki_mlir.machine import ENGINES, machine_named
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer, Transfers

TRN2 = machine_named("trn2")
P = 128


@nki.jit
def transposed(x):
    out = nl.ndarray(x.shape[::-1], dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load_transpose2d(x))
    return out


@nki.jit
def columns(x):
    out = nl.ndarray((P, x.shape[1] // 2), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x.reshape((P, x.shape[1] // 2, 2))[:, :, 0]))
    return out


@nki.jit
def embedding(table, index):
    out = nl.ndarray((P, table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    rows = nl.load(index)
    nl.store(out, nl.load(table[rows[nl.arange(P)[:, None], 0], nl.arange(table.shape[1])[None, :]]))
    return out


def transfers_of(kernel: Kernel, *arrays: np.ndarray) -> list[TimedTransfer]:
    """The transfers of a kernel, engine by engine."""
    spec = kernel.specialize(kernel.bind(arrays, {}, is_array, describe_array))
    program: Program
    (program,) = neuron.streams(spec.captured, spec.grid, neuron.emission(as_written=True))
    transfers = Transfers(TRN2)
    return [transfers.of(i.op) for engine in ENGINES for i in program.streams[engine] if i.queue is not None]


def test_dma_engines_transpose_two_bytes_at_nine_tenths_of_their_rate() -> None:
    load, store = transfers_of(transposed, np.zeros((1000, P), np.float16))
    dma = TRN2.costs.dma
    assert load.parts == pytest.approx((8 * dma.descriptor(2000) / 0.9,) * 16)
    assert store.parts == pytest.approx((8 * dma.descriptor(2000, 0, True),) * 16)
    assert load.hbm_bytes == store.hbm_bytes == 1000 * P * 2


@pytest.mark.parametrize("dtype", ["int32", "int8"])
def test_other_elements_move_one_by_one(dtype: str) -> None:
    load, _ = transfers_of(transposed, np.zeros((1000, P), dtype))
    assert load.parts == pytest.approx((8 * 1000 * TRN2.costs.dma.descriptor(np.dtype(dtype).itemsize),) * 16)


@current_nki.jit
def transposed_by_dma(x):
    tile = current_nl.ndarray(x.shape[::-1], dtype=x.dtype, buffer=current_nl.sbuf)
    current_nisa.dma_transpose(dst=tile, src=x)
    out = current_nl.ndarray(x.shape[::-1], dtype=x.dtype, buffer=current_nl.shared_hbm)
    current_nisa.dma_copy(dst=out, src=tile)
    return out


def test_a_dma_transpose_has_four_bytes_as_well() -> None:
    load, _ = transfers_of(transposed_by_dma, np.zeros((1000, P), np.float32))
    assert load.parts == pytest.approx((8 * TRN2.costs.dma.descriptor(4000) / 0.9,) * 16)


def test_columns_that_are_apart_are_no_transpose() -> None:
    load, _ = transfers_of(columns, np.zeros((P, 256), np.float32))
    assert load.parts == pytest.approx((8 * 128 * TRN2.costs.dma.descriptor(4),) * 16)


@pytest.mark.parametrize("rows", [200, 50_000])
def test_a_gather_moves_the_rows_that_it_selects_not_the_table(rows: int) -> None:
    gather, *_ = (t for t in transfers_of(embedding, np.zeros((rows, 512), np.float32), np.zeros((P, 1), np.int32))
                  if t.loads and t.hbm_bytes > 4 * P)
    assert gather.hbm_bytes == P * 512 * 4
    assert gather.parts == pytest.approx((8 * TRN2.costs.dma.descriptor(2048, 2048),) * 16)
