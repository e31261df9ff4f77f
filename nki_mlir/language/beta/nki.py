# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki``: decorators and launchers of the beta generation."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
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


def benchmark(kernel: Callable | None = None, warmup: int = 10, iters: int = 100, **kwargs: Any) -> Any:
    """A kernel whose calls leave an estimated latency in ``benchmark_result.nc_latency``."""
    if kernel is None:
        return lambda function: benchmark(function, warmup, iters, **kwargs)
    from nki_mlir.language.measuring import BenchmarkedKernel, copy_as
    return copy_as(unwrap(kernel), BenchmarkedKernel)


class ProfileDirectory(KernelError, ValueError):
    code = "NKI-PROFILE-DIRECTORY"
    message = "nki.profile needs working_directory, an absolute path, got {found!r}"
    fix = "pass working_directory='/absolute/path'"


def profile(func: Callable | None = None, *, working_directory: Any = None, save_neff_name: str = "file.neff",
            save_trace_name: str = "profile.ntff", additional_compile_opt: str = "", overwrite: bool = False,
            profile_nth: int = 1, num_execs: int | None = None, **kwargs: Any) -> Any:
    """A kernel whose calls write the program and a JSON summary of its estimated costs into ``working_directory``."""
    if working_directory is None or not Path(working_directory).is_absolute():
        raise ProfileDirectory(found=working_directory).located(user_location())
    options = {"working_directory": working_directory, "save_neff_name": save_neff_name,
               "save_trace_name": save_trace_name, "profile_nth": profile_nth, "num_execs": num_execs}
    if func is None:
        return lambda function: profile(function, **options)
    from nki_mlir.language.measuring import ProfiledKernel, copy_as
    return copy_as(unwrap(func), ProfiledKernel, **options)


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run on NumPy arrays in the simulator; output parameters are updated in place and returned."""
    for value in (*args, *kwargs.values()):
        kind = type(value)
        if not is_array(value) and kind.__module__.split(".")[0] in ("torch", "jax", "jaxlib"):
            raise SimulationArgument(kind=kind.__name__).located(user_location())
    chosen = unwrap(kernel)
    return chosen.run(args, kwargs, chosen.executor or "interpreter")


__all__ = ["baremetal", "benchmark", "jit", "profile", "simulate_kernel", "tensor", "trace"]
