# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels in torch.compile and torch.export."""

import traceback
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nki_mlir.capture.locations import is_toolchain  # noqa: E402
from nki_mlir.diagnostics import NkiMlirError  # noqa: E402
from nki_mlir.dialects.verifier import OutOfBounds  # noqa: E402
from nki_mlir.frameworks.torch import SymbolicShapeWarning  # noqa: E402
from nki_mlir.frameworks.torch_operator import OverlappingInGraph  # noqa: E402
from nki_mlir.language.arguments import ElementType  # noqa: E402
from nki_mlir.language.beta import language as nl  # noqa: E402
from nki_mlir.language.beta import nki  # noqa: E402
from nki_mlir.language.launch_grid import BadExtent  # noqa: E402

from . import kernels  # noqa: E402
from .test_torch import Added, equal  # noqa: E402

pytestmark = pytest.mark.torch

A = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
B = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
BACKENDS = ["eager", "aot_eager"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.delenv("NKI_MLIR_TRACEBACK", raising=False)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def compiled(function, backend):
    return torch.compile(function, backend=backend, fullgraph=True)


def program(a, b):
    total, difference = kernels.sum_and_difference(a, b=b)
    return kernels.scaled(a * kernels.add[2](a, b), 2, offset=1.0) + total * difference


def expected(a, b):
    return (a * (a + b)) * 2 + 1 + (a + b) * (a - b)


@pytest.mark.share(3)
@pytest.mark.parametrize("backend", BACKENDS)
def test_compile__whole_graph(backend, executor):
    equal(compiled(program, backend)(A, B), program(A, B))
    torch.testing.assert_close(program(A, B), expected(A, B))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile__launches_of_the_current_generation(dynamic):
    f = torch.compile(lambda x, cores: kernels.doubled_by_cores[cores](x), backend="eager", fullgraph=True,
                      dynamic=dynamic)
    for cores in (2, 1, 2):
        equal(f(A, cores), A * 2)


def test_compile__nested_arguments_and_results():
    equal(compiled(lambda pair: kernels.named_results(pair)["product"], "aot_eager")((A, B)), A * B)


def test_compile__new_shapes_are_new_specializations():
    f = compiled(lambda x: kernels.scaled(x, 3.0) + 1, "aot_eager")
    for rows in (4, 5, 6, 4):
        equal(f(torch.ones(rows, 4)), torch.full((rows, 4), 4.0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_compile__updates_in_place(backend):
    def f(table, rows):
        kernels.add_rows(table, rows * 2)
        return table.sum()
    one, other = A.clone(), A.clone()
    equal(compiled(f, backend)(one, B[:8]), f(other, B[:8]))
    equal(one, other)


@pytest.mark.parametrize("backend", BACKENDS)
def test_compile__by_reference(backend):
    kernel = nki.trace(kernels.add_into)
    out = torch.zeros(32, 16)
    equal(compiled(lambda a, b, out: kernel(a, b, out) + out, backend)(A, B, out), (A + B) * 2)
    equal(out, A + B)


def test_compile__autograd_function():
    a = A.clone().requires_grad_()
    compiled(lambda a, b: (Added.apply(a, b) * a).sum(), "aot_eager")(a, B).backward()
    torch.testing.assert_close(a.grad, 2 * A + B)


def test_compile__first_call_of_a_process_may_be_compiled(child):
    assert child(f"""
import sys, torch
sys.path.insert(0, {str(__import__("pathlib").Path(__file__).parent.parent)!r})
from frameworks import kernels
a = torch.ones(32, 16)
print(torch.equal(torch.compile(lambda a: kernels.add[2](a, a), backend="eager", fullgraph=True)(a), a + a))
""") == "True\n"


def test_compile__errors_name_the_line_of_the_call():
    with pytest.raises(Exception, match=r"complex64 is passed to a kernel") as error:
        compiled(lambda x: kernels.scaled(x, 2.0), "eager")(A.to(torch.complex64))
    assert __file__ in str(error.value) and "kernels.scaled(x, 2.0)" in str(error.value)


SCALE = 2.0


class Config:
    bias = staticmethod(lambda: 1.0)


@nki.jit
def scaled_by_a_global(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * SCALE + Config.bias())
    return out


@pytest.mark.share(3)
@pytest.mark.parametrize("backend", BACKENDS)
def test_compile__again_when_what_a_kernel_sees_changes(backend, monkeypatch):
    f = compiled(lambda x: scaled_by_a_global(x) + 1, backend)
    for scale in (2.0, 3.0, 3.0, 5.0, 2.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        equal(f(A), A * scale + 1.0 + 1)
    monkeypatch.setattr(Config, "bias", staticmethod(lambda: 4.0))
    equal(f(A), A * 2.0 + 4.0 + 1)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 4


def test_compile__again_for_another_kernel_of_the_same_code():
    def scaled_by(scale):
        @nki.jit
        def kernel(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.load(x) * scale)
            return out
        return kernel
    f = compiled(lambda kernel, x: kernel(x), "eager")
    kernels_by_scale = {scale: scaled_by(scale) for scale in (2.0, 3.0)}
    for scale in (2.0, 3.0, 2.0):
        equal(f(kernels_by_scale[scale], A), A * scale)


def test_compile__again_for_another_executor(monkeypatch):
    f = compiled(scaled_by_a_global, "eager")
    equal(f(A), A * SCALE + 1.0)
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", "nowhere")
    with pytest.raises(Exception, match="there is no executor named 'nowhere'"):
        f(A)


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.tanh(program(a, b))


@pytest.mark.parametrize("strict", [False, True])
def test_export__keeps_the_kernels(strict):
    exported = torch.export.export(Model(), (A, B), strict=strict)
    assert sum(n.target is torch.ops.nki.call.default for n in exported.graph.nodes) == 3
    equal(exported.module()(A, B), Model()(A, B))


class Scaled(torch.nn.Module):
    def forward(self, x):
        return kernels.scaled(x, 2.0) + 1


OPEN = r"kernel scaled is called with dimension 0 of \S+, which becomes 4: all sizes must be known"
ONCE = "export the program once for each size; Dim.STATIC and Dim.AUTO fix the size, and torch.compile recompiles"


def exported_with(dim, strict, *sizes):
    return torch.export.export(Scaled(), (torch.ones(*sizes),), dynamic_shapes={"x": {0: dim}}, strict=strict)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dim", [torch.export.Dim("n", min=2, max=64), torch.export.Dim.DYNAMIC])
def test_export__of_a_symbolic_shape_is_refused_with_the_kernels_name(dim, strict):
    with pytest.raises(Exception, match=OPEN) as raised:
        exported_with(dim, strict, 4, 8)
    assert f"fix: {ONCE}" in str(raised.value)


@pytest.mark.parametrize("strict", [False, True])
def test_export__of_a_shape_that_may_be_symbolic_takes_the_number(strict):
    with pytest.warns(SymbolicShapeWarning, match=f"{OPEN}; {ONCE}") as caught:
        exported = exported_with(torch.export.Dim.AUTO, strict, 4, 8)
    assert torch.equal(exported.module()(torch.ones(4, 8)), torch.full((4, 8), 3.0))
    assert [w.filename for w in caught if w.category is SymbolicShapeWarning] == [__file__]


@pytest.mark.parametrize("strict", [False, True])
def test_export__of_numbers_does_not_speak_of_symbols(strict):
    with warnings.catch_warnings():
        warnings.simplefilter("error", SymbolicShapeWarning)
        exported = exported_with(torch.export.Dim.STATIC, strict, 4, 8)
    assert torch.equal(exported.module()(torch.ones(4, 8)), torch.full((4, 8), 3.0))


def test_export__of_a_symbolic_shape_that_no_kernel_sees():
    class Beside(torch.nn.Module):
        def forward(self, x, y):
            return kernels.scaled(x, 2.0).sum() + y
    exported = torch.export.export(Beside(), (torch.ones(4, 8), torch.ones(5)),
                                   dynamic_shapes={"x": None, "y": {0: torch.export.Dim("n")}})
    assert torch.equal(exported.module()(torch.ones(4, 8), torch.ones(7)), torch.full((7,), 65.0))


def test_export__runs_in_a_process_without_the_kernel(child, tmp_path):
    torch.export.save(torch.export.export(Model(), (A, B)), str(tmp_path / "model.pt2"))
    torch.save((A, B, Model()(A, B)), str(tmp_path / "data.pt"))
    assert child("""
import torch
import nki_mlir.frameworks.torch
a, b, expected = torch.load("data.pt")
print(torch.equal(torch.export.load("model.pt2").module()(a, b), expected))
""") == "True\n"


# -- mistakes: the error is ours, though Dynamo traces the call --------------------------------------------------------
MISTAKES = {
    "extent of 0": (lambda a: kernels.add[0](a, a), "an extent of a launch grid must be a positive integer, got 0 "),
    "extent of text": (lambda a: kernels.add["a", 2](a, a), "an extent of a launch grid must be a positive integer, got 'a' "),
    "extent of a float": (lambda a: kernels.add[2.0](a, a), "an extent of a launch grid must be a positive integer, got 2.0 "),
    "function as grid": (lambda a: kernels.add[lambda m: 2](a, a), "the launch grid is a function, <lambda>, instead of integers "),
    "too many programs": (lambda a: kernels.add[1 << 40](a, a), "has 1,099,511,627,776 programs; at most 16,777,216 can run"),
    "executor": (lambda a: kernels.scaled.on("gpu")(a, 2.0), "there is no executor named 'gpu' "),
    "argument": (lambda a: kernels.scaled(a, factr=2.0), "got an unexpected keyword argument 'factr'"),
    "None": (lambda a: kernels.add[2](a, None), "parameter b is None, and the kernel reads its elements"),
    "update": (lambda a: kernels.add_rows(a.detach().requires_grad_(), B[:8]), "updates a tensor that requires grad"),
    "no tensor": (lambda a: a + kernels.scaled(1.0, 2.0),
                  "kernel scaled is called without a PyTorch tensor in a function that torch.compile traces"),
    "in the kernel": (lambda a: kernels.add[2](a, a[:5]), "exceed dimension size of 5"),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_compile__errors_of_a_call_have_their_text(mistake):
    function, text = MISTAKES[mistake]
    for _ in range(2):
        error = traced_error(lambda: compiled(function, "eager")(A))
        assert text in str(error) and "\n  fix: " in str(error)
        in_kernel = mistake in ("None", "in the kernel")
        assert error.at.file == (kernels.__file__ if in_kernel else __file__)
        assert in_kernel or function.__code__.co_firstlineno <= error.at.line <= function.__code__.co_firstlineno + 1


def traced_error(call):
    """Return the error of a compiled function. It is of our class, and its traceback has neither frames of the toolchain
    nor of Dynamo's tracing."""
    with pytest.raises(NkiMlirError) as caught:
        call()
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert not [file for file in files if is_toolchain(file)]
    assert [file for file in files if "torch" in file and "tests" not in file] == [torch._dynamo.eval_frame.__file__]
    assert "torch" not in type(caught.value).__module__ or type(caught.value).__module__.startswith("nki_mlir")
    return caught.value


def called_by_another(a):
    doubled = a * 2
    return kernels.scaled(
        doubled.to(torch.complex64), 2.0)


@nki.jit
def divided(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * (1 // (x.shape[0] - x.shape[0])))
    return out


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile__errors_are_those_of_the_kernel(backend, fullgraph):
    def run(function, *tensors):
        torch._dynamo.reset()
        return torch.compile(function, backend=backend, fullgraph=fullgraph)(*tensors)
    error = traced_error(lambda: run(lambda a: called_by_another(a) + 1, A))
    first = called_by_another.__code__.co_firstlineno
    assert type(error) is ElementType
    assert str(error) == (
        f"{__file__}:{first + 2}:5: error: a tensor of dtype torch.complex64 is passed to a kernel: complex64 is not an "
        f"element type; the device has no complex numbers: pass the real and the imaginary part as two arrays of float32 "
        f"[NKI-ARGUMENT]\n  {first + 2} |     return kernels.scaled(\n      |     ^^^^^^^^^^^^^^^^^^^^^^\n"
        "  fix: pass its real part and its imaginary part as two tensors of float32")
    with pytest.raises(ZeroDivisionError, match="integer division or modulo by zero") as zero:
        run(divided, A)
    assert __file__ in [frame.filename for frame in traceback.extract_tb(zero.value.__traceback__)]
    if backend == "aot_eager":
        error = traced_error(lambda: run(lambda a: kernels.add_rows(a, a[4:12]), A.clone()))
        assert type(error) is OverlappingInGraph and error.at.file == __file__


def test_compile__the_traceback_may_be_full(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_TRACEBACK", "full")
    with pytest.raises(BadExtent, match="must be a positive integer, got 0") as caught:
        compiled(lambda a: kernels.add[0](a, a), "eager")(A)
    assert [f for f in traceback.extract_tb(caught.value.__traceback__) if is_toolchain(f.filename)]


def test_compile__without_a_class_that_dynamo_passes_on(monkeypatch):
    """PyTorch 2.6 has no such class; the text of our error is part of Dynamo's."""
    monkeypatch.delattr("torch._dynamo.exc.ShortenTraceback")
    with pytest.raises(torch._dynamo.exc.InternalTorchDynamoError, match=r"BadExtent: .* error: an extent of a launch grid"):
        compiled(lambda a: kernels.add[0](a, a), "eager")(A)


class Unusual(Exception):
    """An exception that cannot be created from its ``args``, and that no class may derive from."""

    def __new__(cls, first, second):
        return super().__new__(cls)

    def __str__(self):
        return "unusual"

    def __init_subclass__(cls):
        raise TypeError("no subclasses")


@nki.jit
def unusual(x):
    raise Unusual(1, 2)


def test_compile__passes_exceptions_of_any_class_on():
    with pytest.raises(Unusual, match=r"^unusual$"):
        compiled(unusual, "eager")(A)


def test_export__of_a_mistake_in_the_kernel():
    """``torch.export`` does not ask for the error itself; what it raises is of both classes and has the same text."""
    class Mistake(torch.nn.Module):
        def forward(self, a):
            return kernels.add[2](a, a[:5])
    with pytest.raises(OutOfBounds) as caught:
        torch.export.export(Mistake(), (A,), strict=True)
    assert isinstance(caught.value, torch._dynamo.exc.ShortenTraceback)
    shown = "".join(traceback.format_exception_only(caught.value))
    assert f"{kernels.__file__}:22:44: error: Out-of-bound access for tensor `b` on dimension 0: index range [0, 31] " in shown
    assert "fix: " in shown and "None" not in shown


@pytest.mark.share(3)
@pytest.mark.parametrize("value", [np.float32(2), np.float64(2), np.int64(2), np.bool_(True), np.array(2.0, np.float16)])
def test_compile__numpy_scalars_are_arrays(value):
    for function in (lambda a: kernels.scaled(a, value), lambda a: kernels.scaled(a, 1.0, offset=value)):
        with pytest.raises(Exception, match="of kernel scaled is an array without dimensions") as error:
            compiled(function, "eager")(A)
        assert "with torch.compile convert it, also a NumPy scalar, before you call the compiled function" in str(error.value)
    equal(compiled(kernels.scaled, "eager")(A, value.item()), A * value.item())


def test_compile__numpy_arrays_beside_tensors():
    equal(compiled(lambda a, b: kernels.add[2](a, b) * 1.0, "aot_eager")(A, B.numpy()), A + B)
    equal(compiled(lambda a, b: kernels.add[2](b, a) * 1.0, "aot_eager")(A, B.numpy()), A + B)


@pytest.mark.parametrize("arguments", [(np.ones((2, 3), np.float32), 2.0), (1.0, 2.0)])
def test_compile__errors_do_not_depend_on_earlier_calls(arguments):
    for n in range(1, 40):
        kernels.scaled(np.ones((2, n), np.float32), 2.0)
    with pytest.raises(Exception, match="error: kernel scaled is called without a PyTorch tensor"):
        compiled(lambda a, *others: a + kernels.scaled(*others), "eager")(A, *arguments)
