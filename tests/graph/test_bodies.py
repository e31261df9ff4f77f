# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of graphs' bodies as functions of the engines, which compare in float32: Python's integers, NumPy's floats."""

import operator
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Linear
from nki_mlir.graph.nests import EngineExpression, compared, floating, of_integers, small, with_exact_extremes
from nki_mlir.scalar import dtypes
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BOOL, FLOAT32, INT8, INT32, UINT8, UINT32, DType, Encoding, convert
from nki_mlir.waist.expression import Activation, Alu, Constant, Convert, Input, Node, Output, Position, below

INTEGERS = [dtypes.dtype_of(np.dtype(name)) for name in ("int8", "int16", "int32", "uint8", "uint16", "uint32", "bool")]
ACTIVATIONS = {"trunc": np.trunc, "exp": np.exp, "log": np.log}
COMPARED = {"equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
            "greater": operator.gt, "greater_equal": operator.ge}
ARITHMETIC: dict[str, Callable[..., int]] = {
    **COMPARED, "maximum": max, "minimum": min, "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "negative": operator.neg, "abs": abs, "left_shift": operator.lshift, "right_shift": operator.rshift,
    "arith_shift_right": operator.rshift, "fmod": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1)}


def computed(node: Node, *inputs: np.ndarray) -> np.ndarray:
    """Return the value that the engines compute."""
    match node:
        case Input(index=index):
            return inputs[index]
        case Constant(dtype=dtype, value=value):
            return np.full(inputs[0].shape, value, dtype.numpy)
        case Convert(dtype=dtype, value=value):
            return convert(computed(value, *inputs), dtype, value.dtype)
        case Activation(fn=fn, value=value):
            with np.errstate(all="ignore"):
                return ACTIVATIONS[fn](computed(value, *inputs))
        case Alu(dtype=dtype, fn=fn, args=args):
            assert all(a.dtype is dtype for a in args)
            arrays = [computed(a, *inputs) for a in args]
            if dtype is INT32 and fn in (*COMPARED, "maximum", "minimum"):
                return ALU[fn].numpy(*(a.astype(np.float32) for a in arrays)).astype(np.int32)
            return ALU[fn].numpy(*arrays)
    raise AssertionError(node)


def in_range(number: int, dtype: DType) -> int:
    """Return the number of the dtype with the same low bits."""
    if dtype is BOOL:
        return number & 1
    number &= (1 << dtype.bits) - 1
    return number - (1 << dtype.bits) if dtype.kind is Encoding.SIGNED and number >> (dtype.bits - 1) else number


def edges(dtype: DType) -> list[int]:
    numbers = {0, 1, 2, 7, -1, -2, -7, 65535, 65536, 65537, 1 << 24, (1 << 24) + 1, -(1 << 24) - 1}
    for bits in (8, 16, 32):
        numbers |= {sign * (1 << b) + near for b in (bits, bits - 1) for sign in (1, -1) for near in (-1, 0, 1)}
    return sorted({in_range(n, dtype) for n in numbers})


def operands(dtype: DType, values: list[int]) -> Iterator[tuple[Callable[[int], Node], np.ndarray]]:
    """Yield the forms of an operand: a number of the dtype, or an int32 with its value or bits."""
    if dtype is not UINT32:
        yield lambda index: Input(dtype, index), np.array(values, dtype.numpy)
    if dtype.kind is Encoding.UNSIGNED:
        yield lambda index: Input(INT32, index), np.array(values, np.int64).astype(np.int32)


def numbers(dtype: DType, result: np.ndarray) -> list[int]:
    return [in_range(int(n), dtype) if dtype is UINT32 else int(n) for n in result]


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_functions_of_integers(dtype):
    every = edges(dtype)
    for name, meaning in ARITHMETIC.items():
        shift, one = "shift" in name, name in ("negative", "abs")
        if (dtype is BOOL and (name not in (*COMPARED, "maximum", "minimum") and not name.startswith("bitwise"))) or (
                dtype is UINT32 and name == "fmod"):
            continue
        pairs = [(a, b) for a in every for b in ((0,) if one else (*range(dtype.bits), dtype.bits + 8) if shift else every)
                 if name != "fmod" or b]
        first, second = ([pair[k] for pair in pairs] for k in (0, 1))
        signed = dtypes.dtype_of(np.dtype(f"int{dtype.bits}")) if dtype is not BOOL else dtype
        of_bits = {"right_shift": lambda n: n % (1 << dtype.bits), "arith_shift_right": lambda n: in_range(n, signed)}
        wanted = [*map(of_bits.get(name, int), first)]
        expected = [in_range(int(meaning(a) if one else meaning(a, b)), dtype) for a, b in zip(wanted, second)]
        for form, values in operands(dtype, first):
            inputs = values, np.array(second, np.int64).astype(values.dtype)
            node = of_integers(name, dtype, [form(0)] if one else [form(0), form(1)])
            assert node.dtype in ((INT32, dtype) if dtype.kind is Encoding.UNSIGNED else (dtype,))
            assert numbers(dtype, computed(with_exact_extremes(node), *inputs)) == expected, name
    for name in ("divide", "logical_and"):
        with pytest.raises(Unsupported, match=f"'{name}' on {dtype.mlir} in the body"):
            of_integers(name, dtype, [Input(dtype, 0), Input(dtype, 1)])


def test_comparisons_of_int32__are_exact():
    every = np.array(edges(INT32) + [16777215, 16777217, 33554431, -33554433], np.int32)
    a, b = (g.ravel() for g in np.meshgrid(every, every))
    for name, meaning in COMPARED.items():
        np.testing.assert_array_equal(computed(compared(name, Input(INT32, 0), Input(INT32, 1)), a, b), meaning(a, b))


def test_numbers_that_float32_represents__are_compared_at_once():
    """An integer is small if no value of it is rounded."""
    wide, limit = Input(INT32, 0), 1 << 24
    expected = {Constant(INT32, limit): True, Constant(INT32, -limit): True, Constant(INT32, limit + 1): False,
                Constant(INT32, -limit - 1): False, wide: False, Input(INT8, 0): True, Position(Linear()): True,
                Convert(INT32, Input(UINT8, 0)): True, Convert(INT32, Input(FLOAT32, 0)): False,
                Convert(INT32, Input(dtypes.UINT16, 0)): True, Convert(INT32, Position(Linear())): True,
                Convert(INT32, Input(UINT32, 0)): False, Output(INT32): False,
                Alu(INT32, "bitwise_and", (wide, Constant(INT32, 0))): True,
                Alu(INT32, "bitwise_and", (wide, Constant(INT32, limit))): True,
                Alu(INT32, "bitwise_and", (wide, Constant(INT32, limit + 1))): False,
                Alu(INT32, "bitwise_and", (wide, Constant(INT32, -1))): False,
                Alu(INT32, "bitwise_or", (wide, Constant(INT32, 1))): False}
    assert {node: small(node) for node in expected} == expected
    for a, at_once in expected.items():
        for node in (compared("less", a, wide), compared("less", wide, a)):
            assert len([*below(node)]) > 6
        node = compared("less", a, Position(Linear(1)))
        assert (len([*below(node)]) < 9) is at_once


@pytest.mark.parametrize("to", [*INTEGERS, FLOAT32], ids=repr)
def test_conversions__saturate(to):
    floats = np.float32([0, -0.0, 0.4, 0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 128, -129, 255, 256, 65535, 70000, 2.0 ** 31 - 128,
                         2.0 ** 31, 2.0 ** 31 + 256, 3e9, 2.0 ** 32 - 256, 2.0 ** 32, 5e9, -1, -5e9, np.inf, -np.inf])
    for frm in (*INTEGERS, FLOAT32):
        if frm is UINT32 and to.is_integer and to not in (BOOL, UINT32):
            with pytest.raises(Unsupported, match=f"'scalar.convert' of ui32 to {to.mlir} in the body"):
                EngineExpression.convert(Input(INT32, 0), frm, to)
            continue
        forms = [(lambda index: Input(FLOAT32, index), floats)] if frm is FLOAT32 else operands(frm, edges(frm))
        for form, values in forms:
            if frm is to or (frm.is_integer and frm is not BOOL and to.kind is Encoding.UNSIGNED):
                continue
            start = [int(np.asarray(n, np.int64)) if frm.is_integer else float(n) for n in values]
            start = [in_range(n, frm) if frm is UINT32 else n for n in start]
            if to is FLOAT32:
                expected: list[float] = [float(np.float32(n)) for n in start]
            elif to is BOOL:
                expected = [n != 0 for n in start]
            else:
                limits = np.iinfo(to.numpy)
                expected = [min(max(round(n) if abs(n) < 1e30 else n, int(limits.min)), int(limits.max)) for n in start]
            node = EngineExpression.convert(form(0), frm, to)
            result = computed(node, values)
            assert (numbers(to, result) if to.is_integer else [float(n) for n in result]) == expected, frm


@pytest.mark.parametrize("to", INTEGERS, ids=repr)
def test_low_bits(to):
    for frm in INTEGERS:
        for form, values in operands(frm, edges(frm)):
            nest = SimpleNamespace(step=lambda number: None, dtype_of=lambda number, frm=frm: frm)
            step = SimpleNamespace(operands=(0,), dtype=to)
            node = EngineExpression.wrap(SimpleNamespace(nest=nest), step, form(0), frm, to)  # type: ignore[arg-type]
            expected = [in_range(n, to) for n in edges(frm)]
            assert numbers(to, computed(node, values)) == expected, frm


def test_functions_of_floats():
    x = np.float32([0, 1e-30, -1e-30, 1e-8, -1e-8, 3e-4, -3e-4, 0.3, -0.3, 0.5, -0.5, 0.9, 1, 1.5, 2.5, -1.5, -2.5, 3.5, 20,
                    0.49999997, -0.49999997, 8388607.5, -8388607.5, 8388608, 1e10, -1e10])
    away = np.where(np.abs(x) < 2 ** 23, np.sign(x) * np.floor(np.abs(x.astype(np.float64)) + 0.5), x)
    for name, expected in (("round", away), ("roundeven", np.rint(x))):
        np.testing.assert_array_equal(computed(floating(name, [Input(FLOAT32, 0)]), x), expected, name)
    with np.errstate(all="ignore"):
        for name, inputs, wanted in (("log1p", x[x > -1], np.log1p), ("expm1", x[np.abs(x) < 80], np.expm1)):
            result = computed(floating(name, [Input(FLOAT32, 0)]), inputs)
            np.testing.assert_allclose(result, wanted(inputs.astype(np.float64)), rtol=1e-6, err_msg=name)
    a, b = (g.ravel() for g in np.meshgrid(x, np.float32([1, -2, 0, np.inf, -np.inf])))
    np.testing.assert_array_equal(computed(floating("copysign", [Input(FLOAT32, 0), Input(FLOAT32, 1)]), a, b),
                                  np.copysign(a, b))
    with pytest.raises(Unsupported, match="'cbrt' in the body of a graph's operation as engine instructions"):
        floating("cbrt", [Input(FLOAT32, 0)])
