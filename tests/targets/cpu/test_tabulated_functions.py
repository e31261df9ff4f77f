# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of 16-bit floats that are read from a table: which are, and the same bits as where they are computed."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from nki_mlir.targets.cpu import host_measurements
from nki_mlir.targets.cpu.passes.tabulate_functions import TabulateFunctions
from nki_mlir.targets.cpu.pipeline import PIPELINE
from nki_mlir.targets.cpu.tabulated import COUNT, table_of, tabulated_functions
from nki_mlir.waist.nest import Nest, Operand, Step

from ...forced_passes import forced
from .called_functions import called_after
from .nest_reference import ALL_FORMS, Memory, run

NARROW = (BFLOAT16, FLOAT16)
EDGES = np.float32([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 6e-8, -6e-8, 3e38, -3e38])


def function(name: str, dtype: DType, columns: int = 64, to: DType | None = None) -> Nest:
    """Compute a function of rows."""
    to = to or dtype
    steps = (Step("convert", FLOAT32, (0,)), Step("activation", FLOAT32, (2,), name), Step("convert", to, (3,)))
    return Nest((3, columns), frozenset(), (Operand(dtype, (columns, 1)),), 0, (Operand(to, (columns, 1)),), steps,
                (4 if to is not FLOAT32 else 3,))


@pytest.mark.parametrize("name", ("gelu", "tanh", "exp", "rsqrt"))
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_lookups__of_all_arguments_have_the_bits_of_the_function(name: str, dtype: DType) -> None:
    nest = function(name, dtype, 1000)
    tabulated = next(tabulated_functions(nest))
    bits = np.random.default_rng(0).permutation(COUNT).astype(np.uint16)
    for start in range(0, COUNT, 3000):
        memories = [Memory(nest, operand, np.random.default_rng(0)) for operand in (*nest.operands, nest.output)]
        memories[0].array[:] = np.resize(bits[start:start + 3000], 3000).view(dtype.numpy)
        run(nest, memories[:2], forms=ALL_FORMS)
        table = Memory(tabulated.lookups(COUNT + 1), Operand(dtype, (1,)), np.random.default_rng(0))
        table.array[:] = table_of(tabulated.alone)
        run(tabulated.replaced(), [memories[0], table, memories[2]], forms=ALL_FORMS)
        computed, looked_up = memories[1].array, memories[2].array
        is_same = computed.view(np.uint16) == looked_up.view(np.uint16)
        assert np.all(is_same | (np.isnan(computed) & np.isnan(looked_up)))         # the payload of NaN is free
        assert np.array_equal(np.signbit(computed), np.signbit(looked_up))


@pytest.mark.parametrize("name", ("gelu", "exp"))
def test_lookups__at_rounded_differences_have_the_bits_of_the_function(name: str) -> None:
    """The differences of all numbers and of a few: code rounds them without a repair of NaN (`leave-nans`)."""
    steps = (Step("convert", FLOAT32, (0,)), Step("convert", FLOAT32, (1,)), Step("alu", FLOAT32, (3, 4), "subtract"),
             Step("convert", BFLOAT16, (5,)), Step("convert", FLOAT32, (6,)), Step("activation", FLOAT32, (7,), name),
             Step("convert", BFLOAT16, (8,)))
    row, rng = Operand(BFLOAT16, (COUNT, 1)), np.random.default_rng(0)
    nest = Nest((1, COUNT), frozenset(), (row, row), 0, (row,), steps, (9,))
    tabulated, = tabulated_functions(nest)
    x, y, computed, looked_up = (Memory(nest, row, rng) for _ in range(4))
    x.array[:] = np.arange(COUNT, dtype=np.uint16).view(BFLOAT16.numpy)
    y.array[:] = np.resize(np.append(EDGES, rng.standard_normal(19)), COUNT).astype(BFLOAT16.numpy)
    table = Memory(tabulated.lookups(COUNT + 1), Operand(BFLOAT16, (1,)), rng)
    table.array[:] = table_of(tabulated.alone)
    run(nest, [x, y, computed], forms=ALL_FORMS)
    run(tabulated.replaced(), [x, y, table, looked_up], forms=ALL_FORMS)
    computed, looked_up = computed.array, looked_up.array
    is_nan = np.isnan(computed)
    assert np.array_equal(is_nan, np.isnan(looked_up)) and 1000 < is_nan.sum() < COUNT // 4
    assert np.array_equal(computed[~is_nan].view(np.uint16), looked_up[~is_nan].view(np.uint16))


@pytest.mark.parametrize("columns", (1, 3, 8, 15, 16, 17, 32, 40, 100))
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_lookups__of_rows_of_any_length(columns: int, dtype: DType) -> None:
    nest = function("gelu", dtype, columns)
    tabulated = next(tabulated_functions(nest))
    source, result, other = (Memory(nest, operand, np.random.default_rng(0)) for operand in (*nest.operands, nest.output))
    table = Memory(tabulated.lookups(COUNT + 1), Operand(dtype, (1,)), np.random.default_rng(0))
    table.array[:] = table_of(tabulated.alone)
    around = other.raw.copy()
    run(nest, [source, result], forms=ALL_FORMS)
    run(tabulated.replaced(), [source, table, other], forms=ALL_FORMS)
    assert np.array_equal(result.array.view(np.uint16), other.array.view(np.uint16))
    changed = np.flatnonzero(around != other.raw)
    first = other.array.ctypes.data - other.raw.ctypes.data
    assert changed.size and first <= changed.min() and changed.max() < first + other.array.nbytes


def test_functions__are_of_one_narrow_float_to_one() -> None:
    assert [*tabulated_functions(function("gelu", FLOAT32))] == []
    assert [*tabulated_functions(function("gelu", BFLOAT16, to=FLOAT32))] == []
    across = next(tabulated_functions(function("gelu", BFLOAT16, to=FLOAT16)))
    assert across.lookups(4).inputs == (Operand(BFLOAT16, (1,)), Operand(FLOAT16, (0,)))
    rounding = (Step("convert", FLOAT32, (0,)), Step("convert", BFLOAT16, (2,)))
    assert [*tabulated_functions(Nest((4,), frozenset(), (Operand(BFLOAT16, (1,)),), 0, (Operand(BFLOAT16, (1,)),),
                                      rounding, (3,)))] == []


def two_arguments(uses_function: bool) -> Nest:
    """Compute gelu(a), rounded, times ``b``, and a second result: that product, or the number before the rounding."""
    steps = (Step("convert", FLOAT32, (0,)), Step("activation", FLOAT32, (4,), "gelu"), Step("convert", BFLOAT16, (5,)),
             Step("convert", FLOAT32, (6,)), Step("convert", FLOAT32, (1,)), Step("alu", FLOAT32, (7, 8), "multiply"),
             Step("convert", BFLOAT16, (9,)))
    row = Operand(BFLOAT16, (1,))
    return Nest((64,), frozenset(), (row, row), 0, (row, Operand(FLOAT32, (1,))), steps, (10, 5 if uses_function else 9))


def test_functions__whose_inner_steps_have_other_readers_are_not_replaced() -> None:
    tabulated, = tabulated_functions(two_arguments(False))
    assert (tabulated.argument, tabulated.result, tabulated.steps) == (0, 6, (4, 5, 6))
    assert tabulated.replaced().steps[0] == Step("lookup", BFLOAT16, (0, 2), "tabulated_gelu")
    assert [step.kind for step in tabulated.replaced().steps] == ["lookup", "convert", "convert", "alu", "convert"]
    assert [*tabulated_functions(two_arguments(True))] == []


def test_functions__leave_constants_that_other_steps_read() -> None:
    steps = (Step("constant", FLOAT32, (), "", "0.5"), Step("convert", FLOAT32, (0,)),
             Step("alu", FLOAT32, (4, 3), "multiply"), Step("activation", FLOAT32, (5,), "gelu"),
             Step("convert", BFLOAT16, (6,)), Step("convert", FLOAT32, (7,)), Step("convert", FLOAT32, (1,)),
             Step("alu", FLOAT32, (8, 9), "add"), Step("alu", FLOAT32, (10, 3), "multiply"),
             Step("convert", BFLOAT16, (11,)))
    row = Operand(BFLOAT16, (1,))
    tabulated = next(tabulated_functions(Nest((64,), frozenset(), (row, row), 0, (row,), steps, (12,))))
    assert (tabulated.argument, tabulated.result, tabulated.steps) == (0, 7, (3, 4, 5, 6, 7))
    replaced = tabulated.replaced()
    assert [step.kind for step in replaced.steps] == ["constant", "lookup", "convert", "convert", "alu", "alu", "convert"]
    assert (replaced.steps[1].operands, replaced.steps[5].operands, replaced.results) == ((0, 2), (8, 4), (10,))


def normalized(x, g, m):
    """Compute gelu((x - m) * g + g), rounded after each step; the last two steps are functions of one number."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, weights = nl.load(x), nl.load(g)
    scaled = nl.multiply(nl.subtract(tile, nl.load(m)), weights)
    nl.store(out, nl.multiply(nl.gelu(nl.add(scaled, weights)), 0.5))
    return out


def halved(x, g, m):
    """Compute gelu(x / 2) plus g, halved; another step reads a constant of the function, too."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rounded = nl.gelu(nl.multiply(nl.load(x), 0.5), dtype=x.dtype)
    nl.store(out, nl.multiply(nl.add(rounded, nl.load(g)), 0.5))
    return out


def masked(x, g, m):
    """Compute functions of elements below the diagonal."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(x.shape[0])[:, None], nl.arange(x.shape[1])[None, :]
    nl.store(out, nl.load(x))
    nl.store(out[p, f], nl.tanh(nl.load(x[p, f], mask=f < p)), mask=f < p)
    return out


def summed(x, g, m):
    """Sum a function along rows."""
    out = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.sum(nl.exp(nl.load(x)), axis=1, keepdims=True))
    return out


@pytest.mark.parametrize("kernel", (normalized, halved, masked, summed))
@pytest.mark.parametrize("columns", (64, 130))
@pytest.mark.parametrize("dtype", (ml_dtypes.bfloat16, np.float16), ids=("bfloat16", "float16"))
def test_kernels__keep_their_bits(kernel, columns: int, dtype) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((128, columns), np.float32)
    x[:12, 5] = EDGES
    g = rng.standard_normal((128, columns), np.float32)
    m = rng.standard_normal((128, 1), np.float32)
    with np.errstate(all="ignore"):
        arrays = [a.astype(dtype) for a in (x, g, m)]
    with forced("tabulate-functions"):
        tabulated = nki.jit(kernel).on("jit")(*arrays)
    with forced("zero-unwritten"):
        computed = nki.jit(kernel).on("jit")(*arrays)
    assert np.array_equal(tabulated.view(np.uint16), computed.view(np.uint16))
    np.testing.assert_allclose(tabulated.astype(np.float32), nki.jit(kernel).on("interpreter")(*arrays).astype(
        np.float32), rtol=2.0 ** -7, atol=1e-3)         # neighbors in bfloat16: a function may round to either


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the functions that kernels call after the pass."""
    return called_after(TabulateFunctions, monkeypatch)


def gelu_of_rows(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = nl.ds(i * 128, 128)
        nl.store(out[rows, :], nl.gelu(nl.load(x[rows, :])))
    return out


@pytest.mark.parametrize("rows, gain, tabulated", [(2048, 2.0, True), (2048, 1.4, False), (256, 2.0, False)])
def test_pass__takes_large_computations_where_the_host_gains(names, monkeypatch, rows, gain, tabulated) -> None:
    monkeypatch.setattr(host_measurements, "gain_of_table", lambda function: gain)
    monkeypatch.setattr(host_measurements, "gain_of_fit", lambda function: 0.0)
    x = np.random.default_rng(0).standard_normal((rows, 128), np.float32).astype(ml_dtypes.bfloat16)
    nki.jit(gelu_of_rows).on("jit")(x)
    assert ("tabulated_gelu" in names) == tabulated and ("gelu" in names) != tabulated
    assert TabulateFunctions.least == 1 << 17 and PIPELINE["tabulate-functions"] == ""


def test_gain_of_table__is_a_positive_number() -> None:
    assert host_measurements.gain_of_table(next(tabulated_functions(function("gelu", BFLOAT16)))) > 0
