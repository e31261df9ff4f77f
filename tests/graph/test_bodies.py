# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of graphs' bodies as functions of the engines, which compare in float32: Python's integers, NumPy's floats."""

import operator
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Linear
from nki_mlir.graph import nests
from nki_mlir.graph.nests import (
    EngineExpression,
    compared,
    floating,
    of_integers,
    sign_extended,
    small,
    with_exact_extremes,
)
from nki_mlir.scalar import dtypes
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BFLOAT16, BOOL, FLOAT32, INT8, INT32, UINT8, UINT32, DType, Encoding, convert
from nki_mlir.waist.expression import Activation, Alu, Bitcast, Constant, Convert, Input, Node, Output, Position, below
from nki_mlir.waist.nest import Nest, Operand, Step

INTEGERS = [dtypes.dtype_of(np.dtype(name)) for name in ("int8", "int16", "int32", "uint8", "uint16", "uint32", "bool")]
ACTIVATIONS = {"trunc": np.trunc, "exp": np.exp, "log": np.log, "arctan": np.arctan}
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
        case Bitcast(dtype=dtype, value=value):
            return computed(value, *inputs).view(dtype.numpy)
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
        if dtype is BOOL and (name not in (*COMPARED, "maximum", "minimum") and not name.startswith("bitwise")):
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


NEAR = [sign * (1 << 24) + k for sign in (1, -1) for k in (-2, -1, 0, 1, 2)]


def test_comparisons_with_small_constants__are_exact_and_take_one_instruction():
    values, with_neighbors = np.array(edges(INT32) + NEAR, np.int32), range(1 - (1 << 24), 1 << 24)
    for bound in (0, 1, -1, 999, -1000, 65536, *NEAR):
        for name, meaning in COMPARED.items():
            for node, expected in ((compared(name, Input(INT32, 0), Constant(INT32, bound)), meaning(values, bound)),
                                   (compared(name, Constant(INT32, bound), Input(INT32, 0)), meaning(bound, values))):
                np.testing.assert_array_equal(computed(node, values), expected, f"{name} {bound}")
                assert (sum(isinstance(n, Alu) for n in below(node)) == 1) is (bound in with_neighbors), (name, bound)


def test_values_between_small_constants__are_exact_and_take_one_instruction():
    values = np.array(edges(INT32) + NEAR, np.int32)
    bounds, exact = [0, 1, -1, 999, -70000, (1 << 31) - 1, *NEAR], range(-(1 << 24), (1 << 24) + 1)
    extreme = {"maximum": np.maximum, "minimum": np.minimum}
    for inner, outer in (("maximum", "minimum"), ("minimum", "maximum")):
        for a in bounds:
            for b in bounds:
                node = Alu(INT32, outer, (Alu(INT32, inner, (Input(INT32, 0), Constant(INT32, a))), Constant(INT32, b)))
                turned = Alu(INT32, outer, (Constant(INT32, b), Alu(INT32, inner, (Constant(INT32, a), Input(INT32, 0)))))
                expected = extreme[outer](extreme[inner](values, np.int32(a)), np.int32(b))
                for each in (with_exact_extremes(node), with_exact_extremes(turned)):
                    np.testing.assert_array_equal(computed(each, values), expected, f"{inner} {a} {outer} {b}")
                    at_once = {n.fn for n in below(each) if isinstance(n, Alu)} == {inner, outer}
                    assert at_once is (a in exact and b in exact), (a, b)


def test_a_position_without_axes__is_a_constant():
    nest = Nest((4,), frozenset(), (Operand(INT32, (1,)),), 0, (Operand(INT32, (1,)),),
                (Step("position", INT32, (), "", Linear(7)), Step("alu", INT32, (0, 2), "add")), (3,))
    assert EngineExpression(nest).value(2) == Constant(INT32, 7)


def test_numbers_that_float32_represents__are_compared_at_once():
    """An integer is small if no value of it is rounded."""
    wide, limit = Input(INT32, 0), 1 << 24
    expected = {Constant(INT32, limit): True, Constant(INT32, -limit): True, Constant(INT32, limit + 1): False,
                Constant(INT32, -limit - 1): False, wide: False, Input(INT8, 0): True, Position(Linear()): True,
                Convert(INT32, Input(UINT8, 0)): True, Convert(INT32, Input(FLOAT32, 0)): False,
                Convert(INT32, Input(dtypes.UINT16, 0)): True, Convert(INT32, Position(Linear())): True,
                Convert(INT32, Input(UINT32, 0)): False, Output(INT32): False, Convert(INT32, Input(BFLOAT16, 0)): False,
                Convert(INT32, Convert(dtypes.INT16, wide)): True,
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
            if frm is to:
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
    x = np.float32([0, -0.0, 1e-30, -1e-30, 1e-8, -1e-8, 3e-4, -3e-4, 0.3, -0.3, 0.5, -0.5, 0.9, 1, 1.5, 2.5, -1.5, -2.5, 3.5, 20,
                    0.49999997, -0.49999997, 8388607.5, -8388607.5, 8388608, 1e10, -1e10])
    away = np.where(np.abs(x) < 2 ** 23, np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x), x)
    for name, expected in (("round", away), ("roundeven", np.rint(x))):
        result = computed(floating(name, [Input(FLOAT32, 0)]), x)
        np.testing.assert_array_equal(result, expected, name)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(x), name)
    with np.errstate(all="ignore"):
        for name, inputs, wanted in (("log1p", x[x > -1], np.log1p), ("expm1", x[np.abs(x) < 80], np.expm1)):
            result = computed(floating(name, [Input(FLOAT32, 0)]), inputs)
            np.testing.assert_allclose(result, wanted(inputs.astype(np.float64)), rtol=1e-6, err_msg=name)
    a, b = (g.ravel() for g in np.meshgrid(x, np.float32([1, -2, 0, -0.0, np.inf, -np.inf, np.nan])))
    result = computed(floating("copysign", [Input(FLOAT32, 0), Input(FLOAT32, 1)]), a, b)
    np.testing.assert_array_equal(result.view(np.int32), np.copysign(a, b).view(np.int32))
    x = np.float32([0, -0.0, 1e-45, -1e-38, 0.3, -0.5, 1, -1, 2, -7, 1e20, 3e38, -3e38, np.inf, -np.inf, np.nan])
    y, x = (g.ravel() for g in np.meshgrid(x, x))
    result, exact = computed(floating("atan2", [Input(FLOAT32, 0), Input(FLOAT32, 1)]), y, x), np.arctan2(y, x)
    np.testing.assert_allclose(result, exact, rtol=4e-7)
    np.testing.assert_array_equal(np.signbit(result)[exact == exact], np.signbit(exact)[exact == exact])
    x = np.unique(x)
    result, exact = computed(floating("cbrt", [Input(FLOAT32, 0)]), x), np.cbrt(x.astype(np.float64))
    np.testing.assert_allclose(result, exact, rtol=1.5e-7)
    np.testing.assert_array_equal(np.signbit(result)[exact == exact], np.signbit(exact)[exact == exact])
    with pytest.raises(Unsupported, match="'acosh' in the body of a graph's operation as engine instructions"):
        floating("acosh", [Input(FLOAT32, 0)])


# -- sequences of steps ------------------------------------------------------------------------------------------------
ELEMENTS = 24
SIGNED = INTEGERS[:3]
OF_FLOATS = {"add": np.add, "subtract": np.subtract, "maximum": np.maximum, "minimum": np.minimum,
             "less": lambda a, b: np.float32(a < b), "round": lambda a: np.trunc(a + np.copysign(np.float32(0.5), a)),
             "roundeven": np.rint, "trunc": np.trunc}
Drawn = tuple[Step, list[float]]


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


class Steps:
    """Random steps on inputs, with the values that Python computes for each."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random, self.steps, self.rows = random, list[Step](), list[list[float]]()
        self.inputs = [*SIGNED, INT32, BOOL, FLOAT32, FLOAT32]          # buffers of graphs have no unsigned types
        floats = np.float32([0, 0.5, -0.5, 1.5, 2.5, -2.25, 100.75, -129, 255.5, 256, 65536, -3e9, 4e9, 2.0 ** 31])
        choices = [edges(dtype) if dtype.is_integer else floats for dtype in self.inputs]
        self.dtypes = [*self.inputs, BFLOAT16]                  # with the old value, which is not used
        self.values = [[float(n) if dtype is FLOAT32 else int(n) for n in random.choice(choice, ELEMENTS)]
                       for choice, dtype in zip(choices, self.dtypes)] + [[0.0] * ELEMENTS]

    def one_of(self, *dtypes: DType) -> int:
        """Return the number of a value of one of these types, a late one rather than an early one."""
        numbers = [k for k, dtype in enumerate(self.dtypes) if dtype in dtypes]
        return int(numbers[-1 - min(int(self.random.geometric(0.2)) - 1, len(numbers) - 1)])

    def add(self, step: Step, values: list[float]) -> int:
        self.steps.append(step)
        self.dtypes.append(step.dtype)
        self.values.append(values)
        return len(self.values) - 1

    def draw(self) -> None:
        kind = self.random.choice(["convert", "convert", "wrap", "wrap", "integers", "integers", "floats", "select",
                                   "quotient", "gather", "rounded"])
        getattr(self, kind)()

    def convert(self) -> None:
        number, to = self.one_of(*INTEGERS, FLOAT32), [*INTEGERS, FLOAT32][self.random.integers(8)]
        frm, values = self.dtypes[number], self.values[number]
        if frm is to or (frm is UINT32 and to not in (BOOL, FLOAT32)):
            return
        if to is FLOAT32:
            results: list[float] = [float(np.float32(n)) for n in values]
        elif to is BOOL:
            results = [int(n != 0) for n in values]
        else:
            limits = np.iinfo(to.numpy)
            results = [min(max(round(n), int(limits.min)), int(limits.max)) for n in values]
        self.add(Step("convert", to, (number,)), results)

    def wrap(self) -> None:
        number, to = self.one_of(*INTEGERS), INTEGERS[self.random.integers(7)]
        if to is not self.dtypes[number]:
            self.add(Step("wrap", to, (number,)), [in_range(int(n), to) for n in self.values[number]])

    def integers(self) -> None:
        dtype = INTEGERS[self.random.integers(7)]
        names = [n for n in ARITHMETIC if "shift" not in n and n != "fmod" and (
            dtype is not BOOL or n in COMPARED or n.startswith("bitwise"))]
        name = str(self.random.choice(names))
        if dtype not in self.dtypes:
            return
        numbers = [self.one_of(dtype) for _ in range(1 if name in ("negative", "abs") else 2)]
        operands = zip(*(map(int, self.values[k]) for k in numbers))
        self.add(Step("alu", dtype, tuple(numbers), name), [in_range(int(ARITHMETIC[name](*v)), dtype) for v in operands])

    def select(self) -> None:
        dtype = self.dtypes[self.one_of(*SIGNED, BOOL, FLOAT32)]      # choices of graphs have a sign
        numbers = [self.one_of(dtype) for _ in range(3)]
        self.add(Step("alu", dtype, tuple(numbers), "select"),
                 [a if c else b for c, a, b in zip(*(self.values[k] for k in numbers))])

    def quotient(self) -> None:
        dtype = INTEGERS[self.random.integers(5)]
        if dtype not in self.dtypes:
            return
        number, divisor = self.one_of(dtype), int(self.random.choice([1, 3, 10, 127]))
        by = self.add(Step("constant", INT8, (), "", divisor), [divisor] * ELEMENTS)
        if dtype is not INT8:                                   # constants of graphs have a sign
            by = self.add(Step("wrap", dtype, (by,)), [divisor] * ELEMENTS)
        name, meaning = (("quotient", truncated), ("fmod", ARITHMETIC["fmod"]))[self.random.integers(2)]
        self.add(Step("math" if name == "quotient" else "alu", dtype, (number, by), name),
                 [in_range(meaning(int(n), divisor), dtype) for n in self.values[number]])

    def floats(self) -> None:
        numbers = self.one_of(FLOAT32), self.one_of(FLOAT32)
        name = str(self.random.choice(["add", "subtract", "maximum", "minimum", "less"]))
        self.add(Step("alu", FLOAT32, numbers, name),
                 [float(n) for n in OF_FLOATS[name](*(np.float32(self.values[k]) for k in numbers))])

    def rounded(self) -> None:
        number, name = self.one_of(FLOAT32), str(self.random.choice(["round", "roundeven", "trunc"]))
        self.add(Step("activation" if name == "trunc" else "math", FLOAT32, (number,), name),
                 [float(n) for n in OF_FLOATS[name](np.float32(self.values[number]))])

    def gather(self) -> None:
        dtype = (dtypes.INT16, FLOAT32)[self.random.integers(2)]
        self.rows.append(self.values[row := self.one_of(INT32)])
        self.add(Step("gather", dtype, (row,), "", len(self.rows) - 1), [len(self.rows)] * ELEMENTS)


@pytest.mark.parametrize("part", range(4))
def test_sequences_of_steps(part):
    """Each value of a nest, and the row of each gather, whose elements are further inputs."""
    for seed in range(part * 15, part * 15 + 15):
        drawn = Steps(np.random.default_rng(seed))
        while len(drawn.steps) < 25:
            drawn.draw()
        operands = [Operand(dtype, (1,)) for dtype in drawn.inputs]
        nest = Nest((ELEMENTS,), frozenset(), tuple(operands), 0, (Operand(BFLOAT16, (1,)),), tuple(drawn.steps), (0,))
        expressions = EngineExpression(nest)
        gathered = [v for step, v in zip(drawn.steps, drawn.values[len(operands) + 1:]) if step.kind == "gather"]
        kinds = [*drawn.inputs, *(step.dtype for step in drawn.steps if step.kind == "gather")]
        inputs = [np.array(v, dtype.numpy) for v, dtype in zip((*drawn.values[:len(operands)], *gathered), kinds)]
        for number in (*range(len(operands)), *range(len(operands) + 1, len(drawn.values))):
            node, dtype = with_exact_extremes(expressions.value(number)), drawn.dtypes[number]
            assert node.dtype in ((INT32, dtype) if dtype.kind is Encoding.UNSIGNED else (dtype,))
            result = computed(node, *inputs)
            values = [float(n) for n in result] if dtype is FLOAT32 else numbers(dtype, result)
            assert values == drawn.values[number], (seed, number)
        for number, rows in enumerate(drawn.rows):
            row = with_exact_extremes(expressions.rows[number])
            assert row.dtype is INT32 and numbers(INT32, computed(row, *inputs)) == rows, (seed, number)


def test_steps_without_a_form_on_the_engines():
    def body(step: Step, *inputs: DType) -> Node:
        operands = tuple(Operand(dtype, (1,)) for dtype in inputs)
        return EngineExpression(Nest((1,), frozenset(), operands, 0, (Operand(FLOAT32, (1,)),), (step,), (0,))).value(
            len(inputs) + 1)
    for step, inputs, feature in (
            (Step("bitcast", dtypes.INT64, (0,)), (FLOAT32,), "'scalar.bitcast' on i64"),
            (Step("convert", dtypes.INT64, (0,)), (INT32,), "'scalar.convert' on i64"),
            (Step("alu", FLOAT32, (0, 1), "add"), (dtypes.INT64, FLOAT32), "'add' on i64"),
            (Step("math", INT32, (0,), "acosh"), (INT32,), "'acosh' on i32"),
            (Step("math", FLOAT32, (0,), "acosh"), (FLOAT32,), "'acosh'")):
        with pytest.raises(Unsupported, match=f"{feature} in the body of a graph's operation as engine instructions"):
            body(step, *inputs)
    for name, fn in (("sin", "sin_reduced"), ("exp", "exp")):
        node = body(Step("activation", FLOAT32, (0,), name), FLOAT32)
        assert isinstance(node, Activation) and node.fn == fn and node.value is Input(FLOAT32, 0)


def test_numbers_of_32_bits__are_what_their_bits_represent():
    node = nests.numbers(-7, INT32)
    assert sign_extended(node, 32) is node and sign_extended(nests.numbers(0xFFF9, INT32), 16) == node
