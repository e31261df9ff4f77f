# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order that emission chooses where several are timed."""

import math
import random
from dataclasses import fields

import numpy as np
import pytest

from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.isa.instruction import CompareBranch
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen import candidate_programs, emission, fastest, program_order, scheduling_order
from nki_mlir.targets.neuron.codegen.allocate_on_chip import MemoryFull
from nki_mlir.targets.neuron.codegen.candidate_code import with_instructions
from nki_mlir.targets.neuron.codegen.emission import OPTIMIZATIONS, Emission, emit_code, emit_for_values
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.records import Code
from nki_mlir.targets.neuron.codegen.schedule_instructions import Order, Schedules, schedule
from nki_mlir.targets.neuron.codegen.search_options import SearchOptions
from nki_mlir.targets.neuron.codegen.synchronize_engines import synchronized
from nki_mlir.targets.neuron.codegen.unroll_loops import BODY, unrolled
from nki_mlir.targets.neuron.simulator import simulate
from nki_mlir.targets.neuron.timing import time_programs
from tests.targets.neuron.code_builder import Builder
from tests.targets.neuron.codegen.test_address_map import crowded
from tests.targets.neuron.random_code import RandomCode


def time_of(seed: int, options: Emission) -> float:
    return time_programs([emit_code(RandomCode(seed).code, options)]).total_ns


@pytest.mark.parametrize("seed", range(6))
def test_searched_order__is_not_slower_than_any_it_was_chosen_from(seed: int) -> None:
    time = time_of(seed, Emission())
    assert time <= time_of(seed, Emission(reorder=False)) + 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_searched_order__computes_the_same(seed: int) -> None:
    code = RandomCode(seed)
    program = emit_code(code.code, Emission())
    for run in (None, *range(4)):
        result = np.zeros(code.output.shape, np.float32)
        simulate(program, [a.copy() for a in code.arrays], [result], run)
        np.testing.assert_array_equal(result, code.expected())


def test_as_written__writes_out_more_than_by_default() -> None:
    assert (Emission.as_written().unroll_limit or 0) > max(fastest.STRAIGHT.values())


def test_searched_order__is_the_same_each_time() -> None:
    seed = random.Random(1).randint(0, 100)
    assert time_of(seed, Emission()) == time_of(seed, Emission())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("level", [0, 1, 3])
def test_code_that_stays_loops__computes_the_same(monkeypatch: pytest.MonkeyPatch, seed: int, level: int) -> None:
    monkeypatch.setattr(fastest, "STRAIGHT", {1: 10, 3: 20})
    monkeypatch.setattr(fastest, "BODIES", (4, 12))
    monkeypatch.setattr(program_order, "WINDOW", 8)
    code = RandomCode(seed, 40)
    program = emit_code(code.code, Emission(level=level))
    for run in (None, *range(3)):
        result = np.zeros(code.output.shape, np.float32)
        simulate(program, [a.copy() for a in code.arrays], [result], run)
        np.testing.assert_array_equal(result, code.expected())


def tiles_in_a_loop(count: int) -> Code:
    """Load, exponential, sum and store of a tile an iteration."""
    b = Builder()
    x, out = b.hbm("x", (128 * count, 512), "input"), b.hbm("out", (128 * count, 512), "output")
    with b.loop(count) as i:
        t, e = b.on_chip("t", (128, 512)), b.on_chip("e", (128, 512))
        at = (0, {i: 128 * 512})
        b.copy((t, 0, 128, 0, 512), (x, 0, 128, at, 512))
        b.activation((e, 0, 128, 0, 512), (t, 0, 128, 0, 512), "exp")
        b.add((e, 0, 128, 0, 512), (e, 0, 128, 0, 512), (t, 0, 128, 0, 512))
        b.copy((out, 0, 128, at, 512), (e, 0, 128, 0, 512))
    return b.code


def test_window__says_about_how_long_program_order_takes() -> None:
    code = tiles_in_a_loop(400)
    choice = EngineChoice(code.machine)
    program = emit_code(code, Emission(interleave=False, reorder=False, engines=False, issuers=False))
    # The last iteration of a window ends otherwise than one in the middle.
    assert program_order.in_program_order(code, choice) == pytest.approx(program_order.end_of(program), rel=0.02)  # see above


def test_window__cuts_outer_loops_before_long_inner_ones() -> None:
    b = Builder()
    x, out = b.hbm("x", (128, 512), "input"), b.hbm("out", (128, 512), "output")
    for outer, inner in ((20, 50), (4, 300)):
        with b.loop(outer):
            t = b.on_chip(f"t{inner}", (128, 512))
            b.copy((t, 0, 128, 0, 512), (x, 0, 128, 0, 512))
            with b.loop(inner):
                b.activation((t, 0, 128, 0, 512), (t, 0, 128, 0, 512), "exp")
            b.copy((out, 0, 128, 0, 512), (t, 0, 128, 0, 512))
    lengths = [fastest.written_out(program_order.cut_short(b.code, some).body) for some in (10_000, 1_000, 500, 100, 1)]
    assert lengths == [20 * 52 + 4 * 302, 13 * 52 + 302, 4 * 52 + 302, 52 + 48, 3 + 3]
    code, window = b.code, program_order.cut_short(b.code, 100)
    assert (window.name, window.machine, window.globals, window.grid, window.programs) == (
        code.name, code.machine, code.globals, code.grid, code.programs)


def test_much_code__is_not_slower_than_program_order_or_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "STRAIGHT", {1: 100})
    monkeypatch.setattr(fastest, "BODIES", (4, 4))
    monkeypatch.setattr(program_order, "WINDOW", 60)
    time = program_order.end_of(emit_code(tiles_in_a_loop(64), Emission()))
    for other in (Emission.in_program_order(), Emission(unroll_limit=4)):
        assert time <= program_order.end_of(emit_code(tiles_in_a_loop(64), other)) + 1e-6


def test_loops_that_load_data_again__get_longer_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of one outer iteration is as fast as its loads let it be; one of several keeps what they load."""
    for name, value in (("STRAIGHT", {1: 100}), ("BODY", 24), ("BODIES", (24, 96))):
        for module in (fastest, candidate_programs):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    b = Builder()
    x, y = b.hbm("x", (128, 8 * 2048), "input"), b.hbm("y", (128, 8), "output")
    with b.loop(24):
        for k in range(8):
            tile, result = b.on_chip(f"t{k}", (128, 2048)), b.on_chip(f"r{k}", (128, 1))
            b.copy((tile, 0, 128, 0, 2048), (x, 0, 128, 2048 * k, 2048))
            b.add((result, 0, 128, 0, 1), (tile, 0, 128, 0, 1), (tile, 0, 128, 1, 1))
            b.copy((y, 0, 128, k, 1), (result, 0, 128, 0, 1))
    best = fastest.fastest(b.code, EngineChoice(b.code.machine), Emission())
    assert best.candidate.body == 96
    short = program_order.prepared_alone(b.code, fastest.Candidate(24, 24, loads=True), EngineChoice(b.code.machine))
    moved, size = short.schedules.traffic()
    assert short.loads_again() and moved >= 24 * x.bytes_per_partition and size == x.bytes_per_partition + 128 * 8 * 4


def test_orders__know_the_ramp_of_the_tensor_engine() -> None:
    """Products on 64 of 128 rows run at half of its speed. The vendor's order is found as if they did not."""
    b = Builder()
    x = b.hbm("x", (64, 512), "input")
    left, right = b.on_chip("left", (64, 128)), b.on_chip("right", (64, 512))
    b.copy((left, 0, 64, 0, 128), (x, 0, 64, 0, 128))
    b.copy((right, 0, 64, 0, 512), (x, 0, 64, 0, 512))
    for k in range(40):
        total = b.on_chip(f"total{k}", (128, 512), "psum")
        b.matmul((total, 0, 128, 0, 512), (left, 0, 64, 0, 128), (right, 0, 64, 0, 512))
    ratios = {}
    for written in (False, True):
        schedules = Schedules(b.code, EngineChoice(b.code.machine, written=written))
        arrangement = schedules.arrangement(Order())
        candidate_programs.take_addresses(schedules, arrangement)
        end = program_order.end_of(synchronized(b.code, schedules.dependences(arrangement)))
        ratios[written] = arrangement.ns / end
    # The search counts semaphores and transfers a little otherwise than the timed machine.
    assert ratios[False] == pytest.approx(1, rel=0.01) and ratios[True] < 0.7


@pytest.mark.parametrize("seed", [2, 11, 48])
def test_much_code_whose_loads_fill_sbuf__is_tried_with_fewer_loads(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Two orders are tried of much code; the second one limits loads that nothing reads yet, and finds addresses. Where
    neither does, orders follow whose loads leave more room."""
    monkeypatch.setattr(candidate_programs, "FEW", 0)
    monkeypatch.setattr(candidate_programs, "ORDERED", 0)
    code = crowded(seed)
    candidate = fastest.Candidate(BODY, BODY)
    limited = fastest.Prepared(with_instructions(code, candidate), candidate, EngineChoice(code.machine))
    assert [one.addresses is None for one in limited.arrangements(1, 0.0, math.inf, limited.search(1))][:2] == [True, False]
    monkeypatch.setattr(scheduling_order, "LAST", ((100, 0), *scheduling_order.LAST[1:]))
    prepared = fastest.Prepared(with_instructions(code, candidate), candidate, EngineChoice(code.machine))
    tried = list(prepared.arrangements(1, 0.0, math.inf, prepared.search(1)))
    assert [one.addresses is None for one in tried[:2]] == [True, True] and len(tried) == 2 + len(candidate_programs.LOADS)
    assert min(tried, key=lambda one: one.ns).addresses is not None
    (_, program), *_ = prepared.programs(1, lambda: math.inf)
    assert program_order.end_of(program) < 0.9 * program_order.end_of(prepared.in_program_order())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("order", [Order(95, 100), Order(60, 200, 1), Order(10, 50), Order(share=3, passed=1)], ids=str)
def test_any_order__holds_dependences(seed: int, order: Order) -> None:
    program = RandomCode(seed, 60)
    expected = program.expected()
    schedule(program.code, order)
    np.testing.assert_array_equal(program.expected(), expected)


def pipeline(tiles: int) -> Code:
    """Per tile a load, an exponential, a sum and a store."""
    b = Builder()
    x, out = b.hbm("x", (128 * tiles, 512), "input"), b.hbm("out", (128 * tiles, 512), "output")
    for k in range(tiles):
        t, e = b.on_chip(f"t{k}", (128, 512)), b.on_chip(f"e{k}", (128, 512))
        b.copy((t, 0, 128, 0, 512), (x, 128 * k, 128, 0, 512))
        b.activation((e, 0, 128, 0, 512), (t, 0, 128, 0, 512), "exp")
        b.add((e, 0, 128, 0, 512), (e, 0, 128, 0, 512), (t, 0, 128, 0, 512))
        b.copy((out, 128 * k, 128, 0, 512), (e, 0, 128, 0, 512))
    return b.code


def test_arrangement__says_about_how_long_it_takes() -> None:
    code = pipeline(8)
    arrangement = Schedules(code).arrangement(Order())
    program = emit_code(pipeline(8), Emission())
    timing = time_programs([program])
    assert timing.total_ns - timing.launch_ns <= arrangement.ns * 1.02


def in_blocks(columns: int) -> Code:
    """A loop whose iterations use a block each of a tile of eight."""
    b = Builder()
    x, out = b.hbm("x", (128, 8 * columns), "input"), b.hbm("out", (128, 8 * columns), "output")
    tile = b.on_chip("tile", (128, 8, columns))
    with b.loop(8) as i:
        at = (0, {i: columns})
        b.copy((tile, 0, 128, at, columns), (x, 0, 128, at, columns))
        b.activation((tile, 0, 128, at, columns), (tile, 0, 128, at, columns), "exp")
        b.copy((out, 0, 128, at, columns), (tile, 0, 128, at, columns))
    return b.code


@pytest.mark.parametrize("columns,rolled", [(64, True), (8192, False)])
def test_for_values__loops_of_the_device_stay_unless_they_hold_too_much(
        monkeypatch: pytest.MonkeyPatch, columns: int, rolled: bool) -> None:
    monkeypatch.setattr(emission, "FOR_VALUES", 6)
    program = emit_for_values(lambda options: emit_code(in_blocks(columns), options))
    branches = [i for stream in program.streams.values() for i in stream if isinstance(i.op, CompareBranch)]
    assert bool(branches) == rolled
    x = np.random.default_rng(0).standard_normal((128, 8 * columns), np.float32)
    result = np.zeros_like(x)
    simulate(program, [x], [result])
    np.testing.assert_allclose(result, np.exp(x), rtol=1e-5)


def added_loads(columns: int, several: int) -> Code:
    """Load the same tile, or parts of it, several times, and add these."""
    b = Builder()
    x, y = (b.hbm(name, (128, columns), kind) for name, kind in (("x", "input"), ("y", "output")))
    loaded = [(b.on_chip(f"t{k}", (128, columns)), 0, 128, 0, columns) for k in range(several)]
    for tile in loaded:
        b.copy(tile, (x, 0, 128, 0, columns))
    total = b.on_chip("total", (128, columns)), 0, 128, 0, columns
    for k in range(1, several):
        b.add(total, loaded[0] if k == 1 else total, loaded[k])
    b.copy((y, 0, 128, 0, columns), total)
    return b.code


def test_for_values__code_that_fits_only_with_fewer_loads_is_optimized() -> None:
    columns = 26_000                            # three tiles exceed SBUF; with one load there are two
    program = emit_for_values(lambda options: emit_code(added_loads(columns, 2), options))
    x = np.random.default_rng(0).standard_normal((128, columns), np.float32)
    result = np.zeros_like(x)
    simulate(program, [x], [result])
    np.testing.assert_array_equal(result, x + x)


def test_for_values__code_that_never_fits_has_the_error_of_code_without_loops() -> None:
    with pytest.raises(MemoryFull, match="3 tiles that are live at once take 360000"):
        emit_for_values(lambda options: emit_code(added_loads(30_000, 2), options))


def test_for_values__other_errors_are_reported_without_a_search() -> None:
    """Only memory depends on the order and the loads."""
    tried: list[Emission] = []

    def emit(options: Emission) -> None:
        tried.append(options)
        raise Unsupported(feature="this", instead="that")
    with pytest.raises(Unsupported, match="this is not supported"):
        emit_for_values(emit)
    assert len(tried) == 2 and not any(options.reorder for options in tried)


def test_streams_that_are_printed_are_those_that_are_timed() -> None:
    """One way to emit: the default of what prints is that of what times. Who asks for values alone has another."""
    assert neuron.emission() == Emission()


def test_a_loop_that_runs_for_very_long_is_not_timed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_order, "EXECUTED", 10)
    code = RandomCode(5)
    program = emit_code(code.code, Emission(unroll_limit=1))
    result = np.zeros(code.output.shape, np.float32)
    simulate(program, [a.copy() for a in code.arrays], [result], 1)
    np.testing.assert_array_equal(result, code.expected())


def test_bound__is_not_more_than_what_an_order_takes() -> None:
    """One core gets more of HBM than its share, so that copies are bound by its DMA engines."""
    b = Builder()
    x, y = b.hbm("x", (128, 16 * 8192), "input"), b.hbm("y", (128, 16 * 8192), "output")
    for k in range(16):
        t = b.on_chip(f"t{k}", (128, 8192))
        b.copy((t, 0, 128, 0, 8192), (x, 0, 128, 8192 * k, 8192))
        b.copy((y, 0, 128, 8192 * k, 8192), (t, 0, 128, 0, 8192))
    bound = Schedules(b.code).bound()
    assert bound <= program_order.end_of(emit_code(b.code, Emission())) < 1.1 * bound


@pytest.mark.parametrize("seed", range(12))
def test_program_order__takes_no_less_than_its_dependences_say(seed: int) -> None:
    code = unrolled(RandomCode(seed, 60).code)
    choice = EngineChoice(code.machine)
    least = Schedules(code, choice).in_program_order()
    program = emit_code(RandomCode(seed, 60).code, Emission.in_program_order())
    assert 0.5 * program_order.end_of(program) < least <= program_order.end_of(program)


def test_code_that_has_no_loop_to_keep__is_one_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "BODIES", (8, 16))
    straight = fastest.Candidate(fastest.STRAIGHT[1], BODY)
    assert fastest.candidates(pipeline(8), None, 1) == [straight]
    assert fastest.candidates(tiles_in_a_loop(8), None, 1) == [straight, fastest.Candidate(8, 8)]
    monkeypatch.setattr(fastest, "STRAIGHT", {1: 20})
    assert fastest.candidates(pipeline(8), None, 1) == [fastest.Candidate(20, BODY)]
    assert fastest.candidates(tiles_in_a_loop(16), None, 1) == [fastest.Candidate(8, 8), fastest.Candidate(16, 16)]


def test_orders_with_equal_choices__are_one_arrangement() -> None:
    schedules = Schedules(pipeline(8), EngineChoice(pipeline(1).machine, False, False))
    assert schedules.arrangement(Order(share=0)) is schedules.arrangement(Order(share=2)) is schedules.arrangement(Order(issue=False))
    schedules = Schedules(pipeline(8))
    assert schedules.arrangement(Order(ahead=50)) is not schedules.arrangement(Order(ahead=0))


def test_by_default__all_optimizations_are_on():
    options = Emission()
    assert all(getattr(options, name) is True for name in OPTIMIZATIONS)
    assert (options.spill, options.vendor, options.level, options.unroll_limit) == (True, False, 1, None)
    nothing = Emission.in_program_order()
    assert [name for name in OPTIMIZATIONS if getattr(nothing, name)] == []


def test_every_option_of_the_search_is_on():
    """Each saves time on the device where it applies; what it costs is bounded by the level."""
    options = SearchOptions()
    switches = [field.name for field in fields(SearchOptions) if field.type in (bool, "bool")]
    assert len(switches) >= 10 and all(getattr(options, name) for name in switches)
