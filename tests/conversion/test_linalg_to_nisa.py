# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""linalg-to-nisa: instructions have the values of the operations they were chosen for.

Every kernel runs at the nki, waist and nisa level: elementwise results agree bit for bit, sums within float32 bounds.
"""

import numpy as np
import pytest

from nki_mlir.conversion import linalg_to_nisa
from nki_mlir.dialects.mlir_ops import read_op
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.activation import ACTIVATIONS

from ..tolerances import assert_within, product_bound
from ..transforms.masked_kernels import CASES, capture
from .nisa_level import BF16, RNG, attributes, check, floats, instructions, integers, lower, make, names


# -- elementwise -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fn", [n for n in ACTIVATIONS if n not in ("copy", "identity", "sin_reduced", "gelu_apprx_sigmoid_dx")])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_functions_of_one_operand(fn, dtype):
    x = np.abs(floats(40, 30, dtype=dtype)) + dtype(0.1)
    module, _ = check(make(lambda t: getattr(nl, fn)(t)), x)
    assert names(module) == [{"negative": "tensor_scalar", "reciprocal": "reciprocal"}.get(fn, "activation")]


@pytest.mark.parametrize("columns, instruction", [(1, "reciprocal"), (64, "reciprocal"), (512, "activation")])
def test_reciprocal__is_on_the_engine_that_has_it_first(columns, instruction):
    """The Vector engine takes 6 ns an element, the Scalar engine less than 1 and the load of its functions."""
    x = floats(32, columns)
    x.reshape(-1)[:8] = 0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -3e38, 2.0**-127
    module, _ = check(make(lambda t: nl.reciprocal(t)), x)
    assert names(module) == [instruction]


BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "mod", "fmod", "equal", "not_equal", "greater",
          "greater_equal", "less", "less_equal", "logical_and", "logical_or", "logical_xor"]


@pytest.mark.parametrize("fn", [*BINARY, "power"])
def test_functions_of_two_tiles(fn):
    module, _ = check(make(lambda a, b: getattr(nl, fn)(a, b)), np.abs(floats(128, 60)), floats(128, 60))
    op, = [read_op(op) for op in instructions(module) if op.name == "nisa.tensor_tensor"]
    assert (op.op, op.runs_on.value) == (fn, "gpsimd" if fn == "power" else "vector")


@pytest.mark.parametrize("fn", BINARY)
@pytest.mark.parametrize("reverse", [False, True])
def test_functions_of_a_tile_and_a_number(fn, reverse):
    module, _ = check(make(lambda a: getattr(nl, fn)(2.5, a) if reverse else getattr(nl, fn)(a, 2.5)), floats(20, 33))
    op, = [read_op(op) for op in instructions(module) if op.name == "nisa.tensor_scalar"]
    assert (op.op0, op.imm0, op.runs_on.value) == (fn, 2.5, "vector")


DTYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]


@pytest.mark.parametrize("fn", ["add", "subtract", "multiply", "maximum", "less", "bitwise_and", "bitwise_xor",
                                "left_shift"])
@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_integers(fn, a, b):
    x, y = integers(16, 24, dtype=a), integers(16, 24, dtype=b, low=0, high=7)
    check(make(lambda s, t: getattr(nl, fn)(s, t)), x, y)


@pytest.mark.parametrize("fn, value", [("add", 70_000), ("multiply", 3), ("subtract", 1), ("bitwise_or", 6),
                                       ("right_shift", 2), ("minimum", 5), ("add", 0.5)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_and_numbers(fn, value, dtype):
    check(make(lambda s: getattr(nl, fn)(s, value)), integers(16, 24, dtype=dtype))


def test_large_integers_are_exact():
    x, y = integers(64, 20, low=-2**31, high=2**31 - 1), integers(64, 20, low=-2**31, high=2**31 - 1)
    module, result = check(make(lambda a, b: nl.add(a, b)), x, y)
    np.testing.assert_array_equal(result, x + y)
    assert [read_op(op).runs_on.value for op in instructions(module) if op.name == "nisa.tensor_tensor"] == ["gpsimd"]


@pytest.mark.parametrize("source", [np.float32, BF16, np.float16, np.int8, np.uint8, np.int32])
@pytest.mark.parametrize("target", [np.float32, BF16, np.float16, np.int8, np.uint8, np.int32])
def test_conversions(source, target):
    x = (floats(16, 24) * 100).astype(source) if np.dtype(source).kind != "u" else integers(16, 24, dtype=source)
    check(make(lambda t: nl.copy(t, dtype=target)), x)


def test_invert_and_not():
    check(make(lambda t: nl.invert(t)), integers(16, 24))
    check(make(lambda t: nl.logical_not(t)), integers(16, 24, low=0, high=2))


# -- broadcasting ------------------------------------------------------------------------------------------------------
def test_one_number_a_partition_is_a_scalar_operand():
    module, _ = check(make(lambda a, b: nl.subtract(a, b)), floats(100, 50), floats(100, 1))
    op, = [read_op(op) for op in instructions(module) if op.name == "nisa.tensor_scalar"]
    assert op.operand0.access.dims == ((1, 100), (0, 50)) and not op.reverse0
    module, _ = check(make(lambda a, b: nl.subtract(b, a)), floats(100, 50), floats(100, 1))
    assert [read_op(op).reverse0 for op in instructions(module) if op.name == "nisa.tensor_scalar"] == [True]


def test_one_row_for_all_partitions_is_spread_by_a_transfer():
    module, _ = check(make(lambda a, b: nl.multiply(a, b.broadcast_to((100, 50)))), floats(100, 50), floats(1, 50))
    spread = [op for op in map(read_op, instructions(module))
              if op.name == "dma_copy" and op.src.space == "sbuf" == op.dst.space]
    assert [op.src.access.dims for op in spread] == [((0, 100), (1, 50))]
    assert names(module) == ["tensor_tensor"]


@pytest.mark.parametrize("changes", [False, True])
def test_row_that_a_loop_leaves_as_it_is__is_spread_in_front_of_it(changes):
    @nki.jit
    def kernel(x, w):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        row = nl.load(w)
        for i in nl.sequential_range(3):
            for j in nl.affine_range(2):
                tile = nl.load(x[i * 128:(i + 1) * 128, j * 20:(j + 1) * 20])
                scaled = nl.multiply(tile, row.broadcast_to((128, 20)))
                nl.store(out[i * 128:(i + 1) * 128, j * 20:(j + 1) * 20], scaled)
            if changes:
                row[...] = nl.add(row, 1.0)
        return out
    x, w = floats(384, 40), floats(1, 20)
    module, result = check(kernel, x, w)
    rows = w + np.arange(3)[:, None] * changes
    np.testing.assert_allclose(result.reshape(3, 128, 2, 20), x.reshape(3, 128, 2, 20) * rows[:, None, None], rtol=1e-6)
    spread, = [op for op in instructions(module) if read_op(op).operands()[-1][1].access.dims[0] == (0, 128)]
    around = [spread.parent.name, spread.parent.parent.name]
    assert around == (["scf.for", "func.func"] if changes else ["func.func", "builtin.module"])


def test_one_number_for_all():
    module, _ = check(make(lambda a, b: nl.add(a, b.broadcast_to((100, 50)))), floats(100, 50), floats(1, 1))
    assert names(module) == ["tensor_scalar"]


def test_middle_axis_broadcast():
    check(make(lambda a, b: nl.add(a, b.reshape((30, 1, 7)).broadcast_to((30, 5, 7)))), floats(30, 5, 7), floats(30, 7))


# -- selections --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("condition", [np.float32, np.uint8, np.int32, np.bool_])
def test_where(condition):
    c = (RNG.random((60, 70)) < 0.5).astype(condition)
    module, _ = check(make(lambda c, a, b: nl.where(c, a, b)), c, floats(60, 70), floats(60, 70))
    assert names(module)[-2:] == ["tensor_copy", "tensor_copy_predicated"]
    predicate = read_op(instructions(module)[-2]).predicate
    assert predicate.dtype.is_integer


def test_where_with_numbers_and_in_place():
    check(make(lambda a: nl.where(nl.greater(a, 0.0), a, -1.0)), floats(60, 70))

    @nki.jit
    def kernel(x, y):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        a, b = nl.load(x), nl.load(y)
        a[...] = nl.where(nl.greater(b, 0.0), a, b)
        b[...] = nl.where(nl.greater(a, 0.0), a, b)
        b[...] = nl.where(b, a, b)
        nl.store(out, b)
        return out
    check(kernel, floats(60, 70), floats(60, 70))


# -- reductions --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fn", ["sum", "max", "min", "prod", "mean", "all"])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_reductions(fn, dtype):
    x = (floats(50, 40) * 0.3 + 1).astype(dtype)
    module, _ = check(make(lambda t: getattr(nl, fn)(t, axis=[1])), x)
    assert names(module)[0] == "tensor_reduce" and "memset" not in names(module)


def test_sum_to_bfloat16_is_one_instruction():
    module, _ = check(make(lambda t: nl.sum(t, axis=[1], dtype=nl.bfloat16)), floats(50, 40))
    assert names(module) == ["tensor_reduce"]
    assert str(read_op(instructions(module)[1]).dst.dtype) == "bfloat16"


@pytest.mark.parametrize("axes", [[1], [2], [1, 2], [1, 3], [2, 3], [1, 2, 3]])
def test_reduction_axes(axes):
    module, _ = check(make(lambda t: nl.max(t, axis=axes)), floats(20, 3, 4, 5))
    assert names(module) == ["tensor_reduce"]


def test_pool_is_one_reduction_with_its_axes_last():
    @nki.jit
    def pool(x):
        c, h, w = x.shape
        out = nl.ndarray((c, h // 2, w // 2), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        i0, i1, i2, i3, i4 = nl.mgrid[0:c, 0:h // 2, 0:2, 0:w // 2, 0:2]
        nl.store(out, nl.sum(tile[i0, 2 * i1 + i2, 2 * i3 + i4], axis=[2, 4]) * 0.25)
        return out
    x = floats(2, 6, 6)
    module, result = check(pool, x)
    np.testing.assert_allclose(result, x.reshape(2, 3, 2, 3, 2).mean((2, 4)), rtol=1e-5)
    assert names(module) == ["tensor_reduce", "tensor_scalar"]
    op = read_op(instructions(module)[1])
    assert op.src.access.dims == ((1, 2), (12, 3), (2, 3), (6, 2), (1, 2)) and op.axes == (3, 4)


# -- tensor engine -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(128, 128), (100, 20), (20, 100), (32, 32), (5, 7), (1, 90), (90, 1)])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.uint8])
def test_transposes(shape, dtype):
    x = floats(*shape, dtype=dtype) if np.dtype(dtype).kind != "i" and dtype is not np.uint8 else integers(
        *shape, dtype=dtype)
    module, result = check(make(lambda t: nl.transpose(t)), x)
    np.testing.assert_array_equal(result, x.T)
    engines = {read_op(op).runs_on.value for op in instructions(module) if op.name == "nisa.nc_transpose"}
    assert engines == {"vector" if max(shape) <= 32 or np.dtype(dtype).kind in "iu" else "tensor"}


@pytest.mark.parametrize("dtype", [np.float32, BF16])
@pytest.mark.parametrize("m, k, n", [(128, 128, 512), (100, 70, 300), (1, 128, 50), (128, 1, 7), (60, 60, 1)])
def test_matmul(dtype, m, k, n):
    a, b = (floats(m, k) / 4).astype(dtype), (floats(k, n) / 4).astype(dtype)
    module, result = check(make(lambda x, y: nl.matmul(x, y), dtype=np.float32), a, b)
    assert_within(result, a.astype(np.float64) @ b.astype(np.float64), product_bound(a.T, b))
    assert "nc_matmul" in names(module) and "memset" not in names(module)


def test_matmul_of_mixed_dtypes_is_in_float32():
    module, _ = check(make(lambda x, y: nl.matmul(x, y, transpose_x=True)), floats(64, 32, dtype=BF16), floats(64, 50))
    op, = [read_op(op) for op in instructions(module) if op.name == "nisa.nc_matmul"]
    assert str(op.stationary.dtype) == str(op.moving.dtype) == "float32"


def test_accumulation_in_a_loop_stays_rolled():
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(4):
            x = nl.load(a[i * 128:(i + 1) * 128, :])
            y = nl.load(b[i * 128:(i + 1) * 128, :])
            total += nl.matmul(x, y, transpose_x=True)
        nl.store(out, total)
        return out
    a, b = floats(512, 128), floats(512, 256)
    module, result = check(kernel, a, b)
    assert_within(result, a.T.astype(np.float64) @ b, product_bound(a, b))
    assert str(module).count("scf.for") == 1


# -- what the kernel wrote ---------------------------------------------------------------------------------------------
def test_instructions_of_the_kernel_stay_one_to_one():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((64, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        a = nisa.tensor_scalar(tile, np.add, 1.0, False, np.multiply, 2.0, engine=nisa.vector_engine)
        b = nisa.activation(nl.exp, a, scale=0.25)
        c = nisa.affine_select(nl.arange(64)[:, None] >= nl.arange(64)[None, :], b, 0.0)
        nl.store(out, nisa.tensor_tensor(c, a, np.add))
        return out
    captured = capture(kernel, floats(64, 64))
    source = captured.module()
    before = [attributes(op) for op in instructions(source) if op.name.startswith("nisa.")]
    module, _ = check(kernel, floats(64, 64))
    after = [attributes(op) for op in instructions(module) if op.name != "nisa.dma_copy"]
    assert len(before) == 4 and after == before


def test_engine_stays_open_only_where_several_share_the_instruction():
    """An instruction that selection chose names its engine, or is the same on the others that have it.

    A transfer is the same from each engine that may trigger it.
    """
    for case in CASES:
        captured = case.captured()
        module = lower(captured.module())
        for op in instructions(module):
            if op.attributes["engine"].value == "unknown" and op.name not in captured.text:
                chosen = read_op(op)
                assert len(chosen.engines if chosen.queued else chosen.shared_engines) > 1


@pytest.mark.parametrize("shape", [(4, 1), (1, 1), (1, 5)])
def test_fold_of_one_element(shape):
    x = floats(*shape)
    _, result = check(make(lambda t: nl.sum(t, axis=1, keepdims=True)), x)
    np.testing.assert_allclose(result, x.sum(axis=1, keepdims=True), rtol=1e-6)


# -- code that was unrolled --------------------------------------------------------------------------------------------
def test_equal_operations_on_other_buffers_become_what_each_becomes_by_itself(monkeypatch):
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((384, 128), dtype=nl.float32, buffer=nl.shared_hbm)
        for i in nl.static_range(3):
            x, y = nl.load(a[i * 128:(i + 1) * 128, :]), nl.load(b)
            sums, twice = nl.add(x, y), nl.add(x, x)
            x[:, 8 * i:8 * i + 64] = nl.exp(x[:, 8 * i:8 * i + 64])
            x[32 * i:32 * i + 32, 0:64] = nl.multiply(x[32 * i:32 * i + 32, 0:64], 2.0)
            turned = nl.copy(nl.transpose(twice))
            product = nl.add(nl.matmul(turned, sums, transpose_x=True), nl.matmul(turned, x, transpose_x=True))
            most = nl.max(product, axis=1, keepdims=True)
            nl.store(out[i * 128:(i + 1) * 128, :], nl.subtract(nl.multiply(product, 0.5), most))
        return out
    module, _ = check(kernel, floats(384, 128), floats(128, 128), tolerance=1e-4)
    select, chosen = linalg_to_nisa.select, [0, 0]

    def counted(*arguments):
        chosen[-1] += 1
        return select(*arguments)
    monkeypatch.setattr(linalg_to_nisa, "select", counted)
    texts = [str(lower(capture(kernel, floats(384, 128), floats(128, 128)).module()))]
    chosen.reverse()
    monkeypatch.setattr(linalg_to_nisa, "repetition_key", lambda op: None)
    texts.append(str(lower(capture(kernel, floats(384, 128), floats(128, 128)).module())))
    assert texts == [str(module)] * 2
    assert 0 < chosen[0] < chosen[1]                    # like operations are chosen for once
