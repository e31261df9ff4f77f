# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Routines of nests against NumPy: shapes around the number of lanes, dtypes, strides, masks, folds, products."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.scalar.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    INT8,
    INT32,
    INT64,
    TFLOAT32,
    UINT8,
    UINT32,
    DType,
    convert,
)
from nki_mlir.targets.cpu import contraction, routines
from nki_mlir.targets.runtime import host, jit
from nki_mlir.waist.nest import Nest, Operand, Step

from ...scalar.samples import of_dtype
from .nest_reference import Memory, bits, converted, dense, reference, run

SIZES = (1, 7, 16, 33, 128, 512)
DTYPES = (FLOAT32, BFLOAT16, FLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, TFLOAT32, INT8, INT32, INT64, UINT8, UINT32, BOOL)


def elementwise(extents: tuple[int, ...], inputs: list[Operand], output: Operand, fn: str = "",
                compute: DType = FLOAT32, mask: tuple[Constraint, ...] = (), symbols: int = 0) -> Nest:
    steps, last = converted([o.dtype for o in inputs], output.dtype, compute if fn else inputs[0].dtype, fn,
                            len(inputs) + 1)
    return Nest(extents, frozenset(), tuple(inputs), symbols, (output,), tuple(steps), (last,), mask)


def fold(extents: tuple[int, ...], reduced: set[int], source: Operand, output: Operand, fn: str) -> Nest:
    steps, value = [], 0
    if source.dtype is not output.dtype:
        steps.append(Step("convert", output.dtype, (0,)))
        value = 2
    steps.append(Step("alu", output.dtype, (1, value), fn))
    return Nest(extents, frozenset(reduced), (source,), 0, (output,), tuple(steps), (1 + len(steps),))


def check(nests: list[Nest], exact: bool = True, symbols: tuple[int, ...] = (), bound: float = 1e-5) -> None:
    """Compile all nests together, then run each on random numbers."""
    routines.compiled([nest.simplified for nest in nests])
    rng = np.random.default_rng(0)
    for nest in nests:
        memories = [Memory(nest, operand, rng) for operand in nest.operands]
        guards = [m.raw.copy() for m in memories]
        expected = reference(nest, memories, symbols)
        run(nest, memories, symbols)
        for memory, want, raw in zip(memories[len(nest.inputs):], expected, guards[len(nest.inputs):]):
            if exact:
                assert np.array_equal(bits(memory.array), bits(want)), nest
            else:
                np.testing.assert_allclose(memory.array.astype(np.float64), want.astype(np.float64), bound, bound)
            outside = np.ones(raw.shape, bool)
            start = memory.array.ctypes.data - memory.raw.ctypes.data
            outside[start:start + memory.array.nbytes] = False
            assert np.array_equal(memory.raw[outside], raw[outside]), "written outside of the operand"


NARROW = (FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E4M3FN, FLOAT8_E5M2)


def on_values(nest: Nest, *values: np.ndarray) -> np.ndarray:
    """Return the result of a nest of one output on inputs with these values."""
    memories = [Memory(nest, operand, np.random.default_rng(0)) for operand in nest.operands]
    for memory, value in zip(memories, values):
        memory.array[:] = value
    run(nest, memories)
    return memories[-1].array


# -- elementwise -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copy__sizes_around_the_lanes(dtype: DType) -> None:
    check([elementwise((n,), [dense((n,), dtype)], dense((n,), dtype)) for n in SIZES])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_convert__to_every_dtype(dtype: DType) -> None:
    check([elementwise((33,), [dense((33,), dtype)], dense((33,), other)) for other in DTYPES])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_add__two_axes_and_broadcasts(dtype: DType) -> None:
    shapes = [(p, f) for p, f in itertools.product((1, 7, 128), (1, 16, 33))]
    check([elementwise(s, [dense(s, dtype), Operand(FLOAT32, strides)], dense(s, dtype), "add")
           for s in shapes for strides in ((1, 0), (0, 1))])


@pytest.mark.parametrize("step", (-2, -1, 2, 3, 4, 5, 9))
def test_strides__of_sources_and_destinations(step: int) -> None:
    nests = []
    for dtype in (FLOAT32, BFLOAT16, UINT8):
        for n in (7, 16, 45):
            nests.append(elementwise((n,), [Operand(dtype, (step,))], Operand(dtype, (1,))))
            nests.append(elementwise((n,), [Operand(dtype, (1,))], Operand(FLOAT32, (step,)), "negative"))
            nests.append(elementwise((5, n), [Operand(dtype, (0, step))], Operand(dtype, (n, 1)), "square"))
    check(nests)


def test_transpose__of_tiles() -> None:
    check([elementwise((p, f), [Operand(dtype, (f, 1))], Operand(dtype, (1, p)))
           for dtype in (FLOAT32, BFLOAT16, FLOAT8_E4M3) for p, f in ((128, 128), (33, 70), (70, 45), (1, 7), (16, 512))])


@pytest.mark.parametrize(("p", "f"), [(128, 64), (33, 70), (16, 16), (17, 15), (5, 40)])
def test_transpose__of_several_operands_with_arithmetic(p: int, f: int) -> None:
    rows, columns = Operand(FLOAT32, (f + 3, 1)), Operand(FLOAT32, (1, p + 1))
    check([elementwise((p, f), [rows, Operand(BFLOAT16, (f, 1))], columns, "subtract"),
           elementwise((p, f), [rows, columns], columns, "multiply"),
           elementwise((p, f), [columns, Operand(FLOAT32, (0, 1))], rows, "add")])


@pytest.mark.parametrize(("p", "f"), [(128, 64), (33, 70), (16, 16), (17, 15), (5, 40)])
@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=str)
def test_recurrence__along_rows(p: int, f: int, dtype: DType) -> None:
    """carry = a carry + b, written to each element of a row: inputs 0 and 1, old values 2 and 3, then the steps."""
    rows = Operand(dtype, (f + 3, 1))
    steps, (a, b) = [], (0, 1)
    if dtype is not FLOAT32:
        steps, (a, b) = [Step("convert", FLOAT32, (0,)), Step("convert", FLOAT32, (1,))], (4, 5)
    product = 4 + len(steps)
    steps += [Step("alu", FLOAT32, (a, 3), "multiply"), Step("alu", FLOAT32, (product, b), "add")]
    carried = stored = product + 1
    if dtype is not FLOAT32:
        steps, stored = [*steps, Step("convert", dtype, (carried,))], carried + 1
    nest = Nest((p, f), frozenset({1}), (rows, rows), 0, (rows, Operand(FLOAT32, (1, 0))), tuple(steps), (stored, carried))
    rng = np.random.default_rng(p)
    memories = [Memory(nest, operand, rng, -1, 1) for operand in nest.operands]

    def matrix(k: int) -> np.ndarray:
        return np.lib.stride_tricks.as_strided(memories[k].array, (p, f), [s * dtype.itemsize for s in rows.strides])
    first, second, carry = matrix(0).astype(np.float32), matrix(1).astype(np.float32), memories[3].array.copy()
    expected = np.empty((p, f), np.float32)
    for k in range(f):
        carry = expected[:, k] = first[:, k] * carry + second[:, k]
    run(nest, memories, ())
    assert np.array_equal(bits(matrix(2).copy()), bits(convert(expected, dtype)))
    assert np.array_equal(memories[3].array, carry)


def test_activation__of_narrow_dtypes() -> None:
    check([elementwise((n,), [dense((n,), dtype)], dense((n,), FLOAT32), fn)
           for dtype in (FLOAT32, BFLOAT16) for n in (7, 33) for fn in ("exp", "tanh", "gelu")], exact=False)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("special", [None, np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-40, -1e-40, 9.2e-41, 1.1e-38])
def test_convert__to_narrow_floats_with_one_element_of_a_kind(dtype: DType, special: float | None) -> None:
    """Convert vectors of ordinary numbers, and such vectors with one number that an instruction may treat differently.
    """
    values = np.random.default_rng(1).standard_normal(500).astype(np.float32)
    if special is not None:
        values[[3, 40, 130, 499]] = special
    n = len(values)
    nest = elementwise((n,), [dense((n,), FLOAT32)], dense((n,), dtype))
    assert np.array_equal(on_values(nest, values).view(f"u{dtype.itemsize}"),
                          convert(values, dtype).view(f"u{dtype.itemsize}"))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_convert__of_a_value_that_was_rounded_in_between(dtype: DType) -> None:
    """``a + b`` in a narrow float, and more in float32: what is rounded in between is as if it had been stored."""
    a, b = (of_dtype(FLOAT32)[k:k + 6000] for k in (0, 7))
    n = len(b)
    steps = (Step("alu", FLOAT32, (0, 1), "add"), Step("convert", dtype, (3,)), Step("convert", FLOAT32, (4,)),
             Step("alu", FLOAT32, (5, 1), "multiply"))
    nest = Nest((n,), frozenset(), (dense((n,), FLOAT32),) * 2, 0, (dense((n,), FLOAT32),), steps, (6,))
    with np.errstate(all="ignore"):
        wanted = convert(convert(a[:n] + b, dtype), FLOAT32) * b
    assert np.array_equal(bits(on_values(nest, a[:n], b)), bits(wanted))


@pytest.mark.parametrize("count", (1, 16, 100_000))
def test_convert__of_any_bits_that_were_rounded_to_bfloat16_in_between(count: int) -> None:
    """Convert random bits, among them NaN of every payload, and numbers halfway between two of bfloat16 and next to
    that."""
    words = np.random.default_rng(3).integers(0, 1 << 32, count).astype(np.uint32)
    words[::4], words[1::8] = words[::4] & 0xFFFF0000 | 0x8000, words[1::8] | 0x7F800000
    words[2::8] = words[2::8] & 0xFFFF0000 | 0x7FFF
    values, steps = words.view(np.float32), (Step("convert", BFLOAT16, (0,)), Step("convert", FLOAT32, (2,)))
    nest = Nest((count,), frozenset(), (dense((count,), FLOAT32),), 0, (dense((count,), FLOAT32),), steps, (3,))
    assert np.array_equal(bits(on_values(nest, values)), bits(convert(convert(values, BFLOAT16), FLOAT32)))


def test_constant__fills() -> None:
    nests = []
    for dtype in DTYPES:
        steps = [Step("constant", FLOAT32, (), "", 1.0)]
        if dtype is not FLOAT32:
            steps.append(Step("convert", dtype, (1,)))
        nests += [Nest(s, frozenset(), (), 0, (dense(s, dtype),), tuple(steps), (len(steps),))
                  for s in ((), (7,), (3, 40))]
    check(nests)


@pytest.mark.parametrize("dtype", (FLOAT8_E4M3, FLOAT8_E5M2, BFLOAT16, FLOAT16), ids=str)
def test_constant__of_a_narrow_float(dtype: DType) -> None:
    check([Nest((7,), frozenset(), (), 0, (dense((7,), dtype),), (Step("constant", dtype, (), "", -1.5),), (1,))])


def test_index__of_axes_and_symbols() -> None:
    steps = (Step("position", INT32, (), "", Linear(5, ((0, 7),), ((0, 100), (1, -3)))),)
    check([Nest(s, frozenset(), (), 1, (dense(s, INT32),), steps, (1,)) for s in ((4, 33), (1, 7), (128, 1))],
          symbols=(11,))


# -- masks -------------------------------------------------------------------------------------------------------------
def test_mask__triangles_bands_and_symbols() -> None:
    triangle = (Constraint(Linear(0, (), ((0, 1), (1, -1)))),)
    band = (Constraint(Linear(2, (), ((0, 1), (1, -1)))), Constraint(Linear(2, (), ((0, -1), (1, 1)))))
    tail = (Constraint(Linear(20, ((0, -1),), ((1, -1),))),)
    diagonal = (Constraint(Linear(0, (), ((0, 1), (1, -1))), True),)
    nests = [elementwise(s, [Operand(dtype, (0, 0)), *[dense(s, dtype)]], dense(s, dtype), "add", FLOAT32, mask, 1)
             for mask in (triangle, band, tail, diagonal) for dtype in (FLOAT32, BFLOAT16, UINT8)
             for s in ((7, 33), (40, 16), (33, 1))]
    check(nests, symbols=(3,))


def test_mask__hides_addresses_that_do_not_exist() -> None:
    # Of 2**40 rows only the first is active: another one would be far outside of any memory.
    far = Operand(FLOAT32, (1 << 38, 1))
    mask = (Constraint(Linear(0, (), ((0, -1),))),)
    nest = Nest((4, 33), frozenset(), (far,), 0, (far,), (Step("alu", FLOAT32, (0,), "negative"),), (2,), mask)
    row = elementwise((33,), [dense((33,), FLOAT32)], dense((33,), FLOAT32), "negative")
    memories = [Memory(row, operand, np.random.default_rng(0)) for operand in row.operands]
    run(nest, memories)
    assert np.array_equal(memories[1].array, -memories[0].array)


# -- folds -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fn", ("add", "maximum", "minimum", "bitwise_xor"))
def test_fold__rows_columns_and_everything(fn: str) -> None:
    compute = INT32 if fn == "bitwise_xor" else FLOAT32
    nests = []
    for p, f in itertools.product((1, 7, 128), SIZES):
        nests.append(fold((p, f), {1}, dense((p, f), compute), Operand(compute, (1, 0)), fn))
        narrow = dense((p, f), BFLOAT16 if compute is FLOAT32 else INT8)
        nests.append(fold((p, f), {0}, narrow, Operand(compute, (0, 1)), fn))
    nests.append(fold((5, 33), {0, 1}, dense((5, 33), compute), Operand(compute, (0, 0)), fn))
    nests.append(fold((3, 8, 2, 6, 2), {2, 4}, dense((3, 8, 2, 6, 2), compute), Operand(compute, (48, 6, 0, 1, 0)), fn))
    check(nests, exact=fn != "add", bound=1e-4)


def test_fold__of_an_operator_whose_order_counts() -> None:
    check([fold((p, f), {1}, dense((p, f), FLOAT32), Operand(FLOAT32, (1, 0)), fn)
           for fn in ("abs_max", "subtract") for p, f in ((1, 33), (7, 16), (40, 5))])


def test_fold__nan_and_infinity() -> None:
    nest = fold((1, 64), {1}, dense((1, 64), FLOAT32), Operand(FLOAT32, (1, 0)), "maximum")
    rng = np.random.default_rng(0)
    for index, value, wanted in ((5, np.nan, np.nan), (63, np.inf, np.inf), (0, -np.inf, None)):
        memories = [Memory(nest, operand, rng) for operand in nest.operands]
        memories[0].array[index] = value
        memories[1].array[:] = -np.inf
        run(nest, memories)
        wanted = memories[0].array.max() if wanted is None else wanted
        np.testing.assert_array_equal(memories[1].array, [wanted])


# -- products ----------------------------------------------------------------------------------------------------------
def product(k: int, m: int, n: int, left: DType, right: DType) -> Nest:
    steps, values = [], [0, 1]
    for k_, dtype in enumerate((left, right)):
        if dtype is not FLOAT32:
            steps.append(Step("convert", FLOAT32, (k_,)))
            values[k_] = 2 + len(steps)
    steps.append(Step("alu", FLOAT32, tuple(values), "multiply"))
    steps.append(Step("alu", FLOAT32, (2, 2 + len(steps)), "add"))
    return Nest((k, m, n), frozenset({0}), (Operand(left, (m, 1, 0)), Operand(right, (n, 0, 1))), 0,
                (Operand(FLOAT32, (0, n, 1)),), tuple(steps), (2 + len(steps),))


@pytest.mark.parametrize("dtypes", ((FLOAT32, FLOAT32), (BFLOAT16, BFLOAT16), (FLOAT8_E4M3, FLOAT16)), ids=str)
def test_product__sizes(dtypes: tuple[DType, DType]) -> None:
    rng = np.random.default_rng(0)
    for k, m, n in ((128, 128, 512), (7, 3, 5), (1, 1, 1), (128, 1, 512), (33, 17, 70), (128, 128, 1), (5, 128, 16)):
        nest = product(k, m, n, *dtypes)
        memories = [Memory(nest, operand, rng) for operand in nest.operands]
        a, b = (convert(v.array, FLOAT32, d).astype(np.float64) for v, d in zip(memories, dtypes))
        wanted = memories[2].array.reshape(m, n) + a.reshape(k, m).T @ b.reshape(k, n)
        run(nest, memories)
        np.testing.assert_allclose(memories[2].array.reshape(m, n), wanted, rtol=1e-4, atol=2e-6 * k)


def test_product__is_recognized() -> None:
    assert contraction.product_of(product(128, 128, 512, FLOAT32, BFLOAT16).simplified)
    assert not contraction.product_of(fold((4, 4), {1}, dense((4, 4), FLOAT32), Operand(FLOAT32, (1, 0)), "add"))


def test_beside__computes_what_both_do() -> None:
    tile, rows = Operand(FLOAT32, (40, 1)), Operand(FLOAT32, (1, 0))
    sums = Nest((6, 40), frozenset({1}), (tile, rows), 0, (tile, rows), (
        Step("alu", FLOAT32, (0, 1), "add"), Step("activation", FLOAT32, (4,), "exp"),
        Step("alu", FLOAT32, (3, 5), "add")), (5, 6))
    scaled = Nest((6, 40), frozenset(), (tile, rows, tile), 0, (tile,), (
        Step("alu", FLOAT32, (0, 1), "multiply"), Step("alu", FLOAT32, (3, 4), "maximum"),
        Step("alu", FLOAT32, (5, 2), "subtract")), (6,))
    rng, both = np.random.default_rng(0), sums.joined_with(scaled)
    first, second = ([Memory(nest, operand, rng) for operand in nest.operands] for nest in (sums, scaled))
    together = [*first[:2], *second[:3], *first[2:], *second[3:]]
    assert both.operands == tuple(m.operand for m in together)
    for got, want in zip(reference(both, together), [*reference(sums, first), *reference(scaled, second)], strict=True):
        np.testing.assert_array_equal(got, want)
    check([both], exact=False)


# -- everything, at random ---------------------------------------------------------------------------------------------
def random_nests(rng: np.random.Generator, count: int) -> Iterator[Nest]:
    for _ in range(count):
        extents = tuple(int(n) for n in rng.choice([1, 2, 3, 5, 8, 16, 17, 33], int(rng.integers(1, 4))))
        dtypes = [DTYPES[k] for k in rng.integers(0, len(DTYPES), 3)]
        inputs = [Operand(d, tuple(0 if rng.random() < 0.2 else s for s in strides(rng, extents))) for d in dtypes[:2]]
        output = Operand(dtypes[2], strides(rng, extents))
        if rng.random() < 0.6:
            compute = INT32 if rng.random() < 0.3 else FLOAT32
            fn = str(rng.choice(["add", "subtract", "multiply", "maximum", "greater"]))
            axes = tuple((a, int(c)) for a, c in enumerate(rng.integers(-2, 3, len(extents))) if c)
            mask = (Constraint(Linear(int(rng.integers(-3, 20)), ((0, 1),), axes)),) if rng.random() < 0.3 else ()
            yield elementwise(extents, inputs, output, fn, compute, mask, 1)
        else:
            reduced = {a for a in range(len(extents)) if rng.random() < 0.5} or {0}
            steps = strides(rng, tuple(1 if a in reduced else n for a, n in enumerate(extents)))
            result_steps = tuple(0 if a in reduced else s for a, s in enumerate(steps))
            fn = str(rng.choice(["add", "maximum", "bitwise_or"]))
            yield fold(extents, reduced, inputs[0], Operand(INT32, result_steps), fn)


def strides(rng: np.random.Generator, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Draw the strides of a layout without overlap, with axes in any order and gaps."""
    steps, step = [0] * len(extents), int(rng.choice([1, 1, 1, 2, 3, 6]))
    for axis in rng.permutation(len(extents)):
        steps[axis] = step
        step = step * extents[axis] + int(rng.choice([0, 0, 0, 1, 4]))
    return tuple(steps)


@pytest.mark.share(3)
@pytest.mark.parametrize("lanes", (4, 8, 16))
def test_random__with_lanes_of_every_host(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "lanes", lambda: lanes)
    monkeypatch.setattr(routines, "_compiled", {})
    monkeypatch.setattr(jit, "_batches", {})
    nests = list(dict.fromkeys(random_nests(np.random.default_rng(lanes), 40)))
    check([n for n in nests if n.symbols], symbols=(2,))
    check([n for n in nests if not n.symbols])


# -- simplification ----------------------------------------------------------------------------------------------------
def test_simplified__joins_what_is_contiguous() -> None:
    nest = elementwise((4, 1, 32), [dense((4, 1, 32), FLOAT32)], dense((4, 1, 32), FLOAT32), "exp")
    assert nest.simplified.extents == (128,)
    row = elementwise((4, 32), [Operand(FLOAT32, (1, 0))], dense((4, 32), FLOAT32), "exp")
    assert row.simplified.extents == (4, 32)


def test_simplified__gives_equal_computations_one_form() -> None:
    a = elementwise((2, 64), [dense((2, 64), FLOAT32)], dense((2, 64), FLOAT32), "exp")
    b = elementwise((64, 2), [Operand(FLOAT32, (1, 64))], Operand(FLOAT32, (1, 64)), "exp")
    assert a.simplified == b.simplified


def test_simplified__keeps_axes_whose_position_is_a_value() -> None:
    steps = (Step("position", INT32, (), "", Linear(0, (), ((1, 1),))),)
    nest = Nest((4, 32), frozenset(), (), 0, (dense((4, 32), INT32),), steps, (1,))
    assert nest.simplified.extents == (4, 32)
