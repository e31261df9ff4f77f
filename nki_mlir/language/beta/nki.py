# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki``: decorators and launchers of the beta generation."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nki_mlir.diagnostics import KernelError
from nki_mlir.frontend.locations import user_location
from nki_mlir.language.kernel import is_array, unwrap
from nki_mlir.language.tensor import Tensor as tensor


class SimulationArgument(KernelError, TypeError):
    code = "NKI-SIMULATE-ARGUMENT"
    message = "simulate_kernel takes NumPy arrays, got a {kind}"
    fix = "convert it first, for example with x.numpy()"


def _decorator(kernel: Any, changes: dict[str, Any]) -> Any:
    if kernel is None:
        return lambda function: _decorator(function, changes)
    made = unwrap(kernel)
    return replace(made, **changes, specializations={})


def jit(func: Callable | None = None, mode: str = "auto", **kwargs: Any) -> Any:
    """A kernel of this function. Usable bare, with keywords, and on a kernel."""
    changes: dict[str, Any] = {"mode": mode, "options": kwargs}
    if kwargs.get("platform_target"):
        changes["target"] = kwargs["platform_target"]
    if mode == "simulation":
        changes["executor"] = "interpreter"
    return _decorator(func, changes)


def trace(func: Callable | None = None, **kwargs: Any) -> Any:
    """A kernel that writes output parameters, or one that other kernels call."""
    return _decorator(func, {"mode": "trace", "options": kwargs})


def baremetal(kernel: Callable | None = None, **kwargs: Any) -> Any:
    """A kernel that takes and gives NumPy arrays."""
    return _decorator(kernel, {"mode": "baremetal", "options": kwargs})


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run on NumPy arrays in the simulator; output parameters are updated in place and returned."""
    for value in (*args, *kwargs.values()):
        kind = type(value)
        if not is_array(value) and kind.__module__.split(".")[0] in ("torch", "jax", "jaxlib"):
            raise SimulationArgument(kind=kind.__name__).located(user_location())
    chosen = unwrap(kernel)
    return chosen.run(args, kwargs, chosen.executor or "interpreter")


__all__ = ["baremetal", "jit", "simulate_kernel", "tensor", "trace"]
