# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the framework whose tensors a kernel is called with, and refuses derivatives that would lack a kernel's term.

The module imports no framework that the program has not imported. Its adapter is the module of its name in
``nki_mlir.frameworks``, found by name because it is above the language; it has ``call(kernel, arguments, keywords)``.
"""

import importlib
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

import nki_mlir
from nki_mlir.diagnostics import KernelError, NkiMlirError
from nki_mlir.language.arguments import BadArgument, leaves_of, values_of

# The class whose test is quicker comes first; a Proxy stands for a tensor while torch.fx.symbolic_trace records.
TENSOR_CLASSES = {"torch": "Tensor", "jax": "Array", "torch.fx": "Proxy"}


def tensor_classes() -> list[tuple[str, Any]]:
    """Return the frameworks that the program has imported, with their tensor classes."""
    return [(name.split(".")[0], getattr(sys.modules[name], kind)) for name, kind in TENSOR_CLASSES.items()
            if hasattr(sys.modules.get(name), kind)]


def is_framework_tensor(value: object) -> bool:
    """Return whether a value is a tensor of a framework that the program has imported."""
    return any([isinstance(value, kind) for _, kind in tensor_classes()])


class HostArray(KernelError, TypeError):
    code = "NKI-HOST-ARRAY"
    message = "a {library} array of shape {shape} is used as a tile"
    fix = "pass it to the kernel as an argument, {instead}"

    @classmethod
    def of(cls, value: Any) -> "HostArray":
        """Return the error for an array of NumPy, or of a framework whose arrays this call does not take."""
        package = type(value).__module__.partition(".")[0]
        library = {"numpy": "NumPy", "jax": "JAX", "jaxlib": "JAX", "torch": "PyTorch"}.get(package, package)
        return cls(library=library, shape=tuple(value.shape), instead=(
            "or make it a constant: nl.load(nl.shared_constant(array))" if library == "NumPy"
            else "with other arguments of the same framework or of NumPy"))


def framework_of(arguments: tuple[object, ...], keywords: dict[str, object]) -> Any:
    """Return the adapter of the first framework tensor found in the arguments; None for NumPy and constants.

    While torch.compile traces, it is PyTorch's for any arguments, since Dynamo cannot trace the kernel itself.
    """
    if is_traced():
        return adapter("torch")
    kinds = tensor_classes()
    for name, kind in kinds:
        for value in arguments:                                     # the usual case needs no walk
            if isinstance(value, kind):
                return adapter(name)
    for name, kind in kinds:
        if leaves_of((arguments, keywords), lambda value, kind=kind: isinstance(value, kind)):  # type: ignore[misc]
            return adapter(name)
    return None


class MixedFrameworks(KernelError, TypeError):
    code = "NKI-MIXED-FRAMEWORKS"
    message = "kernel {kernel} is called with arrays of {library} and of {other}: argument {name} is of {other}"
    fix = "convert it first: {convert}, or call the kernel with NumPy arrays alone"


LIBRARIES = {"torch": "PyTorch", "jax": "JAX"}
# to the framework
CONVERSIONS = {"torch": "torch.from_numpy(np.array({name}))", "jax": "jnp.asarray({name}.numpy())"}


def refuse_mixed(framework: str, kernel: Any, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:
    """Raise ``MixedFrameworks`` if a call that a framework's adapter runs has an array of another framework as well."""
    for name, kind in tensor_classes():
        if name != framework and leaves_of((arguments, keywords), lambda value, kind=kind: isinstance(value, kind)):  # type: ignore[misc]
            values = values_of(kernel.func, arguments, keywords)
            path = next(path for parameter, value in values.items() for path, _ in leaves_of(
                value, lambda leaf, kind=kind: isinstance(leaf, kind), parameter))              # type: ignore[misc]
            raise MixedFrameworks(kernel=kernel.__name__, library=LIBRARIES[framework], other=LIBRARIES[name],
                                  name=path, convert=CONVERSIONS[framework].format(name=path)).here()


def is_traced() -> bool:
    """Return whether torch.compile traces the caller."""
    torch: Any = sys.modules.get("torch")
    return hasattr(torch, "compiler") and torch.compiler.is_dynamo_compiling()


def adapter(name: str) -> object:
    import_adapter(name)
    return getattr(nki_mlir.frameworks, name)


def import_adapter(name: str) -> None:
    if not hasattr(sys.modules.get("nki_mlir.frameworks"), name):   # not while a thread imports it
        importlib.import_module(f"nki_mlir.frameworks.{name}")


# torch.compile traces calls of kernels up to the adapter; it must take an import in between as done.
import_adapter._dynamo_marked_constant = True   # type: ignore[attr-defined]


class NoDerivative(NkiMlirError, RuntimeError):
    """A derivative of a kernel's result would lack a term without notice, in reverse mode as in forward mode. Within
    ``torch.autograd.Function``, and operators that have a derivative, PyTorch has switched both off."""

    code = "NKI-TORCH-GRADIENT"
    message = "kernel {name} is called with a tensor that {has}, and a kernel has no derivative"
    why = "its result has no {what}, so the {derivative} of that tensor would lack the terms of the kernel"
    fix = ("call it in the forward of a torch.autograd.Function that has a {rule}; if you need no gradient, "
           "call it {without}")


REVERSE = {"has": "requires grad", "what": "history", "derivative": "gradient", "rule": "backward",
           "without": "under torch.no_grad() or with x.detach()"}
FORWARD = {"has": "has a tangent", "what": "tangent", "derivative": "forward derivative", "rule": "jvp",
           "without": "with torch.autograd.forward_ad.unpack_dual(x).primal"}


def records(tensors: Iterable[Any]) -> bool:
    """Return whether PyTorch records the history of results of these tensors, which are PyTorch's."""
    return any([t.requires_grad for t in tensors]) and sys.modules["torch"].is_grad_enabled()


def has_tangent(tensors: Iterable[object]) -> bool:
    """Return whether PyTorch computes the forward derivative of results of these tensors, which are PyTorch's.

    All duals are of level 0: a transformation inside of another one wraps its duals.
    """
    torch: Any = sys.modules["torch"]
    return torch._C._is_fwd_grad_enabled() and any([
        torch._VF._unpack_dual(t, level=0)[1] is not None for t in tensors])


def refuse_gradient(name: str) -> NoReturn:
    raise NoDerivative(name=name, **REVERSE).here()


class FreedTensor(BadArgument):
    message = "a tensor whose storage has {size} bytes is passed to {callee}; its elements take {needed}"
    why = "untyped_storage().resize_() has freed its memory, as libraries do with parameters that they gather again"
    fix = "call it while the tensor has its memory, or with a copy that was made then"


def refuse_freed(tensors: Iterable[Any], callee: str) -> None:
    """Raise ``FreedTensor`` for a tensor of PyTorch in the CPU's memory whose storage has been resized to fewer bytes
    than its elements take. ``callee`` names the kernel or operator."""
    for tensor in tensors:
        size, needed = tensor.untyped_storage().nbytes(), bytes_needed(tensor)
        if size < needed:
            raise FreedTensor(callee=callee, size=size, needed=needed).here()


def bytes_needed(tensor: Any) -> int:
    """Return how many bytes the storage of a tensor of PyTorch must have for all its elements."""
    if not tensor.numel():
        return 0
    last = tensor.storage_offset() + sum([(n - 1) * step for n, step in zip(tensor.shape, tensor.stride())])
    return int((last + 1) * tensor.element_size())
