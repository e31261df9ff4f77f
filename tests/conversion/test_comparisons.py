# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scatters and gathers of single elements as instruction streams: the bits of JAX, except for the order of sums."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from nki_mlir.diagnostics import Unsupported  # noqa: E402
from nki_mlir.frameworks.stablehlo import run_linked, simulate_linked  # noqa: E402

from ..graph.lowered_graph import bits, results_of  # noqa: E402

pytestmark = [pytest.mark.jax, pytest.mark.filterwarnings("ignore")]

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((8, 16)).astype(np.float32)
ROWS = RANDOM.integers(-10, 10, 6).astype(np.int32)             # some are outside, some occur twice
UPDATES = RANDOM.standard_normal((6, 16)).astype(np.float32)
SPECIAL = np.stack([X[0], -0.0 * np.abs(X[0]), np.inf * X[0], np.nan * X[0]])
CUBE = RANDOM.standard_normal((4, 5, 6)).astype(np.float32)


def results(function, *arguments):
    """Return JAX's results, those of the CPU's program, and those of the streams in several orders."""
    jitted = jax.jit(function)
    lowered = jitted.lower(*arguments)
    used = [np.asarray(a) for k, a in enumerate(arguments) if k in lowered._lowering.compile_args["kept_var_idx"]]
    expected = [np.asarray(r) for r in jax.tree_util.tree_leaves(jitted(*arguments))]
    return expected, run_linked(lowered.as_text(), used), results_of(lowered.as_text(), used, orders=(None, 1))


def equal(function, *arguments):
    expected, native, streams = results(function, *arguments)
    for one, cpu, isa in zip(expected, native, streams, strict=True):
        np.testing.assert_array_equal(bits(cpu), bits(one))
        np.testing.assert_array_equal(bits(isa), bits(one))


def near(function, *arguments, tolerance=1e-6):
    expected, native, streams = results(function, *arguments)
    for one, cpu, isa in zip(expected, native, streams, strict=True):
        for got in (cpu, isa):
            assert got.dtype == one.dtype
            np.testing.assert_allclose(got.astype(np.float64), one.astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["set", "min", "max"])
def test_rows__are_replaced_or_compared(name):
    equal(lambda x, i, u: getattr(x.at[i], name)(u), X, ROWS, UPDATES)


@pytest.mark.parametrize("name", ["add", "multiply", "subtract"])
def test_rows__are_combined_in_any_order(name):
    near(lambda x, i, u: getattr(x.at[i], name)(u), X, ROWS, UPDATES)
    equal(lambda x, i, u: getattr(x.at[i], name)(u), X, np.array([3, 1, 99], np.int32), UPDATES[:3])


@pytest.mark.parametrize("name", ["set", "add", "max"])
def test_special_values__reach_only_their_rows(name):
    """A greatest value of two zeros may have either sign."""
    equal(lambda x, i, u: getattr(x.at[i], name)(u), np.abs(X), np.array([1, 1, 3, 6], np.int32), SPECIAL)
    (near if name == "max" else equal)(lambda x, i, u: getattr(x.at[i], name)(u), -0.0 * np.abs(X),
                                       np.array([1, 5, 3, 6], np.int32), UPDATES[:4])


@pytest.mark.share(4)
@pytest.mark.parametrize("dtype, names", [
    (jnp.bfloat16, ["set", "max"]), (np.float16, ["set", "min"]), (np.int32, ["set", "add", "max", "subtract"]),
    (np.uint32, ["set", "add", "subtract"]), (np.int8, ["set", "max"]), (np.uint8, ["set"]), (np.int16, ["set"]), (bool, ["set"])])
def test_dtypes(dtype, names):
    x = (X * 3).astype(dtype)
    for name in names:
        equal(lambda x, i, u: getattr(x.at[i], name)(u), x, np.array([1, 1, 3], np.int32), x[5:])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_sums_of_narrow_floats__are_rounded_once(dtype):
    x, updates, rows = (X * 3).astype(dtype), UPDATES.astype(dtype), np.array([1, 1, 3, 1, 3, 7])
    text = jax.jit(lambda x, i, u: x.at[i].add(u)).lower(x, rows.astype(np.int32), updates).as_text()
    got, = results_of(text, [x, rows.astype(np.int32), updates], orders=(None, 1))
    sums = np.zeros((8, 16), np.float32)
    np.add.at(sums, rows, updates.astype(np.float32))
    np.testing.assert_array_equal(bits(got), bits((x.astype(np.float32) + sums).astype(dtype)))


@pytest.mark.share(3)
@pytest.mark.parametrize("function, arguments", [
    (lambda x, i, j, u: x.at[i, j].set(u), (X, ROWS, ROWS * 2, UPDATES[:, 0])),
    (lambda x, i, j, u: x.at[i, j].set(u), (X, ROWS[:, None], ROWS * 2, RANDOM.standard_normal((6, 6)).astype("f"))),
    (lambda x, i, u: x.at[:, i].set(u), (X, ROWS, UPDATES[:, :8].T)),
    (lambda x, u: x.at[3].set(u), (X, X[0])),
    (lambda x, i, u: x.at[i].add(u), (CUBE[0], np.array([1, 3], np.int8), UPDATES[:2, :6])),
    (lambda x, i, u: jnp.put_along_axis(x, i, u, axis=1, inplace=False),
     (X, RANDOM.integers(0, 16, (8, 3)).astype(np.int32), X[:, 5:8])),
    (lambda x, i, u: (x + 1).at[i * 2 - 1].set(u * 2) - u[0], (X, ROWS // 3, UPDATES)),
    (lambda i: jnp.bincount(i, length=10), (RANDOM.integers(0, 10, 50).astype(np.int32),)),
    (lambda x, i, u: x.at[i].set(u), (RANDOM.standard_normal((200, 24)).astype("f"),
                                      RANDOM.integers(-210, 210, 300).astype(np.int32),
                                      RANDOM.standard_normal((300, 24)).astype("f"))),
], ids=lambda value: str(value.__code__.co_firstlineno) if callable(value) else "")
def test_forms_of_indices(function, arguments):
    equal(function, *arguments)


def test_an_axis_that_no_index_names__has_position_0():
    rows = np.array([[1], [3], [9]], np.int32)
    read = jax.lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0, 1), start_index_map=(1,))
    written = jax.lax.ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(0, 1),
                                              scatter_dims_to_operand_dims=(1,))
    equal(lambda x, i: jax.lax.gather(x, i, read, (1, 1, 6)), CUBE, rows)
    for scatter in (jax.lax.scatter, jax.lax.scatter_add, jax.lax.scatter_min):
        equal(lambda x, i, u, scatter=scatter: scatter(x, i, u, written), CUBE, rows, UPDATES[:3, :6])


@pytest.mark.share(3)
@pytest.mark.parametrize("function, arguments", [
    (lambda x, i: jnp.take_along_axis(x, i, axis=1), (X, RANDOM.integers(-16, 16, (8, 3)).astype(np.int32))),
    (lambda x, i: jnp.take_along_axis(x, i, axis=0), (-0.0 * np.abs(X), RANDOM.integers(0, 8, (3, 16)).astype("i"))),
    (lambda x, i, j: x[i, j], (X, ROWS // 2, ROWS)), (lambda x, i: x[:, i], (CUBE, RANDOM.integers(0, 5, 7))),
    (lambda x, i: x.at[:, i].get(mode="clip"), (X, ROWS * 5)), (lambda x, i: x[i, :, i], (CUBE, np.arange(3))),
    (lambda x, i: jnp.take_along_axis(x, i, axis=1), (X > 0, np.zeros((8, 1), np.uint8))),
], ids=lambda value: str(value.__code__.co_firstlineno) if callable(value) else "")
def test_gathers(function, arguments):
    equal(function, *(a.astype(np.int32) if getattr(a, "dtype", None) == np.int64 else a for a in arguments))


@pytest.mark.share(3)
@pytest.mark.parametrize("function, arguments", [
    (lambda x, i, u: x.at[i, :4].set(u), (X, ROWS, UPDATES[:, :4])),
    (lambda x, i, u: x.at[i, 3:8:2].max(u), (X, ROWS, UPDATES[:, :3])),
    (jax.vmap(lambda x, i: jax.lax.dynamic_slice(x, (i,), (3,))), (X, ROWS[0] * np.arange(8, dtype=np.int32))),
    (lambda x, i: jax.vmap(lambda k: jax.lax.dynamic_slice(x, (k, 0), (2, 16)))(i), (X, ROWS)),
    (jax.vmap(lambda x, u, i: jax.lax.dynamic_update_slice(x, u, (i,))), (X, -X[:, :3], 2 * np.arange(8, dtype="i"))),
    (jax.vmap(jax.grad(lambda x, i: (jax.lax.dynamic_slice(x, (i,), (3,)) ** 2).sum())), (X, 2 * np.arange(8, dtype="i"))),
], ids=lambda value: str(value.__code__.co_firstlineno) if callable(value) else "")
def test_parts_of_rows(function, arguments):
    equal(function, *arguments)


@pytest.mark.parametrize("scatter", [jax.lax.scatter, jax.lax.scatter_add], ids=lambda f: f.__name__)
def test_windows_that_do_not_fit__are_skipped(scatter):
    numbers = jax.lax.ScatterDimensionNumbers(update_window_dims=(1, 2), inserted_window_dims=(),
                                              scatter_dims_to_operand_dims=(0, 1))
    starts = np.array([[0, 0], [6, 14], [7, 15], [-1, 3], [3, 99], [5, 12]], np.int32)
    updates = np.arange(48, dtype=np.float32).reshape(6, 2, 4)
    equal(lambda x, i, u: scatter(x, i, u, numbers, mode="drop"), X, starts, updates)


def test_gradients():
    """Of a cross entropy, of embeddings, and of columns: what training steps scatter."""
    labels, words = RANDOM.integers(0, 16, 8).astype(np.int32), RANDOM.integers(0, 8, (3, 4)).astype(np.int32)
    near(jax.value_and_grad(lambda x, i: -jnp.take_along_axis(jax.nn.log_softmax(x), i[:, None], -1).mean()), X, labels)
    near(jax.grad(lambda x, i: (x[i] ** 3).sum()), X, words)
    near(jax.grad(lambda x, i: (jnp.take(x, i, axis=1) ** 2).sum()), X, words, tolerance=1e-5)
    near(jax.grad(lambda x, i: (x[:, i] ** 2).sum()), CUBE, words % 5, tolerance=1e-5)


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (jnp.bfloat16, 0.02)])
def test_many_updates__are_added_by_a_product(dtype, tolerance):
    """Infinities and NaN, whose products with zero are NaN, reach only the elements of their updates."""
    updates = RANDOM.standard_normal((300, 24)).astype(np.float32)
    rows = RANDOM.integers(-3, 220, 300).astype(np.int32)
    for name in ("add", "subtract"):
        near(lambda x, i, u, name=name: getattr(x.at[i], name)(u), RANDOM.standard_normal((200, 24)).astype(dtype), rows,
             updates.astype(dtype), tolerance=tolerance)
    updates[3, 5], updates[9, 1], updates[20, 2] = np.inf, -np.inf, np.nan
    rows[30], updates[30, 7], rows[31], updates[31, 7] = 4, np.inf, 4, -np.inf
    rows[32], updates[32, 8], rows[33], updates[33, 8] = 4, 3e38, 4, 3e38
    near(lambda x, i, u: x.at[i].add(u), RANDOM.standard_normal((200, 24)).astype(dtype), rows, updates.astype(dtype),
         tolerance=tolerance)


@pytest.mark.parametrize("function, arguments, what", [
    (lambda x, i: x.at[i].apply(jnp.sin), (X, np.array([1, 2], np.int32)), "a scatter that combines values otherwise than "
     "by one sum, difference, product, extremum, and, or"),
    (lambda x, i, u: x.at[i].add(u), (X.astype(np.int8), np.array([1, 2], np.int32), X[:2].astype(np.int8)),
     "a scatter with 'add' of i8"),
    (lambda x, i, u: x.at[i].max(u), (X.astype(np.uint32), np.array([1, 2], np.int32), X[:2].astype(np.uint32)),
     "a scatter with 'maximum' of ui32")])
def test_other_forms__are_refused(function, arguments, what):
    with pytest.raises(Unsupported, match=f"{what}, as engine instructions is not supported"):
        simulate_linked(jax.jit(function).lower(*arguments).as_text(), arguments)
