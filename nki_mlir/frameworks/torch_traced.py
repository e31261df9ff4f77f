# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traced PyTorch programs: what ``torch_neuronx.trace`` returns."""

from collections.abc import Callable
from typing import Any

import torch

from nki_mlir.diagnostics import NkiMlirError


class NotSaved(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-SAVE"
    message = "a module that torch_neuronx.trace returned cannot be saved"
    why = "it runs kernels, which are Python functions, and TorchScript has none"
    fix = "save the model's state_dict(), load it into a new model, and trace that"


class FunctionModule(torch.nn.Module):
    """A function as a model without parameters, which ``torch.export`` takes."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: object) -> object:
        return self.function(*arguments)


class TracedModule(torch.nn.Module):
    """An exported program that runs without derivatives, because its kernels have none."""

    def __init__(self, model: Callable[..., object], inputs: tuple[Any, ...]) -> None:
        super().__init__()
        with torch.no_grad():
            self.program = torch.export.export(
                model if isinstance(model, torch.nn.Module) else FunctionModule(model), inputs).module()

    def forward(self, *arguments: object) -> object:
        with torch.no_grad():
            return self.program(*arguments)

    def train(self, mode: bool = True) -> "TracedModule":
        """Return the module unchanged: a program computes in the mode in which the model was traced."""
        return self

    def save(self, *arguments: object, **keywords: object) -> None:
        """Refuse what ``torch.jit.save`` calls."""
        raise NotSaved().here()
