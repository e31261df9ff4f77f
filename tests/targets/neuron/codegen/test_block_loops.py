# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops keep data on chip for blocks of iterations where these may run in another order, with the same values."""

import random
from unittest.mock import patch

import numpy as np
import pytest

from nki_mlir.targets.neuron import timed
from nki_mlir.targets.neuron.codegen.block_loops import Blocking, block_loops, nest_of, unrolled_inside
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.records import InstructionStep, Loop, nodes_in
from nki_mlir.targets.neuron.codegen.search_options import Candidate
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order

SIZE = 64


class Product:
    """The product of x, transposed, and z, in tiles of 64 x 64. ``start`` and ``step`` are those of both loops;
    ``unrolled``: the loops that Python runs (the outer, the inner and that over the depth)."""

    def __init__(self, rows, columns, depth, start=0, step=1, unrolled=(False, False, True), early=False):
        self.b, self.shape = Builder(), (rows, columns)
        b, reach = self.b, [start + step * n for n in (rows, columns)]
        self.x, self.z = (b.hbm(name, (128 * depth, SIZE * n), "input") for name, n in zip("xz", reach))
        self.y = b.hbm("y", (SIZE * reach[0], SIZE * reach[1]), "output")

        def each(count, of_python, body):
            if of_python:
                for n in range(start, start + count * step, step):
                    body((n, {}))
            else:
                with b.loop(count, start, step) as variable:
                    body((0, {variable: 1}))

        def scaled(index, by):
            return index[0] * by, {variable: by for variable in index[1]}

        def row(i):
            lefts = [self.left(s, scaled(i, SIZE)) for s in range(depth)] if early else []

            def column(j):
                total = b.on_chip("p", (SIZE, SIZE), "psum")
                for s in range(depth):
                    left, right = lefts[s] if early else self.left(s, scaled(i, SIZE)), b.on_chip("r", (128, SIZE))
                    b.copy((right, 0, 128, 0, SIZE), (self.z, 128 * s, 128, scaled(j, SIZE), SIZE))
                    b.matmul((total, 0, SIZE, 0, SIZE), (left, 0, 128, 0, SIZE), (right, 0, 128, 0, SIZE), s > 0)
                result = b.on_chip("o", (SIZE, SIZE))
                b.tensor_copy((result, 0, SIZE, 0, SIZE), (total, 0, SIZE, 0, SIZE))
                b.copy((self.y, scaled(i, SIZE), SIZE, scaled(j, SIZE), SIZE), (result, 0, SIZE, 0, SIZE))
            each(columns, unrolled[1], column)
        each(rows, unrolled[0], row)

    def left(self, s, start):
        tile = self.b.on_chip("l", (128, SIZE))
        self.b.copy((tile, 0, 128, 0, SIZE), (self.x, 128 * s, 128, start, SIZE))
        return tile

    def inputs(self):
        rng = np.random.default_rng(0)
        return [rng.integers(-4, 5, buffer.shape).astype(np.float32) for buffer in (self.x, self.z)]

    def in_order(self):
        x, z = self.inputs()
        arrays = {self.x: x, self.z: z, self.y: np.zeros(self.y.shape, np.float32)}
        run_in_order(self.b.code, arrays)
        return arrays[self.y]

    def on_streams(self, seed=None, **options):
        y = np.zeros(self.y.shape, np.float32)
        simulate(emit_code(self.b.code, Emission(**options)), self.inputs(), [y], seed)
        return y


def shape(block):
    return [node.op.name if isinstance(node, InstructionStep) else (len(node.span), shape(node.body)) for node in block.nodes]


def loaded(code):
    """Return the bytes that a program in program order loads."""
    return timed([emit_code(code, Emission.in_program_order())]).hbm_bytes


@pytest.mark.share(3)
@pytest.mark.parametrize("rows, columns, depth, options", [
    (4, 6, 3, {}), (4, 6, 3, {"start": 2, "step": 3}), (6, 4, 2, {"early": True}), (5, 7, 1, {}), (7, 11, 2, {}),
    (6, 2, 2, {"unrolled": (False, True, True)})])
@pytest.mark.parametrize("steps", [20, 60, 4_000])
def test_values_and_transfers(rows, columns, depth, options, steps):
    product = Product(rows, columns, depth, **options)
    expected, bytes_before = product.in_order(), loaded(product.b.code)
    assert expected.any()
    changes = block_loops(product.b.code, 0, steps)
    np.testing.assert_array_equal(product.in_order(), expected)
    assert loaded(product.b.code) < 0.8 * bytes_before if changes else options
    for seed, unroll_limit in ((None, None), (1, 16)):
        np.testing.assert_array_equal(product.on_streams(seed, unroll_limit=unroll_limit), expected)


def in_blocks(product, inner, number, early=0):
    """Let one of both loops run in blocks of a number of iterations, the first of them early."""
    (outer,) = product.b.code.body.nodes
    nest = nest_of(outer)
    kept, other = reversed(nest.loops) if inner else nest.loops
    blocked = Blocking(nest, kept, other, number, early).code()
    product.b.code.body.nodes, product.b.code.body.buffers = blocked.nodes, blocked.buffers


def test_form__of_blocks_that_do_not_divide_the_loop():
    product = Product(5, 6, 1)
    in_blocks(product, False, 2)
    body = ["nc_matmul", "tensor_copy", "dma_copy"]
    assert shape(product.b.code.body) == [
        (2, [(2, ["dma_copy"]), (6, ["dma_copy", (2, body)])]), (1, [(1, ["dma_copy"]), (6, ["dma_copy", (1, body)])])]
    wide = [loop.body.buffers[0].shape for loop in product.b.code.body.nodes]
    assert wide == [(128, 2, SIZE), (128, 1, SIZE)]


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_values__of_blocks_of_each_size(inner, number):
    product = Product(5, 5, 2, start=1, step=2)
    expected = product.in_order()
    in_blocks(product, inner, number)
    np.testing.assert_array_equal(product.in_order(), expected)
    np.testing.assert_array_equal(product.on_streams(3, unroll_limit=10), expected)


@pytest.mark.parametrize("early", [1, 2, 3])
@pytest.mark.parametrize("number", [1, 2])
def test_values__of_blocks_that_run_during_the_loads_for_all(number, early):
    product = Product(9, 2, 2, unrolled=(False, True, True))
    expected = product.in_order()
    in_blocks(product, False, number, early)
    assert sum(isinstance(node, Loop) for node in product.b.code.body.nodes) == 1 + (number == 2)
    np.testing.assert_array_equal(product.in_order(), expected)
    np.testing.assert_array_equal(product.on_streams(3, unroll_limit=10), expected)
    straight = [node.op.name for node in product.b.code.body.nodes if isinstance(node, InstructionStep)]
    assert straight[:4 + 2 * number * early] == ["dma_copy"] * (4 + 2 * number * early)
    assert straight[4 + 2 * number * early:][:early + 1] == ["nc_matmul"] * (early + 1)


def test_form__of_a_loop_whose_loads_stay_the_same():
    product = Product(6, 2, 1, unrolled=(False, True, True))
    assert block_loops(product.b.code, 0) == 1
    *straight, blocks = product.b.code.body.nodes
    # The first iteration runs during the loads of both columns.
    column = ["nc_matmul", "tensor_copy", "dma_copy"]
    assert [step.op.name for step in straight] == ["dma_copy"] * 3 + column * 2 and len(blocks.span) == 5
    assert [step.op.src.handle for step in straight[:3]] == [product.x, product.z, product.z]
    loads = [node for node in nodes_in(blocks.body) if isinstance(node, InstructionStep) and any(
        tile.space == "hbm" for _, tile in node.op.sources())]
    assert len(loads) == 1                              # both columns use the same rows


def with_sums_on_chip(b, y, i, j):
    b.add((b.kept, 0, 4, 0, 4), (b.kept, 0, 4, 0, 4), (b.t, 0, 4, 0, 4))


def with_one_result(b, y, i, j):
    b.copy((y, 0, 4, (0, {i: 4}), 4), (b.t, 0, 4, 0, 4))


def with_results_that_overlap(b, y, i, j):
    b.copy((y, 0, 4, (0, {i: 4, j: 2}), 4), (b.t, 0, 4, 0, 4))


def with_a_result_that_is_read(b, y, i, j):
    b.copy((y, (0, {i: 4}), 4, (0, {j: 4}), 4), (b.t, 0, 4, 0, 4))
    b.copy((b.t, 0, 4, 0, 4), (y, 0, 4, 0, 4))


def with_an_input_that_is_written(b, y, i, j):
    b.copy((b.x, (0, {i: 4}), 4, (0, {j: 4}), 4), (b.t, 0, 4, 0, 4))


def with_a_chosen_address(b, y, i, j):
    b.memset((b.on_chip("a", (4, 4), address=(0, 0)), 0, 4, 0, 4), 1)


def with_a_tensor_in_hbm(b, y, i, j):
    b.copy((b.hbm("h", (4, 4)), 0, 4, 0, 4), (b.t, 0, 4, 0, 4))


def with_another_loop_behind(b, y, i, j):
    with b.loop(600) as k:
        b.copy((b.t, 0, 4, 0, 4), (b.x, 0, 4, (0, {i: 1}), 4))
        b.copy((b.t, 0, 4, 0, 4), (b.x, 0, 4, (0, {j: 1}), 4))
        b.memset((b.t, 0, 4, 0, 4), 1)


def with_nothing_else(b, y, i, j):
    pass


@pytest.mark.parametrize("rest", [with_sums_on_chip, with_one_result, with_results_that_overlap, with_a_result_that_is_read,
                                  with_an_input_that_is_written, with_a_chosen_address, with_a_tensor_in_hbm,
                                  with_another_loop_behind, with_nothing_else])
def test_iterations_that_share_results__stay_in_order(rest):
    b = Builder()
    b.x, z, w, y = (b.hbm(name, (64, 64), "output" if name == "y" else "input") for name in ("x", "z", "w", "y"))
    out = b.hbm("out", (64, 64), "output")
    b.kept = b.on_chip("kept", (4, 4))
    with b.loop(8) as i, b.loop(8) as j:
        b.t, right, left = (b.on_chip(name, (4, 4)) for name in "trl")
        b.copy((left, 0, 4, 0, 4), (b.x, 0, 4, (0, {i: 4}), 4))
        b.copy((right, 0, 4, 0, 4), (z, 0, 4, (0, {j: 4}), 4))
        b.add((b.t, 0, 4, 0, 4), (left, 0, 4, 0, 4), (right, 0, 4, 0, 4))
        b.copy((out, (0, {i: 4}), 4, (0, {j: 4}), 4), (b.t, 0, 4, 0, 4))
        rest(b, y, i, j)
    assert block_loops(b.code, 0) == (rest is with_nothing_else)


@pytest.mark.parametrize("seed", range(40))
def test_random_loops__compute_the_same_values(seed):
    """Statements that load, add and store at starts that depend on any of the loops, also on chip and on the results."""
    rng, b = random.Random(seed), Builder()
    tensors = [b.hbm(name, (64, 64), "input") for name in "xzw"]
    outputs = [b.hbm(name, (64, 64), "output") for name in "uv"]
    kept = b.on_chip("kept", (4, 16))
    b.copy((kept, 0, 4, 0, 16), (tensors[0], 0, 4, 0, 16))
    rows, columns = rng.randint(2, 5), rng.randint(2, 5)
    with b.loop(rows, rng.randrange(2), rng.randint(1, 2)) as i, b.loop(columns, rng.randrange(3)) as j:
        tiles = [b.on_chip(f"t{k}", (4, 8)) for k in range(5)]
        for tile in tiles:
            start = rng.randrange(4), {v: rng.choice((1, 4)) for v in rng.sample([i, j], rng.choice((0, 1, 1, 1, 2)))}
            b.copy((tile, 0, 4, 0, 8), (rng.choice(tensors), rng.randrange(8), 4, start, 8))
        for _ in range(4):
            first, second = rng.choice(tiles), rng.choice(tiles)
            if rng.random() < 0.4:                      # writes a loaded tile
                b.add((first, 0, 4, 0, 4), (first, 0, 4, 0, 4), (second, 0, 4, 4, 4))
            else:
                result = b.on_chip("s", (4, 8))
                b.add((result, 0, 4, 0, 8), (first, 0, 4, 0, 8), (second, 0, 4, 0, 8))
                tiles.append(result)
        if rng.random() < 0.2:
            b.add((kept, 0, 4, 0, 8), (kept, 0, 4, 8, 8), (rng.choice(tiles), 0, 4, 0, 8))
        for output in outputs if rng.random() < 0.5 else outputs[:1]:
            by = rng.choice(((4, 8), (4, 8), (4, 4), (0, 8)))
            b.copy((output, (0, {i: by[0]}), 4, (0, {j: by[1]}), 8), (rng.choice(tiles), 0, 4, 0, 8))
        if rng.random() < 0.1:
            b.copy((outputs[1], 0, 4, 0, 16), (kept, 0, 4, 0, 16))
    inputs = [np.random.default_rng(seed).integers(-9, 9, (64, 64)).astype(np.float32) for _ in tensors]

    def results():
        arrays = dict(zip(tensors, [x.copy() for x in inputs])) | {y: np.zeros(y.shape, np.float32) for y in outputs}
        run_in_order(b.code, arrays)
        return [arrays[y].tobytes() for y in outputs]
    expected = results()
    block_loops(b.code, 0, rng.choice((20, 100, 4_000)))
    assert results() == expected
    arrays = [np.zeros(y.shape, np.float32) for y in outputs]
    simulate(emit_code(b.code, Emission()), inputs, arrays, seed)
    assert [array.tobytes() for array in arrays] == expected


def test_long_products_of_python__run_in_blocks():
    product = Product(25, 40, 3, unrolled=(True, True, True))
    with patch("nki_mlir.targets.neuron.codegen.block_loops.block_loops.__defaults__", (5_000, 1_000)), patch(
            "nki_mlir.targets.neuron.codegen.short_loops.IN_BLOCKS", Candidate(1_000, 1_000)):
        program, unblocked = (emit_code(product.b.code, Emission(block=block)) for block in (True, False))
        assert sum(map(len, program.streams.values())) < sum(map(len, unblocked.streams.values()))
        y = np.zeros(product.y.shape, np.float32)
        simulate(program, product.inputs(), [y], 1)
    np.testing.assert_array_equal(y, product.in_order())


def test_values_that_iterations_of_the_inner_loop_pass_on__stay():
    b = Builder()
    x, z = (b.hbm(name, (4 * SIZE, SIZE), "input") for name in "xz")
    y = b.hbm("y", (4 * SIZE, 4 * SIZE), "output")
    with b.loop(4) as i:
        kept = b.on_chip("kept", (SIZE, 4 * SIZE))
        with b.loop(4) as j:
            left, right, result = (b.on_chip(name, (SIZE, SIZE)) for name in "lro")
            for tile, tensor, k in ((left, x, i), (right, z, j)):
                b.copy((tile, 0, SIZE, 0, SIZE), (tensor, (0, {k: SIZE}), SIZE, 0, SIZE))
            b.add((kept, 0, SIZE, (0, {j: SIZE}), SIZE), (left, 0, SIZE, 0, SIZE), (right, 0, SIZE, 0, SIZE))
            b.add((result, 0, SIZE, 0, SIZE), (kept, 0, SIZE, 0, SIZE), (right, 0, SIZE, 0, SIZE))
            b.copy((y, (0, {i: SIZE}), SIZE, (0, {j: SIZE}), SIZE), (result, 0, SIZE, 0, SIZE))
    outer, = b.code.body.nodes
    assert nest_of(outer) is None


def test_loops_of_little_code__stay():
    product = Product(8, 8, 3)
    assert block_loops(product.b.code) == 0 and all(isinstance(node, Loop) for node in product.b.code.body.nodes)


@pytest.mark.parametrize("counts, before, after", [((2,), 1, 0), ((2,), 0, 1), ((3, 1), 1, 1), ((2, 2), 0, 0), ((), 2, 0)])
def test_small_loops_inside__are_unrolled_beside_other_instructions(counts, before, after):
    """Each iteration has its instructions, in order, and what is beside the loops stays; large loops stay, too."""
    b = Builder()
    tile = b.on_chip("t", (SIZE, SIZE))

    def copies(number):
        for _ in range(number):
            b.tensor_copy((tile, 0, SIZE, 0, 8), (tile, 0, SIZE, 8, 8))
    with b.loop(3):
        copies(before)
        for count in counts:
            with b.loop(count):
                copies(1)
        copies(after)
    (outer,) = b.code.body.nodes
    size = before + sum(counts) + after
    body = unrolled_inside(outer)
    assert [type(node) for node in body.nodes] == [InstructionStep] * size
    with patch("nki_mlir.targets.neuron.codegen.block_loops.INNER", size - 1):
        assert unrolled_inside(outer) is outer.body
    assert (body is outer.body) is (not counts)
