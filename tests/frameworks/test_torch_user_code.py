# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels in what PyTorch's users write: torch.func, vmap, pickles, workers, dynamic shapes, updates under autograd."""

import copy
import gc
import io
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nki_mlir.capture.mutable_state import ABSENT  # noqa: E402
from nki_mlir.frameworks.registry import NumberAsTensor  # noqa: E402
from nki_mlir.frameworks.stablehlo import run_linked  # noqa: E402
from nki_mlir.frameworks.torch_plans import UpdatesWithGradient  # noqa: E402
from nki_mlir.frameworks.torch_stablehlo import stablehlo_of  # noqa: E402
from nki_mlir.language.arguments import BadArgument  # noqa: E402
from nki_mlir.language.framework_tensors import NoDerivative  # noqa: E402
from nki_mlir.language.read_tensors import TensorsRead, state_of_tensor  # noqa: E402

from . import kernels  # noqa: E402

pytestmark = pytest.mark.torch

A = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
B = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
close = torch.testing.assert_close


def equal(got, expected):
    close(got, expected, rtol=0, atol=0)


class Product(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a, b):
        return kernels.named_results((a, b))["product"]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        return Product.apply(gradient, b), Product.apply(gradient, a)


class ProductOfKernels(Product):
    """The backward calls the kernel itself, on inputs that require grad."""

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        return (kernels.named_results((gradient, b))["product"],
                kernels.named_results((gradient, a))["product"])


class Net(torch.nn.Module):
    """Has kernels as attributes, as a model may."""

    def __init__(self):
        super().__init__()
        self.layer, self.kernel = torch.nn.Linear(16, 16), kernels.add[2]

    def forward(self, x):
        return Product.apply(self.layer(x), x)


# -- vmap --------------------------------------------------------------------------------------------------------------
def test_vmap__is_one_operator():
    from torch.fx.experimental.proxy_tensor import make_fx
    x = torch.stack([A, B, A * 2])
    graph = make_fx(torch.vmap(lambda a: kernels.add[2](a, B)))(x)
    assert [n.target for n in graph.graph.nodes if "nki" in str(n.target)] == [torch.ops.nki.map.default]
    equal(graph(x * 2), x * 2 + B)


def test_vmap__nested_with_operands_that_are_not_mapped():
    x = torch.stack([torch.stack([A, B]), torch.stack([B, A * 2]), torch.stack([A * 3, B])])

    def f(a, b):
        return kernels.sum_and_difference(a, b)
    for axes in (((0, None), (0, None)), ((None, 0), (0, None)), ((0, 0), (0, None)), ((0, 0), (0, 0))):
        inner, outer = axes
        left = x if (outer[0], inner[0]) == (0, 0) else x[:, 0]
        right = {(0, 0): x, (0, None): x[:, 1], (None, 0): x[0], (None, None): B}[outer[1], inner[1]]
        got = torch.vmap(torch.vmap(f, inner), outer)(left, right)
        left = left if left.dim() == 4 else left[:, None]
        right = right if right.dim() != 3 or outer[1] is None else right[:, None]
        equal(got[0], left + right)
        equal(got[1], left - right)


def test_vmap__other_axes_and_parts_of_memory():
    x = torch.randn(16, 3, 64, 2)[..., 0]
    equal(torch.vmap(lambda a: kernels.scaled(a, 2.0), 1, 2)(x), (x * 2).movedim(1, 2))


@pytest.mark.parametrize("compiled", [False, True])
def test_vmap__updates_each_part(compiled):
    def f(tables, rows):
        return torch.vmap(lambda table, row: kernels.add_rows(table, row) * 1.0)(tables, rows)
    tables, rows = torch.stack([A, B]), torch.stack([A[:8], B[:8]])
    expected = tables.clone()
    expected[:, :8] += rows
    equal((torch.compile(f, backend="aot_eager", fullgraph=True) if compiled else f)(tables, rows), expected)
    equal(tables, expected)


def test_vmap__of_an_update_of_what_is_not_mapped():
    with pytest.raises(BadArgument, match="kernel add_rows, which updates its parameter table, and that tensor is not mapped"):
        torch.vmap(lambda row: kernels.add_rows(A.clone(), row))(torch.stack([A[:8], B[:8]]))


def test_vmap__of_gradients_for_each_sample():
    net, x = Net(), torch.stack([A, B])
    weights = {name: p.detach() for name, p in net.named_parameters()}

    def loss(weights, x):
        return torch.func.functional_call(net, weights, (x,)).pow(2).sum()
    got = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, x)["layer.weight"]
    for one, sample in zip(got, x):
        net.zero_grad()
        net(sample).pow(2).sum().backward()
        close(one, net.layer.weight.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("compiles", [False, True])
def test_vmap__of_a_tensor_that_requires_grad(compiles):
    def product(a):
        return torch.vmap(lambda part: kernels.named_results((part, B))["product"])(a)
    torch._dynamo.reset()
    run = torch.compile(product, backend="aot_eager", fullgraph=True) if compiles else product
    a = torch.stack([A, B]).requires_grad_()
    with pytest.raises(Exception, match="kernel named_results is called with a tensor that requires grad"):
        run(a)
    with torch.no_grad():
        equal(run(a), a * B)
    with pytest.raises(NoDerivative, match="kernel named_results is called with a tensor that requires grad"):
        torch.func.grad(lambda a: product(a).sum())(a.detach())


def test_compiled_update__from_a_tensor_that_requires_grad():
    torch._dynamo.reset()
    update = torch.compile(lambda rows: kernels.add_rows(A.clone(), rows), backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="kernel add_rows is called with a tensor that requires grad"):
        update(B[:8].clone().requires_grad_())


def test_vmap__as_stablehlo():
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.vmap(lambda a: kernels.add[2](a, a))(x) * 2
    x = torch.stack([A, B])
    (got,) = run_linked(stablehlo_of(Model(), x), [x.numpy()])
    close(torch.from_numpy(got), x * 4)


# -- kernels in a backward whose history is recorded -------------------------------------------------------------------
def test_recorded_backward__is_differentiated_once():
    for _ in range(2):                          # the second call is on the fast path
        a = A.clone().requires_grad_()
        gradient, = torch.autograd.grad(ProductOfKernels.apply(a, B).square().sum(), a, create_graph=True)
        close(gradient, 2 * A * B * B)
        with pytest.raises(NoDerivative, match="kernel named_results is called with a tensor that requires grad"):
            gradient.sum().backward()


def test_recorded_backward__of_functional_transformations():
    def loss(a):
        return ProductOfKernels.apply(a, B).square().sum()
    for _ in range(2):
        close(torch.func.grad(loss)(A), 2 * A * B * B)
        close(torch.func.vmap(torch.func.grad(loss))(torch.stack([A, B])), 2 * torch.stack([A, B]) * B * B)
        close(torch.func.vjp(lambda a: ProductOfKernels.apply(a, B), A)[1](B)[0], B * B)
        with pytest.raises(NoDerivative, match="kernel named_results is called with a tensor that requires grad"):
            torch.func.grad(lambda a: torch.func.grad(loss)(a).sum())(A)


@pytest.mark.parametrize("differentiate", [
    torch.func.grad,
    lambda loss: lambda a: torch.func.vmap(torch.func.grad(loss))(a[None])[0],
    lambda loss: lambda a: torch.func.vjp(loss, a)[1](torch.tensor(1.0))[0]], ids=["grad", "vmap", "vjp"])
def test_functional_gradients_in_a_program__are_an_error_and_not_zero(differentiate):
    def loss(a):
        return Product.apply(a, B).sum()
    torch._dynamo.reset()
    close(differentiate(loss)(A), B)
    with pytest.raises(Exception, match="differentiates kernel named_results in a program of") as error:
        torch.compile(differentiate(loss), backend="eager", fullgraph=True)(A)
    assert "fix: differentiate with backward() or torch.autograd.grad there, or call torch.func.grad without" in str(error.value)


def test_functional_gradients_in_a_program__of_other_tensors():
    torch._dynamo.reset()
    gradient = torch.func.grad(lambda a: (a * kernels.scaled(B, 2.0)).sum())
    close(torch.compile(gradient, backend="eager", fullgraph=True)(A), 2 * B)


# -- torch.compile -----------------------------------------------------------------------------------------------------
@pytest.mark.share(3)
@pytest.mark.parametrize("function, arguments", [
    (lambda x, n: kernels.scaled(x, n), [(A, 2.0), (A, 3.0), (A, 4.5)]),
    (lambda x, n: kernels.scaled(x, n), [(A, 2), (A, 3), (A, -4)]),
    (lambda x: kernels.scaled(x, x.shape[0]), [(A[:n],) for n in (4, 5, 6)]),
    (lambda x: kernels.scaled(x, factor=x.shape[0] ** -0.5), [(A[:n],) for n in (4, 5, 6)]),
    (lambda x: kernels.add[x.shape[0] // 16](x, x), [(A[:16],), (A,), (torch.cat([A, A]),)])])
def test_compile__numbers_and_grids_that_change(function, arguments):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    for case in arguments:
        equal(compiled(*case), function(*case))


# -- copies, pickles, processes ----------------------------------------------------------------------------------------
def test_models__with_kernels_are_copied_and_saved():
    net, file = Net(), io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), torch.load(file, weights_only=False)):
        equal(other(A), net(A))
        equal(other.kernel(A, B), A + B)
        assert other.kernel.grid == (2,)


READS = {"float": lambda t: float(t[1]), "item": lambda t: t[1].item(), "list": lambda t: t.tolist()[1], "NumPy": lambda t: t.numpy()[1].item(),
         "view": lambda t: float(t[1:][0]), "branch": lambda t: 2 if t.max() == 2 else 5,
         "stack": lambda t: torch.stack([t, t])[0, 1].item(), "array": lambda t: float(np.asarray(t)[1])}


@pytest.mark.parametrize("read", READS)
def test_tensors_whose_values_a_kernel_reads(read):
    scale, weights = torch.ones(3), torch.ones(4, 4)
    kernel = kernels.scaled_by(lambda: READS[read](scale) * weights.shape[0] / 4)
    for value in (2., 5., 5., 2.):
        for change in (scale.__setitem__, scale.numpy().__setitem__):
            change(1, 1)
            change(1, value)
            weights += 1                            # the kernel reads its shape alone
            for _ in range(2):
                equal(kernel(A), A * value)
                equal(kernel.on("isa")(A), A * value)
                assert np.array_equal(kernel(A.numpy()), A.numpy() * value)
    assert len(kernel.specializations) == 2


def test_compile__of_a_kernel_that_reads_a_tensor_and_a_file(tmp_path):
    torch.compiler.reset()
    scale, path = torch.ones(3), tmp_path / "scale"
    path.write_text("1")
    compiled = torch.compile(kernels.scaled_by(lambda: float(scale[1]) * float(path.read_text())), backend="eager",
                             fullgraph=True)
    for value in (2., 5.):
        scale[1] = value
        equal(compiled(A), A * value)
    path.write_text("3")
    equal(compiled(A), A * 15)


def test_tensors_that_a_kernel_reads__may_go_and_may_be_without_memory():
    table = {"scale": torch.full((), 3.)}
    kernel = kernels.scaled_by(lambda: float(table["scale"]) if table else 7)
    equal(kernel(A), A * 3)
    table["scale"] = torch.full((), 4.)
    equal(kernel(A), A * 4)
    table.clear()
    gc.collect()
    equal(kernel(A), A * 7)
    for tensor in (torch.eye(2).to_sparse(), torch.ones(2, device="meta"), torch.ones(0)):
        assert state_of_tensor(tensor) == state_of_tensor(tensor)
    assert state_of_tensor(torch.zeros(2)) != state_of_tensor(-torch.zeros(2)) and state_of_tensor(None) is ABSENT


def test_large_tensors_that_a_kernel_reads(monkeypatch):
    monkeypatch.setattr("nki_mlir.language.read_tensors.LARGE", 4)
    scale = torch.ones(3)
    kernel = kernels.scaled_by(lambda: float(scale[1]))
    for value in (2, 5):
        scale[1] = value
        equal(kernel(A), A * value)


def test_pickle__of_a_kernel_without_a_name():
    def local(x):
        return x
    with pytest.raises(pickle.PicklingError, match="define the kernel at the top of a module"):
        pickle.dumps(kernels.nki.jit(local))


def test_pickle__keeps_what_was_chosen():
    kernel = pickle.loads(pickle.dumps(kernels.nki.trace(kernels.add_into).on("interpreter")))
    assert kernel.executor == "interpreter" and kernel.mode == "trace"
    out = torch.zeros(32, 16)
    kernel(A, B, out)
    equal(out, A + B)


def test_data_loader__with_workers(child):
    assert child(f"""
import sys
sys.path.insert(0, {str(__import__("pathlib").Path(__file__).parent.parent)!r})
import torch
from frameworks import kernels
class Numbers(torch.utils.data.Dataset):
    def __init__(self):
        self.kernel = kernels.scaled
    def __len__(self):
        return 6
    def __getitem__(self, n):
        return self.kernel(torch.full((4, 4), float(n)), 2.0)
if __name__ == "__main__":
    kernels.scaled(torch.ones(4, 4), 2.0)
    for context in ("fork", "spawn"):
        loaded = torch.cat(list(torch.utils.data.DataLoader(Numbers(), 2, num_workers=2, multiprocessing_context=context)))
        assert loaded[:, 0, 0].tolist() == [0, 2, 4, 6, 8, 10]
    print("done")
""") == "done\n"


# -- autograd and arguments --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("planned", [False, True])
def test_update__of_what_requires_grad(planned):
    leaf, part = A.clone().requires_grad_(), A.clone().requires_grad_()[2:20]
    if planned:
        kernels.add_rows(A.clone(), B[:8])
        kernels.add_rows(A.clone()[2:20], B[:8])
    for table in (leaf, part):
        with pytest.raises(UpdatesWithGradient, match="kernel add_rows updates a tensor that requires grad") as error:
            kernels.add_rows(table, B[:8])
        assert error.value.at.file == __file__
    with torch.no_grad():
        kernels.add_rows(leaf, B[:8])
    equal(leaf.detach()[:8], A[:8] + B[:8])


def test_update__of_memory_that_is_not_contiguous():
    table, inside = torch.zeros(16, 32).t(), torch.zeros(40, 40)
    kernels.add_rows(table, B[:8])
    kernels.add_rows(inside[4:36, 3:19], B[:8])
    expected = torch.zeros(40, 40)
    expected[4:12, 3:19] = B[:8]
    equal(table[:8], B[:8])
    equal(inside, expected)


def test_error__number_in_a_tensor():
    with pytest.raises(NumberAsTensor, match="argument factor of kernel scaled is an array without dimensions"):
        kernels.scaled(A, torch.tensor(2.0))


def test_tensors_that_a_kernel_reads__are_recorded_though_they_have_the_id_of_an_earlier_one():
    read = TensorsRead()
    for _ in range(50):
        tensor = torch.ones(2)
        read.record([tensor])
        assert any(reference() is tensor for reference, _ in read.states)
        del tensor
