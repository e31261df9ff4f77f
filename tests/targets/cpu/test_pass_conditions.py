# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conditions of single passes, on computations that are written by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from nki_mlir.targets.cpu import fitted, host_measurements
from nki_mlir.targets.cpu.contraction import TileProduct
from nki_mlir.targets.cpu.fitted import fit_of, name_of
from nki_mlir.targets.cpu.native_nodes import Compute, NativeBlock, NativeLoop, ScratchBuffer, compute, slot_value
from nki_mlir.targets.cpu.passes.deepen_products import DeepenProducts
from nki_mlir.targets.cpu.passes.fit_functions import FitFunctions
from nki_mlir.targets.cpu.passes.forward_constants import with_constant
from nki_mlir.targets.cpu.passes.pair_factors import PairFactors
from nki_mlir.targets.cpu.passes.parallelize import running_cost
from nki_mlir.targets.cpu.passes.round_pairs import RoundPairs
from nki_mlir.targets.cpu.passes.round_words import RoundWords
from nki_mlir.targets.cpu.passes.tabulate_functions import TabulateFunctions
from nki_mlir.targets.cpu.passes.trim_tiles import is_plain
from nki_mlir.targets.cpu.schedule import cost_of
from nki_mlir.targets.cpu.tabulated import tabulated_functions
from nki_mlir.waist.nest import Nest, Operand, Step

SLOT = 9


def buffers(*sizes: int) -> list[ScratchBuffer]:
    return [ScratchBuffer(size, number) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("pairs", [False, True])
def test_product_of_several_iterations__keeps_the_form_of_the_routine(pairs: bool) -> None:
    """Six products of 16 terms: three at a time are 48 terms."""
    rows, columns, terms, iterations = 8, 32, 16, 6
    nest = Nest((rows, columns, terms), frozenset({2}), (Operand(FLOAT32, (1, 0, rows)), Operand(FLOAT32, (0, 1, columns))),
                0, (Operand(FLOAT32, (columns, 1, 0)),),
                (Step("alu", FLOAT32, (0, 1), "multiply"), Step("alu", FLOAT32, (2, 3), "add")), (4,))
    left, right, total = [buffer.region for buffer in buffers(
        4 * rows * terms * iterations, 4 * columns * terms * iterations, 4 * rows * columns)]
    regions = [replace(region, offset=Linear(0, ((SLOT, 4 * extent * terms),)))
               for region, extent in ((left, rows), (right, columns))] + [total]
    product = Compute(TileProduct(nest, pairs=pairs), tuple(region.address for region in regions), nest, regions)
    deepened = DeepenProducts(depth=50).deepened(product, SLOT, range(iterations))
    assert deepened is not None
    deep, times = deepened
    assert (times, deep.nest.extents, deep.nest.reduced) == (3, (rows, columns, 3, terms), {2, 3})
    assert [operand.strides[2] for operand in deep.nest.operands] == [rows * terms, columns * terms, 0]
    assert deep.function == TileProduct(deep.nest, pairs=pairs)


@pytest.mark.parametrize("kind, forwards", [("activation", True), ("lookup", False)])
def test_number_of_a_tile__is_no_constant_of_code_that_reads_tables(kind: str, forwards: bool) -> None:
    """A step that reads a table names an input by its number, which the removed input would change."""
    tile, source, table, target = buffers(256, 128, 1 << 18, 256)
    inputs = (Operand(FLOAT32, (1,)), Operand(BFLOAT16, (1,)), Operand(FLOAT32, (0,)))
    step = Step("lookup", FLOAT32, (1, 2), "exp") if kind == "lookup" else Step("activation", FLOAT32, (2,), "exp")
    nest = Nest((64,), frozenset(), inputs, 0, (Operand(FLOAT32, (1,)),),
                (step, Step("alu", FLOAT32, (0, 4), "multiply")), (5,))
    call = compute(nest, [buffer.region for buffer in (tile, source, table, target)])
    forwarded = with_constant(call, tile, Step("constant", FLOAT32, (), "", "0.5"))
    assert (forwarded is not None) == forwards
    if forwarded is not None:
        assert [region.root for region in forwarded.regions] == [source, table, target]
        constant, function, product = forwarded.nest.steps
        assert (constant.number, function.operands, product.operands) == ("0.5", (1,), (3, 4))


@pytest.mark.parametrize("pairs, rate, is_faster", [(0, 3.0, True), (0, 1.0, False), (1, 3.0, True), (1, 1.0, True)])
def test_words_of_pairs__are_multiplied_where_that_is_faster_or_the_option_says_so(
        pairs: int, rate: float, is_faster: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_measurements, "rate_of_unit", {"pairs": rate, "float32": 2.0}.__getitem__)
    assert PairFactors(pairs=pairs).is_faster() is is_faster


def computation(*steps: Step, dtype: DType = FLOAT32, columns: int = 64) -> Compute:
    """Compute a tile from another one."""
    source, target = buffers(columns * dtype.itemsize, columns * dtype.itemsize)
    nest = Nest((columns,), frozenset(), (Operand(dtype, (1,)),), 0, (Operand(dtype, (1,)),), steps, (1 + len(steps),))
    return compute(nest, [source.region, target.region])


def test_time_of_a_block__counts_the_iterations_of_all_loops_around() -> None:
    def loop(span: range | None, *nodes: object) -> NativeLoop:
        return NativeLoop(SLOT, Linear(), Linear(), Linear(1), span, NativeBlock([*nodes]))
    call = computation(Step("activation", FLOAT32, (0,), "exp"))
    once = cost_of(call.nest)
    block = NativeBlock([loop(range(3), call, loop(range(0, 10, 2), call)), loop(None, call)])
    assert running_cost(block) == pytest.approx((3 + 3 * 5 + 1) * once)
    assert running_cost(block, 4) == pytest.approx(4 * running_cost(block))


@pytest.mark.parametrize("source, narrow, repairs", [
    (FLOAT32, BFLOAT16, True), (FLOAT32, FLOAT16, False), (BFLOAT16, BFLOAT16, False)])
def test_roundings_are_in_pairs__where_those_to_bfloat16_repair_nan(source: DType, narrow: DType, repairs: bool) -> None:
    """A NaN of float32 may have bits in its lower half alone, one that was a bfloat16 has none there."""
    nest = computation(Step("convert", FLOAT32, (0,)), Step("convert", narrow, (2,)), Step("convert", FLOAT32, (3,)),
                       Step("alu", FLOAT32, (4, 4), "add"), Step("convert", source, (5,)), dtype=source).nest
    assert RoundPairs().is_worth_it(nest) is repairs
    assert RoundPairs(always=1).is_worth_it(nest)


@pytest.mark.parametrize("functions, rounds", [
    (("add",), True), (("add", "multiply"), False), (("add", "add", "multiply"), True), (("maximum", "divide"), False),
    (("add",) * 6 + ("divide",), False), (("add",) * 7 + ("divide",), True), (("exp",), True), (("gelu",), False),
    (("gelu",) + ("add",) * 6, False), (("gelu",) + ("add",) * 7, True)], ids=str)
def test_roundings_are_products_of_words__where_multipliers_have_less_to_do_than_other_units(
        functions: tuple[str, ...], rounds: bool) -> None:
    steps = [Step("alu", FLOAT32, (k + 1, k + 1), fn) if fn not in ("exp", "gelu") else
             Step("activation", FLOAT32, (k + 1,), fn) for k, fn in enumerate(functions)]
    nest = computation(*steps).nest
    assert RoundWords().is_worth_it(nest) is rounds
    assert RoundWords(always=1).is_worth_it(nest)


def test_table_of_polynomials__is_a_constant_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """On hosts of any instructions."""
    function = next(iter(tabulated_functions(computation(
        Step("convert", FLOAT32, (0,)), Step("activation", FLOAT32, (2,), "gelu"), Step("convert", BFLOAT16, (3,)),
        dtype=BFLOAT16).nest)))
    fit, code, kept = fit_of(function.alone), SimpleNamespace(), []
    monkeypatch.setattr(fitted, "keep_table", lambda *arguments: kept.append(arguments) or slot_value(SLOT))
    region, name = FitFunctions().table(code, function)
    assert fit is not None and kept == [(code, function.alone, fit.table)]
    assert (region.root, region.base, region.size, name) == (
        "constants", slot_value(SLOT), fit.table.nbytes, name_of(function, fit))


@pytest.mark.parametrize("percent, is_tabulated", [(149.9, False), (150, True), (151, True)])
def test_functions_are_tabulated__that_take_half_as_long_again_as_lookups(
        percent: float, is_tabulated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    function = next(iter(tabulated_functions(computation(
        Step("convert", FLOAT32, (0,)), Step("activation", FLOAT32, (2,), "gelu"), Step("convert", BFLOAT16, (3,)),
        dtype=BFLOAT16).nest)))
    monkeypatch.setattr(host_measurements, "gain_of_table", lambda _: percent / 100)
    assert TabulateFunctions().is_worth_it(function) is is_tabulated
    assert TabulateFunctions(gain=0).is_worth_it(function)


def test_tiles_are_trimmed__whose_calls_touch_all_that_their_operands_name() -> None:
    """Not those whose elements depend on a mask, a limit or a number that is known at run time."""
    call = computation(Step("alu", FLOAT32, (0, 0), "add"))
    first = (Constraint(Linear(31, (), ((0, -1),)), False),)
    others = [compute(replace(call.nest, mask=first), call.regions), compute(replace(call.nest, limits=first), call.regions),
              compute(replace(call.nest, symbols=1), call.regions, (Linear(3),))]
    assert is_plain(call) and not any(map(is_plain, others))
