# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels on JAX arrays: values, dtypes, transformations, updates, errors."""

from functools import partial

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from nki_mlir.diagnostics import NkiMlirError  # noqa: E402
from nki_mlir.dialects.nisa.require_written import OutputNotWritten  # noqa: E402
from nki_mlir.frameworks.jax import DeletedArray  # noqa: E402
from nki_mlir.frameworks.jax_neuronx import NoOutShape, nki_call  # noqa: E402
from nki_mlir.frameworks.jax_primitive import KernelNotDifferentiable  # noqa: E402
from nki_mlir.frameworks.registry import NumberAsTensor  # noqa: E402
from nki_mlir.language.arguments import BadArgument  # noqa: E402
from nki_mlir.language.beta import language as nl  # noqa: E402
from nki_mlir.language.beta import nki  # noqa: E402
from nki_mlir.language.framework_tensors import HostArray  # noqa: E402

from ..at_once import at_once  # noqa: E402
from . import kernels  # noqa: E402

pytestmark = pytest.mark.jax

A = np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((32, 16)).astype(np.float32)


def equal(got, expected):
    np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


# -- calling -----------------------------------------------------------------------------------------------------------
def test_call__eager_and_jitted(executor):
    a, b = jnp.asarray(A), jnp.asarray(B)
    got = kernels.add[2](a, b)
    assert isinstance(got, jax.Array)
    equal(got, A + B)
    equal(jax.jit(lambda a, b: a * kernels.add[2](a, b))(a, b), A * (A + B))


def test_call__numpy_arrays_among_jax_arrays_are_operands():
    equal(kernels.add[2](jnp.asarray(A), B), A + B)


def test_call__several_results_and_structures(executor):
    total, difference = kernels.sum_and_difference(jnp.asarray(A), jnp.asarray(B))
    equal(total, A + B)
    equal(difference, A - B)
    assert list(kernels.named_results((jnp.asarray(A), jnp.asarray(B)))) == ["product"]
    for call in (kernels.with_optional, jax.jit(kernels.with_optional, static_argnums=1)):
        equal(call(jnp.asarray(A), True)[1], A * A)
        twice, nothing = call(jnp.asarray(A), False)
        equal(twice, A + A)
        assert nothing is None


@pytest.mark.parametrize("jit", [False, True])
def test_call__constants_by_position_and_keyword(jit):
    def f(x):
        return kernels.scaled(x, 3, offset=0.5)
    equal((jax.jit(f) if jit else f)(jnp.asarray(A)), A * np.float32(3) + np.float32(0.5))


FACTOR = 2.0


@nki.jit
def times_factor(x, offset=0.0, *, minus=0.0):
    """FACTOR * x + offset - minus."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * FACTOR + offset - minus)
    return out


def test_call__again_sees_what_has_changed(monkeypatch):
    """Later calls of the same form look up what to run by shapes, dtypes, constants and the state that Python reads."""
    a, b = jnp.asarray(A), jnp.asarray(B, jnp.bfloat16)
    wide = np.asarray(b).astype(np.float32)
    for factor in (2.0, 2.0, 3.0, 2.0):
        monkeypatch.setattr(f"{__name__}.FACTOR", factor)
        for _ in range(2):
            equal(times_factor(a), A * np.float32(factor))
            equal(times_factor(a, 1.0), A * np.float32(factor) + 1)
            equal(times_factor(a, 1), A * np.float32(factor) + 1)
            equal(times_factor(a, minus=1.0), A * np.float32(factor) - 1)
            equal(times_factor(b), (wide * factor).astype(b.dtype))
            equal(times_factor(a[:4]), A[:4] * np.float32(factor))
            equal(times_factor(A), A * np.float32(factor))
            equal(jax.jit(lambda x: times_factor(x) + times_factor(a))(a), A * np.float32(2 * factor))
    assert isinstance(times_factor(a), jax.Array) and isinstance(times_factor(A), np.ndarray)
    equal(times_factor.on("interpreter")(a), A * np.float32(2))
    monkeypatch.setattr(times_factor.func, "__defaults__", (4.0,))
    equal(times_factor(a), A * np.float32(2) + 4)
    donated = jnp.asarray(A)
    donated.delete()
    with pytest.raises(DeletedArray, match="parameter x is an array of JAX that has been deleted"):
        times_factor(donated)


def test_call__new_shapes_and_constants_are_new_specializations():
    f = jax.jit(lambda x, n: kernels.scaled(x, n), static_argnums=1)
    for shape in ((4, 4), (8, 4)):
        for n in (2, 3):
            equal(f(jnp.ones(shape), n), np.full(shape, n, np.float32))


def test_call__matrix_product(executor):
    x, y = A.reshape(8, 64)[:, :64].repeat(4, 0), np.arange(64 * 48, dtype=np.float32).reshape(64, 48) / 1000
    np.testing.assert_allclose(kernels.product(jnp.asarray(x), jnp.asarray(y)), x @ y, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32", "int8", "uint8", "int16", "uint16", "uint32",
                                   "float8_e5m2", "float8_e4m3", "float8_e4m3fn"])
def test_call__dtypes(dtype):
    x = (np.arange(64) % 7).reshape(8, 8).astype(jnp.dtype(dtype))
    got = jax.jit(lambda x: kernels.scaled(x, 2))(jnp.asarray(x))
    assert got.dtype == jnp.dtype(dtype)
    equal(got, (x.astype(np.float32) * 2).astype(x.dtype))


@pytest.mark.parametrize("dtype", ["bool", "float8_e8m0fnu"])
def test_call__dtypes_that_are_only_moved(dtype):
    @nki.jit
    def moved(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out
    x = jnp.asarray(np.arange(64).reshape(8, 8) % 2, jnp.dtype(dtype))
    got = jax.jit(moved)(x)
    assert got.dtype == x.dtype
    equal(got.astype(jnp.float32), x.astype(jnp.float32))


def test_call__elements_that_are_not_written_are_zero(executor):
    equal(jax.jit(kernels.lower_triangle)(jnp.asarray(A[:16])), np.tril(A[:16]))


def test_call__programs_of_different_code(executor):
    equal(kernels.first_program_doubles[2](jnp.asarray(A)), np.concatenate([A[:16] * 2, A[16:]]))


def test_call__prints(executor, capfd):
    jax.jit(kernels.printing)(jnp.ones((2, 2))).block_until_ready()
    assert "tile" in capfd.readouterr().out


def test_call__many_different_kernels():
    for k in range(40):
        equal(kernels.scaled(jnp.ones((2, 2)), k), np.full((2, 2), k, np.float32))


def test_call__from_several_threads(executor):
    a, b = jnp.asarray(A), jnp.asarray(B)
    f = jax.jit(lambda a, b, n: kernels.scaled(kernels.add[2](a, b), n), static_argnums=2)
    wrong = []

    def work(n):
        for _ in range(20):
            if not np.array_equal(f(a, b, n), (A + B) * np.float32(n)):
                wrong.append(n)
    at_once(work, range(4))
    assert not wrong


# -- transformations ---------------------------------------------------------------------------------------------------
@jax.custom_vjp
def added(a, b):
    return kernels.add[2](a, b)


added.defvjp(lambda a, b: (added(a, b), (a, b)), lambda residuals, g: (g, g))


def test_grad__with_a_rule(executor):
    def loss(a, b):
        return (added(a, b) * a * b).sum()
    got = jax.jit(jax.grad(loss, argnums=(0, 1)))(A, B)
    for one, other in zip(got, jax.grad(lambda a, b: ((a + b) * a * b).sum(), argnums=(0, 1))(A, B)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_grad__without_a_rule_says_what_to_do():
    with pytest.raises(KernelNotDifferentiable) as error:
        jax.grad(lambda a: kernels.add[2](a, B).sum())(A)
    assert error.value.headline == "kernel add is differentiated, and a kernel has no derivative"
    assert str(error.value).endswith(
        "fix: wrap the call in a function with jax.custom_vjp and give it a forward and a backward rule")


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 1)])
def test_vmap__each_shape_of_one_call(axes, executor):
    a = np.stack([A, A * 2, A * 3]) if axes[0] == 0 else A
    b = np.moveaxis(np.stack([B, B * 2, B * 3]), 0, 1) if axes[1] == 1 else B if axes[1] is None else np.stack([B] * 3)
    got = jax.jit(jax.vmap(kernels.add[2], in_axes=axes))(jnp.asarray(a), jnp.asarray(b))
    equal(got, a + (np.moveaxis(b, 1, 0) if axes[1] == 1 else b))


def test_vmap__with_a_rule_that_takes_the_grid():
    """A batch as an axis of the grid: one call for all."""
    @nki.jit
    def added(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        n = nl.program_id(0)
        p, f = kernels.ids(a.shape[1:])
        nl.store(out[n, p, f], nl.load(a[n, p, f]) + nl.load(b[n, p, f]))
        return out

    @jax.custom_batching.custom_vmap
    def add(a, b):
        return added[1](a[None], b[None])[0]

    @add.def_vmap
    def rule(size, batched, a, b):
        a, b = (x if is_batched else jnp.broadcast_to(x, (size, *x.shape)) for x, is_batched in zip((a, b), batched))
        return added[size](a, b), True
    a = jnp.stack([A, A * 2, A * 3])
    equal(add(A, B), A + B)
    equal(jax.vmap(add, in_axes=(0, None))(a, B), a + B)
    text = str(jax.make_jaxpr(jax.vmap(add, in_axes=(0, None)))(a, B))
    assert text.count("nki_call") == 1 and "grid=(3,)" in text and "scan" not in text


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2"])
def test_transformations__of_low_precision(dtype):
    """scan, vmap, grad and donation, of elements that NumPy does not name."""
    x = jnp.asarray(np.arange(64).reshape(8, 8) % 4, dtype)
    got, _ = jax.lax.scan(lambda carry, _: (kernels.scaled(carry, 2), ()), x, None, length=2)
    equal(got.astype(jnp.float32), (x.astype(jnp.float32) * 4))
    equal(jax.vmap(lambda v: kernels.scaled(v, 2))(jnp.stack([x, x])).astype(jnp.float32)[1], x.astype(jnp.float32) * 2)
    doubled = jax.custom_vjp(lambda v: kernels.scaled(v, 2))
    doubled.defvjp(lambda v: (doubled(v), ()), lambda saved, g: (kernels.scaled(g, 2),))
    equal(jax.jit(jax.grad(lambda v: doubled(v).astype(jnp.float32).sum()))(x).astype(jnp.float32), np.full((8, 8), 2))
    table = x * 1
    address = table.unsafe_buffer_pointer()
    updated = jax.jit(kernels.put_rows, donate_argnums=0)(table, x[:2] * 1)
    assert updated.unsafe_buffer_pointer() == address


def test_control_flow__scan_cond_checkpoint():
    def step(carry, x):
        return kernels.add[2](carry, x), ()
    got, _ = jax.lax.scan(step, jnp.asarray(A), jnp.stack([jnp.asarray(B)] * 3))
    np.testing.assert_allclose(got, A + B + B + B, rtol=1e-6)
    f = jax.jit(lambda p, a, b: jax.lax.cond(p, added, lambda a, b: a, a, b))
    equal(f(True, A, B), A + B)
    equal(f(False, A, B), A)
    g = jax.grad(lambda a: jax.checkpoint(lambda a: added(a, B) * a)(a).sum())(A)
    np.testing.assert_allclose(g, 2 * A + B, rtol=1e-5)


# -- updates -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kernel, expected", [(kernels.add_rows, A[:8] + B[:8]), (kernels.put_rows, B[:8])])
def test_update__gives_a_new_array_and_keeps_the_rest(kernel, expected, executor):
    table = jnp.asarray(A)
    got = kernel(table, jnp.asarray(B[:8]))
    equal(got, np.concatenate([expected, A[8:]]))
    equal(table, A)
    equal(jax.jit(lambda t, r: kernel(kernel(t, r), r) + t)(table, jnp.asarray(B[:8])),
          np.concatenate([(expected + B[:8] if kernel is kernels.add_rows else expected), A[8:]]) + A)


def test_update__reuses_donated_memory():
    f = jax.jit(kernels.add_rows, donate_argnums=0)
    table = jnp.asarray(A) * 1
    address = table.unsafe_buffer_pointer()
    got = f(table, jnp.asarray(B[:8]))
    assert got.unsafe_buffer_pointer() == address
    assert "may-alias" in f.lower(jnp.asarray(A), jnp.asarray(B[:8])).compile().as_text()


def test_by_reference__direct_call_returns_what_is_written(executor):
    out = jnp.zeros((32, 16))
    equal(nki.trace(kernels.add_into)(jnp.asarray(A), jnp.asarray(B), out), A + B)
    equal(out, np.zeros((32, 16)))


# -- nki_call ----------------------------------------------------------------------------------------------------------
def test_nki_call__outputs_are_trailing_parameters(executor):
    shape = jax.ShapeDtypeStruct(A.shape, A.dtype)
    equal(nki_call(kernels.add_into, A, B, out_shape=shape), A + B)
    (got,) = jax.jit(lambda a, b: nki_call(kernels.add_into, a, b, out_shape=(shape,), grid=None))(A, B)
    equal(got, A + B)


def test_nki_call__constants_through_partial():
    shape = jax.ShapeDtypeStruct(A.shape, jnp.bfloat16)
    got = nki_call(partial(kernels.scaled_into, factor=2.0), jnp.asarray(A), out_shape=shape)
    equal(got, jnp.asarray(A * 2, jnp.bfloat16))


def test_nki_call__output_that_is_read_as_well(executor):
    equal(nki_call(kernels.reads_its_output, A, out_shape=jax.ShapeDtypeStruct(A.shape, A.dtype)), A + 1)


def test_nki_call__refuses_missing_and_unwritten_outputs():
    with pytest.raises(NoOutShape, match="nki_call of add_into has no out_shape"):
        nki_call(kernels.add_into, A, B)
    shape = jax.ShapeDtypeStruct(A.shape, A.dtype)

    def forgets(a, first, second):
        p, f = kernels.ids(a.shape)
        nl.store(first[p, f], nl.load(a[p, f]))
    with pytest.raises(OutputNotWritten, match="second is never written"):
        nki_call(forgets, A, out_shape=(shape, shape))


# -- errors ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("jit", [False, True])
def test_error__in_the_kernel_has_its_line(jit):
    @nki.jit
    def wrong(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[nl.arange(256)[:, None], nl.arange(4)[None, :]])      # this line
        nl.store(out, tile)
        return out
    with pytest.raises(NkiMlirError) as error:
        (jax.jit(wrong) if jit else wrong)(jnp.ones((300, 4)))
    assert error.value.at.file == __file__ and "# this line" in str(error.value)


def test_error__dtype_that_kernels_do_not_have():
    with pytest.raises(BadArgument) as error:
        jax.jit(lambda x: kernels.scaled(x, 2.0))(jnp.ones((4, 4), jnp.complex64))
    assert "complex64" in error.value.headline and error.value.at.file == __file__
    assert error.value.advice[1] == "pass its real part and its imaginary part as two tensors of float32"


@pytest.mark.parametrize("jit", [False, True])
def test_error__float64_says_how_to_convert_it(jit):
    """The error points at the user's call, though JAX is between it and the kernel."""
    with jax.enable_x64(True), pytest.raises(BadArgument) as error:
        (jax.jit(kernels.lower_triangle) if jit else kernels.lower_triangle)(jnp.ones((4, 4)))       # this line
    assert error.value.at.file == __file__ and "# this line" in str(error.value)
    assert error.value.headline.endswith("the nearest is float32: the device has no 64-bit floats")
    assert error.value.advice[1] == "convert it first, for example with x.astype(jnp.float32)"


def test_error__number_that_is_traced():
    with pytest.raises(NumberAsTensor) as error:
        jax.jit(lambda x, n: kernels.scaled(x, n))(jnp.ones((4, 4)), 3.0)
    assert error.value.headline == "argument factor of kernel scaled is an array without dimensions"
    assert error.value.at.file == __file__


def test_error__missing_argument():
    with pytest.raises(BadArgument, match="missing a required argument: 'b'"):
        kernels.add(jnp.asarray(A))


def test_error__while_running_has_the_kernels_line_and_ends_nothing(executor):
    f = jax.jit(kernels.takes_rows)
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"kernels.py:\d+:\d+: error: index 100 is out of bounds"):
            f(jnp.full((8, 10), 10.0)).block_until_ready()
    equal(f(jnp.ones((8, 10))), np.ones((8, 8)))
    equal(kernels.add[2](jnp.asarray(A), jnp.asarray(B)), A + B)


def test_error__arrays_that_no_kernel_can_read():
    deleted = jnp.asarray(A)
    deleted.delete()
    with pytest.raises(DeletedArray, match="parameter b is an array of JAX that has been deleted") as error:
        kernels.add[2](A, deleted)
    assert error.value.at.file == __file__
    closed_over = jnp.asarray(A)
    with pytest.raises(HostArray, match=r"a JAX array of shape \(32, 16\) is used as a tile"):
        nki.jit(lambda x: nl.load(closed_over))(A)
