# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels linked into StableHLO modules: the linked module, and what it computes, against JAX."""

import re

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from nki_mlir.bindings import ir  # noqa: E402
from nki_mlir.diagnostics import Unsupported  # noqa: E402
from nki_mlir.dialects.verifier import OutOfBounds  # noqa: E402
from nki_mlir.frameworks.registry import BadArguments  # noqa: E402
from nki_mlir.frameworks.stablehlo import LinkedProgram, run_linked  # noqa: E402
from nki_mlir.graph.custom_call import BadConfig  # noqa: E402
from nki_mlir.graph.upstream import BadModule, graph_context  # noqa: E402
from nki_mlir.passes.safety import UnsafeInput  # noqa: E402
from nki_mlir.transforms.link_kernels import link  # noqa: E402

from ..at_once import at_once  # noqa: E402
from . import kernels  # noqa: E402

pytestmark = pytest.mark.jax

A = np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((32, 16)).astype(np.float32)


def lowered(function, *arguments, platform="cpu"):
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()


def agree(function, *arguments, rtol=2e-6, atol=1e-6):
    """Linked results equal those of JAX."""
    expected = jax.tree_util.tree_leaves(jax.jit(function)(*arguments))
    got = run_linked(lowered(function, *arguments), [np.asarray(a) for a in jax.tree_util.tree_leaves(arguments)])
    assert len(got) == len(expected)
    for one, other in zip(got, expected):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one.astype(np.float64), np.asarray(other).astype(np.float64), rtol=rtol, atol=atol)


def program(a, b):
    return a * b * kernels.add[2](a, b)


# -- the module --------------------------------------------------------------------------------------------------------
def linked(text):
    context = graph_context()
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
        linked_kernels = link(module)
        assert module.operation.verify()
        return module, linked_kernels


@pytest.mark.parametrize("platform", ["cpu", "neuron"])
def test_link__replaces_the_custom_call(platform):
    module, linked_kernels = linked(lowered(program, A, A, platform=platform))
    text = str(module)
    assert "custom_call" not in text and "call @add(%arg0, %arg1)" in text and '"nki.load"' in text
    assert [(one.name, one.parts) for one in linked_kernels] == [("add", ("add.program",))]


def test_link__both_spellings_give_the_same_module():
    texts = {str(linked(lowered(program, A, A, platform=p))[0]) for p in ("cpu", "neuron")}
    assert len(texts) == 1


def test_link__a_kernel_that_is_called_twice_is_put_in_once():
    module, linked_kernels = linked(lowered(lambda a, b: kernels.add[2](kernels.add[2](a, b), b), A, A))
    assert len(linked_kernels) == 1 and str(module).count("call @add(") == 2


def test_link__names_do_not_clash():
    def add(x):
        return kernels.scaled(x, 2.0) + kernels.scaled(x, 3.0)
    module, linked_kernels = linked(lowered(add, A))
    assert [one.name for one in linked_kernels] == ["scaled", "scaled.1"]
    assert module.operation.verify()


def test_link__leaves_other_custom_calls_alone():
    module, linked_kernels = linked(lowered(lambda a: jnp.linalg.qr(a)[0], A))
    assert not linked_kernels and "custom_call" in str(module)


def test_link__refuses_a_call_that_is_not_the_kernels():
    text = lowered(program, A, A, platform="neuron")
    with pytest.raises(BadConfig, match="no kernel in its backend_config"):
        linked(text.replace('backend_config = "', 'backend_config = "", other = "'))
    with pytest.raises(BadConfig, match=r"operands are \(tensor<16x32xf32>"):
        linked(lowered(program, A, A, platform="neuron").replace("32x16xf32", "16x32xf32"))


# -- values ------------------------------------------------------------------------------------------------------------
def test_run__values_of_the_first_example(executor):
    agree(program, A, B)


@pytest.mark.share(3)
@pytest.mark.parametrize("function, arguments", [
    (lambda a, b: kernels.sum_and_difference(a, b), (A, B)),
    (lambda a: jax.nn.softmax(kernels.scaled(jnp.tanh(a), 3.0)).sum(), (A,)),
    (lambda a, b: kernels.add_rows(a, b) + a, (A, B[:8])),
    (lambda a, b: kernels.put_rows(a, b) + a, (A, B[:8])),
    (lambda a: kernels.lower_triangle(a[:16]), (A,)),
    (lambda a: kernels.first_program_doubles[2](a).T, (A,)),
    (lambda a: kernels.scaled(a.astype(jnp.bfloat16), 2.0) * 3, (A,)),
    (lambda a: kernels.scaled((a * 10).astype(jnp.int32), 2), (A,)),
    (lambda a: kernels.scaled((abs(a) * 10).astype(jnp.uint8), 2) + 1, (A,)),
    (lambda a: kernels.lower_triangle((abs(a) * 10).astype(jnp.uint8)[:16]), (A,)),
    (lambda a: jnp.stack([kernels.scaled(a[k:k + 8], k) for k in range(3)]), (A,)),
    (lambda a, b: jax.vmap(kernels.add[2])(jnp.stack([a, b]), jnp.stack([b, b])), (A, B)),
    (lambda a, b: jax.lax.fori_loop(0, 3, lambda i, x: kernels.add[2](x, b) * 0.5, a), (A, B)),
    (lambda p, a: jax.lax.cond(p, lambda x: kernels.scaled(x, 2.0), lambda x: x + 1, a), (np.bool_(True), A)),
    (lambda n, a: jax.lax.switch(n, [lambda x: x, lambda x: kernels.scaled(x, 2.0), lambda x: -x], a),
     (np.int32(1), A)),
], ids=lambda value: "" if not callable(value) else str(value.__code__.co_firstlineno))
def test_run__graphs_around_kernels(function, arguments):
    agree(function, *arguments)


@pytest.mark.parametrize("function", [
    lambda a: jnp.sort(a), lambda a: jnp.sort(a, 0), lambda a: jnp.argsort(a), lambda a: jnp.sort(a.ravel())[::-1],
    lambda a: jax.lax.top_k(a, 3)[0]], ids=["rows", "columns", "indices", "one", "top"])
def test_run__sorts(function):
    """Ties keep their order."""
    agree(function, np.round(A * 2))


@pytest.mark.parametrize("function", [
    lambda a, i: a.at[i].add(2.0), lambda a, i: a.at[:, i].set(7.0), lambda a, i: a.at[i, i].max(1.0),
    lambda a, i: kernels.scaled(a, 2.0).at[i].add(a[:5]), lambda a, i: a[i] * 2,
    lambda a, i: a[1:, 2:6][i], lambda a, i: jax.grad(lambda x: (x[i] ** 2).sum())(a)],
    ids=["add", "set", "max", "kernel", "gather", "gather of columns", "gradient"])
def test_run__scatters_and_gathers(function):
    """Updates outside are left out."""
    agree(function, A, np.array([3, 1, 1, 99, -2], np.int32))


def test_run__gradients():
    @jax.custom_vjp
    def added(a, b):
        return kernels.add[2](a, b)
    added.defvjp(lambda a, b: (added(a, b), (a, b)), lambda residuals, g: (g, g))
    agree(jax.grad(lambda a, b: (added(a, b) * a * b).sum(), argnums=(0, 1)), A, B, rtol=1e-5, atol=1e-5)


def test_run__portable_artifact():
    import jax.export

    from nki_mlir.frameworks.jax import export_checks
    exported = jax.export.export(jax.jit(program), disabled_checks=export_checks())(A, A)
    (got,) = run_linked(exported.mlir_module_serialized, [A, B])
    np.testing.assert_allclose(got, A * B * (A + B), rtol=1e-6)


def test_run__leaves_jaxs_own_module_as_it_is():
    f = jax.jit(program)
    run_linked(f.lower(A, B).as_text(), [A, B])
    np.testing.assert_allclose(f(A, B), A * B * (A + B), rtol=1e-6)


def test_run__from_several_threads():
    ready = LinkedProgram(lowered(program, A, B))
    wrong = []

    def work(n):
        for _ in range(20):
            if not np.allclose(ready(A * n, B)[0], A * n * B * (A * n + B), rtol=1e-5):
                wrong.append(n)
    at_once(work, [np.float32(n) for n in range(4)])
    assert not wrong


# -- errors ------------------------------------------------------------------------------------------------------------
def test_error__of_a_kernel_while_it_runs(executor):
    ready = LinkedProgram(lowered(lambda x: kernels.takes_rows(x) + 1, np.ones((8, 10), np.float32)))
    for _ in range(2):
        with pytest.raises(OutOfBounds, match="index 100 is out of bounds for axis 0 with size 80"):
            ready(np.full((8, 10), 10, np.float32))


@pytest.mark.parametrize("arguments, says", [
    ([A], "argument 1 is missing; @main takes 2 arrays"), ([A, B, B], "argument 3 is extra; @main takes 2 arrays"),
    ([A, B.astype(np.float64)], "argument 1 is (32, 16) float64; @main takes (32, 16) float32"),
    ([A, B[:8]], "argument 1 is (8, 16) float32; @main takes (32, 16) float32"),
    ([A, np.ma.masked_array(B, B > 0)], "argument 1 is a masked array, whose mask it would not see; @main takes (32, 16)")])
def test_error__arguments_that_do_not_fit(arguments, says):
    with pytest.raises(BadArguments, match=re.escape(says)):
        run_linked(lowered(program, A, B), arguments)


@pytest.mark.parametrize("text, error, says", [
    ("module {", BadModule, "it does not parse: Unable to parse module assembly"),
    ("func.func @main() {\n return 1 }", BadModule, "it does not parse: Unable to parse module assembly: line 2, column 8: "
     "expected operation name in quotes"),
    ("module {}", BadModule, "it has 0 public functions"),
    (b"no artifact", BadModule, "it does not parse: failed to deserialize module"),
    ("func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }", BadModule,
     "a parameter or result is a tensor<?xf32>"),
    ("func.func private @g(tensor<4xf32>)\nfunc.func @f(%x: tensor<4xf32>) { return }", UnsafeInput,
     "function @g has no body")])
def test_error__modules_that_cannot_be_run(text, error, says):
    with pytest.raises(error, match=re.escape(says)):
        run_linked(text, [])


def test_error__module_that_is_linked_already():
    module, _ = linked(lowered(program, A, A))
    with pytest.raises(BadModule, match="its kernels are linked already"):
        run_linked(str(module), [A, A])


def test_error__program_of_several_devices():
    text = """module @jit_f attributes {mhlo.num_partitions = 4 : i32} {
      sdy.mesh @mesh = <["x"=4]>
      func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32> }
    }"""
    with pytest.raises(Unsupported, match="a program that JAX divides among 4 devices, as one program is not supported"):
        run_linked(text, [np.ones(8, np.float32)])


def test_error__operation_that_is_not_lowered():
    with pytest.raises(Unsupported, match=r"'stablehlo\.fft' in a linked module is not supported"):
        run_linked(lowered(lambda a: jnp.fft.rfft(a).real, A), [A])
    with pytest.raises(Unsupported, match=r"'stablehlo\.custom_call @lapack_spotrf_ffi' in a linked module is not supp"):
        run_linked(lowered(lambda a: jnp.linalg.cholesky(a[:16]), A), [A])
    with pytest.raises(Unsupported, match=r"'complex\.create' of f32, f32 to complex<f32> in a graph on the CPU"):
        run_linked(lowered(lambda a: jnp.abs(jax.lax.complex(a, a)), A), [A])
    with pytest.raises(Unsupported, match=r"'stablehlo\.constant' of complex numbers is not supported"):
        run_linked(lowered(lambda a: (a + 1j).real, A), [A])
