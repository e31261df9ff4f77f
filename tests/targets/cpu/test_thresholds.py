# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An option that is a least or greatest size takes exactly this size, and not the next one."""

from math import prod
from types import SimpleNamespace

import pytest

from nki_mlir.dialects.access import Linear
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, DType
from nki_mlir.targets.cpu import host_measurements
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.addressed_nest import with_memory
from nki_mlir.targets.cpu.contraction import MULTIPLY_ADD, prefetched_positions, tile_of
from nki_mlir.targets.cpu.function_pass import function_pass
from nki_mlir.targets.cpu.passes import fit_functions
from nki_mlir.targets.cpu.passes.hoist_tiles import HoistTiles, RepeatedTile
from nki_mlir.targets.cpu.passes.pair_factors import PairFactors
from nki_mlir.targets.cpu.passes.prefetch_rows import LEAST_ROWS
from nki_mlir.targets.cpu.schedule import WITH_32_REGISTERS, schedule
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.overlap import ByteRegion

M, N, K = 24, 40, 16


def product(left: int = M) -> Nest:
    """Return a product of two factors in bfloat16."""
    return Nest((left, N, K), frozenset({2}), (Operand(BFLOAT16, (K, 0, 1)), Operand(BFLOAT16, (0, 1, N))), 0,
                (Operand(FLOAT32, (N, 1, 0)),), MULTIPLY_ADD, (4,))


def row_function(columns: int, count: int = 1) -> Nest:
    """Return this many functions of a row, one after the other."""
    steps = tuple(Step("activation", FLOAT32, (0 if k == 0 else k + 1,), "exp") for k in range(count))
    return Nest((columns,), frozenset(), (Operand(FLOAT32, (1,)),), 0, (Operand(FLOAT32, (1,)),), steps, (count + 1,))


@pytest.mark.parametrize("name", ("widen-factors", "pair-factors"))
def test_factors__are_converted_that_products_read_often_enough(name: str) -> None:
    nest = product()
    larger, smaller = max(M * K, N * K), min(M * K, N * K)
    often = nest.elements // larger                     # each element of the larger factor is read so often
    size = larger * (FLOAT32.itemsize if name == "widen-factors" else BFLOAT16.itemsize)

    def takes(least: int, most: int) -> bool:
        one = function_pass(name, f"least={least} most={most}")
        return one.are_worth_it(nest) if isinstance(one, PairFactors) else one.are_worth_it(nest, [0, 1])
    assert smaller < larger and takes(often, size)
    assert not takes(often + 1, size) and not takes(often, size - 1)


def test_tiles__are_computed_before_a_loop_if_there_is_room_for_them() -> None:
    one = function_pass("hoist-tiles", "most=4096 cached=1024 times=8")
    assert isinstance(one, HoistTiles)
    one.bytes_left = one.most

    def fits(size: int, dtype: DType = FLOAT32, times: int = 8) -> bool:
        call = SimpleNamespace(nest=SimpleNamespace(outputs=(Operand(dtype, (1,)),)))
        return one.fits(RepeatedTile(cpu.NativeBlock(), call, None, size, ()), SimpleNamespace(span=range(times)))
    assert fits(4096) and not fits(4160)
    assert fits(1024, times=2) and fits(1088, times=8) and not fits(1088, times=7)
    assert fits(512, BFLOAT16) and not fits(576, BFLOAT16)


def test_products__prefetch_factors_in_panels_that_enough_tiles_read() -> None:
    """A tile prefetches one line for each iteration, whose positions have as many lines as there are tiles."""
    tile, per_position = tile_of(64), tile_of(64).width * FLOAT32.itemsize // host.LINE

    def positions(rows: int, columns: int = tile.width, depth: int = 32) -> int:
        return prefetched_positions(Nest((rows, columns, depth), frozenset({2}), (
            Operand(FLOAT32, (1, 0, rows)), Operand(FLOAT32, (0, 1, columns))), 0, (Operand(FLOAT32, (columns, 1, 0)),),
            MULTIPLY_ADD, (4,)))
    height = per_position * tile.rows
    assert [positions(height * n) for n in (1, 2, 3, 4, 8, 100)] == [1, 2, 2, 4, 8, 8]
    assert positions(height - 1) == 0 and positions(8 * height, depth=36) == 4 and positions(8 * height, depth=1) == 1
    assert positions(8 * height, columns=2 * tile.width) == 0


def test_wide_tiles__are_of_factors_that_products_read_often_enough() -> None:
    nest = product()
    assert function_pass("widen-tiles", f"least={N}").is_read_often(nest, 0)
    assert not function_pass("widen-tiles", f"least={N + 1}").is_read_often(nest, 0)


@pytest.mark.parametrize("functions", (1, 2))
def test_stores__are_delayed_in_loops_of_enough_iterations_and_functions(functions: int) -> None:
    plan = schedule(row_function(4096, functions))
    step = plan.lanes * plan.unroll
    least = 4096 // step
    delays = function_pass("delay-stores", f"least={least} functions={functions}")
    assert delays.is_worth_it(row_function(4096, functions))
    assert not function_pass("delay-stores", f"least={least + 1}").is_worth_it(row_function(4096, functions))
    assert not function_pass("delay-stores", f"functions={functions + 1}").is_worth_it(row_function(4096, functions))


@pytest.mark.parametrize("ratio, percent", [(1.5, 150), (1.25, 125), (3.0, 300)])
def test_functions__are_looked_up_from_the_least_gain_on(ratio: float, percent: int,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gain_of_table", "gain_of_fit"):
        monkeypatch.setattr(host_measurements, name, lambda function: ratio)
    monkeypatch.setattr(host, "lanes", lambda: WITH_32_REGISTERS)
    monkeypatch.setattr(host, "multiplies_pairs", lambda: True)
    fits: list[object] = [object()]
    monkeypatch.setattr(fit_functions, "fit_of", lambda function: fits[0])

    class Function:
        alone = None
    for name in ("tabulate-functions", "fit-functions"):
        gains = {gain: function_pass(name, f"gain={gain}").is_worth_it(Function()) for gain in (0, percent, percent + 1)}
        assert gains == {0: True, percent: True, percent + 1: False}
    fits[0] = None
    assert not function_pass("fit-functions", "gain=0").is_worth_it(Function())


def test_words__are_loaded_for_sums_of_enough_elements() -> None:
    row = Operand(BFLOAT16, (1024, 32, 1))
    steps = (Step("convert", FLOAT32, (0,)), Step("alu", FLOAT32, (1, 2), "add"))
    extents = (3, 32, 32)
    nest = Nest(extents, frozenset({1, 2}), (row,), 0, (Operand(FLOAT32, (1, 0, 0)),), steps, (3,))
    added = prod(extents[1:])
    assert schedule(nest).folds
    assert function_pass("load-words", f"least={added}").is_worth_it(nest)
    assert not function_pass("load-words", f"least={added + 1}").is_worth_it(nest)
    copies = row_function(64)
    assert not schedule(copies).folds and function_pass("load-words", "least=1000000").is_worth_it(copies)


def test_rows__are_prefetched_if_they_are_short_many_and_on_different_pages() -> None:
    short, page = 1024, host.PAGE

    def ahead(row: int, step: int, rows: int) -> int:
        operand = Operand(FLOAT32, (step // 4, 1))
        nest = Nest((rows, row // 4), frozenset(), (operand,), 0, (operand,), (Step("alu", FLOAT32, (0, 0), "add"),), (2,))
        return function_pass("prefetch-rows", f"short={short}").prefetch_distance(nest, operand)
    assert ahead(short, page, LEAST_ROWS) == 2 * page and ahead(short // 2, page, LEAST_ROWS) == 4 * page
    assert ahead(host.LINE, 2 * page, 128) == 2 * short // host.LINE * 2 * page
    assert ahead(short, -page, LEAST_ROWS) == -2 * page
    for row, step, rows in ((short + 4, page, LEAST_ROWS), (host.LINE - 4, page, 128), (short, page - 4, 128),
                            (short, page, LEAST_ROWS - 1)):
        assert ahead(row, step, rows) == 0, (row, step, rows)


def test_rows__of_inputs_alone_are_prefetched() -> None:
    """A tile that the kernel wrote is in a cache."""
    operand, tile = Operand(FLOAT32, (host.PAGE // 4, 1)), cpu.ScratchBuffer(16 * host.PAGE, 0)
    nest = Nest((16, 128), frozenset(), (operand, operand), 0, (operand,), (Step("alu", FLOAT32, (0, 1), "add"),), (3,))
    for roots, ahead in ((("x", "y"), (0, 1)), (("x", tile), (0,)), ((tile, "y"), (1,)), ((tile, tile), ()), (("o", tile), ())):
        regions = [ByteRegion(root, Linear(), tile.size, Linear()) for root in (*roots, "o")]
        call = cpu.compute(nest, regions)
        function = SimpleNamespace(body=cpu.NativeBlock([call]), inputs=("x", "y"))
        function_pass("prefetch-rows").rewrite(function)
        assert with_memory(call.function).use.ahead == tuple((k, 4 * host.PAGE) for k in ahead), roots


@pytest.mark.parametrize("ratio, percent", [(1.25, 125), (1.0, 100)])
def test_vectors__are_halved_from_the_least_gain_on(ratio: float, percent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Operand(FLOAT32, (1,))
    nest = Nest((1024,), frozenset(), (row, Operand(FLOAT32, (0,))), 0, (row,), (Step("alu", FLOAT32, (0, 1), "add"),), (3,))
    monkeypatch.setattr(host_measurements, "gain_of_halves", lambda: ratio)
    monkeypatch.setattr(host_measurements, "caches", lambda: host.Caches(1 << 10, 8196, 1 << 20))
    for options, takes in ((f"gain={percent}", True), (f"gain={percent + 1}", False), ("gain=0", True),
                           ("gain=0 least=8196", True), ("gain=0 least=8197", False)):
        assert function_pass("halve-vectors", options).is_worth_it(nest) == takes
    monkeypatch.setattr(host_measurements, "caches", lambda: host.Caches(1 << 10, 8197, 1 << 20))
    assert not function_pass("halve-vectors", "gain=0").is_worth_it(nest)


@pytest.mark.skipif(host.lanes() != WITH_32_REGISTERS, reason="no registers of 64 bytes")
def test_gain_of_halves__is_a_positive_number() -> None:
    assert 0.2 < host_measurements.gain_of_halves() < 5


def test_factors__are_prefetched_if_they_leave_the_second_cache_one_after_the_other() -> None:
    """The distance is that of the loop's next factor, which lies behind or before all of this one."""
    columns, depth, slot, turns = tile_of(64).width, 32, 5, 16
    rows = 8 * tile_of(64).rows
    nest = Nest((rows, columns, depth), frozenset({2}), (
        Operand(FLOAT32, (1, 0, rows)), Operand(FLOAT32, (0, 1, columns))), 0, (Operand(FLOAT32, (columns, 1, 0)),),
        MULTIPLY_ADD, (4,))
    assert prefetched_positions(nest)
    size = columns * depth * FLOAT32.itemsize

    def ahead(step: int, span: range = range(turns), least: int = turns * size, **changes: object) -> int:
        region = ByteRegion("factors", Linear(), turns * size, Linear(64, ((slot, step), (slot + 1, 4 * step))))
        call = {"nest": nest, "symbols": (), "regions": [ByteRegion("rows", Linear(), 1, Linear(0, ((slot, 8),))), region]}
        return function_pass("prefetch-factors", f"least={least}").prefetch_distance(SimpleNamespace(**call | changes), slot, span)
    assert [ahead(step) for step in (size, size + 4, -size, 3 * size)] == [size, size + 4, -size, 3 * size]
    assert ahead(size - 4) == ahead(4 - size) == ahead(0) == 0
    assert ahead(size, range(0, 2 * turns, 2)) == 2 * size and ahead(size // 2, range(0, 2 * turns, 2)) == size
    assert ahead(size, range(turns - 1)) == 0 and ahead(size, least=turns * size + 1) == 0
    assert ahead(size, symbols=(Linear(),)) == 0 and ahead(size, nest=row_function(64)) == 0
