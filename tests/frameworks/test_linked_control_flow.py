# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops, branches and run-time slices of graphs, with kernels inside, in one program, against JAX.

Instruction streams also run with loops that stay, and in orders that an adversary chooses.
"""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

from nki_mlir.bindings import ir  # noqa: E402
from nki_mlir.frameworks.stablehlo import LinkedProgram, read_graph  # noqa: E402
from nki_mlir.graph.upstream import graph_context  # noqa: E402
from nki_mlir.passes.pass_manager import pass_named, run_passes  # noqa: E402
from nki_mlir.passes.pipelines import passes_to  # noqa: E402
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_module  # noqa: E402
from nki_mlir.targets.neuron.simulator import simulate  # noqa: E402

from . import kernels  # noqa: E402
from .versions import enable_x64  # noqa: E402

pytestmark = pytest.mark.jax

A = np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((32, 16)).astype(np.float32)
MEMBERS = np.array([3, 31, 0, 200, -4, 7], np.int32)
ONE_BY_ONE = ("unroll-loops", "split-blocks", "sink-constants", "move-psum-results", "schedule-instructions", "allocate-on-chip")


def agrees(function, *arguments):
    """The CPU and the instruction streams give what JAX gives."""
    expected = jax.tree_util.tree_leaves(jax.jit(function)(*arguments))
    text = jax.jit(function, keep_unused=True).lower(*arguments).as_text()
    arrays = [np.asarray(a) for a in jax.tree_util.tree_leaves(arguments)]
    program = LinkedProgram(text)
    assert program.is_one_program
    same(program(*arrays), expected)
    for limit, seed, apart in ((50_000, None, False), (40, 1, False), (40, 2, True)):
        same(streams(text, limit, seed, apart, arrays, program.outputs), expected)


def streams(text, limit, seed, apart, arrays, outputs):
    """The results of instruction streams. ``apart``: every pass reads and writes a module."""
    with graph_context(), ir.Location.unknown():
        module = read_graph(text)
        run_passes(module, passes_to("nisa", module))
        if apart:
            passes = [pass_named(name) for name in ONE_BY_ONE]
            passes[0].limit = limit
            run_passes(module, passes)
            assert module.operation.verify()
        program = emit_module(module, Emission(unroll_limit=limit, reorder=limit < 50_000))   # orders of loops
    results = [np.empty(shape, dtype) for shape, dtype in outputs]
    simulate(program, arrays, results, seed=seed)
    return results


def same(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-4, atol=1e-4)


def name_of(value):
    return str(value.__code__.co_firstlineno) if callable(value) else ""


@pytest.mark.share(4)
@pytest.mark.parametrize("function, arguments", [
    (lambda a: lax.scan(lambda c, x: (c * 0.5 + x, c.sum()), jnp.zeros(16), a), (A,)),
    (lambda a: lax.scan(lambda c, x: (c * 0.5 + x, c * x), jnp.zeros(16), a, reverse=True), (A,)),
    (lambda a, b: lax.scan(lambda c, x: (kernels.add[2](c, x), x * 2), b, jnp.stack([a, b, a + b])), (A, B)),
    (lambda a: lax.map(lambda x: kernels.scaled(x.reshape(4, 4), 2.0).sum(0), a[:5]), (A,)),
    (lambda a: lax.map(lambda x: x * 2, a, batch_size=10), (A,)),
    (lambda a: lax.scan(lambda c, x: lax.scan(lambda d, y: (d * 0.5 + y, d), c, x.reshape(4, 4)), jnp.zeros(4), a[:6]),
     (A,)),
    (jax.grad(lambda a: lax.scan(lambda c, x: (jnp.tanh(c * 0.5 + x), None), jnp.zeros(16), a[:6])[0].sum()), (A,)),
    (lambda a: lax.fori_loop(0, 9, lambda i, x: lax.dynamic_update_slice(x, x[8 - i][None] * 2 + i, (i + 3, 0)), a),
     (A,)),
    (lambda a: lax.fori_loop(2, 7, lambda i, x: x + a[i // 2] * (i % 3) + a[(i * 5) % 32, ::-1], a[0]), (A,)),
    (lambda a: lax.fori_loop(0, 300, lambda i, x: x * 0.99 + a[i % 32], a[0]), (A,)),
], ids=name_of)
def test_slices_at_loop_variables(function, arguments):
    agrees(function, *arguments)


@pytest.mark.share(4)
@pytest.mark.parametrize("start", MEMBERS)
@pytest.mark.parametrize("function", [
    lambda a, b, i: lax.dynamic_slice(a, (i, i), (2, 5)),
    lambda a, b, i: lax.dynamic_update_slice(a, kernels.scaled(b[:3, :4], 2.0), (i, i * 2)),
    lambda a, b, i: kernels.add[2](a[i] + b, b) * a[i + 1]], ids=name_of)
def test_slices_at_places_from_data(function, start):
    """Places outside are the next that are inside, as StableHLO says; before that JAX counts from the end."""
    agrees(function, A, B, start)


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32"])
@pytest.mark.parametrize("start", [3, 200, -3])
def test_slices_at_places_of_other_types(dtype, start):
    agrees(lambda a, i: lax.dynamic_slice(a, (i, i), (2, 5)), A, np.array(start).astype(dtype))


def test_slices_at_places_that_are_computed():
    agrees(lambda a: a[a[:, 0].argmax()], A)
    agrees(lambda a, i: jnp.stack([a[i[k]] for k in range(6)] * 8), A, MEMBERS)


@pytest.mark.parametrize("truth", [False, True])
def test_branches_by_data(truth):
    agrees(lambda p, a: lax.cond(p, lambda x: kernels.scaled(x, 2.0), lambda x: x + 1, a), np.bool_(truth), A)
    agrees(lambda p, a: lax.cond(p, lambda x: (x[0], x), lambda x: (x[1] * 2, -x), a), np.bool_(truth), A)


def test_branches__of_several_buffers_are_freed_together():
    def function(p, a):
        chosen = lambda v: lax.cond(p, lambda x: x + 1, lambda x: x * 2, v)
        return jnp.pad(chosen(a), [(2, 1), (0, 2)]) @ a[:18], chosen(jnp.clip(a, -4, 4))
    jitted = jax.jit(function)
    same(LinkedProgram(jitted.lower(True, A).as_text())(np.bool_(True), A), jitted(True, A))


@pytest.mark.parametrize("number", [0, 1, 2, 7, -3])
def test_one_branch_of_several(number):
    agrees(lambda n, a: lax.switch(n, [lambda x: x, lambda x: kernels.scaled(x, 2.0), lambda x: -x], a),
           np.int32(number), A)


@pytest.mark.share(4)
@pytest.mark.parametrize("function, arguments", [
    (lambda a: lax.while_loop(lambda x: x.sum() < 1000, lambda x: x * x + 1, a), (A,)),
    (lambda a, b: lax.while_loop(lambda x: x[0][0, 0] < 10, lambda x: (kernels.add[2](x[0], jnp.abs(b) + 1), x[1] + 1),
                                 (a, 0)), (A, B)),
    (lambda a, b: lax.fori_loop(0, 5, lambda i, x: (x[1], kernels.add[2](x[0], x[1])), (a, b)), (A, B)),
    (lambda a, n: lax.fori_loop(0, n, lambda i, x: x + a[i], a[0]), (A, np.int32(5))),
    (lambda a, n: lax.fori_loop(3, n, lambda i, x: x + a[i], a[0]), (A, np.int32(2))),
    (lambda n: lax.while_loop(lambda s: s[0] != 1, lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1),
                                                              s[1] + 1), (n, 0)), (np.int32(7),)),
    (lambda a, n: lax.while_loop(
        lambda s: (s[0] < n) & (s[1].sum() < 50),
        lambda s: (s[0] + 1, lax.dynamic_update_slice(s[1], s[1][s[0]][None] * 2, (s[0] + 1, 0))), (0, a))[1],
     (abs(A), np.int32(8))),
], ids=name_of)
def test_loops_that_data_end(function, arguments):
    agrees(function, *arguments)


@pytest.mark.parametrize("function", [
    lambda a: lax.fori_loop(0, 4, lambda i, x: lax.cond(
        i % 2 == 0, lambda y: y + a[2 * i + 1 - i], lambda y: y - a[i // 2], x), a[0]),
    lambda a: lax.fori_loop(0, 3, lambda i, x: lax.cond(
        x[0, 0] > 0, lambda y: lax.fori_loop(0, i, lambda j, z: z + 1., y), lambda y: y - 2 * i, x), a),
    lambda a: lax.scan(lambda c, x: (lax.cond(x[0] > 0, lambda: c + x, lambda: c), lax.while_loop(
        lambda s: s.sum() < 3, lambda s: s + abs(c) + 1, x)), jnp.zeros(16), a[:5])], ids=name_of)
def test_control_flow_in_control_flow(function):
    agrees(function, A)


@pytest.mark.parametrize("step, last", [(1, 7), (3, 7), (-2, -5)])
def test_loops_that_count_by_other_numbers(step, last):
    """Upwards and downwards, beside another number that each iteration changes."""
    more = lambda s: s[0] < last if step > 0 else s[0] >= last
    agrees(lambda a: lax.while_loop(more, lambda s: (s[0] + step, s[1] - 2, s[2] + a[s[1]] * s[0]), (0, 31, a[0])), A)


@pytest.mark.parametrize("start", [3, -2, 1000])
def test_positions_of_int64__as_instruction_streams(start):
    with enable_x64(True):
        slices = jax.jit(lambda a, i: lax.dynamic_slice(a, (i, 0), (2, 16)))
        text, expected = slices.lower(A, np.int64(start)).as_text(), slices(A, np.int64(start))
    np.testing.assert_array_equal(LinkedProgram(text, "isa")(A, np.int64(start))[0], expected)


def test_branch__its_result_has_a_buffer_of_its_own():
    """Beside a value from before it, and one of the same shape that is computed after it, without and with a kernel."""
    def function(a, chosen):
        kept = jnp.clip(a, -1, 1)
        branch = jax.lax.cond(chosen[0] > 0, lambda v: v + 1, lambda v: v * 2, kept)
        return kept, branch, jnp.round(kept * 1.5), jnp.sort(a, 1)
    a = np.linspace(-2, 2, 32 * 16, dtype=np.float32).reshape(32, 16)
    for chosen in (np.float32([1]), np.float32([-1])):
        expected = jax.jit(function)(a, chosen)
        for used in (slice(0, 3), slice(0, 4)):                 # one program, and with a sort, around which there are calls
            text = jax.jit(lambda a, c: function(a, c)[used]).lower(a, chosen).as_text()
            for got, wanted in zip(LinkedProgram(text)(a, chosen), expected[used], strict=True):
                np.testing.assert_array_equal(got, wanted)
