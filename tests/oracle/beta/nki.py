# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki``: decorators and ways to run a kernel (document: 2.1)."""

import sys
from collections.abc import Callable
from typing import Any

from ..kernel import Kernel
from . import language
from .tensors import Tensor

tensor = Tensor


def _decorator(name: str) -> Callable[..., Any]:
    """Return a decorator that makes kernels; its keywords do not change values."""
    def decorate(func: Any = None, *_: Any, **options: Any) -> Any:
        if func is None:
            return lambda function: decorate(function, **options)
        if isinstance(func, Kernel):
            return func
        return Kernel(func, sys.modules[__package__], **options)
    decorate.__name__ = name
    return decorate


jit, trace, baremetal, benchmark, profile = map(_decorator, ("jit", "trace", "baremetal", "benchmark", "profile"))


def simulate_kernel(kernel: Any, *arguments: Any, **keywords: Any) -> Any:
    return jit(kernel)(*arguments, **keywords)



__all__ = ["baremetal", "benchmark", "jit", "language", "profile", "simulate_kernel", "tensor", "trace"]
