# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of the language on tiles, against NumPy."""

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.current import host_arrays as ntensor
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current.errors import NkiValidationError

from .running import check, floats, numbers, on_tiles, run


def stored(function):
    """A body that copies a function's result to its destination."""
    def body(d, *tiles):
        nisa.tensor_copy(d, function(*tiles))
    return body


@pytest.mark.parametrize("name, formula", [
    ("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply), ("divide", np.divide), ("mod", np.mod),
    ("fmod", np.fmod), ("maximum", np.maximum), ("minimum", np.minimum), ("equal", np.equal), ("less", np.less),
    ("greater_equal", np.greater_equal), ("logical_and", np.logical_and), ("logical_xor", np.logical_xor)])
def test_binary(on, name, formula):
    x, y = numbers(32, 16), numbers(32, 16, seed=1)
    y[y == 0] = 3
    function = getattr(nl, name)
    check(on, stored(function), formula(x, y).astype(np.float32), x, y)
    check(on, stored(lambda a: function(a, 3.0)), formula(x, np.float32(3)).astype(np.float32), x)
    check(on, stored(lambda a: function(3.0, a)), formula(np.float32(3), x + 0.5).astype(np.float32), x + 0.5)


FORMULAS = {
    "exp": np.exp, "tanh": np.tanh, "sigmoid": special.expit, "square": np.square, "abs": np.abs, "negative":
    np.negative,
    "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "arctan": np.arctan, "relu": lambda x: np.maximum(x, 0), "silu": lambda x: x * special.expit(x),
    "gelu": lambda x: x * special.ndtr(x), "softplus": lambda x: np.logaddexp(x, 0), "erf": special.erf,
    "erf_dx": lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x), "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "gelu_apprx_sigmoid": lambda x: x * special.expit(1.702 * x), "reciprocal": lambda x: 1 / x,
    "gelu_apprx_sigmoid_dx": lambda x: special.expit(1.702 * x) * (1 + 1.702 * x * (1 - special.expit(1.702 * x))),
    "silu_dx": lambda x: special.expit(x) * (1 + x * (1 - special.expit(x))),
    "gelu_dx": lambda x: special.ndtr(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_unary(on, name):
    x = floats(16, 20)
    check(on, stored(getattr(nl, name)), FORMULAS[name](x.astype(np.float64)).astype(np.float32), x, rtol=2e-5,
          atol=2e-6)


def test_load__of_an_array_without_dimensions(on):
    def kernel(x, scale):
        tile, factor = nl.load(x), nl.load(scale)
        again = nl.load(scale.ap([[1, 1], [1, 1]]))
        assert factor.shape == again.shape == (1, 1)
        nisa.tensor_scalar(tile[0:1], tile[0:1], nl.multiply, factor, op1=nl.add, operand1=again)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    x = floats(4, 6)
    expected = x.copy()
    expected[0] = x[0] * np.float32(3) + np.float32(3)
    np.testing.assert_array_equal(run(on, kernel, x, np.array(3.0, np.float32)), expected)


@pytest.mark.parametrize("name, formula", [("log", np.log), ("sqrt", np.sqrt), ("rsqrt", lambda x: 1 / np.sqrt(x))])
def test_unary_of_positive_numbers(on, name, formula):
    x = np.abs(floats(16, 20)) + 0.1
    check(on, stored(getattr(nl, name)), formula(x), x, rtol=2e-5, atol=2e-6)


def test_result_types(on):
    half = floats(16, 8).astype(np.float16)
    seen = []

    def body(d, a, b, i):
        outs = [nl.add(a, 1.2), nl.add(a, b), nl.equal(a, b), nl.add(a, 1.2, dtype=nl.float32), nl.add(i, 2), nl.exp(a),
                nl.sum(a, 1), nl.copy(a, nl.bfloat16), nl.multiply(a, i)]
        seen.append([str(m.dtype) for m in outs])
        nisa.tensor_copy(d, outs[0])
    check(on, body, (half.astype(np.float32) + np.float32(1.2)).astype(np.float16), half, floats(16, 8),
          numbers(16, 8, dtype=np.int32))
    assert seen[0] == ["float16", "float32", "float32", "float32", "int32", "float16", "float16", "bfloat16", "float16"]


def test_one_column_beside_a_tile_warns(on):
    x, column = numbers(32, 16), numbers(32, 1, seed=1)

    def body(d, a, c):
        with pytest.warns(UserWarning, match="not portable"):
            nisa.tensor_copy(d, nl.add(a, c))
    check(on, body, x + column, x, column)


def test_reductions(on):
    x = floats(32, 3, 4, 5)
    for name, formula in (("sum", np.sum), ("max", np.max), ("min", np.min), ("mean", np.mean), ("prod", np.prod)):
        function = getattr(nl, name)
        check(on, stored(lambda a, f=function: f(a, [2, 3])), formula(x, axis=(2, 3)), x, rtol=1e-4, atol=1e-5)
        check(on, stored(lambda a, f=function: f(a, -1, keepdims=True)), formula(x, axis=3, keepdims=True), x,
              rtol=1e-4,
              atol=1e-5)
    check(on, stored(lambda a: nl.var(a, [1, 2, 3])), x.var((1, 2, 3), keepdims=True), x, rtol=1e-4)
    check(on, stored(lambda a: nl.all(a, 1)), np.array([[1], [0]], np.float32),
          np.array([[1, 2, 3], [1, 0, 3]], np.float32))


def test_results_of_reductions_keep_two_dimensions():
    def body(d, a):
        assert nl.sum(a, 1).shape == (32, 1) and nl.var(a, 1).shape == (32, 1)
        nisa.memset(d, 0.0)
    check("eager", body, np.zeros((1, 1), np.float32), floats(32, 8))


def test_composites(on):
    x, w = floats(32, 16), floats(32, 16, seed=1)
    check(on, stored(nl.softmax), special.softmax(x, axis=1), x, rtol=1e-5)
    check(on, stored(lambda a, b: nl.rms_norm(a, b, 1, 16)), x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w, x,
          w,
          rtol=1e-5)
    check(on, stored(lambda a, b: nl.where(nl.greater(a, b), a, 0.0)), np.where(x > w, x, 0).astype(np.float32), x, w)
    dropped, = on_tiles(on, stored(lambda a: nl.dropout(a, 0.5)), [((32, 16), nl.float32)], x)
    assert set(np.unique(dropped[dropped != 0])) <= set(np.unique(x))


def test_matmul_and_transpose(on):
    a, b, c = floats(64, 32), floats(64, 40, seed=1), floats(32, 64, seed=2)
    memories = []

    def body(d, x, y):
        product = nl.matmul(x, y, transpose_x=True)
        memories.append((product.buffer, product.dtype))
        nisa.tensor_copy(d, product)
    check(on, body, a.T @ b, a, b, rtol=1e-5, atol=1e-5)
    assert memories[0] == (nl.psum, nl.float32)
    check(on, stored(nl.matmul), c @ b, c, b, rtol=1e-5, atol=1e-5)
    check(on, stored(nl.transpose), a.T, a)
    check(on, stored(lambda x: nl.transpose(x, nl.bfloat16)), a.T.astype(ml_dtypes.bfloat16), a)


def test_creation(on):
    def body(zero, one, full, like, identity, x):
        nisa.tensor_copy(zero, nl.zeros((8, 4), nl.float32))
        nisa.tensor_copy(one, nl.ones((8, 4), nl.int32, buffer=nl.psum))
        nisa.tensor_copy(full, nl.full((8, 4), 2.5, nl.bfloat16))
        assert nl.empty_like(x).shape == (8, 4) and nl.zeros_like(x, dtype=nl.int8).dtype == nl.int8
        nisa.tensor_copy(like, nl.zeros_like(x))
        nisa.tensor_copy(identity, nl.shared_identity_matrix(8))
    results = on_tiles(on, body, [((8, 4), nl.float32), ((8, 4), nl.int32), ((8, 4), nl.bfloat16), ((8, 4), nl.float32),
                                  ((8, 8), nl.uint8)], floats(8, 4))
    for got, expected in zip(results, (0, 1, 2.5, 0, np.eye(8))):
        np.testing.assert_array_equal(got.astype(np.float32), np.broadcast_to(expected, got.shape))


def test_hbm_is_filled(on):
    def kernel(x):
        out = nl.full((300, 7), 3.0, nl.float32, buffer=nl.shared_hbm)
        nl.store(out[0:2, 0:3], nl.load(x))
        return out
    x = numbers(2, 3)
    expected = np.full((300, 7), 3, np.float32)
    expected[:2, :3] = x
    np.testing.assert_array_equal(run(on, kernel, x), expected)


def test_constants(on, tmp_path):
    table = numbers(16, 6)
    np.save(tmp_path / "table.npy", table)

    def kernel(x):
        out = nl.ndarray((16, 6), nl.float32, buffer=nl.shared_hbm)
        a, b = nl.load(nl.shared_constant(table)), nl.load(nl.shared_constant(str(tmp_path / "table.npy")))
        nl.store(out, nl.add(nl.add(a, b), nl.load(x)))
        return out
    x = numbers(16, 6, seed=1)
    np.testing.assert_array_equal(run(on, kernel, x), 2 * table + x)


def test_constants_that_the_host_makes(on):
    def kernel():
        out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
        identity = nl.load(nl.shared_constant(ntensor.identity(8, dtype=nl.int8)))
        assert identity.dtype == nl.int8
        others = [ntensor.arange(8) * ntensor.ones((8, 8), nl.bfloat16), ntensor.full((8, 8), 3, dtype=nl.uint8)]
        a, b = (nl.copy(nl.load(nl.shared_constant(v)), dtype=nl.float32) for v in others)
        nl.store(out, nl.add(nl.add(nl.copy(identity, dtype=nl.float32), a), b))
        return out
    np.testing.assert_array_equal(run(on, kernel), np.eye(8) + np.arange(8) + 3)


def test_moving(on):
    x, wide = numbers(40, 24), numbers(16, 1, 5)
    check(on, stored(nl.copy), x, x)
    check(on, stored(lambda a: nl.broadcast_to(a, (16, 3, 5))), np.repeat(wide, 3, 1), wide)
    check(on, stored(lambda a: nl.broadcast_to(a, (8, 24))), np.repeat(x[:1], 8, 0), x[:1])
    check(on, stored(lambda a: nl.expand_dims(a, 1)), x.reshape(40, 1, 24), x)
    index = np.random.default_rng(0).integers(0, 24, (40, 6)).astype(np.uint32)
    check(on, stored(nl.gather_flattened), np.take_along_axis(x, index.astype(int), 1), x, index)

    def kernel(x):
        out = nl.ndarray((24, 40), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(x))
        return out
    np.testing.assert_array_equal(run(on, kernel, x), x.T)


def test_printing(on, capsys):
    def body(d, a):
        nl.device_print("value", a)
        nisa.tensor_copy(d, a)
    check(on, body, np.array([[41.0]], np.float32), np.array([[41.0]], np.float32))
    assert "value" in (text := capsys.readouterr().out) and "41." in text


def test_random_numbers(on):
    def body(a, b, seed):
        for d in (a, b):
            nl.random_seed(seed)
            nisa.tensor_copy(d, nl.rand((32, 50), nl.float32))
    a, b = on_tiles(on, body, [((32, 50), nl.float32)] * 2, np.array([[3]], np.int32))
    np.testing.assert_array_equal(a, b)
    assert 0 <= a.min() and a.max() < 1
    assert abs(a.mean() - 0.5) < 5 * np.sqrt(1 / 12 / a.size)                           # five standard deviations


KINDS = """float32 float16 bfloat16 int32 int16 int8 uint32 uint16 uint8 float8_e4m3fn float8_e5m2
    float8_e8m0fnu""".split()


@pytest.mark.parametrize("dtype", KINDS)
def test_constants_of_every_type(on, dtype):
    kind = getattr(nl, dtype)
    table = np.exp2(numbers(4, 6) % 4).astype(kind)

    def kernel(x):
        out = nl.ndarray((4, 6), kind, buffer=nl.shared_hbm)
        nl.store(out, nl.load(nl.shared_constant(table)))
        return out
    got = run(on, kernel, numbers(2, 2))
    assert got.dtype == table.dtype
    np.testing.assert_array_equal(got.view(np.uint8), table.view(np.uint8))


BITS = [(np.int8, np.uint8), (np.int8, np.uint16), (np.int16, np.uint32), (np.int32, np.uint32), (np.uint8, np.int32)]


@pytest.mark.parametrize("a, b", BITS, ids=lambda t: np.dtype(t).name)
@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits_of_two_types(on, name, a, b):
    """The result has the dtype that represents both operands, or uint32 if none does. No conversion saturates."""
    x = np.resize(np.array([-22, 83, -1, 0, 127, -128]), (4, 12)).astype(a)
    y = np.resize(np.array([200, 156, 255, 7, 0x80, 1]), (4, 12)).astype(b)
    wide = getattr(np, name)(x.astype(np.int64), y.astype(np.int64))
    kind = np.result_type(a, b) if np.uint32 not in (a, b) else np.uint32
    expected = (wide & 0xFFFFFFFF).astype(kind) if kind is np.uint32 else wide.astype(kind)

    def body(d, s, t):
        combined = getattr(nl, name)(s, t)
        assert str(combined.dtype) == np.dtype(kind).name
        nisa.tensor_copy(d, combined)
    check(on, body, expected, x, y)


def test_bits_of_a_number(on):
    """Its low bits: 255 is all of int8, and -1 of any type."""
    x = np.array([[-22, 83, 0, -128, 127, 1]], np.int8)
    check(on, lambda d, t: nisa.tensor_copy(d, nl.bitwise_and(t, 255)), x, x)
    check(on, lambda d, t: nisa.tensor_scalar(d, t, nl.bitwise_xor, 255, op1=nl.bitwise_or, operand1=128), ~x | -128, x)
    words = np.array([[5, 2**31, 2**32 - 1]], np.uint32)
    check(on, lambda d, t: nisa.tensor_scalar(d, t, nl.bitwise_xor, -1), ~words, words)
    check(on, lambda d, t: nisa.tensor_scalar(d, t, nl.left_shift, -1), words * 0, words)


def test_where_has_the_type_of_what_it_chooses_first(on):
    half, single = floats(16, 8).astype(np.float16), floats(16, 8, seed=1)
    flags = (numbers(16, 8) % 2).astype(np.float32) / 2
    check(on, lambda d, c, a, b: nisa.tensor_copy(d, nl.where(c, a, b)), np.where(flags != 0, half, single.astype(np.float16)),
          flags, half, single)
    a, b = (numbers(16, 8, dtype=np.int32, seed=s) + 2**30 + 1 for s in (0, 1))
    check(on, lambda d, c, x, y: nisa.tensor_copy(d, nl.where(c, x, y)), np.where(flags != 0, a, b), flags, a, b)


def test_quotients_of_integers(on):
    x = numbers(16, 8, dtype=np.int32)
    check(on, lambda d, t: nisa.tensor_copy(d, nl.divide(t, 4)), (x / 4).astype(np.float32), x)
    seen = []

    def body(d, t):
        seen.append([str(nl.divide(*pair).dtype) for pair in ((t, t), (t, 2), (2, t))])
        nisa.tensor_copy(d, t)
    check(on, body, x, x)
    assert seen[0] == ["float32"] * 3


def test_places_of_integers_are_found_as_float32(on):
    x = np.array([[2**30 + 1, 5, 7, 9, 2**31 - 1, 1, 2, 3, 4]], np.int32)

    def body(d, t):
        best = nl.ndarray((1, 8), nl.float32)
        nisa.max8(best, t)
        nisa.nc_find_index8(d, t, best)
    check(on, body, np.array([[4, 0, 3, 2, 1, 8, 7, 6]], np.uint32), x)


@pytest.mark.parametrize("executor", ["eager", "jit"])
def test_a_norm_of_no_elements_is_refused(executor):
    def kernel(x):
        tile = nl.load(x)
        return nl.rms_norm(tile, tile, axis=1, n=0)
    with pytest.raises(NkiMlirError, match="rms_norm n: expecting a 'number' other than 0, got 0"):
        run(executor, kernel, numbers(32, 16))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_constants_of_64_bits__are_int32_or_refused(on, dtype):
    low = 0 if dtype is np.uint64 else -2**31
    table = np.array([[low, 0, 7, 2**31 - 1]], dtype)

    def kernel(x):
        out = nl.ndarray((1, 4), nl.int32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(nl.shared_constant(table)))
        return out
    np.testing.assert_array_equal(run(on, kernel, np.zeros((1, 1), np.float32)), table.astype(np.int32))


@pytest.mark.parametrize("values", [[2**31], [-2**31 - 1], [0, 2**40], [-2**63, 5]], ids=str)
def test_constants_beyond_32_bits__are_refused(values):
    def kernel(x):
        return nl.load(nl.shared_constant(np.array([values], np.int64)))
    with pytest.raises(NkiValidationError, match="shared_constant has integers of more than 32 bits") as raised:
        run("eager", kernel, np.zeros((1, 1), np.float32))
    assert "give values that int32 holds" in str(raised.value)


@pytest.mark.parametrize("name", ["exp", "copy", "transpose", "add", "maximum", "matmul", "sum"])
def test_operands_in_hbm__are_refused(name):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        function = getattr(nl, name)
        result = function(x, axis=1) if name == "sum" else (
            function(x, x) if name in ("add", "maximum", "matmul") else function(x))
        nisa.dma_copy(out, result)
        return out
    with pytest.raises(NkiValidationError, match=f"Expected operand 'x' of '{name}' to be in address space 'psum.sbuf', "
                                                 "but got a tile in 'hbm' instead"):
        kernel.on("eager")(np.ones((4, 4), np.float32))


@pytest.mark.parametrize("function", [nl.add, nl.maximum, nl.greater])
@pytest.mark.parametrize("exchanged", [False, True])
def test_tiles_of_two_widths__are_an_error_unless_one_has_a_column(function, exchanged):
    def kernel(wide, narrow):
        tiles = nl.load(narrow if exchanged else wide), nl.load(wide if exchanged else narrow)
        out = nl.ndarray(wide.shape, nl.float32, buffer=nl.shared_hbm)
        nl.store(out, function(*tiles))
        return out
    name = function.__name__
    with pytest.warns(UserWarning, match=rf"{name} broadcasts \[8, 1\] to \[8, 4\], which is not portable; use .broadcast"):
        nki.jit(kernel)(np.ones((8, 4), np.float32), np.ones((8, 1), np.float32))
    shapes = r"\[8, 2\] and \[8, 4\]" if exchanged else r"\[8, 4\] and \[8, 2\]"
    with pytest.raises(NkiMlirError, match=rf"{name} takes tiles of the same shape, got {shapes}"):
        nki.jit(kernel)(np.ones((8, 4), np.float32), np.ones((8, 2), np.float32))
