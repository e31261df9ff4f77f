# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_neuronx``: the PyTorch entry points of the first beta, for kernels whose output parameters are written."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nki_mlir.language.kernel import unwrap


def nki_jit(func: Callable | None = None, **options: Any) -> Any:
    """A kernel that writes output tensors given to it, and returns them. Usable bare, with keywords, on a kernel."""
    if func is None:
        return lambda function: nki_jit(function, **options)
    return replace(unwrap(func), by_reference=True, mode="torchxla", options=options, specializations={})


def wrap_nki(kernel: Any, **options: Any) -> Any:
    """A kernel for use in a model: calls of it are traced by ``torch.compile`` without this too."""
    return unwrap(kernel)


def get_platform_target() -> str:
    """The target that kernels are compiled for where they do not say."""
    return unwrap(_no_kernel).platform


def _no_kernel() -> None:
    """Has the defaults of every kernel."""


__all__ = ["get_platform_target", "nki_jit", "wrap_nki"]
