# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of one's own around kernels: nki_op, with derivatives, compiled, exported; wrap_nki."""

import pytest

torch = pytest.importorskip("torch")

from nki_mlir.frameworks.stablehlo import run_linked  # noqa: E402
from nki_mlir.frameworks.torch_neuronx import nki_op, trace, wrap_nki  # noqa: E402
from nki_mlir.frameworks.torch_stablehlo import stablehlo_of  # noqa: E402
from nki_mlir.language.beta import nki  # noqa: E402

from . import kernels  # noqa: E402
from .test_torch import equal  # noqa: E402

pytestmark = pytest.mark.torch

A = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
B = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))


@nki_op("nki_mlir_tests::product", mutates_args={})
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return kernels.named_results((a, b))["product"]


@nki_op("nki_mlir_tests::add_rows", mutates_args={"table"})
def add_rows(table: torch.Tensor, rows: torch.Tensor, factor: float) -> None:
    kernels.add_rows(table, kernels.scaled(rows, factor))


def backward(ctx, gradient):
    a, b = ctx.saved_tensors
    return product(gradient, b), product(gradient, a)


product.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def test_operator__calls_kernels(executor):
    equal(product(A, B), A * B)
    equal(torch.ops.nki_mlir_tests.product(A, B), A * B)


def test_operator__updates_what_it_says():
    table = A.clone()
    add_rows(table, B[:8], 2.0)
    equal(table, torch.cat([A[:8] + B[:8] * 2, A[8:]]))
    compiled = A.clone()
    torch.compile(lambda t: add_rows(t, B[:8], 2.0), backend="aot_eager", fullgraph=True)(compiled)
    equal(compiled, table)


def test_operator__passes_the_checks_of_torch():
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    torch.library.opcheck(product, (a, b))
    torch.library.opcheck(add_rows, (A.clone(), B[:8].clone(), 3.0))


@pytest.mark.parametrize("compiled", [None, "eager", "aot_eager"])
def test_operator__with_a_derivative(compiled):
    def loss(a, b):
        return (product(a, b) * a).sum()
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    (loss if compiled is None else torch.compile(loss, backend=compiled, fullgraph=True))(a, b).backward()
    torch.testing.assert_close(a.grad, 2 * A * B)
    torch.testing.assert_close(b.grad, A * A)


def test_operator__is_open_to_compiled_programs():
    observed = []

    def backend(graph, inputs):
        observed.extend(str(n.target) for n in graph.graph.nodes if n.op == "call_function")
        return graph.forward
    from torch._dynamo.backends.common import aot_autograd
    f = torch.compile(lambda a, b: product(a, b) + 1, backend=aot_autograd(fw_compiler=backend), fullgraph=True)
    equal(f(A, B), A * B + 1)
    assert "nki.call.default" in observed and not any("nki_mlir_tests" in name for name in observed)


def test_operator__exports_to_stablehlo():
    class Model(torch.nn.Module):
        def forward(self, a, b):
            return torch.tanh(product(a, b)) + a
    (got,) = run_linked(stablehlo_of(Model(), A, B), [A.numpy(), B.numpy()])
    torch.testing.assert_close(torch.from_numpy(got), torch.tanh(A * B) + A)


def test_gradient__registered_on_an_operator_in_an_autograd_function_that_is_compiled():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return kernels.named_results((a, b))["product"]

        @staticmethod
        def backward(ctx, gradient):
            a, b = ctx.saved_tensors
            return kernels.named_results((gradient, b))["product"], kernels.named_results((gradient, a))["product"]
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    torch.compile(lambda a, b: (Product.apply(a, b) * a).sum(), backend="aot_eager", fullgraph=True)(a, b).backward()
    torch.testing.assert_close(a.grad, 2 * A * B)
    torch.testing.assert_close(b.grad, A * A)


def test_wrap__is_a_decorator_with_grids():
    @wrap_nki
    @nki.jit
    def twice(x):
        out = kernels.nl.ndarray(x.shape, dtype=x.dtype, buffer=kernels.nl.shared_hbm)
        p, f = kernels.ids(x.shape)
        kernels.nl.store(out[p, f], kernels.nl.load(x[p, f]) * 2.0)
        return out
    equal(twice(A), A * 2)
    equal(wrap_nki(kernels.add)[2](A, B), A + B)
    equal(wrap_nki()(kernels.add)[(2,)](A, B), A + B)
    equal(torch.compile(lambda a, b: wrap_nki(kernels.add)[2](a, b), backend="eager")(A, B), A + B)
    assert wrap_nki(kernels.add, platform_target="trn1").platform == "trn1"


def test_trace__computes_a_kernel_a_function_or_a_model_without_derivatives():
    model = torch.nn.Linear(16, 16)
    model.register_forward_hook(lambda module, inputs, result: kernels.scaled(result, 2.0))
    equal(trace(kernels.scaled, (A, 2.0))(B, 2.0), B * 2)
    equal(trace(lambda a: kernels.scaled(a, 2.0) + 1, A, compiler_args="-O1")(B), B * 2 + 1)
    traced = trace(model, A).eval()
    result = traced(B)
    assert torch.allclose(result, torch.nn.functional.linear(B, model.weight, model.bias) * 2, atol=1e-5)
    assert not result.requires_grad and model.weight.requires_grad
    with pytest.raises(AssertionError, match=r"size\(\)\[0\] == 32"):
        traced(B[:8])
    with pytest.raises(RuntimeError, match=r"torch_neuronx.trace returned cannot be saved[^!]*state_dict\(\)"):
        torch.jit.save(traced, "traced.pt")
