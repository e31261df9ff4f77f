# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Iterations of a register loop that overlap: values under every order, proofs of the checker, dependences between them."""

import os
import random
from itertools import product

import numpy as np
import pytest

from nki_mlir.dialects.access import SBUF, Access, Linear, Tile
from nki_mlir.dialects.isa.instruction import CompareBranch, RangeClear
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, UINT8
from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.codegen import carried_dependences as carried
from nki_mlir.targets.neuron.codegen.allocate_on_chip import allocate
from nki_mlir.targets.neuron.codegen.carried_dependences import advance_of, is_carried
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.iteration_waits import shares, straight_loops
from nki_mlir.targets.neuron.codegen.records import Block, DeviceBuffer, Loop, LoopVariable, compute
from nki_mlir.targets.neuron.codegen.synchronize_engines import overlapped, synchronized
from nki_mlir.targets.neuron.simulator import simulate
from nki_mlir.waist.overlap import region_of
from tests.targets.neuron.code_builder import Builder, run_in_order
from tests.targets.neuron.random_code import COLUMNS, ROWS, RandomCode

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
FIRST = int(os.environ.get("NKI_MLIR_FUZZ_SEED", "0")) * 1000 if FUZZ else 0
SEEDS = range(FIRST, FIRST + (400 if FUZZ else 24))


class LoopedCode(RandomCode):
    """Random code with two loops whose bodies are straight-line code."""

    def steps(self, count: int, depth: int = 0) -> None:
        for _ in range(2):
            iterations, step = self.random.choice(((2, 1), (3, 1), (5, 1), (2, 2), (3, 2)))
            with self.b.loop(iterations, self.random.randint(0, 1), step) as i:
                self.variables.append(i)
                fresh = self.b.on_chip("f", (ROWS, COLUMNS))
                self.b.memset((fresh, 0, ROWS, 0, COLUMNS), 1)
                self.tiles.append(fresh)
                for _ in range(self.random.randint(1, count)):
                    self.instruction()
                self.tiles.remove(fresh)
                self.variables.pop()
            for _ in range(self.random.randint(0, 2)):
                self.instruction()


def clears_in_loops(program):
    """Barriers inside of loops, by their clears."""
    count = 0
    for stream in program.streams.values():
        for at, instruction in enumerate(stream):
            op = instruction.op
            if isinstance(op, CompareBranch) and op.target <= at:
                count += sum(isinstance(inner.op, RangeClear) for inner in stream[int(op.target):at])
    return count


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", SEEDS)
def test_iterations_that_overlap__give_the_values_of_program_order(seed):
    looped = LoopedCode(seed, 14)
    expected = looped.expected()
    allocate(looped.code)
    assert len(straight_loops(looped.code)) == 2
    assert clears_in_loops(synchronized(looped.code)) == 2
    program = synchronized(looped.code, overlap=True)
    assert clears_in_loops(program) == 0
    report = check_streams([program])
    assert (report.verdict, report.violations) == ("proved", [])
    for scheduler in (None, *range(5)):
        output = np.zeros_like(expected)
        simulate(program, [a.copy() for a in looped.arrays], [output], scheduler)
        np.testing.assert_array_equal(output, expected)


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_loops_in_loops_and_branches__have_iterations_that_overlap(seed):
    drawn = RandomCode(seed, 30)
    expected = drawn.expected()
    allocate(drawn.code)
    program = synchronized(drawn.code, overlap=True)
    assert check_streams([program]).violations == []
    for scheduler in (None, *range(3)):
        output = np.zeros_like(expected)
        simulate(program, [a.copy() for a in drawn.arrays], [output], scheduler)
        np.testing.assert_array_equal(output, expected)


def one_loop(adds, copies):
    """A loop of so many steps."""
    b = Builder()
    x, y = (b.hbm(name, (ROWS, COLUMNS), kind) for name, kind in (("x", "input"), ("y", "output")))
    tile = b.on_chip("t", (ROWS, COLUMNS))
    part = tile, 0, ROWS, 0, COLUMNS
    b.memset(part, 1)
    with b.loop(3):
        for _ in range(copies):
            b.copy(part, (x, 0, ROWS, 0, COLUMNS))
        for _ in range(adds):
            b.add(part, part, part)
    b.copy((y, 0, ROWS, 0, COLUMNS), part)
    return b.code


@pytest.mark.parametrize(("adds", "copies", "overlaps"), [(1_200, 1, True), (10, 1_020, True), (10, 1_030, False)])
def test_long_bodies__overlap_where_no_semaphore_can_overflow(adds, copies, overlaps):
    """16 for each transfer, and an engine may be two iterations ahead of another."""
    code = one_loop(adds, copies)
    allocate(code)
    assert clears_in_loops(synchronized(code, overlap=True)) == (not overlaps)
    assert (overlapped(code) is not None) == overlaps


@pytest.mark.parametrize(("iterations", "moves", "overlaps"), [(48, True, True), (49, True, False), (49, False, True)])
def test_an_engine_that_nothing_holds_up__overflows_no_semaphore(iterations, moves, overlaps, monkeypatch):
    """Where each iteration has other columns, the engine that writes them may be all iterations ahead: 4 signals each,
    and 4 before the loop."""
    monkeypatch.setattr("nki_mlir.dialects.isa.instruction.SEMAPHORE_MAX", 196)      # of the emission and the simulator
    b, width = Builder(), 4 * iterations
    y = b.hbm("y", (ROWS, width), "output")
    sums, squares = b.on_chip("s", (ROWS, width)), b.on_chip("q", (ROWS, width))
    b.memset((squares, 0, ROWS, 0, width), 2)
    b.memset((sums, 0, ROWS, 0, width), 1)
    with b.loop(iterations) as i:
        for k in range(4):
            column = (k, {i: 4}) if moves else k
            add, activate = [((tile, 0, ROWS, column, 1), (other, 0, ROWS, column, 1)) for tile, other in (
                (sums, squares), (squares, sums))]
            b.add(*add, add[1], "maximum", engine="gpsimd")
            b.activation(*activate)
    b.copy((y, 0, ROWS, 0, width), (sums, 0, ROWS, 0, width))
    expected = np.zeros(y.shape, np.float32)
    run_in_order(b.code, {y: expected})
    allocate(b.code)
    program = synchronized(b.code, overlap=True)
    assert clears_in_loops(program) == (not overlaps)
    assert check_streams([program]).verdict == "proved"
    for scheduler in (None, *range(10)):
        output = np.zeros_like(expected)
        simulate(program, [], [output], scheduler)
        np.testing.assert_array_equal(output, expected)


def scattered(steps):
    """A loop of so many steps, each at addresses that registers compute."""
    b = Builder()
    x, y = (b.hbm(name, (ROWS, COLUMNS), kind) for name, kind in (("x", "input"), ("y", "output")))
    tile = b.on_chip("t", (ROWS, COLUMNS))
    b.copy((tile, 0, ROWS, 0, COLUMNS), (x, 0, ROWS, 0, COLUMNS))
    with b.loop(3) as i:
        for k in range(steps):
            at = [(0, {compute("mod", compute("add", compute("mult", i, m), k), COLUMNS - 8): 1}) for m in (7, 13, 29)]
            b.add(*((tile, 0, ROWS, start, 8) for start in at), "maximum", ("vector", "gpsimd")[k % 2])
    b.copy((y, 0, ROWS, 0, COLUMNS), (tile, 0, ROWS, 0, COLUMNS))
    return b.code, x, y


@pytest.mark.parametrize(("steps", "overlaps"), [(200, True), (700, False)])
def test_bodies_at_computed_addresses__overlap_where_few_pairs_of_steps_depend(steps, overlaps, monkeypatch):
    """Of 700 steps half a million pairs would be compared."""
    compared, depends = [], carried.LaterRegions.depends
    monkeypatch.setattr(carried.LaterRegions, "depends", lambda *args: compared.append(0) or depends(*args))
    code, _, _ = scattered(steps)
    allocate(code)
    assert clears_in_loops(synchronized(code, overlap=True)) == (not overlaps)
    assert len(compared) <= carried.PAIRS and bool(compared) == overlaps


@pytest.mark.parametrize("pairs", [0, 4_000])
def test_loops_of_too_many_pairs__give_the_values_of_program_order(pairs, monkeypatch):
    monkeypatch.setattr(carried, "PAIRS", pairs)
    code, x, y = scattered(80)
    values = np.random.default_rng(1).integers(-9, 10, (ROWS, COLUMNS)).astype(np.float32)
    expected = np.zeros_like(values)
    run_in_order(code, {x: values.copy(), y: expected})
    allocate(code)
    program = synchronized(code, overlap=True)
    assert clears_in_loops(program) == 1
    assert check_streams([program]).violations == []
    for scheduler in (None, *range(3)):
        output = np.zeros_like(expected)
        simulate(program, [values.copy()], [output], scheduler)
        np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("seed", range(6))
def test_without_overlap__engines_meet_in_each_iteration(seed):
    looped = LoopedCode(seed, 14)
    program = emit_code(looped.code, Emission(unroll_limit=1, overlap=False))
    assert clears_in_loops(program) == 2
    assert not any("For" in semaphore.name for semaphore in program.semaphores)


def test_a_body_with_a_loop_or_a_branch__is_not_straight():
    inner = Loop(LoopVariable("j", 0, 3), range(4), Block())
    outer = Loop(LoopVariable("i", 0, 3), range(4), Block([inner]))
    drawn = RandomCode(1, 3, loops=False)
    drawn.code.body.nodes.append(outer)
    assert straight_loops(drawn.code) == []


@pytest.mark.parametrize(("counts", "queues", "expected"), [
    ({1: 3}, 8, {1: 3}), ({1: 30}, 8, {1: 8}), ({1: 30, 2: 1}, 8, {1: 7, 2: 1}), ({1: 6, 2: 6}, 8, {1: 4, 2: 4}),
    ({1: 1, 2: 1, 3: 1, 4: 1, 5: 30}, 8, {1: 1, 2: 1, 3: 1, 4: 1, 5: 4}), ({}, 8, {})])
def test_queues__are_shared_by_how_much_goes_through_them(counts, queues, expected):
    assert shares(counts, queues) == expected


# -- dependences between iterations ------------------------------------------------------------------------------------
BUFFER, OTHER = (DeviceBuffer(name, SBUF, (128, 4096), FLOAT32) for name in "ab")


def bytes_of(tile, iteration):
    access, size = tile.access, tile.dtype.itemsize
    (lane_step, lanes), *dims = access.dims
    for lane, *point in product(range(lanes), *(range(count) for _, count in dims)):
        row = access.partition.at((iteration,)) + lane * lane_step
        start = access.free.at((iteration,)) + sum(step * k for (step, _), k in zip(dims, point))
        yield from ((row, start * size + k) for k in range(size))


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", SEEDS)
def test_regions_of_later_iterations__meet_where_bytes_are_shared(seed):
    r = random.Random(seed)
    variable = LoopVariable("i", 0, 20)
    count = 0
    for _ in range(100):
        span = range(0, r.choice((2, 3, 6)) * (step := r.choice((1, 2))), step)
        loop = Loop(variable, span, Block())
        moves = r.choice((0, 0, 1, 2, 4, 8, 32))
        lanes = r.choice((0, 0, 0, 1, 2))

        def tile():
            dtype = r.choice((FLOAT32, BFLOAT16))
            mine = moves * 4 // dtype.itemsize if r.random() < 0.9 else r.choice((0, 1, 3))
            forms = [Linear(r.randint(0, most), ((0, factor),) if factor else ())
                     for factor, most in ((lanes, 3), (mine, 24))]
            dims = ((1, r.randint(1, 4)), *((r.choice((1, 2, 4, 16)), r.randint(1, 4)) for _ in range(r.randint(1, 2))))
            return Tile(r.choice((*[BUFFER] * 5, OTHER)), SBUF, (128, 4096), FLOAT32, Access(dtype, *forms, dims))

        one, other = tile(), tile()
        regions = [region_of(t.access, t.handle, symbols=(variable,), ranges=((0, 20),)) for t in (one, other)]
        places = [[set(bytes_of(t, i)) for i in span] for t in (one, other)]
        shared = one.handle is other.handle and any(
            places[0][k] & places[1][m] for k in range(len(span)) for m in range(k + 1, len(span)))
        advances = [advance_of(region, loop.variable) for region in regions]
        assert is_carried(*regions, *advances, loop) or not shared
        count += shared
    assert count or FUZZ                # one seed in several hundred draws no pair that meets


@pytest.mark.parametrize("dtype", [UINT8, BFLOAT16], ids=str)
def test_runs_of_later_iterations__meet_exactly_where_bytes_are_shared(dtype):
    """Runs that move forwards or backwards, and overlap in as little as one element."""
    variable, span = LoopVariable("i", 0, 2), range(3)
    for moves, start, *counts in product(range(-3, 4), range(-7, 8), range(1, 4), range(1, 4)):
        tiles = [Tile(BUFFER, SBUF, BUFFER.shape, FLOAT32, Access(
            dtype, Linear(), Linear(first, ((0, moves),) if moves else ()), ((1, 1), (1, count))))
            for first, count in zip((20, 20 + start), counts)]
        regions = [region_of(t.access, t.handle, symbols=(variable,), ranges=((0, 2),)) for t in tiles]
        places = [[set(bytes_of(t, i)) for i in span] for t in tiles]
        shared = any(places[0][k] & places[1][m] for k in span for m in span[k + 1:])
        advances = [advance_of(region, variable) for region in regions]
        assert is_carried(*regions, *advances, Loop(variable, span, Block())) == shared


def test_carried_dependences__are_on_all_transfers_and_on_the_last_of_an_engine():
    """Transfers complete in any order, other instructions of an engine in program order."""
    b = Builder()
    y, z = b.hbm("y", (ROWS, 64), "output"), b.hbm("z", (ROWS, 64), "output")
    t, u, v = (b.on_chip(name, (ROWS, 16)) for name in "tuv")
    with b.loop(4):
        b.memset((t, 0, ROWS, 0, 16), 1)
        for output in (y, z):
            b.copy((output, 0, ROWS, 0, 16), (t, 0, ROWS, 0, 16))
        for result in (u, v):
            b.tensor_copy((result, 0, ROWS, 0, 16), (t, 0, ROWS, 0, 16))
    allocate(b.code)
    loop, = b.code.body.nodes
    issuers = [(1, None), (4, 0), (4, 0), (1, None), (1, None)]
    dependences = carried.carried_dependences(loop.body.nodes, issuers, loop)
    assert dependences is not None
    assert dependences[0] == [0, 1, 2, 4]
