# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""linalg-to-nisa: instructions have the values of the operations they were chosen for, and engines can run them.

Every kernel runs at the nki, waist and nisa level: elementwise results agree bit for bit, sums within float32 bounds.
"""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op, shared_context
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.transforms.passes import pass_named, run_passes

from ..transforms.masked_kernels import CASES, capture

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(7)


def lower(module, *options):
    """The module at the nisa level, checked to be legal on its target."""
    run_passes(module, [pass_named("split-masked-loops"), pass_named("nki-to-linalg"),
                        pass_named("linalg-to-nisa", *options), pass_named("verify-target")])
    assert module.operation.verify()
    return module


def instructions(module):
    found = []

    def visit(op):
        if is_tile_op(op):
            found.append(op.operation)
        return ir.WalkResult.ADVANCE
    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def attributes(op):
    return {op.attributes[k].name: str(op.attributes[k].attr) for k in range(len(op.attributes))}


def names(module):
    """The instructions in order, without transfers with HBM."""
    return [op.name.removeprefix("nisa.") for op in instructions(module) if op.name != "nisa.dma_copy"]


def check(kernel, *inputs, tolerance=0.0, **constants):
    """Values at the three levels agree; gives the module at the nisa level, and its first result."""
    captured = capture(kernel, *inputs, **constants)
    expected = captured.run(captured.module())
    waist = captured.module()
    run_passes(waist, [pass_named("split-masked-loops"), pass_named("nki-to-linalg")])
    module = lower(captured.module())
    for results in (captured.run(waist), captured.run(module)):
        for want, got in zip(expected, results):
            if tolerance:
                np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=tolerance,
                                           atol=tolerance)
            else:
                np.testing.assert_array_equal(_bits(got), _bits(want))
    return module, captured.run(module)[0]


def _bits(array):
    """Bits, but one NaN: which one it is depends on how a sum was written."""
    if array.dtype.kind == "f" or array.dtype == BF16:
        array = np.where(np.isnan(array.astype(np.float32)), array.dtype.type(np.nan), array)
    return array.view(f"u{array.itemsize}")


def floats(*shape, dtype=np.float32):
    return (RNG.standard_normal(shape) * 3).astype(dtype)


def integers(*shape, dtype=np.int32, low=-100, high=100):
    limits = np.iinfo(dtype)
    return RNG.integers(max(low, limits.min), min(high, limits.max), shape).astype(dtype)


def make(body, dtype=None, shape=None):
    """A kernel ``out = body(tiles...)``."""
    @nki.jit
    def kernel(*tensors):
        tiles = [nl.load(t) for t in tensors]
        result = body(*tiles)
        out = nl.ndarray(shape or result.shape, dtype=dtype or result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out
    return kernel


# -- elementwise -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fn", [n for n in ACTIVATIONS if n not in ("copy", "identity", "gelu_apprx_sigmoid_dx")])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_functions_of_one_operand(fn, dtype):
    x = np.abs(floats(40, 30, dtype=dtype)) + dtype(0.1)
    module, _ = check(make(lambda t: getattr(nl, fn)(t)), x)
    assert names(module) == ["tensor_scalar" if fn == "negative" else "activation"]


BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "mod", "fmod", "equal", "not_equal", "greater",
          "greater_equal", "less", "less_equal", "logical_and", "logical_or", "logical_xor"]


@pytest.mark.parametrize("fn", [*BINARY, "power"])
def test_functions_of_two_tiles(fn):
    module, _ = check(make(lambda a, b: getattr(nl, fn)(a, b)), np.abs(floats(128, 60)), floats(128, 60))
    op, = [read_op(op) for op in instructions(module) if op.name == "nisa.tensor_tensor"]
    assert (op.op, op.engine) == (fn, "gpsimd" if fn == "power" else "vector")


@pytest.mark.parametrize("fn", BINARY)
@pytest.mark.parametrize("reverse", [False, True])
def test_functions_of_a_tile_and_a_number(fn, reverse):
    module, _ = check(make(lambda a: getattr(nl, fn)(2.5, a) if reverse else getattr(nl, fn)(a, 2.5)), floats(20, 33))
    op, = [read_op(op) for op in instructions(module) if op.name == "nisa.tensor_scalar"]
    assert (op.op0, op.imm0, op.engine) == (fn, 2.5, "vector")


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
    assert [read_op(op).engine for op in instructions(module) if op.name == "nisa.tensor_tensor"] == ["gpsimd"]


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
    module, _ = check(make(lambda t: getattr(nl, fn)(t, axis=[1])), x, tolerance=2e-2 if dtype is BF16 else 1e-5)
    assert names(module)[0] == "tensor_reduce" and "memset" not in names(module)


def test_sum_to_bfloat16_is_one_instruction():
    module, _ = check(make(lambda t: nl.sum(t, axis=[1], dtype=nl.bfloat16)), floats(50, 40), tolerance=2e-2)
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
    module, result = check(pool, x, tolerance=1e-6)
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
    engines = {read_op(op).engine for op in instructions(module) if op.name == "nisa.nc_transpose"}
    assert engines == {"vector" if max(shape) <= 32 or np.dtype(dtype).kind in "iu" else "tensor"}


@pytest.mark.parametrize("dtype", [np.float32, BF16])
@pytest.mark.parametrize("m, k, n", [(128, 128, 512), (100, 70, 300), (1, 128, 50), (128, 1, 7), (60, 60, 1)])
def test_matmul(dtype, m, k, n):
    a, b = (floats(m, k) / 4).astype(dtype), (floats(k, n) / 4).astype(dtype)
    module, result = check(make(lambda x, y: nl.matmul(x, y), dtype=np.float32), a, b, tolerance=1e-3)
    np.testing.assert_allclose(result, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-3, atol=1e-3)
    assert "nc_matmul" in names(module) and "memset" not in names(module)


def test_matmul_of_mixed_dtypes_is_in_float32():
    module, _ = check(make(lambda x, y: nl.matmul(x, y, transpose_x=True)), floats(64, 32, dtype=BF16), floats(64, 50),
                      tolerance=1e-4)
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
    module, result = check(kernel, a, b, tolerance=1e-3)
    np.testing.assert_allclose(result, a.T @ b, rtol=1e-3, atol=1e-3)
    assert str(module).count("scf.for") == 1


# -- memories ----------------------------------------------------------------------------------------------------------
def test_two_psum_sources_and_gpsimd():
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        p, q = nl.matmul(x, y, transpose_x=True), nl.matmul(y, x, transpose_x=True)
        s = nl.add(p, q)
        t = nl.power(nl.abs(p), 0.5)
        nl.store(out, nl.add(s, t))
        return out
    module, _ = check(kernel, floats(64, 64), floats(64, 64), tolerance=1e-3)
    for op in map(read_op, instructions(module)):
        if op.name == "tensor_tensor":
            assert [t.space for _, t in op.sources()].count("psum") <= 1
        if op.engine == "gpsimd":
            assert all(t.space == "sbuf" for _, t in op.operands())


def test_copies_out_of_psum_alternate():
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((4, 64, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        nl.store(out[0], nl.copy(nl.matmul(x, y, transpose_x=True)))
        nl.store(out[1], nl.copy(nl.matmul(y, x, transpose_x=True)))
        nl.store(out[2], nl.copy(nl.matmul(x, x, transpose_x=True)))
        nl.store(out[3], nl.copy(nl.matmul(y, y, transpose_x=True), dtype=nl.bfloat16))
        return out
    module, _ = check(kernel, floats(64, 64) / 4, floats(64, 64) / 4, tolerance=1e-2)
    engines = [read_op(op).engine for op in instructions(module) if op.name == "nisa.tensor_copy"]
    assert engines == ["vector", "scalar", "vector", "vector"]      # bfloat16 is the Vector engine's


@pytest.mark.parametrize("start, stop", [(0, 32), (32, 64), (64, 128), (5, 9), (33, 128), (96, 128), (31, 65)])
def test_partitions_that_engines_cannot_start_at(start, stop):
    """Reads and writes of any rows; what an engine cannot address goes through a transfer."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        n = stop - start
        tile = nl.load(x)
        part = nl.exp(tile[start:stop, :])
        tile[start:stop, 0:20] = nl.add(part[0:n, 0:20], tile[start:stop, 20:40])
        nl.store(out, tile)
        return out
    check(kernel, floats(128, 40) / 4)


def test_rows_of_a_psum_tile():
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((20, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        product = nl.matmul(x, y, transpose_x=True)
        product[3:7, :] = nl.add(product[10:14, :], 1.0)
        nl.store(out, nl.exp(product[5:25, :] * 0.01))
        return out
    check(kernel, floats(64, 64), floats(64, 64), tolerance=1e-3)


def test_partition_start_that_moves_with_a_loop():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        result = nl.ndarray((128, 40), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            result[i * 32:(i + 1) * 32, :] = nl.exp(tile[i * 32:(i + 1) * 32, :])
        for i in nl.affine_range(8):
            tile[i * 16:(i + 1) * 16, :] = nl.add(result[i * 16:(i + 1) * 16, :], 1.0)
        nl.store(out, tile)
        return out
    module, _ = check(kernel, floats(128, 40) / 4)
    assert str(module).count("scf.for") == 2


def test_more_free_dims_than_a_pattern_has():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((8, 2, 3, 2, 3, 2), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        p, a, b, c, d, e = nl.mgrid[0:8, 0:2, 0:3, 0:2, 0:3, 0:2]
        nl.store(out, nl.exp(tile[p, e, d, c, b, a]))
        return out
    x = floats(8, 2, 3, 2, 3, 2) / 4
    module, result = check(kernel, x)
    np.testing.assert_allclose(result, np.exp(x.transpose(0, 5, 4, 3, 2, 1)), rtol=1e-5)
    assert all(sum(n > 1 for _, n in t.access.free_dims) <= 4 for op in map(read_op, instructions(module))
               for _, t in op.operands() if t.on_chip)


def test_more_elements_than_an_instruction_takes():
    check(make(lambda t: nl.add(t, 1.0)), floats(2, 70_000, dtype=BF16))


# -- masks -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_masked_kernels(case):
    captured = case.captured()
    waist = captured.module()
    run_passes(waist, [pass_named("split-masked-loops"), pass_named("nki-to-linalg")])
    case.check(captured.run(waist)[0])
    case.check(captured.run(lower(captured.module()))[0])


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, BF16])
def test_transfers_under_a_triangle(dtype):
    @nki.jit
    def kernel(x):
        n, m = x.shape
        out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:n, 0:m]
        tile = nl.load(x[p, f], mask=p >= f)
        nl.store(out[p, f], tile, mask=p + f < 20)
        return out
    x = integers(24, 24, dtype=dtype) if np.dtype(dtype).kind in "iu" else floats(24, 24, dtype=dtype)
    _, result = check(kernel, x)
    p, f = np.indices(x.shape)
    np.testing.assert_array_equal(result, np.where(p + f < 20, np.where(p >= f, x, 0), dtype(77)))


def test_too_many_transfers_are_refused_with_their_number():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((24, 24), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:24, 0:24]
        nl.store(out[p, f], nl.load(x), mask=p >= f)
        return out
    with pytest.raises(Unsupported, match="more than 7 boxes"):
        lower(capture(kernel, floats(24, 24)).module(), "pieces=7")


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_copy_under_a_triangle_keeps_the_rest(dtype):
    @nki.jit
    def kernel(x, y):
        out = nl.ndarray((50, 60), dtype=x.dtype, buffer=nl.shared_hbm)
        a, b = nl.load(x), nl.load(y)
        p, f = nl.mgrid[0:50, 0:60]
        a[p, f] = nl.maximum(b, a, mask=p > 2 * f)
        nl.store(out, a)
        return out
    make_data = (lambda: integers(50, 60, low=-10**6, high=10**6)) if dtype is np.int32 else (lambda: floats(50, 60))
    check(kernel, make_data(), make_data())


@pytest.mark.parametrize("fn", ["sum", "max"])
def test_reduction_under_a_triangle(fn):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((50, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:50, 0:60]
        total = nl.full((50, 1), -5.0, dtype=x.dtype, buffer=nl.sbuf)
        q, g = nl.mgrid[0:50, 0:1]
        total[q, g] = getattr(nl, fn)(nl.load(x), axis=[1], mask=p > f + 3)
        nl.store(out, total)
        return out
    x = floats(50, 60)
    _, result = check(kernel, x, tolerance=1e-5)
    want = [getattr(x[p, :max(0, p - 3)], fn)() if p > 3 else None for p in range(50)]
    np.testing.assert_allclose(result[4:, 0], want[4:], rtol=1e-4, atol=1e-5)


def test_mask_of_a_loop_variable_that_is_not_cut():
    """Too many edges to peel: the predicate depends on the loop variable, and the loop stays."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((20, 16, 30), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:16, 0:30]
        for i in nl.affine_range(20):
            tile = nl.load(x[i, p, f])
            kept = nl.zeros((16, 30), dtype=x.dtype, buffer=nl.sbuf)
            kept[p, f] = nl.multiply(tile, 2.0, mask=p + i > f)
            nl.store(out[i, p, f], kept)
        return out
    x = floats(20, 16, 30)
    module, result = check(kernel, x)
    i, p, f = np.indices(x.shape)
    np.testing.assert_array_equal(result, np.where(p + i > f, x * 2, 0))
    assert str(module).count("scf.for") == 1


def test_transfers_under_such_a_mask_are_cases():
    """One condition for each value of the loop variable that leaves something to move."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((12, 6, 9), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:6, 0:9]
        for i in nl.affine_range(12):
            tile = nl.load(x[i, p, f], mask=p + f < i + 1)
            nl.store(out[i, p, f], tile, mask=p + 2 > i)
            nl.store(out[i, p, f], tile, mask=p + i > f + 8)
        return out
    x = floats(12, 6, 9)
    module, result = check(kernel, x)
    i, p, f = np.indices(x.shape)
    np.testing.assert_array_equal(result, np.where((p + 2 > i) | (p + i > f + 8), np.where(p + f <= i, x, 0), 77))
    assert str(module).count("scf.for") == 2 and "scf.if" in str(module)


# -- instructions of the kernel with a mask ----------------------------------------------------------------------------
@pytest.mark.parametrize("low", [0, 1, 32])
def test_instruction_whose_mask_is_a_box(low):
    """A box that begins where no engine does is reached by a transfer."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((64, 20), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        p, f = nl.mgrid[0:64, 0:20]
        tile[p, f] = nisa.activation(nl.exp, tile, mask=(p >= low) & (f < 7))
        nl.store(out, tile)
        return out
    x = floats(64, 20) / 4
    module, result = check(kernel, x)
    p, f = np.indices(x.shape)
    np.testing.assert_allclose(result, np.where((p >= low) & (f < 7), np.exp(x), x), rtol=1e-6)
    assert names(module) == ["activation"]


@pytest.mark.parametrize("case", ["activation", "memset", "tensor_tensor", "select", "transpose", "copy", "iota"])
def test_instruction_under_a_triangle(case):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((30, 30), dtype=x.dtype, buffer=nl.shared_hbm)
        tile, other = nl.load(x), nl.load(x)
        p, f = nl.mgrid[0:30, 0:30]
        inside = p > f + 2
        if case == "activation":
            tile[p, f] = nisa.activation(nl.exp, other, mask=inside)
        elif case == "memset":
            tile[p, f] = nisa.memset((30, 30), 5.0, nl.float32, mask=inside)
        elif case == "tensor_tensor":
            tile[p, f] = nisa.tensor_tensor(other, tile, np.add, mask=inside)
        elif case == "select":
            tile[p, f] = nisa.affine_select(p + f < 30, other, -1.0, mask=inside)
        elif case == "transpose":
            tile[p, f] = nisa.nc_transpose(other, engine=nisa.vector_engine, mask=f > p + 2)
        elif case == "copy":
            nisa.dma_copy(dst=out[p, f], src=other[p, f], mask=inside)
        else:
            tile[p, f] = nisa.iota(3 * p + f, dtype=nl.float32, mask=inside)
        nl.store(out[p, f], tile[p, f], mask=p <= f + 2)
        if case != "copy":
            nl.store(out[p, f], tile[p, f], mask=inside)
        return out
    module, _ = check(kernel, floats(30, 30))
    assert all(str(op.attributes["mask"]) == "affine_set<() : (0 == 0)>" for op in instructions(module))


def test_reduction_instruction_under_a_triangle():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((30, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        total = nl.full((30, 1), -5.0, dtype=x.dtype, buffer=nl.sbuf)
        p, f = nl.mgrid[0:30, 0:40]
        q, g = nl.mgrid[0:30, 0:1]
        total[q, g] = nisa.tensor_reduce(np.max, nl.load(x), axis=1, mask=p > f + 3)
        nl.store(out, total)
        return out
    check(kernel, floats(30, 40))


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


def test_every_choice_names_its_engine():
    for case in CASES:
        captured = case.captured()
        module = lower(captured.module())
        for op in instructions(module):
            assert op.attributes["engine"].value != "unknown" or op.name in captured.text


# -- bounds left to run time -------------------------------------------------------------------------------------------
def test_bounds_that_only_run_time_knows_stay_with_the_transfer():
    """The view's offset is 480 (i - 2 (i / 2)), which intervals put between -480 and 1440."""
    view = 'memref<16x30xf32, strided<[30, 1], offset: ?>, "hbm">'
    with shared_context():
        module = ir.Module.parse(f"""
        func.func @k(%x: memref<32x30xf32, "hbm">) {{
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %c4 = arith.constant 4 : index
          scf.for %i = %c0 to %c4 step %c1 {{
            %h = affine.apply affine_map<()[s0] -> (s0 floordiv 2)>()[%i]
            %at = affine.apply affine_map<()[s0, s1] -> (s0 * 480 + s1 * -960)>()[%i, %h]
            %v = memref.reinterpret_cast %x to offset: [%at], sizes: [16, 30], strides: [30, 1]
              : memref<32x30xf32, "hbm"> to {view}
            %t = memref.alloc() : memref<16x30xf32, "sbuf">
            linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>,
                affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d0, d1)>],
                iterator_types = ["parallel", "parallel"],
                nki.limits = affine_set<(d0, d1)[s0, s1] : (31 - d0 - s0 * 16 + s1 * 32 >= 0)>}}
              ins(%v, %i, %h : {view}, index, index) outs(%t : memref<16x30xf32, "sbuf">) {{
            ^bb0(%p: f32, %a: index, %b: index, %r: f32):
              linalg.yield %p : f32
            }}
          }}
          return
        }}""")
    run_passes(module, [pass_named("linalg-to-nisa")])
    assert module.operation.verify()
    op, = map(read_op, instructions(module))
    assert [(c.form.const, c.form.axes) for c in op.limits] == [(31, ((0, -1),))]
    assert op.src.access.free.symbols == ((0, 480), (1, -960))
