# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which framework a kernel's arguments belong to, without importing any that the program has not.

An adapter is the module of that name in ``nki_mlir.frameworks``; it is above the language, hence found by name. It has
``call(kernel, arguments, keywords)``.

A kernel has no derivative, so that one on PyTorch's tensors that require grad is refused: a loss of its result would
lose a term and not say so. Within ``torch.autograd.Function`` and operators that have a derivative of their own,
PyTorch has switched the recording of history off.
"""

import importlib
import sys
from collections.abc import Iterable
from typing import Any

import nki_mlir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.arguments import leaves_of

TENSOR_CLASSES = {"torch": "Tensor", "jax": "Array"}            # the class that is quicker to ask comes first


def tensor_classes() -> list[tuple[str, Any]]:
    """The frameworks that the program has imported, with their classes."""
    return [(name, getattr(sys.modules[name], kind)) for name, kind in TENSOR_CLASSES.items()
            if hasattr(sys.modules.get(name), kind)]


def framework_of(arguments: tuple[object, ...], keywords: dict[str, object]) -> Any:
    """The adapter of the first framework tensor found in the arguments; None for NumPy and constants."""
    kinds = tensor_classes()
    for name, kind in kinds:
        for value in arguments:                                     # the usual case, without a walk
            if isinstance(value, kind):
                return adapter(name)
    for name, kind in kinds:
        if leaves_of((arguments, keywords), lambda value, kind=kind: isinstance(value, kind)):  # type: ignore[misc]
            return adapter(name)
    return None


def adapter(name: str) -> object:
    import_adapter(name)
    return getattr(nki_mlir.frameworks, name)


def import_adapter(name: str) -> None:
    if not hasattr(sys.modules.get("nki_mlir.frameworks"), name):   # not while a thread imports it
        importlib.import_module(f"nki_mlir.frameworks.{name}")


# torch.compile traces calls of kernels up to the adapter; an import in between it has to take as done.
import_adapter._dynamo_marked_constant = True   # type: ignore[attr-defined]


class NoDerivative(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-GRADIENT"
    message = "kernel {name} is called with a tensor that requires grad, and a kernel has no derivative"
    why = "its result has no history: what is computed from it would miss in the gradient of that tensor"
    fix = ("call it in the forward of a torch.autograd.Function and give that a backward; where no gradient is wanted, "
           "call it under torch.no_grad() or with x.detach()")


def records(tensors: Iterable[Any]) -> bool:
    """Whether PyTorch records the history of what is computed from these tensors, which are its own."""
    return any([t.requires_grad for t in tensors]) and sys.modules["torch"].is_grad_enabled()


def refuse_gradient(name: str) -> None:
    raise NoDerivative(name=name).here()
