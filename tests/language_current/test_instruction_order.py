# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``depends_on`` and ``with_schedule``: an instruction starts when those that it depends on are complete."""

import random

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.targets.neuron.timing.machine import TimedMachine

from .running import floats, numbers

FACTORS = (1.25, 1.5, 1.75, 2.25, 2.5, 2.75)      # by which steps are told apart in the streams


def edges_of(seed):
    """Edges (consumer, producer) of steps of other chains, also to later steps, without a cycle: all agree with one
    random order of the three chains of two steps."""
    draw = random.Random(seed)
    chains = [[0, 1], [2, 3], [4, 5]]
    order = []
    while any(chains):
        order.append(draw.choice([chain for chain in chains if chain]).pop(0))
    pairs = [(later, earlier) for n, later in enumerate(order) for earlier in order[:n] if earlier // 2 != later // 2]
    return draw.sample(pairs, 3)


def chains(x, edges=()):
    """Three chains of two steps, each on another engine; step k multiplies by ``FACTORS[k]``."""
    out, steps, tiles = nl.ndarray((3, *x.shape), x.dtype, buffer=nl.shared_hbm), [], []
    for n in range(3):
        tile = nl.load(x)
        for k in (2 * n, 2 * n + 1):
            if n == 0:
                steps.append(nisa.activation(tile, nl.copy, tile, scale=FACTORS[k], name=f"step{k}"))
            else:
                engine = (nisa.engine.vector, nisa.engine.gpsimd)[n - 1]
                steps.append(nisa.tensor_scalar(tile, tile, nl.multiply, FACTORS[k], engine=engine, name=f"step{k}"))
        tiles.append(tile)
    for consumer, producer in edges:
        steps[consumer].depends_on(steps[producer])
    for n, tile in enumerate(tiles):
        nisa.dma_copy(out[n], tile)
    return out


def times(kernel, *arguments):
    """When each step starts and is complete, by its number."""
    machine = TimedMachine(kernel.lower(*arguments).streams)
    record, spans = machine.run(), {}
    for event in range(len(record)):
        instruction = machine.agents[record.agent[event]].stream.instructions[record.position[event]]
        op = getattr(instruction, "op", instruction)
        factor = getattr(op, "imm0", getattr(op, "imm", None))
        if factor in FACTORS:
            spans[FACTORS.index(factor)] = record.start[event], record.complete[event]
    return spans


EDGES = [edges_of(seed) for seed in range(6)]


@pytest.mark.parametrize("edges", EDGES)
def test_values_do_not_depend_on_the_order(on, edges):
    x = floats(32, 8)
    expected = np.stack([x * np.float32(FACTORS[2 * n]) * np.float32(FACTORS[2 * n + 1]) for n in range(3)])
    np.testing.assert_array_equal(nki.jit(chains).on(on)(x, edges), expected)


@pytest.mark.parametrize("edges", EDGES)
def test_an_instruction_starts_when_those_before_it_are_complete(edges):
    x = floats(32, 8)
    named = [(f"step{consumer}", f"step{producer}") for consumer, producer in edges]
    for kernel, arguments in ((nki.jit(chains), (x, edges)), (nki.jit(chains).with_schedule(named), (x,))):
        spans = times(kernel, *arguments)
        assert len(spans) == 6
        for consumer, producer in edges:
            assert spans[consumer][0] >= spans[producer][1]


def in_loops(x, count):
    """Per iteration: double a, and then add to b; the loop comes after a step that precedes it."""
    a, b = nl.load(x), nl.ndarray(x.shape, nl.float32)
    out = nl.ndarray((2, *x.shape), x.dtype, buffer=nl.shared_hbm)
    cleared = nisa.memset(b, 0.0, engine=nisa.engine.gpsimd)
    register = nisa.register_alloc()
    nisa.register_load(register, nl.load(count))

    def body(i):
        doubled = nisa.activation(a, nl.copy, a, scale=2.0).depends_on(cleared)
        nisa.tensor_scalar(b, b, nl.add, 1.0).depends_on(doubled, cleared)
    nl.fori_loop(0, register, body)
    nisa.dma_copy(out[0], a)
    nisa.dma_copy(out[1], b)
    return out


@pytest.mark.parametrize("count", [0, 1, 3])
def test_orders_inside_of_loops_of_the_device(on, count):
    x = numbers(32, 8)
    result = nki.jit(in_loops).on(on)(x, np.array([[count]], np.int32))
    np.testing.assert_array_equal(result, [x * 2.0 ** count, np.full_like(x, count)])


def test_two_cores_order_instructions_by_themselves(on):
    def kernel(x):
        core, out = nl.program_id(0), nl.ndarray((2, *x.shape), x.dtype, buffer=nl.shared_hbm)
        tile, other = nl.load(x), nl.load(x)
        first = nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        if core == 0:
            second = nisa.tensor_scalar(other, other, nl.add, 1.0)
            first.depends_on(second)
        nisa.dma_copy(out[core], tile)
        return out
    x = numbers(32, 8)
    np.testing.assert_array_equal(nki.jit(kernel)[2].on(on)(x), [x + 1, x + 1])


def across_a_loop(x, count):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile, other = nl.load(x), nl.load(x)
    early = nisa.tensor_scalar(other, other, nl.add, 1.0)
    register = nisa.register_alloc()
    nisa.register_load(register, nl.load(count))
    nl.fori_loop(0, register, lambda i: nisa.tensor_scalar(tile, tile, nl.add, 1.0) and None)
    late = nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    early.depends_on(late)
    nisa.dma_copy(out, tile)
    return out


def test_errors_of_contradictory_orders():
    x = floats(32, 8)
    with pytest.raises(NkiMlirError) as caught:
        _ = nki.jit(chains).lower(x, [(0, 1)]).streams                      # step 1 needs the result of step 0
    assert ("nisa.activation cannot start after the nisa.activation of line 39, which comes after it by its data or by "
            "other orders [NKI-ORDER]") in str(caught.value)
    with pytest.raises(NkiMlirError, match="activation cannot depend on itself"):
        nki.jit(chains)(x, [(0, 0)])
    with pytest.raises(NkiMlirError) as caught:
        _ = nki.jit(across_a_loop).lower(x, np.zeros((1, 1), np.int32)).streams
    assert "instructions do not move across loops of the device and branches [NKI-ORDER]" in str(caught.value)


def test_schedule_across_the_border_of_a_loop_is_an_error():
    def kernel(x, count):
        out, tile = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.load(x)
        register = nisa.register_alloc()
        nisa.register_load(register, nl.load(count))
        nl.fori_loop(0, register, lambda i: nisa.tensor_scalar(tile, tile, nl.add, 1.0, name="inside") and None)
        nisa.dma_copy(out, tile, name="outside")
        return out
    arguments = floats(32, 8), np.ones((1, 1), np.int32)
    with pytest.raises(AssertionError, match="no dependency crosses the border of a dynamic loop"):
        nki.jit(kernel).with_schedule([("outside", "inside")])(*arguments)


@pytest.mark.jax
def test_calls_in_a_graph_do_not_share_labels():
    jax = pytest.importorskip("jax")
    from nki_mlir.frameworks.stablehlo import LinkedProgram

    @nki.jit
    def kernel(x, y):
        out, a, b = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.load(x), nl.load(y)
        second = nisa.tensor_scalar(a, a, nl.multiply, 2.0)
        second.depends_on(nisa.tensor_scalar(b, b, nl.add, 1.0))
        nisa.tensor_tensor(a, a, b, nl.add)
        nl.store(out, a)
        return out
    x, y = numbers(32, 8), numbers(32, 8, seed=1)
    function = jax.jit(lambda x, y: kernel(kernel(x, y), kernel(y, x)))
    text = function.trace(x, y).lower(lowering_platforms=("cpu",)).as_text()
    result, = LinkedProgram(text, "isa")(x, y)
    np.testing.assert_array_equal(result, 2 * (2 * x + y + 1) + (2 * y + x + 1) + 1)
