# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Peers of a case: the same mathematics in NumPy, JAX and PyTorch, as calls without arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np


def numpy_jax_torch(formula: Callable[..., Any], torch_formula: Callable[..., Any] | None,
                    arrays: tuple[np.ndarray, ...]) -> dict[str, Callable[[], Any] | None]:
    """``formula(xp, *arrays)`` for NumPy and JAX; ``torch_formula(*tensors)`` for PyTorch. None where not installed."""
    found: dict[str, Callable[[], Any] | None] = {"numpy": lambda: formula(np, *arrays)}
    try:
        import jax
        import jax.numpy as jnp
        on_device = [jax.device_put(a) for a in arrays]
        compiled = jax.jit(lambda *a: formula(jnp, *a))
        found["jax.jit"] = lambda: compiled(*on_device).block_until_ready()
    except ImportError:
        found["jax.jit"] = None
    try:
        import torch
        tensors = [torch.from_numpy(a) for a in arrays]
        found["torch"] = None if torch_formula is None else lambda: torch_formula(*tensors)
    except ImportError:
        found["torch"] = None
    return found


def kernel_call(kernel: Any, arguments: tuple) -> Callable[[], Any]:
    """The kernel on the JIT."""
    return lambda: kernel.run(arguments, {}, "jit")


def largest_error(result: Any, answer: np.ndarray) -> float:
    return float(np.max(np.abs(np.asarray(result, np.float64) - answer) / np.maximum(1, np.abs(answer))))
