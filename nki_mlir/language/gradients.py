# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of PyTorch that require grad: a kernel has no derivative, and its result no history.

A loss of such a result would lose a term and not say so. Within ``torch.autograd.Function`` and operators that have a
derivative of their own, PyTorch has switched the recording of history off.
"""

import sys
from collections.abc import Iterable
from typing import Any

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frontend.locations import user_location


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
    raise NoDerivative(name=name).located(user_location())
