# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions that repeat become loops, in which they have the same values."""

import random
from math import inf

import numpy as np
import pytest

from nki_mlir.analysis.repeats import Repetition
from nki_mlir.diagnostics import Location
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen import candidate_programs, fastest, roll_instructions
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code, emit_cores
from nki_mlir.targets.neuron.codegen.program_order import end_of
from nki_mlir.targets.neuron.codegen.records import InstructionStep
from nki_mlir.targets.neuron.codegen.roll_instructions import may_repeat, most_saved, rolled_instructions
from nki_mlir.targets.neuron.codegen.short_loops import loads_repeatedly
from nki_mlir.targets.neuron.codegen.unroll_loops import with_grid
from nki_mlir.targets.neuron.format.assembly import print_program
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order

ROWS, COLUMNS = 4, 64
LEASTS = 2, 4, 8, 12, 16, 24, 32       # instructions and allocations that a loop must save


class Repeating:
    """Code of nested Python loops, with statements that a seed chooses: they load, add, store, keep sums on chip, write
    an earlier tile again, or read the previous iteration's tile."""

    def __init__(self, seed: int) -> None:
        self.random, self.b = random.Random(seed), Builder()
        self.x, self.y = self.b.hbm("x", (ROWS, COLUMNS), "input"), self.b.hbm("y", (ROWS, COLUMNS), "output")
        self.kept = [self.tile() for _ in range(2)]
        for buffer in self.kept:
            self.b.memset(self.all(buffer), 1)
        self.wide = self.b.on_chip("w", (ROWS, COLUMNS))
        self.b.copy((self.wide, 0, ROWS, 0, COLUMNS), (self.x, 0, ROWS, 0, COLUMNS))
        for depth in (self.random.choice((1, 2)) for _ in range(2)):
            self.loop(depth, 0)

    def tile(self):
        return self.b.on_chip(f"t{len(self.b.code.body.buffers)}", (ROWS, 4))

    def all(self, buffer, start=0):
        return buffer, 0, ROWS, start, 4

    def loop(self, depth, start):
        plan = [(self.random.choice(("load", "load", "part", "sum", "again", "before", "store")), self.random.randrange(2),
                 self.random.choice((0, 4))) for _ in range(self.random.randint(1, 4))]
        count, step = self.random.randint(3, 6), self.random.choice((0, 4, 8))
        before = self.kept[0]
        for k in range(count):
            at = (start + k * step) % (COLUMNS - 8)
            tile = self.tile()
            self.b.copy(self.all(tile), self.all(self.x, at))
            for what, which, extra in plan:
                match what:
                    case "load":
                        self.b.copy(self.all(tile), self.all(self.x, at + extra))
                    case "part":
                        self.b.add(self.all(tile), self.all(self.wide, at), self.all(tile))
                    case "sum":
                        self.b.add(self.all(self.kept[which]), self.all(self.kept[which]), self.all(tile))
                    case "again":
                        self.b.tensor_copy(self.all(self.kept[which]), self.all(tile))
                    case "before":
                        self.b.add(self.all(tile), self.all(before), self.all(tile))
                    case "store":
                        self.b.copy(self.all(self.y, at + extra), self.all(tile))
            if depth > 1:
                state = self.random.getstate()
                self.loop(depth - 1, at)
                if k < count - 1:
                    self.random.setstate(state)
            self.b.copy(self.all(self.y, at), self.all(tile))
            before = tile


def result(code, x, y):
    arrays = {x: np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS) % 13,
              y: np.zeros((ROWS, COLUMNS), np.float32)}
    run_in_order(code, arrays)
    return arrays[y]


def test_values_of_random_loops__stay(monkeypatch):
    loops = 0
    for seed in range(30):
        repeating = Repeating(seed)
        expected = result(repeating.b.code, repeating.x, repeating.y)
        rolled = rolled_instructions(repeating.b.code, least=2)
        with monkeypatch.context() as searched:         # also where the bounds say that no loop saves enough
            searched.setattr(roll_instructions, "most_saved", lambda block: inf)
            searched.setattr(roll_instructions, "may_repeat", lambda block, least: True)
            searched_loops = [rolled_instructions(repeating.b.code, least) is not None for least in LEASTS]
        assert [rolled_instructions(repeating.b.code, least) is not None for least in LEASTS] == searched_loops
        if rolled is not None:
            loops += 1
            np.testing.assert_array_equal(result(rolled, repeating.x, repeating.y), expected)
    assert loops > 20


def shape(block):
    return [node.op.name if isinstance(node, InstructionStep) else (len(node.span), shape(node.body)) for node in block.nodes]


def product_in_tiles():
    b = Builder()
    x, z, y = b.hbm("x", (384, 256), "input"), b.hbm("z", (384, 256), "input"), b.hbm("y", (192, 256), "output")
    for i in range(3):
        for j in range(4):
            total = b.on_chip("p", (64, 64), "psum")
            for s in range(3):
                left, right = b.on_chip("l", (128, 64)), b.on_chip("r", (128, 64))
                b.copy((left, 0, 128, 0, 64), (x, 128 * s, 128, 64 * i, 64))
                b.copy((right, 0, 128, 0, 64), (z, 128 * s, 128, 64 * j, 64))
                b.matmul((total, 0, 64, 0, 64), (left, 0, 128, 0, 64), (right, 0, 128, 0, 64), accumulate=s > 0)
            row = b.on_chip("o", (64, 64))
            b.tensor_copy((row, 0, 64, 0, 64), (total, 0, 64, 0, 64))
            b.copy((y, 64 * i, 64, 64 * j, 64), (row, 0, 64, 0, 64))
    return b.code


def test_loops_in_loops__of_a_product_in_tiles():
    code = product_in_tiles()
    rolled = rolled_instructions(code, least=16)
    product = ["dma_copy", "dma_copy", "nc_matmul"]
    assert shape(rolled.body) == [(3, [(4, [*product * 3, "tensor_copy", "dma_copy"])])]
    assert [len(block.buffers) for block in (rolled.body, rolled.body.nodes[0].body.nodes[0].body)] == [0, 8]
    assert rolled_instructions(code, least=512) is None


def test_a_loop_whose_period_is_known_from_the_middle_of_an_iteration():
    """The inner loop saves too little. The outer one repeats the starts of its second load."""
    code = product_in_tiles()
    rolled = rolled_instructions(code, least=100)
    product = ["dma_copy", "dma_copy", "nc_matmul"]
    assert shape(rolled.body) == [(3, [*product * 3, "tensor_copy", "dma_copy"] * 4)]
    assert [len(block.buffers) for block in (rolled.body, rolled.body.nodes[0].body)] == [0, 4 * 8]
    rng = np.random.default_rng(0)
    x, z = (rng.integers(-4, 5, (384, 256)).astype(np.float32) for _ in range(2))
    of_streams = []
    for form in (code, rolled):
        of_streams.append(np.zeros((192, 256), np.float32))
        simulate(emit_code(form, Emission(roll=False)), [x, z], of_streams[-1:])
    np.testing.assert_array_equal(of_streams[1], x[:, :192].T @ z)
    np.testing.assert_array_equal(*of_streams)


@pytest.mark.parametrize("space, first", [("psum", 0), ("sbuf", 32)])
def test_tiles_that_move_in_psum_or_across_partitions__stay(space, first):
    b = Builder()
    x, tile = b.hbm("x", (32, 64), "output"), b.on_chip("t", (128, 64), space)
    for k in range(4):
        at = (k * first, 32, 0 if first else 8 * k, 8)
        b.memset((tile, *at), 1)
        row = b.on_chip("r", (32, 8))
        b.tensor_copy((row, 0, 32, 0, 8), (tile, *at))
        b.copy((x, 0, 32, 8 * k, 8), (row, 0, 32, 0, 8))
    assert rolled_instructions(b.code, least=2) is None


@nki.jit
def scaled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, x.shape[0], 128):
        tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start:start + 128])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[start:start + 128], src=tile)
    return out


@nki.jit
def combined(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, x.shape[0], 128):
        tile, shifted, product = (nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf) for _ in range(3))
        nisa.dma_copy(dst=tile, src=x[start:start + 128])
        nisa.tensor_scalar(dst=shifted, data=tile, op0=nl.add, operand0=1.0)
        nisa.tensor_tensor(dst=product, data1=shifted, data2=tile, op=nl.multiply)
        nisa.tensor_tensor(dst=shifted, data1=product, data2=shifted, op=nl.subtract)
        nisa.tensor_tensor(dst=product, data1=shifted, data2=product, op=nl.add)
        nisa.dma_copy(dst=out[start:start + 128], src=product)
    return out


def at_nisa(rows, kernel=scaled):
    call = kernel.specialize(kernel.bind((np.empty((rows, 512), np.float32),), {}, is_array, describe_array))
    return neuron.lowered(call.captured), call.grid


def test_long_loops_of_python__are_loops_of_the_device():
    lowered = at_nisa(260 * 128)
    program, straight = (emit_cores(*lowered, Emission(roll=roll))[0] for roll in (True, False))
    assert sum(map(len, program.streams.values())) * 4 < sum(map(len, straight.streams.values()))
    assert end_of(program) < 1.01 * end_of(straight)


def test_rows_of_loops_of_python__are_joined_also_where_the_loops_unroll():
    lowered = at_nisa(131 * 128)
    times = {roll: end_of(emit_cores(*lowered, Emission(roll=roll))[0]) for roll in (True, False)}
    assert times[True] < 0.9 * times[False]


def test_code_too_long_to_unroll__takes_no_longer_than_its_loops(monkeypatch):
    monkeypatch.setattr("nki_mlir.targets.neuron.codegen.short_loops.STRAIGHT", {1: 500})
    (lowered,) = at_nisa(260 * 128)[0].values()
    looped = rolled_instructions(with_grid(lowered.code()))
    program = emit_code(with_grid(lowered.code()), Emission(interleave=False))
    assert end_of(program) <= end_of(emit_code(looped, Emission(interleave=False)))


@pytest.mark.parametrize("first", [False, True])
def test_a_body_whose_second_order_is_good__is_timed_before_loops_are_pipelined(monkeypatch, first):
    monkeypatch.setitem(fastest.STRAIGHT, 1, 500)
    if first:
        monkeypatch.setattr(candidate_programs, "TWO", 1)
    tried = []
    monkeypatch.setattr(candidate_programs, "pipeline_loops", lambda code, *_: tried.append(code) or 0)
    emit_cores(*at_nisa(2048 * 128, combined), Emission())
    assert bool(tried) is first


def test_values_on_the_device__stay():
    (lowered,) = at_nisa(8 * 128)[0].values()
    rolled = rolled_instructions(with_grid(lowered.code()), least=8)
    assert shape(rolled.body) == [(8, ["dma_copy", "activation", "tensor_scalar", "dma_copy"])]
    x = np.random.default_rng(0).standard_normal((8 * 128, 512), np.float32)
    for options in (Emission(unroll_limit=8), Emission()):
        result = np.zeros_like(x)
        simulate(emit_code(rolled, options), [x], [result])
        np.testing.assert_array_equal(result, scaled.on("eager")(x))


def test_code_that_loads_data_repeatedly__is_found_by_its_bytes():
    assert loads_repeatedly(product_in_tiles())
    (lowered,) = at_nisa(8 * 128)[0].values()
    assert not loads_repeatedly(lowered.code())


def test_a_chain__has_no_ends_of_iterations():
    """Each addition reads the tile that the one before allocates, and only the first and the last access HBM."""
    b = Builder()
    x, y, before = b.hbm("x", (4, 8), "input"), b.hbm("y", (4, 8), "output"), b.on_chip("t", (4, 8))
    b.copy((before, 0, 4, 0, 8), (x, 0, 4, 0, 8))
    for _ in range(100):
        tile = b.on_chip("t", (4, 8))
        b.tensor_copy((tile, 0, 4, 0, 8), (before, 0, 4, 0, 8))
        before = tile
    b.copy((y, 0, 4, 0, 8), (before, 0, 4, 0, 8))
    assert most_saved(b.code.body) == 0
    assert most_saved(product_in_tiles().body) >= 3 * 4 * 3 * 5 - 5     # 36 iterations of 5, except the first


def test_sequences_that_occur_once__do_not_repeat():
    """Each iteration loads and stores other widths."""
    b = Builder()
    x, y = b.hbm("x", (4, 64), "input"), b.hbm("y", (4, 64), "output")
    for width in range(1, 33):
        tile = b.on_chip("t", (4, 64))
        b.copy((tile, 0, 4, 0, width), (x, 0, 4, 0, width))
        b.copy((y, 0, 4, 0, width), (tile, 0, 4, 0, width))
    assert [may_repeat(b.code.body, least) for least in LEASTS] == [False] * len(LEASTS)
    assert may_repeat(product_in_tiles().body, 3 * 4 * 3 * 5 - 5)
    with b.loop(2):
        b.copy((tile, 0, 4, 0, 8), (x, 0, 4, 0, 8))
    assert may_repeat(b.code.body, 64)                  # the pass looks at the instructions beside the loop


def test_short_code__stays_as_it_is():
    texts = [print_program(emit_code(Repeating(1).b.code, Emission(roll=roll))) for roll in (True, False)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("lines, rolls", [({}, False), ({"lines": False}, False), ({"lines": True}, True)])
def test_instructions_of_several_source_lines(lines, rolls):
    """They repeat only where lines do not matter: each instruction of a loop has one line."""
    code = product_in_tiles()
    assert rolled_instructions(code, least=16, **lines) is not None
    for number, node in enumerate(code.body.nodes):
        node.location = Location("kernel.py", number + 1, 0)
    assert (rolled_instructions(code, least=16, **lines) is not None) is rolls


@pytest.mark.parametrize("count", [2, 5])
def test_a_loop__runs_as_often_as_its_items_repeat(count):
    loop = roll_instructions.loop_of(Repetition((), count, (), ()), ())
    assert (loop.variable.low, loop.variable.high, loop.span, loop.body.nodes) == (0, count - 1, range(count), [])
