# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads of single elements become transposes in the DMA engines, with equal values, where that is faster."""

from math import prod

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.dialects.access import full_tile
from nki_mlir.dialects.nisa.matmul import NcTransposeOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp, DmaTransposeOp
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.current import isa as current_isa
from nki_mlir.language.current import language as cl
from nki_mlir.language.current import nki as current
from nki_mlir.machine import Engine
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.emission import Emission
from nki_mlir.targets.neuron.codegen.transpose_loads import as_transpose
from tests.targets.neuron.code_builder import Builder


@nki.jit
def transposed(x):
    y = nl.ndarray(x.shape[::-1], dtype=x.dtype, buffer=nl.shared_hbm)
    for j in nl.affine_range(x.shape[1] // 64):
        nl.store(y[64 * j:64 * j + 64], nl.load_transpose2d(x[:, 64 * j:64 * j + 64]))
    return y


@nki.jit
def heads(x):
    """The first three heads of x [rows, heads, columns] as a tile [columns, rows, heads]."""
    y = nl.ndarray((x.shape[2], x.shape[0], 3), dtype=x.dtype, buffer=nl.shared_hbm)
    i_c, i_r, i_h = (nl.arange(x.shape[2])[:, None, None], nl.arange(x.shape[0])[None, :, None],
                     nl.arange(3)[None, None, :])
    nl.store(y, nl.load(x[i_r, i_h, i_c]))
    return y


@nki.jit
def loaded_twice(x):
    y = nl.ndarray((2, x.shape[1], x.shape[0]), dtype=x.dtype, buffer=nl.shared_hbm)
    for k in nl.static_range(2):
        nl.store(y[k], nl.load_transpose2d(x) + k)
    return y


@nki.jit
def permuted(x):
    y = nl.ndarray(x.shape[::-1], dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(64)[:, None], nl.arange(x.shape[0])[None, :]
    for j in nl.affine_range(x.shape[1] // 64):
        nl.store(y[64 * j:64 * j + 64], nl.load(x[i_f, 64 * j + i_p]))
    return y


@current.jit
def current_transposed(x):
    y = cl.ndarray(x.shape[::-1], dtype=x.dtype, buffer=cl.shared_hbm)
    cl.store(y, cl.load_transpose2d(x))
    return y


@current.jit
def current_permuted(x):
    y = cl.ndarray(x.shape[::-1], dtype=x.dtype, buffer=cl.shared_hbm)
    tile = cl.ndarray(x.shape[::-1], dtype=x.dtype, buffer=cl.sbuf)
    current_isa.dma_copy(dst=tile, src=x.permute((1, 0)))
    cl.store(y, tile)
    return y


def emitted(kernel, x, target="trn2", as_written=False, **options):
    """The program, its operations, and the result of its simulation."""
    specialization = nki.jit(kernel, platform_target=target).lower(x).specialization
    emission = Emission.as_written() if as_written else Emission(**options)
    program, = neuron.streams(specialization.captured, specialization.grid, emission)
    result = np.zeros_like(kernel.on("eager")(x))
    neuron.simulate([program], [x.copy()], [result])
    return program, [i.op for stream in program.streams.values() for i in stream], result


def count(ops, kind):
    return sum(type(op) is kind for op in ops)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float16, ml_dtypes.bfloat16, np.uint16])
def test_values__keep_their_bits(dtype):
    size = np.dtype(dtype).itemsize
    bits = np.random.default_rng(size).integers(0, 1 << 8 * size, (96, 128), np.uint64).astype(f"u{size}")
    for options, transposes in (({}, 2), ({"transposes": False}, 0), ({"level": 0}, 0)):
        _, ops, result = emitted(transposed, bits.view(dtype), **options)
        assert count(ops, DmaTransposeOp) == transposes
        assert result.tobytes() == np.ascontiguousarray(bits.T).tobytes()


def test_axes_of_three_dims__are_those_of_the_instruction():
    x = np.arange(8 * 4 * 32, dtype=np.float32).reshape(8, 4, 32)
    _, ops, result = emitted(heads, x)
    op, = [op for op in ops if type(op) is DmaTransposeOp]
    assert op.permutation == (2, 1, 0) and op.src.shape == (3, 8, 32)
    np.testing.assert_array_equal(result, x[:, :3].transpose(2, 0, 1))


def test_bytes__stay_copies():
    x = np.arange(96 * 128, dtype=np.uint8).reshape(96, 128)
    _, ops, result = emitted(transposed, x)
    assert count(ops, DmaTransposeOp) == 0
    np.testing.assert_array_equal(result, x.T)


def test_target_whose_engines_cannot_transpose__has_copies():
    x = np.ones((96, 128), np.float32)
    _, ops, _ = emitted(transposed, x, "trn1")
    assert count(ops, DmaTransposeOp) == 0 and count(ops, DmaCopyOp) == 4


def test_repeated_transposes__happen_once():
    x = np.arange(64 * 128, dtype=np.float32).reshape(64, 128)
    for loads, transposes in ((True, 1), (False, 2)):
        _, ops, result = emitted(loaded_twice, x, loads=loads)
        assert count(ops, DmaTransposeOp) == transposes
        np.testing.assert_array_equal(result, [x.T, x.T + 1])


@pytest.mark.parametrize("kernel, transposes", [(transposed, 2), (permuted, 0)])
def test_code_as_written__transposes_where_the_kernel_says_so(kernel, transposes):
    """A copy whose access pattern transposes stays one, as do integers of 4 bytes; the optimizer transposes all."""
    for dtype, as_written, number in ((np.int16, True, transposes), (np.int16, False, 2), (np.int32, True, 0)):
        x = np.arange(96 * 128, dtype=dtype).reshape(96, 128)
        _, ops, result = emitted(kernel, x, as_written=as_written)
        assert count(ops, DmaTransposeOp) == number
        np.testing.assert_array_equal(result, x.T)


@nki.jit
def transposed_into_parts(x):
    """Each half of the rows goes to its part of a tile."""
    rows, columns = x.shape[0] // 2, x.shape[1]
    y = nl.ndarray((columns, 2 * rows), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((2, nl.par_dim(columns), rows), dtype=x.dtype, buffer=nl.sbuf)
    for r in nl.affine_range(2):
        tile[r] = nl.load_transpose2d(x[nl.ds(rows * r, rows), :])
    for r in nl.affine_range(2):
        nl.store(y[:, nl.ds(rows * r, rows)], tile[r])
    return y


@pytest.mark.parametrize("dtype, on_tensor, in_transfers", [(np.float32, 6, 0), (np.int16, 0, 2), (np.int32, 0, 0)])
def test_floats_of_four_bytes_as_written__are_transposed_on_the_tensor_engine(dtype, on_tensor, in_transfers):
    """300 rows are three pieces; a load that writes a part of a tile states its transpose, too."""
    x = np.random.default_rng(0).integers(-1 << 14, 1 << 14, (600, 64)).astype(dtype)
    _, ops, result = emitted(transposed_into_parts, x, as_written=True)
    assert (count(ops, NcTransposeOp), count(ops, DmaTransposeOp)) == (on_tensor, in_transfers)
    np.testing.assert_array_equal(result, x.T)


def test_current_generation__states_its_transpose():
    x = np.arange(96 * 128, dtype=np.int16).reshape(96, 128)
    for kernel, transposes in ((current_transposed, 1), (current_permuted, 0)):
        program, = neuron.streams(*lowered(kernel, x), Emission.as_written())
        ops = [i.op for stream in program.streams.values() for i in stream]
        assert count(ops, DmaTransposeOp) == transposes


def lowered(kernel, x):
    specialization = kernel.lower(x).specialization
    return specialization.captured, specialization.grid


def test_tiles_of_one_row__stay_copies():
    """Their elements are neighbors on neither side, and a transpose has no rows to read."""
    column = nki.jit(one_column)
    x = np.arange(128 * 4, dtype=np.float32).reshape(128, 4)
    _, ops, result = emitted(column, x)
    assert count(ops, DmaTransposeOp) == 0
    np.testing.assert_array_equal(result, x[:, 1:2])


def one_column(x):
    y = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y, nl.load(x[:, 1:2]))
    return y


@pytest.mark.parametrize("dims, is_transpose", [
    (((1, 32), (64, 16)), True), (((1, 32), (1, 1), (64, 16)), True), (((1, 32), (64, 16), (1, 1)), True),
    (((1, 32), (1, 1)), False), (((1, 1), (64, 16)), False), (((64, 16), (1, 32)), False), (((1, 32), (1, 16)), False)])
def test_dims_of_one_element__have_no_step(dims, is_transpose):
    b = Builder()
    shape = tuple(count for _, count in dims)
    x, t = b.hbm("x", (64, 64), "input"), b.on_chip("t", (shape[0], prod(shape[1:])))
    b.copy((t, 0, shape[0], 0, prod(shape[1:])), (x, 0, shape[0], 0, prod(shape[1:])))
    op = b.code.body.nodes[0].op
    copy = DmaCopyOp(dst=full_tile(op.dst.handle, shape, op.dst.dtype, "sbuf"), src=op.src.patterned(dims=dims),
                     symbols=op.symbols, ranges=op.ranges, engine=Engine.UNKNOWN.value)
    transpose = as_transpose(copy)
    assert (transpose is not None) == is_transpose
    assert transpose is None or sorted(transpose.src.shape) == sorted(shape)
