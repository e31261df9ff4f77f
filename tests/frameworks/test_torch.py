# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels on PyTorch tensors: values, dtypes, memory, updates, gradients, errors."""


import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nki_mlir.diagnostics import NkiMlirError  # noqa: E402
from nki_mlir.dialects.nisa.indirect import IndirectOutOfBounds  # noqa: E402
from nki_mlir.frameworks.torch import NotOnCpu  # noqa: E402
from nki_mlir.frameworks.torch_arguments import NotScripted, NotStrided  # noqa: E402
from nki_mlir.frameworks.torch_neuronx import get_platform_target, nki_jit, wrap_nki  # noqa: E402
from nki_mlir.frameworks.torch_operator import NoTorchDtype, UnknownCallee  # noqa: E402
from nki_mlir.language.arguments import BadArgument  # noqa: E402
from nki_mlir.language.beta import language as nl  # noqa: E402
from nki_mlir.language.beta import nki  # noqa: E402
from nki_mlir.language.framework_tensors import NoDerivative  # noqa: E402

from ..at_once import at_once  # noqa: E402
from . import kernels  # noqa: E402

pytestmark = pytest.mark.torch

A = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
B = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
FACTOR = 2.0


def equal(got, expected):
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


# -- calling -----------------------------------------------------------------------------------------------------------
def test_call__values_and_structures(executor):
    equal(kernels.add[2](A, B), A + B)
    total, difference = kernels.sum_and_difference(A, b=B)
    equal(total, A + B)
    equal(difference, A - B)
    equal(kernels.named_results((A, B))["product"], A * B)
    equal(kernels.with_optional(A, True)[1], A * A)
    for call in (kernels.with_optional, torch.compile(kernels.with_optional, backend="eager")):
        twice, nothing = call(A, False)
        equal(twice, A + A)
        assert nothing is None


def test_call__tensors_by_keyword_in_any_order():
    equal(kernels.sum_and_difference(b=B, a=A)[1], A - B)


def test_call__constants_by_position_and_keyword():
    equal(kernels.scaled(A, 3, offset=0.5), A * 3 + 0.5)
    equal(kernels.scaled(A, True), A)
    equal(kernels.scaled(A, 2.0), A * 2)
    equal(kernels.scaled(A, 1), A)


def test_call__numpy_arrays_among_tensors_are_operands():
    equal(kernels.add[2](A, B.numpy()), A + B)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32", "int8", "uint8", "int16", "uint16", "uint32",
                                   "float8_e5m2", "float8_e4m3fn"])
def test_call__dtypes(dtype):
    dtype = getattr(torch, dtype)
    x = (torch.arange(64) % 7).reshape(8, 8)
    got = kernels.scaled(x.to(dtype), 2)
    assert got.dtype is dtype
    equal(got.to(torch.float32), (x * 2).to(dtype).to(torch.float32))


def test_call__elements_that_are_not_written_are_zero(executor):
    for _ in range(3):
        torch.full((16, 16), 7.0)           # memory that the next tensor may get
        equal(kernels.lower_triangle(A[:16]), torch.tril(A[:16]))


def test_call__tensors_that_are_not_contiguous(executor):
    x = A.t()
    equal(kernels.scaled(x[:, ::2], 2.0), x[:, ::2] * 2)
    equal(kernels.scaled(A.expand(1, 32, 16)[0], 2.0), A * 2)


def test_call__tensors_that_are_negated_when_they_are_read():
    for _ in range(2):
        equal(kernels.add[2](torch._neg_view(A), B), B - A)


def test_call__sees_globals_that_change(monkeypatch):
    """As on NumPy arrays, a kernel is captured anew when what its Python sees around it is another object."""
    @nki.jit
    def scaled(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * FACTOR)
        return out
    equal(scaled(A), A * 2)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    for _ in range(2):
        equal(scaled(A), A * 3)
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    equal(scaled(A), A * 2)


def test_call__is_seen_by_modes_and_profilers():
    from torch.utils._python_dispatch import TorchDispatchMode
    observed = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            observed.append(str(func))
            return func(*args, **(kwargs or {}))
    kernels.add[2](A, B)
    with Watch():
        equal(kernels.add[2](A, B), A + B)
    assert "nki.call.default" in observed
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        kernels.add[2](A, B)
    assert "nki::call" in {event.key for event in profile.key_averages()}


def test_call__results_are_made_on_the_cpu_whatever_the_default_device():
    with torch.device("meta"):
        got = kernels.add[2](A, B)
    equal(got, A + B)


def test_call__from_several_threads(executor):
    wrong = []

    def work(n):
        for _ in range(20):
            if not torch.equal(kernels.scaled(kernels.add[2](A, B), n), (A + B) * n):
                wrong.append(n)
    at_once(work, range(4))
    assert not wrong


def test_call__plans_are_kept_up_to_a_bound(monkeypatch):
    monkeypatch.setattr("nki_mlir.language.call_cache.MOST", 3)
    for rows in (2, 4, 6, 8, 10, 2):
        for _ in range(2):
            assert torch.equal(kernels.scaled(torch.ones(rows, 4), 2.0), torch.full((rows, 4), 2.0))
    assert len(kernels.scaled.specializations) == 3


def test_call__uses_tensors_where_they_are():
    """A kernel that updates its input sees the caller's memory, and gives back the caller's tensor."""
    table = A.clone()
    address = table.data_ptr()
    got = kernels.add_rows(table, B[:8])
    assert got is table and table.data_ptr() == address


# -- updates -----------------------------------------------------------------------------------------------------------
def test_update__in_place(executor):
    table = A.clone()
    version = table._version
    kernels.add_rows(table, B[:8])
    equal(table, torch.cat([A[:8] + B[:8], A[8:]]))
    assert table._version > version


def test_update__of_a_tensor_that_is_not_contiguous(executor):
    wide = torch.zeros(32, 32)
    kernels.add_rows(wide[:, ::2], B[:8])
    equal(wide[:8, ::2], B[:8])
    assert not wide[:, 1::2].any() and not wide[8:].any()


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_update__of_a_read_only_array__is_refused():
    table = np.zeros((32, 16), np.float32)
    table.flags.writeable = False
    with pytest.raises(TypeError, match="the array passed for it is read-only"):
        kernels.add_rows(table, B[:8])
    assert not table.any()


def test_update__of_bfloat16():
    table = A.bfloat16()
    kernels.put_rows(table, B[:8].bfloat16())
    equal(table, torch.cat([B[:8], A[8:]]).bfloat16())


@pytest.mark.parametrize("decorate", [nki_jit, lambda f: nki_jit(func=f), lambda f: nki_jit()(f),
                                      lambda f: nki_jit(f)[1], nki.trace])
def test_by_reference__writes_its_outputs_and_returns_them(decorate, executor):
    out = torch.zeros(32, 16)
    got = decorate(kernels.add_into)(A, B, out)
    assert got is out
    equal(out, A + B)


def test_by_reference__on_numpy_arrays(executor):
    out = np.zeros((32, 16), np.float32)
    nki_jit(kernels.add_into)(A.numpy(), B.numpy(), out)
    np.testing.assert_array_equal(out, (A + B).numpy())


def test_neuronx__names():
    assert get_platform_target() == "trn2"
    equal(wrap_nki(kernels.add)[2](A, B), A + B)
    equal(wrap_nki(kernels.add)[(2,)](A, B), A + B)


# -- gradients ---------------------------------------------------------------------------------------------------------
class Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return kernels.add[2](a, b)

    @staticmethod
    def backward(ctx, gradient, *rest):
        return gradient, gradient


def test_gradient__through_autograd_function(executor):
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    (a * b * Added.apply(a, b)).sum().backward()
    torch.testing.assert_close(a.grad, 2 * A * B + B * B, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(b.grad, 2 * A * B + A * A, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("planned", [False, True])
def test_gradient__is_an_error_without_a_rule(executor, planned):
    a = A.clone().requires_grad_()
    if planned:
        kernels.add[2](A, B)
    for x, y in ((a, B), (B, a), (a * 2, B), (torch.nn.Parameter(A.clone()), B)):
        with pytest.raises(NoDerivative) as error:
            kernels.add[2](x, y)
    assert str(error.value).splitlines()[0].endswith(
        "error: kernel add is called with a tensor that requires grad, and a kernel has no derivative "
        "[NKI-TORCH-GRADIENT]")
    assert error.value.at.file == __file__
    assert "torch.autograd.Function" in str(error.value) and "torch.no_grad()" in str(error.value)


@pytest.mark.parametrize("planned", [False, True])
def test_gradient__that_nobody_wants(executor, planned):
    a = A.clone().requires_grad_()
    if planned:
        kernels.add[2](A, B)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            equal(kernels.add[2](a, B), A + B)
    got = kernels.add[2](a.detach(), B)
    assert not got.requires_grad
    (got * a).sum().backward()
    equal(a.grad, A + B)


def test_gradient__under_compile():
    a = A.clone().requires_grad_()
    compiled = torch.compile(lambda x: kernels.add[2](x, B) * x, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="NKI-TORCH-GRADIENT"):
        compiled(a)
    equal(compiled(A), (A + B) * A)
    with torch.no_grad():
        equal(compiled(a), (A + B) * A)


def test_gradient__of_integers_there_is_none():
    @nki.jit
    def signs(x):
        out = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.shared_hbm)
        nl.store(out, nl.greater(nl.load(x), 0.0, dtype=nl.int32))
        return out
    a = A.clone().requires_grad_()
    for _ in range(2):
        equal(signs(a), (A > 0).int())


def test_gradient__of_functional_transformations():
    with pytest.raises(NoDerivative, match="a tensor that requires grad, and a kernel has no derivative"):
        torch.func.grad(lambda x: kernels.add[2](x, B).sum())(A)


def squared(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out, tile * tile)
    return out


class Squared(torch.autograd.Function):
    forward = staticmethod(nki.jit(squared))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx, tangent):
        return 2 * ctx.saved_tensors[0] * tangent


def with_duals(function, a, tangent):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(a, tangent)
        return torch.autograd.forward_ad.unpack_dual(function(dual)).tangent


FORWARD_MODES = {
    "jvp": lambda f: torch.func.jvp(f, (A,), (B,))[1], "dual": lambda f: with_duals(f, A, B),
    "jacfwd": lambda f: torch.func.jacfwd(f)(A), "linearize": lambda f: torch.func.linearize(f, A)[1](B),
    "jvp of vmap": lambda f: torch.func.jvp(torch.vmap(f), (A[None],), (B[None],))[1],
    "vmap of jvp": lambda f: torch.vmap(lambda a: torch.func.jvp(f, (a,), (B,))[1])(A[None])}


@pytest.mark.parametrize("mode", FORWARD_MODES)
def test_gradient__in_forward_mode_is_an_error_without_a_rule(executor, mode):
    kernel = nki.jit(squared)
    for f in (kernel, lambda x: x + kernel(x)):
        for _ in range(2):
            with pytest.raises(NoDerivative) as error:
                FORWARD_MODES[mode](f)
            assert "kernel squared is called with a tensor that has a tangent, and a kernel has no derivative " \
                   "[NKI-TORCH-GRADIENT]" in str(error.value)
            assert error.value.at.file == __file__ and "torch.autograd.Function that has a jvp" in str(error.value)
        equal(kernel(A), A * A)


def test_gradient__in_forward_mode_with_a_rule():
    for mode in (lambda f: torch.func.jvp(f, (A,), (B,))[1], lambda f: with_duals(f, A, B)):
        equal(mode(Squared.apply), 2 * A * B)


def test_gradient__in_forward_mode_that_nobody_wants():
    kernel = nki.jit(squared)
    equal(torch.func.jvp(lambda x: x * kernel(B), (A,), (B,))[1], B * kernel(B))
    equal(with_duals(lambda x: x * kernel(torch.autograd.forward_ad.unpack_dual(x).primal), A, B), B * (A * A))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradient__in_forward_mode_under_compile(backend):
    torch._dynamo.reset()
    kernel = nki.jit(squared)
    compiled = torch.compile(lambda a, b: torch.func.jvp(kernel, (a,), (b,))[1], backend=backend, fullgraph=True)
    with pytest.raises(Exception, match="NKI-TORCH-GRADIENT"):
        compiled(A, B)
    called = torch.compile(lambda a: a + kernel(a), backend=backend)
    with pytest.raises(Exception, match="NKI-TORCH-GRADIENT"):
        with_duals(called, A, B)


# -- torch's own transformations ---------------------------------------------------------------------------------------
def test_vmap__one_call_after_the_other():
    stacked = torch.stack([A, A * 2, A * 3])
    equal(torch.vmap(lambda a: kernels.add[2](a, B))(stacked), stacked + B)
    equal(torch.vmap(kernels.add[2], in_dims=(0, 2))(stacked, torch.stack([B] * 3, 2)), stacked + B)


class SquaredByKernels(torch.autograd.Function):
    generate_vmap_rule = True
    forward = staticmethod(lambda x: nki.jit(squared)(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return kernels.add[2](x, x) * gradient


def test_vmap__of_gradients_that_a_kernel_computes():
    """As of each sample of a batch."""
    stacked = torch.stack([A, A * 2, A * 3])
    equal(torch.vmap(torch.func.grad(lambda x: SquaredByKernels.apply(x).sum()))(stacked), stacked * 2)


def test_operators__pass_the_checks_of_torch():
    from nki_mlir.frameworks.registry import callees
    kernels.add[2](A, B)
    kernels.add_rows(A.clone(), B[:8])
    named = {c.record.name: key for key, c in callees().items()
             if c.record.inputs[0].shape == (32, 16) and str(c.record.inputs[0].dtype) == "float32"}
    torch.library.opcheck(torch.ops.nki.call.default, ([A, B], named["add"]))
    torch.library.opcheck(torch.ops.nki.call_.default, ([A.clone()], [B[:8]], named["add_rows"]))


# -- errors ------------------------------------------------------------------------------------------------------------
def test_error__tensor_of_another_device():
    with pytest.raises(NotOnCpu) as error:
        nki_device = torch.empty(32, 16, device="meta")
        kernels.add[2](nki_device.as_subclass(OnAnotherDevice), nki_device.as_subclass(OnAnotherDevice))
    assert error.value.headline == "a tensor on device cuda is passed to kernel add; kernels run on the CPU here"
    assert error.value.at.file == __file__


class OnAnotherDevice(torch.Tensor):
    @property
    def device(self):
        return torch.device("cuda")


@pytest.mark.parametrize(("dtype", "reason", "fix"), [
    (torch.float64, "the nearest is float32: the device has no 64-bit floats",
     "convert it first, for example with x.to(torch.float32)"),
    (torch.complex64, "the device has no complex numbers: pass the real and the imaginary part as two arrays of float32",
     "pass its real part and its imaginary part as two tensors of float32")])
def test_error__dtype_that_kernels_do_not_have(dtype, reason, fix):
    with pytest.raises(BadArgument, match=str(dtype)) as error:
        kernels.scaled(A.to(dtype), 2.0)
    assert error.value.at.file == __file__
    assert error.value.headline.endswith(reason) and error.value.advice[1] == fix


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_error__sparse_tensor(convert):
    for _ in range(2):                  # the second time, calls with dense tensors are cached
        with pytest.raises(NotStrided, match=r"a tensor of layout torch.sparse_.* is passed to kernel") as error:
            kernels.scaled(convert(A), 2.0)
        assert error.value.at.file == __file__
        assert str(error.value).endswith("fix: convert it first: x.to_dense()")
        kernels.scaled(A, 2.0)
        kernels.scaled(A, 2.0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("convert", "what", "fix"), [
    (lambda x: torch.nested.nested_tensor([x, x]), "a nested tensor", "to_padded_tensor"),
    (lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged), "a nested tensor", "to_padded_tensor"),
    (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "a quantized tensor of torch.qint8", "dequantize")])
def test_error__tensor_that_is_not_one_array_of_numbers(convert, what, fix):
    with pytest.raises(NotStrided, match=f"{what} is passed to kernel scaled") as error:
        kernels.scaled(convert(A), 2.0)
    assert error.value.at.file == __file__
    assert f"fix: convert it first: x.{fix}" in str(error.value)
    with pytest.raises(NotStrided, match=f"{what} is passed to kernel sum_and_difference"):
        kernels.sum_and_difference(A, convert(A))


@pytest.mark.filterwarnings("ignore")
def test_error__torch_script():
    with pytest.raises(NotScripted, match=r"while torch\.jit\.trace records") as error:
        torch.jit.trace(lambda x: kernels.scaled(x, 2.0), (A,))
    assert error.value.at.file == __file__


def test_symbolic_trace__keeps_calls_of_kernels():
    graph = torch.fx.symbolic_trace(lambda x: kernels.scaled(x + 1, 2.0) * 3)
    assert [node.target for node in graph.graph.nodes if node.op == "call_function"][1] is kernels.scaled
    assert torch.equal(graph(A), kernels.scaled(A + 1, 2.0) * 3)


def test_error__dtype_that_torch_does_not_have():
    @nki.jit
    def eight(x):
        out = nl.ndarray(x.shape, dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
        p, f = kernels.ids(x.shape)
        nl.store(out[p, f], nl.load(x[p, f]))
        return out
    with pytest.raises(NoTorchDtype, match="output out of kernel eight has dtype float8_e4m3"):
        eight(A)


def test_error__in_the_kernel_has_its_line():
    @nki.jit
    def wrong(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[nl.arange(256)[:, None], nl.arange(4)[None, :]])      # this line
        nl.store(out, tile)
        return out
    with pytest.raises(NkiMlirError) as error:
        wrong(torch.ones(300, 4))
    assert error.value.at.file == __file__ and "# this line" in str(error.value)


def test_error__while_running_has_the_kernels_line(executor):
    for _ in range(2):
        with pytest.raises(IndirectOutOfBounds, match="index 100 is out of bounds for axis 0 with size 80") as error:
            kernels.takes_rows(torch.full((8, 10), 10.0))
        assert error.value.at.file == kernels.__file__


def test_error__operator_with_an_unknown_kernel():
    with pytest.raises(UnknownCallee, match="names a kernel that this process does not know"):
        torch.ops.nki.call([A], "0" * 64)


def test_gradient__in_simulation_of_the_current_generation():
    from nki_mlir.language.current import isa as nisa
    from nki_mlir.language.current import language as current_nl
    from nki_mlir.language.current import nki as current_nki

    @current_nki.jit
    def copied(x):
        out = current_nl.ndarray(x.shape, x.dtype, buffer=current_nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out
    a = A.clone().requires_grad_()
    for kernel in (current_nki.simulate(copied), copied):
        with pytest.raises(NoDerivative, match="a tensor that requires grad, and a kernel has no derivative"):
            kernel(a)
        with torch.no_grad():
            equal(kernel(a), A)
        with pytest.raises(NoDerivative, match="a tensor that has a tangent, and a kernel has no derivative"):
            with_duals(kernel, A, B)
        for mode in ("jvp", "jacfwd", "linearize"):
            with pytest.raises(NoDerivative, match="a tensor that has a tangent, and a kernel has no derivative"):
                FORWARD_MODES[mode](kernel)
        with pytest.raises(NoDerivative, match="a tensor that requires grad, and a kernel has no derivative"):
            torch.func.grad(lambda x: kernel(x).sum())(A)
