# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels under ``jax.jit`` on arrays that are divided among devices."""

from pathlib import Path

import pytest

jax = pytest.importorskip("jax")

import numpy as np  # noqa: E402

from nki_mlir.frameworks.jax import PartitionRule, partitioned  # noqa: E402
from nki_mlir.frameworks.jax_primitive import KernelNotDifferentiable  # noqa: E402

from . import kernels  # noqa: E402

pytestmark = pytest.mark.jax

HEAD = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
import numpy as np, jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from frameworks import kernels
from nki_mlir.frameworks.jax import partitioned
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
a = np.arange(1024, dtype=np.float32).reshape(64, 16)
def on(spec, array=a): return jax.device_put(array, NamedSharding(mesh, spec))
def shapes(array): return sorted({{s.data.shape for s in array.addressable_shards}})
"""
FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}


def test_without_a_rule__results_are_whole_on_each_device(child):
    assert child(HEAD + """
r = jax.jit(lambda a: kernels.scaled(a, 2.0))(on(P("x")))
print(np.array_equal(r, 2 * a), shapes(r))
""", **FOUR) == "True [(64, 16)]\n"


@pytest.mark.share(3)
@pytest.mark.parametrize("shardy", ["True", "False"])
def test_results__are_divided_as_operands_are(child, shardy):
    """Both of XLA's partitioners ask."""
    assert child(HEAD + """
f = jax.jit(partitioned(lambda a: kernels.scaled(a, 2.0), "rows columns -> rows columns", split="rows columns"))
for spec in (P("x"), P("x", "y"), P(("x", "y")), P(None, "y"), P()):
    r = f(on(spec))
    print(np.array_equal(r, 2 * a), shapes(r))
print("all-gather" in f.lower(on(P("x", "y"))).compile().as_text())
""", JAX_USE_SHARDY_PARTITIONER=shardy, **FOUR) == (
        "True [(32, 16)]\nTrue [(32, 8)]\nTrue [(16, 16)]\nTrue [(64, 8)]\nTrue [(64, 16)]\nFalse\n")


@pytest.mark.share(3)
@pytest.mark.parametrize("shardy", ["True", "False"])
def test_dimensions_that_are_not_divided__are_whole(child, shardy):
    """Rows of a softmax are gathered; several operands, several results, a grid of a device's part."""
    assert child(HEAD + """
from nki_mlir.language.beta import language as nl, nki
@nki.jit
def softmax(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.softmax(nl.load(x), axis=1))
    return out
s = jax.jit(partitioned(softmax, "n d -> n d", split="n"))
compiled = s.lower(on(P("x", "y"))).compile()
print(np.allclose(s(on(P("x", "y"), a / 64)), jax.nn.softmax(a / 64, axis=1), atol=1e-6))
print("all-gather" in compiled.as_text(), "f32[32,16]{1,0} custom-call" in compiled.as_text())
f = jax.jit(partitioned(lambda a, b: kernels.add[a.shape[0] // 16](a, b) * 1.0, "n d, n d -> n d", split="n"))
r = f(on(P("x", "y")), on(P(None, "y"), a + 1))
print(np.array_equal(r, 2 * a + 1), shapes(r)[0][0])
g = jax.jit(partitioned(lambda a, b: kernels.sum_and_difference(a, b), "n d, n d -> n d, n d", split="d"))
total, difference = g(on(P("x", "y")), on(P("x", "y"), a + 1))
print(np.array_equal(total, 2 * a + 1), np.array_equal(difference, a - (a + 1)), shapes(total)[0][1], shapes(difference)[0][1])
""", JAX_USE_SHARDY_PARTITIONER=shardy, **FOUR) == "True\nTrue True\nTrue 32\nTrue True 8 8\n"


def test_on_one_device__it_is_the_function():
    a = np.arange(64, dtype=np.float32).reshape(4, 16)
    f = partitioned(lambda a: kernels.scaled(a, 2.0), "n d -> n d", split="n")
    assert np.array_equal(f(a), 2 * a) and np.array_equal(jax.jit(f)(a), 2 * a)
    assert f.__name__ == "<lambda>"


def test_transformations__have_rules():
    """A batch is one call after the other, also under ``jit``; a derivative is the caller's, or an error by name."""
    a = np.arange(128, dtype=np.float32).reshape(2, 4, 16)
    f = partitioned(lambda a, b: kernels.sum_and_difference(a, b), "n d, n d -> n d, n d", split="n")
    for one in (jax.vmap(f, in_axes=(0, None)), jax.jit(jax.vmap(f, in_axes=(0, None)))):
        total, difference = one(a, a[0])
        assert np.array_equal(total, a + a[0]) and np.array_equal(difference, a - a[0])
    g = partitioned(lambda a: kernels.scaled(a, 2.0), "n d -> n d", split="n")
    with pytest.raises(KernelNotDifferentiable, match="kernel <lambda> is differentiated") as caught:
        jax.grad(lambda a: g(a).sum())(a[0])
    assert caught.value.at is not None and caught.value.at.file == __file__
    h = jax.custom_vjp(g)
    h.defvjp(lambda a: (g(a), None), lambda _, t: (g(t),))
    assert np.array_equal(jax.jit(jax.grad(lambda a: h(a).sum()))(a[0]), np.full((4, 16), 2.0))


@pytest.mark.skipif(not hasattr(jax.sharding, "reshard"), reason="this JAX has no explicit sharding")
def test_vmap__of_batches_whose_types_are_divided(child):
    """Each device maps its part; what no device may have a part of is gathered."""
    assert child(HEAD + """
mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
a, b = np.arange(4096, dtype=np.float32).reshape(8, 32, 16), np.arange(512, dtype=np.float32).reshape(32, 16)
def spec(array): return tuple(jax.typeof(array).sharding.spec)
with jax.set_mesh(mesh):
    for divided in (P("x"), P(("x", "y")), P("x", "y"), P(None, "x")):
        e = on(divided, a)
        one, both = jax.jit(jax.vmap(lambda v: kernels.add[2](v, b))), jax.vmap(kernels.sum_and_difference)
        total, difference = both(e, e)
        print(np.array_equal(one(e), a + b), spec(one(e)), np.array_equal(total, 2 * a), not np.any(difference))
    e = on(P("x"), a)
    nested = jax.vmap(jax.vmap(kernels.add[2], in_axes=(0, None)), in_axes=(None, 0))
    print(np.array_equal(nested(e, jnp.asarray(a[:3])), a + a[:3, None]))
    last = jax.vmap(lambda v: kernels.add[2](v, b), in_axes=2, out_axes=1)(jnp.moveaxis(e, 0, 2))
    print(np.array_equal(last, np.moveaxis(a + b, 0, 1)))
    text = one.lower(e).compile().as_text()
    print("f32[4,32,16]" in text, "all-gather" in text)
""", **FOUR) == """True ('x', None, None) True True
True (('x', 'y'), None, None) True True
True ('x', None, None) True True
True (None, None, None) True True
True
True
True False
"""


@pytest.mark.parametrize("rule, split, what", [
    ("n d", "n", "it has no '->', or several"),
    ("n d -> n d -> n", "n", "it has no '->', or several"),
    ("n d -> n d", "rows", "no dimension is called rows"),
    ("n 2x -> n 2x", "n", "'2x' is not a name"),
])
def test_rules__that_are_none(rule, split, what):
    with pytest.raises(PartitionRule, match=f"rule '{rule}': {what}") as caught:
        partitioned(kernels.scaled, rule, split)
    assert caught.value.at is not None and caught.value.at.file == __file__


def test_rules__fit_the_arrays():
    a = np.ones((4, 16), np.float32)
    with pytest.raises(PartitionRule, match=r"rule 'n -> n': operands have \[2\] dimensions"):
        partitioned(lambda a: kernels.scaled(a, 2.0), "n -> n", split="n")(a)
    with pytest.raises(PartitionRule, match=r"rule 'n d -> n d, n d': results have \[2\] dimensions"):
        partitioned(lambda a: kernels.scaled(a, 2.0), "n d -> n d, n d", split="n")(a)
