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


MODES = ("auto", "jax", "torchxla", "baremetal", "benchmark", "simulation", "trace")


class UnknownMode(KernelError, ValueError):
    code = "NKI-JIT-MODE"
    message = "nki.jit has no mode {mode!r}"
    fix = "give one of {modes}"


def _decorator(kernel: Any, changes: dict[str, Any]) -> Any:
    if kernel is None:
        return lambda function: _decorator(function, changes)
    made = unwrap(kernel)
    return replace(made, **changes, specializations={})


def jit(func: Callable | None = None, mode: str = "auto", **kwargs: Any) -> Any:
    """A kernel of this function. Usable bare, with keywords, and on a kernel. ``mode``: one of ``MODES``."""
    if mode not in MODES:
        raise UnknownMode(mode=mode, modes=", ".join(MODES)).located(user_location())
    if mode in ("baremetal", "benchmark"):
        return {"baremetal": baremetal, "benchmark": benchmark}[mode](func, **kwargs)
    changes = _changes(mode, kwargs)
    if mode == "simulation":
        changes["executor"] = "interpreter"
    return _decorator(func, changes)


def _changes(mode: str, options: dict[str, Any]) -> dict[str, Any]:
    target = options.get("platform_target")
    return {"mode": mode, "options": options, **({"target": target} if target else {})}


def trace(func: Callable | None = None, **kwargs: Any) -> Any:
    """A kernel that writes output parameters, or one that other kernels call."""
    return _decorator(func, {"mode": "trace", "options": kwargs})


class TraceWithoutProgram(KernelError, ValueError):
    code = "NKI-TRACE-NAME"
    message = "with save_trace_name, save_neff_name must be 'file.neff', got {found!r}"
    fix = "pass save_neff_name='file.neff'"


FILES = ("save_neff_name", "save_trace_name", "artifacts_dir")


def _measured(kernel: Any, cls: str, mode: str, options: dict[str, Any]) -> Any:
    """The kernel as a class of ``measuring``, with the names of the files that its calls leave."""
    names = {name: options[name] for name in FILES if options.get(name) is not None}
    program = names.get("save_neff_name", "file.neff")
    if "save_trace_name" in names and program != "file.neff":
        raise TraceWithoutProgram(found=program).located(user_location())
    from nki_mlir.language import measuring
    chosen = _decorator(kernel, _changes(mode, options))
    return measuring.copy_as(chosen, getattr(measuring, cls), **names)


def baremetal(kernel: Callable | None = None, **kwargs: Any) -> Any:
    """A kernel that takes and gives NumPy arrays, and leaves the program in files where names are given for them."""
    if kernel is None:
        return lambda function: baremetal(function, **kwargs)
    if any(kwargs.get(name) for name in FILES):
        return _measured(kernel, "MeasuredKernel", "baremetal", kwargs)
    return _decorator(kernel, _changes("baremetal", kwargs))


def benchmark(kernel: Callable | None = None, warmup: int = 10, iters: int = 100, **kwargs: Any) -> Any:
    """A kernel whose calls leave an estimated latency in ``benchmark_result.nc_latency``, and files as baremetal's."""
    if kernel is None:
        return lambda function: benchmark(function, warmup, iters, **kwargs)
    return _measured(kernel, "BenchmarkedKernel", "benchmark", kwargs)


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
