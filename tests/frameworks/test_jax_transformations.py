# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""JAX's transformations around kernels, and through them, as a user combines them; their errors."""

from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from nki_mlir.frameworks.jax_primitive import KernelNotDifferentiable  # noqa: E402
from nki_mlir.frameworks.registry import NumberAsTensor, SymbolicShape  # noqa: E402

from . import kernels  # noqa: E402

pytestmark = pytest.mark.jax

A = np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((32, 16)).astype(np.float32)


def test_numbers__of_no_dimensions_are_no_operands():
    with pytest.raises(NumberAsTensor, match="argument factor of kernel scaled is an array without dimensions"):
        kernels.scaled(jnp.asarray(A), jnp.float32(2))


@jax.custom_vjp
def product(a, b):
    return kernels.named_results((a, b))["product"]


product.defvjp(lambda a, b: (product(a, b), (a, b)), lambda saved, g: (product(g, saved[1]), product(g, saved[0])))


def test_shard_map__kernels_in_rules_of_derivatives(child):
    """What varies over the mesh is known of the results, which rules have to return as such."""
    assert child(f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from frameworks import kernels
from frameworks.test_jax_transformations import product
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
A = np.arange(512, dtype=np.float32).reshape(32, 16)
f = jax.shard_map(lambda a, b: product(a, b), mesh=mesh, in_specs=(P("x", "y"), P("x", "y")), out_specs=P("x", "y"))
np.testing.assert_allclose(jax.jit(jax.grad(lambda a: f(a, A).sum()))(A), A)
g = jax.shard_map(jax.vmap(jax.checkpoint(lambda a: product(a, a))), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
np.testing.assert_allclose(jax.grad(lambda a: g(a).sum())(A.reshape(4, 8, 16)), 2 * A.reshape(4, 8, 16))
h = jax.shard_map(kernels.named_results, mesh=mesh, in_specs=((P("x"), P(None, "y")),), out_specs={{"product": P("x", "y")}})
np.testing.assert_allclose(h((A[:, :8], A[:16]))["product"][:16, :8], A[:16, :8] * A[:16, :8])
print("done")
""", XLA_FLAGS="--xla_force_host_platform_device_count=4") == "done\n"


def test_grad__of_integers_is_nothing():
    def f(a):
        return (kernels.scaled(a.astype(jnp.int32), 2) * a).sum()
    np.testing.assert_array_equal(jax.grad(f)(A), np.asarray((A.astype(np.int32) * 2).astype(np.float32)))


def test_grad__error_names_the_users_line():
    with pytest.raises(KernelNotDifferentiable, match="kernel scaled is differentiated, and a kernel has no") as error:
        jax.grad(lambda a: kernels.scaled(a, 2.0).sum())(A)
    assert error.value.at.file == __file__


def test_custom_jvp__forward_works_and_reverse_says_what_is_missing():
    @jax.custom_jvp
    def double(a):
        return kernels.scaled(a, 2.0)
    double.defjvp(lambda primals, tangents: (double(*primals), double(*tangents)))
    np.testing.assert_array_equal(jax.jvp(double, (A,), (B,))[1], B * 2)
    with pytest.raises(KernelNotDifferentiable, match=r"jax\.custom_vjp"):
        jax.grad(lambda a: double(a).sum())(A)


def test_disable_jit__runs_kernels():
    with jax.disable_jit():
        np.testing.assert_array_equal(jax.jit(lambda a: kernels.add[2](a, a))(jnp.asarray(A)), A * 2)


def test_export__of_a_symbolic_shape_is_refused():
    from jax import export
    (n,) = export.symbolic_shape("n")
    with pytest.raises(SymbolicShape) as raised:
        export.export(jax.jit(lambda a: kernels.scaled(a, 2.0)))(jax.ShapeDtypeStruct((n, 16), np.float32))
    assert raised.value.headline == "kernel scaled is called with an array of shape (n, 16): all sizes must be known"
    assert raised.value.advice[1] == "export the program once for each size; jax.jit recompiles"
    assert raised.value.at.file == __file__


def test_vmap__nested_of_an_update_with_operands_that_are_not_mapped():
    tables, rows = np.stack([A, B]), np.stack([A[:8], B[:8], A[8:16]])
    got = jax.vmap(jax.vmap(kernels.add_rows, (None, 0)), (0, None))(tables, rows)
    for k, table in enumerate(tables):
        for n, row in enumerate(rows):
            np.testing.assert_array_equal(got[k, n], np.concatenate([table[:8] + row, table[8:]]))
    jaxpr = str(jax.make_jaxpr(jax.vmap(kernels.add_rows, (0, None)))(tables, rows[0]))
    assert jaxpr.count("nki_call") == 1
