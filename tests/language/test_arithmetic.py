# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators and elementwise functions: result dtypes, numbers on either side, broadcasting, indices as numbers."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language import functions
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import check, compare, floats, kernel_of, numbers, output_of, run

BF16 = ml_dtypes.bfloat16


# -- operators ---------------------------------------------------------------------------------------------------------
OPERATORS = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "right_number": lambda a, b: a * 3 - 2, "left_number": lambda a, b: 3 * a - (2 - b),
    "numpy_number": lambda a, b: np.float32(2) * a + b * np.int32(3), "negative": lambda a, b: -a + b,
    "positive": lambda a, b: +a, "absolute": lambda a, b: abs(a), "square": lambda a, b: a ** 2,
    "divide": lambda a, b: a / 4.0, "modulo": lambda a, b: a % 7, "floor": lambda a, b: a // 7,
    "left_modulo": lambda a, b: 100 % abs(b + 0.5), "left_floor": lambda a, b: 100 // (abs(b) + 1),
    "numpy_array_free": lambda a, b: np.float64(0.5) * a,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(on, name):
    a, b = numbers(16, 8), numbers(16, 8, seed=1)
    expected = OPERATORS[name](a, b).astype(np.float32)
    check(on, kernel_of(OPERATORS[name]), expected, a, b, rtol=1e-6)


def test_reversed_division(on):
    x = np.abs(numbers(16, 8)) + 1
    check(on, kernel_of(lambda t: 1.0 / t), np.float32(1) / x, x, rtol=1e-6)
    check(on, kernel_of(lambda t: nl.divide(1.0, t)), np.float32(1) / x, x, rtol=1e-6)


def test_reversed_power(on):
    x = np.abs(numbers(16, 8)) % 5
    check(on, kernel_of(lambda t: 2.0 ** t), np.float32(2) ** x, x, rtol=1e-6)


COMPARISONS = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "number": lambda a, b: a > 3, "left number": lambda a, b: 3 >= a,
    "and": lambda a, b: (a > 0) & (b > 0), "or": lambda a, b: (a > 0) | (b > 0), "xor": lambda a, b: (a > 0) ^ (b > 0),
    "not": lambda a, b: ~(a > 0),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparison(on, name):
    """Truth values are 0 or 1."""
    a, b = numbers(16, 8) % 5, numbers(16, 8, seed=1) % 5
    got = run(on, kernel_of(COMPARISONS[name]), a, b)
    np.testing.assert_array_equal(got.astype(np.float32), COMPARISONS[name](a, b).astype(np.float32))


def test_comparison_functions_give_bool(on):
    a, b = numbers(16, 8) % 5, numbers(16, 8, seed=1) % 5
    for name in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or",
                 "logical_xor"):
        expected = getattr(np, name)(a, b)
        check(on, kernel_of(lambda x, y: getattr(nl, name)(x, y)), expected, a, b)
    check(on, kernel_of(lambda x: nl.logical_not(x)), a == 0, a)
    check(on, kernel_of(lambda x, y: nl.less(x, y, dtype=nl.float32)), (a < b).astype(np.float32), a, b)


def test_comparison_with_none_is_pythons(on):
    @nki.jit
    def kernel(x, w=None):
        assert (x != None) and not (x == None)                  # noqa: E711
        return output_of(nl.load(x) if w is None else nl.load(w))
    x = numbers(16, 8)
    check(on, kernel, x, x)
    check(on, kernel, x + 1, x, w=x + 1)


INTEGERS = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | 0x55, "xor": lambda a, b: a ^ b, "invert": lambda a, b: ~a,
    "left_shift": lambda a, b: a << 3, "right_shift": lambda a, b: (a & 0xFFFF) >> 2, "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b, "number": lambda a, b: a * 70000 - 5, "reversed and": lambda a, b: 0x0F & a,
    "reversed or": lambda a, b: 0x0F | a, "modulo": lambda a, b: a % 9, "floor division": lambda a, b: a // 9,
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_operator(on, name):
    """32-bit integers are exact beyond the 24 bits of a float32."""
    a, b = (numbers(16, 8, dtype=np.int32, seed=s) * 65 for s in (0, 1))
    check(on, kernel_of(INTEGERS[name]), INTEGERS[name](a, b).astype(np.int32), a, b)


def test_integer_division_is_true_division(on):
    """nl.floor of a quotient of integers needs the fraction."""
    a = numbers(16, 8, dtype=np.int32)
    check(on, kernel_of(lambda x: x / 4), (a / 4).astype(np.float32), a)
    check(on, kernel_of(lambda x: nl.floor(x / 4, dtype=nl.int32)), a // 4, a)
    check(on, kernel_of(lambda x: nl.divide(x, 4, dtype=nl.float32)), (a / 4).astype(np.float32), a)
    check(on, kernel_of(lambda x: nl.mod(x, 4, dtype=nl.int32)), a % 4, a)
    check(on, kernel_of(lambda x: nl.fmod(x, 4)), np.fmod(a, 4), a)


# -- dtypes ------------------------------------------------------------------------------------------------------------
PROMOTIONS = [
    (np.float32, BF16, np.float32), (BF16, np.float16, np.float32), (ml_dtypes.float8_e4m3, np.float16, np.float16),
    (ml_dtypes.float8_e4m3, BF16, BF16), (ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2, BF16),
    (np.int16, np.int32, np.int32), (np.uint8, np.uint16, np.uint16), (np.uint16, np.int32, np.int32),
    (np.int8, np.uint8, np.int16), (np.int8, np.uint16, np.int32), (np.int32, np.uint32, np.float32),
    (np.uint8, np.int16, np.int16), (np.float16, np.int32, np.float16), (BF16, np.int8, BF16),
]


@pytest.mark.parametrize("left, right, result", PROMOTIONS, ids=lambda d: np.dtype(d).name)
def test_promotion(on, left, right, result):
    a = (np.abs(numbers(16, 8)) % 8).astype(left)
    b = (np.abs(numbers(16, 8, seed=1)) % 8).astype(right)
    expected = (a.astype(np.float32) + b.astype(np.float32)).astype(result)
    check(on, kernel_of(lambda x, y: x + y), expected, a, b)
    check(on, kernel_of(lambda x, y: nl.add(x, y)), expected, a, b)
    check(on, kernel_of(lambda x, y: nl.add(y, x)), expected, a, b)


NUMBERS = [
    (np.int8, 2, np.int32), (np.float16, 1.5, np.float32), (BF16, 1.0, np.float32), (np.float16, np.float16(2), np.float16),
    (BF16, 2, BF16), (np.float32, True, np.float32), (np.uint8, np.int16(3), np.int16), (np.int32, 0.5, np.float32),
    (np.int8, True, np.int16), (np.float32, np.float64(2.5), np.float32), (BF16, BF16(2), BF16),
    (np.int32, BF16(0.5), BF16), (np.float32, ml_dtypes.float8_e5m2(1.5), np.float32),
    (ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3(2), ml_dtypes.float8_e4m3),
]


@pytest.mark.parametrize("dtype, number, result", NUMBERS, ids=str)
def test_promotion_with_numbers(on, dtype, number, result):
    a = (np.abs(numbers(16, 8)) % 8).astype(dtype)
    expected = (a.astype(np.float32) + np.float32(number)).astype(result)
    check(on, kernel_of(lambda x: x + number), expected, a)
    check(on, kernel_of(lambda x: number + x), expected, a)


def test_dtype_spellings(on):
    x = numbers(16, 8)
    for spelling in ("bfloat16", nl.bfloat16, BF16, np.dtype(BF16)):
        check(on, kernel_of(lambda t: nl.copy(t, dtype=spelling)), x.astype(BF16), x)
    for spelling in ("float32", np.float32, nl.float32, np.dtype("float32")):
        check(on, kernel_of(lambda t: nl.add(t, 1, dtype=spelling)), x + 1, x)
    for spelling in (bool, np.bool_, nl.bool_, "bool"):
        check(on, kernel_of(lambda t: nl.copy(t, dtype=spelling)), x != 0, x)


def test_dtypes_compare_in_kernels(on):
    @nki.jit
    def kernel(x):
        assert x.dtype == nl.float32 and x.dtype == np.float32 and x.dtype != nl.bfloat16
        assert x.itemsize == 4 and x.dtype in (nl.float32, nl.bfloat16)
        table = {np.dtype(np.float32): 2.0}
        tile = nl.load(x)
        assert tile.dtype == x.dtype and tile.shape == (16, 8) and tile.ndim == 2
        return output_of(tile * table[x.dtype])
    x = numbers(16, 8)
    check(on, kernel, x * 2, x)


def test_astype(on):
    x = numbers(16, 8)
    check(on, kernel_of(lambda t: t.astype(nl.int32)), x.astype(np.int32), x)
    check(on, kernel_of(lambda t: (t * 0.5).astype(np.int8)), np.rint(x * 0.5).astype(np.int8), x)


# -- broadcasting ------------------------------------------------------------------------------------------------------
def test_broadcast__free_dimension_by_operators(on):
    a, b = numbers(16, 8), numbers(16, 1, seed=1)
    check(on, kernel_of(lambda x, y: x * y), a * b, a, b)
    check(on, kernel_of(lambda x, y: y - x), b - a, a, b)
    check(on, kernel_of(lambda x, y: nisa.tensor_tensor(x, y, np.subtract)), a - b, a, b)


def test_broadcast__partitions_by_functions(on):
    a, b = numbers(16, 8), numbers(1, 8, seed=1)
    check(on, kernel_of(lambda x, y: nl.multiply(x, y)), a * b, a, b)
    check(on, kernel_of(lambda x, y: nl.subtract(y, x)), b - a, a, b)
    check(on, kernel_of(lambda x, y: x * y.broadcast_to((16, 8))), a * b, a, b)


def test_broadcast__not_partitions_by_operators(on):
    from nki_mlir.diagnostics import KernelError
    with pytest.raises(KernelError, match="partitions"):
        run(on, kernel_of(lambda x, y: x * y), numbers(16, 8), numbers(1, 8))


def test_broadcast__row_values_over_several_free_axes(on):
    a, b = numbers(16, 4, 6), numbers(16, 1, seed=1)
    check(on, kernel_of(lambda x, y: x - y), a - b[:, :, None], a, b)
    check(on, kernel_of(lambda x, y: nl.multiply(y, x)), a * b[:, :, None], a, b)
    check(on, kernel_of(lambda x: x - nl.max(x, axis=[1, 2])), a - a.max(axis=(1, 2), keepdims=True), a)


def test_broadcast__one_axis_of_several(on):
    a, b = numbers(16, 4, 6), numbers(16, 4, 1, seed=1)
    check(on, kernel_of(lambda x, y: x + y), a + b, a, b)
    check(on, kernel_of(lambda x: x - nl.min(x, axis=2, keepdims=True)), a - a.min(axis=2, keepdims=True), a)


# -- indices as numbers ------------------------------------------------------------------------------------------------
def test_index_as_operand(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((3, 16, 8), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for i in nl.affine_range(3):
            nl.store(out[i], nl.add(tile * i, i - 1) + (2 * i + 1))
        return out
    x = numbers(16, 8)
    check(on, kernel, np.stack([x * i + (i - 1) + (2 * i + 1) for i in range(3)]), x)


def test_index_as_operand__of_an_integer_tile(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((2, 3, 16, 1), nl.int32, buffer=nl.shared_hbm)
        seed = nl.load(x)
        for i in nl.affine_range(3):
            nl.store(out[nl.program_id(0), i], nl.add(seed, i * 7 + nl.program_id(0) * 100, dtype=nl.int32))
        return out
    x = numbers(16, 1, dtype=np.int32)
    expected = np.stack([np.stack([x + i * 7 + p * 100 for i in range(3)]) for p in range(2)])
    check(on, kernel, expected, x, grid=2)


def test_index_compared_with_a_tile(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((3, 16, 8), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for i in nl.affine_range(3):
            nl.store(out[i], nl.where(i < tile, tile, 0.0) + nl.where(tile == i, 50.0, 0.0))
        return out
    x = numbers(16, 8) % 4
    check(on, kernel, np.stack([np.where(i < x, x, 0) + np.where(x == i, 50, 0) for i in range(3)]).astype(np.float32), x)


def test_index_tensor_as_operand(on):
    x = numbers(16, 8)
    p, f = np.mgrid[:16, :8].astype(np.float32)
    check(on, kernel_of(lambda t: t * nl.arange(8)[None, :]), x * f, x)
    check(on, kernel_of(lambda t: nl.maximum(t, nl.arange(16)[:, None])), np.maximum(x, p), x)


def test_float_arithmetic_on_loop_variables(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((3, 16, 8), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for i in nl.affine_range(3):
            scale = i * 0.5 + 1.0 / (i + 1)
            nl.store(out[i], tile * scale + (i + 0.25) ** 2 + i / 4)
        return out
    x = numbers(16, 8)
    expected = [x * np.float32(i * 0.5 + 1 / (i + 1)) + np.float32((i + 0.25) ** 2) + np.float32(i / 4) for i in range(3)]
    check(on, kernel, np.stack(expected), x, rtol=1e-6)


def test_bit_arithmetic_on_loop_variables(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((6, 4), nl.float32, buffer=nl.shared_hbm)
        for i in nl.affine_range(6):
            a = ((i & 1) << 2) + (i >> 1) + abs(i - 3) + (i ^ 1) + (i | 2) + max(i, 2) + min(3, i)
            nl.store(out[i:i + 1, :], nl.load(x[nl.ds(a, 1), 0:4]))
        return out
    x = numbers(40, 4)
    at = [((i & 1) << 2) + (i >> 1) + abs(i - 3) + (i ^ 1) + (i | 2) + max(i, 2) + min(3, i) for i in range(6)]
    check(on, kernel, x[at], x)


# -- functions ---------------------------------------------------------------------------------------------------------
UNARY = {
    "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "arctan": np.arctan,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0), "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)), "square": np.square, "sign": np.sign, "abs": np.abs,
    "reciprocal": lambda x: 1 / x, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "negative": np.negative,
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "gelu_apprx_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3))),
    "gelu_apprx_sigmoid": lambda x: x / (1 + np.exp(-1.702 * x)),
    "silu_dx": lambda x: (s := 1 / (1 + np.exp(-x))) * (1 + x * (1 - s)),
    "erf_dx": lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x),
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_unary_function(on, name, dtype):
    """The result keeps the operand's dtype; float32 inside."""
    x = (np.abs(floats(16, 8)) + 0.1).astype(dtype)
    expected = UNARY[name](x.astype(np.float64))
    got = run(on, kernel_of(lambda t: getattr(nl, name)(t)), x)
    compare(got, expected.astype(np.float32).astype(dtype), steps=4 if dtype is np.float32 else 1)


BINARY = {"maximum": np.maximum, "minimum": np.minimum, "power": np.power, "mod": np.mod, "fmod": np.fmod,
          "divide": np.divide, "add": np.add}


@pytest.mark.parametrize("name", BINARY)
def test_binary_function__tiles_and_numbers(on, name):
    a, b = np.abs(numbers(16, 8)) % 9 + 1, np.abs(numbers(16, 8, seed=1)) % 5 + 1
    f = BINARY[name]
    check(on, kernel_of(lambda x, y: getattr(nl, name)(x, y)), f(a, b), a, b, rtol=1e-6)
    check(on, kernel_of(lambda x: getattr(nl, name)(x, 3.0)), f(a, np.float32(3)), a, rtol=1e-6)
    check(on, kernel_of(lambda x: getattr(nl, name)(3.0, x)), f(np.float32(3), a), a, rtol=1e-6)


def test_mod_and_fmod__signs(on):
    a, b = numbers(16, 8), np.where(numbers(16, 8, seed=1) > 0, 7, -5).astype(np.float32)
    check(on, kernel_of(lambda x, y: nl.mod(x, y)), np.mod(a, b), a, b)
    check(on, kernel_of(lambda x, y: nl.fmod(x, y, nl.float32)), np.fmod(a, b), a, b)


def test_where(on):
    a, b = numbers(16, 8), numbers(16, 8, seed=1)
    c = (numbers(16, 8, seed=2) > 0)
    check(on, kernel_of(lambda c, x, y: nl.where(c, x, y)), np.where(c, a, b), c, a, b)
    check(on, kernel_of(lambda c, x: nl.where(c, x, 0.5)), np.where(c, a, np.float32(0.5)), c, a)
    check(on, kernel_of(lambda c, x: nl.where(c, -1, x)), np.where(c, np.float32(-1), a), c, a)
    check(on, kernel_of(lambda x: nl.where(x > 0, x[:, 0], x)), np.where(a > 0, a[:, 0:1], a), a)
    check(on, kernel_of(lambda c: nl.where(c, 1.0, 0.0)), c.astype(np.float32), c)
    check(on, kernel_of(lambda c: nl.where(c, 1, 0)), c.astype(np.int32), c)


def test_true_arithmetic_is_float32(on):
    """Overflow gives infinity, nothing is widened; NaN and infinities pass."""
    x = np.array([[3e38, -3e38, np.inf, np.nan, 1e-45, 88.0]], np.float32)
    with np.errstate(all="ignore"):
        check(on, kernel_of(lambda t: t * 10), x * 10, x)
        check(on, kernel_of(lambda t: nl.add(t, t)), x + x, x)
        check(on, kernel_of(lambda t: nl.exp(t)), np.exp(x), x, rtol=2e-7)


def test_functions_of_numbers_only(on):
    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        return output_of(tile + nl.add(2.0, 3.0))
    x = numbers(1, 8)
    check(on, kernel, x + 5, x)


# -- integers that no 32-bit integer type holds together ---------------------------------------------------------------
SMALL = np.array([[-6, 8, -1, 0]], np.int8)
UNSIGNED = np.array([[4, 0, (1 << 31) + 256, (1 << 32) - 256]], np.uint32)
MIXED = {
    "add": (lambda x, y: nl.add(x, y), SMALL.astype(np.float32) + UNSIGNED.astype(np.float32)),
    "negative number": (lambda x, y: nl.add(y, -1), UNSIGNED.astype(np.float32) - 1),
    "number": (lambda x, y: nl.add(y, 1, dtype=nl.uint32), UNSIGNED + 1),
    "values": (lambda x, y: nl.where(y, x, y), np.where(UNSIGNED, SMALL, UNSIGNED).astype(np.float32)),
    "condition": (lambda x, y: nl.where(x, y, nl.zeros_like(y)), np.where(SMALL, UNSIGNED, 0).astype(np.uint32)),
}


@pytest.mark.parametrize("name", MIXED)
def test_signed_beside_unsigned(on, name):
    """Nothing is cut to the range of the other type; uint32 with signed integers is computed in float32."""
    body, expected = MIXED[name]

    @nki.jit
    def kernel(x, y):
        out = nl.ndarray((1, 4), expected.dtype, buffer=nl.shared_hbm)
        nl.store(out, body(nl.load(x), nl.load(y)))
        return out
    check(on, kernel, expected, SMALL, UNSIGNED)


NEGATIVE = np.array([[-6, 8, -1, 1 << 30]], np.int32)
BITS = {
    "number": (lambda x, y: (y >> 4) ^ (y << 3), UNSIGNED >> np.uint32(4) ^ UNSIGNED << np.uint32(3)),
    "large number": (lambda x, y: y & 0xFFFF0FFF | 1, UNSIGNED & np.uint32(0xFFFF0FFF) | np.uint32(1)),
    "tile": (lambda x, y: x ^ y, NEGATIVE.view(np.uint32) ^ UNSIGNED),
    "instruction": (lambda x, y: nisa.tensor_tensor(x, y, op=nl.bitwise_or), NEGATIVE.view(np.uint32) | UNSIGNED),
}


@pytest.mark.parametrize("name", BITS)
def test_bits_of_uint32_stay(on, name):
    """Bit operations convert nothing: uint32 beside signed integers of 32 bits gives uint32."""
    body, expected = BITS[name]
    check(on, kernel_of(body), expected, NEGATIVE, UNSIGNED)


@pytest.mark.parametrize("column, shape", [((16, 1), (16, 4, 8)), ((16, 1), (16, 8)), ((16, 1, 1), (16, 4, 8)),
                                           ((16, 1), (16, 2, 4, 8)), ((1, 8), (16, 8)), ((16, 1, 8), (16, 4, 8)),
                                           ((16, 4, 1), (16, 4, 8))], ids=str)
def test_values_of_partitions__repeat_over_all_free_axes(on, column, shape):
    x, y = numbers(*shape), numbers(*column, seed=1)
    expected = x - y.reshape(column + (1,) * (len(shape) - len(column)) if column[0] == shape[0] else column)

    def kernel(x, y):
        return output_of(nl.subtract(nl.load(x), nl.load(y)))

    def exchanged(x, y):
        return output_of(nl.subtract(nl.load(y), nl.load(x)))
    check(on, kernel, expected, x, y)
    check(on, exchanged, -expected, x, y)


@pytest.mark.parametrize("name", functions.UNARY)
def test_dtype_of_a_function_of_one_operand(name):
    """The result has the dtype of the call; without one it has the operand's, or that of a truth."""
    dtypes = []
    kind = np.int32 if name == "invert" else BF16

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=nl.float16, buffer=nl.shared_hbm)
        tile, function = nl.load(x), getattr(nl, name)
        dtypes.extend((function(tile, dtype=nl.float16).dtype, function(tile).dtype))
        nl.store(out, function(tile, dtype=nl.float16))
        return out
    result = kernel.on("eager")(np.ones((4, 8), kind))
    assert str(dtypes[0]) == str(nl.float16) and result.dtype == np.float16
    assert str(dtypes[1]) != str(nl.float16)


@pytest.mark.parametrize("exponent", [0.5, -0.5, 2.0])
def test_powers__of_zeros_and_infinities(on, exponent):
    """An exponent for all elements gives what an exponent for each gives."""
    x = np.tile(np.float32([-np.inf, -0.0, 0.0, np.inf, 4, -1]), (8, 1))

    @nki.jit
    def kernel(x, exponents):
        tile = nl.load(x)
        return output_of(nl.power(tile, exponent)), output_of(nl.power(tile, nl.load(exponents)))
    exponents = np.full_like(x, exponent)
    with np.errstate(all="ignore"):
        expected = np.power(x, exponents)
    for result in run(on, kernel, x, exponents):
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(np.signbit(result[:, :5]), np.signbit(expected[:, :5]))
