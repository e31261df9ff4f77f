# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decorators and launchers of kernels for both packages: ``jit``, ``trace``, ``baremetal``, ``benchmark`` and others.

Options that public code passes, but that only the vendor's compiler reads (``debug_kernel``, ``show_compiler_tb``,
``experimental_flags``, ``additional_compile_opt``, ``enable_out_of_bound_check``) are stored on the kernel; profiles
read ``--disable-dge`` in ``additional_compile_opt``, which makes the compiler write descriptors.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from nki_mlir.capture.locations import user_location
from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.diagnostics import KernelError, warn_once
from nki_mlir.language.kernel import plain_index_errors
from nki_mlir.language.results import DETACHED
from nki_mlir.language.signatures.kinds import is_integer
from nki_mlir.machine.description import UnknownTarget
from nki_mlir.similar_names import nearest

if TYPE_CHECKING:
    from nki_mlir.language.measuring import MeasuredKernel

F = TypeVar("F", bound=Callable[..., object])


class NotNumpy(KernelError, TypeError):
    code = "NKI-NUMPY-ARGUMENT"
    message = "{function} takes NumPy arrays, got a value of type {kind}"
    fix = "convert it first: np.asarray(x), or x.float().numpy().astype(ml_dtypes.bfloat16) for bfloat16 of PyTorch"

    @classmethod
    def check(cls, function: str, values: Iterable[object]) -> None:
        """Raise the error if a value is a tensor of a framework."""
        for kind in map(type, values):
            if not issubclass(kind, np.ndarray) and kind.__module__.split(".")[0] in ("torch", "jax", "jaxlib"):
                raise cls(function=function, kind=kind.__name__).here()


class UnknownMode(KernelError, ValueError):
    code = "NKI-JIT-MODE"
    message = "nki.jit has no mode {mode!r}"
    fix = "give one of {modes}"


class UnknownOption(KernelError, TypeError):
    code = "NKI-JIT-OPTION"
    message = "nki.jit has no option '{option}'"
    fix = "{instead}"


class ProfileDirectory(KernelError, ValueError):
    code = "NKI-PROFILE-DIRECTORY"
    message = "nki.profile needs working_directory, an absolute path, got {found!r}"
    fix = "pass working_directory='/absolute/path'"


class NumberOfRuns(KernelError, TypeError):
    code = "NKI-ARGUMENT"
    message = "nki.{decorator} takes an integer of at least {least} as {option}, got {found!r}"
    fix = "give a number of runs, for example {option}={example}"


class ArgumentsOfKernel(KernelError, TypeError):
    code = "NKI-ARGUMENT"
    message = "nki.{name} takes a kernel, but is called with the kernel's arguments as well"
    fix = "call what it returns: nki.{name}(kernel)(x)"


def takes_kernel(decorator: F) -> F:
    """Make a decorator of kernels refuse arrays: users pass them when they mean to call the kernel."""
    position = decorator.__code__.co_varnames[0] == "self"      # of the kernel: 1 after ``self``

    @wraps(decorator)
    @without_internal_frames
    def refusing(*arguments: Any, **keywords: Any) -> Any:
        if any([hasattr(value, "shape") for value in arguments[position + 1:]]):
            raise ArgumentsOfKernel(name=decorator.__name__).here()
        return decorator(*arguments, **keywords)
    return cast(F, refusing)


MODES = ("auto", "jax", "torchxla", "torch", "baremetal", "benchmark", "simulation", "trace")
# A name that resembles one of these is an error; any other is ignored, with a warning unless it is the vendor's.
OPTIONS = ("mode", "platform_target", "kernel_return", "unroll_limit", "debug_kernel", "show_compiler_tb",
           "experimental_flags", "additional_compile_opt", "enable_out_of_bound_check", "schedule")
ALIKE = 0.75
FILES = ("save_neff_name", "save_trace_name", "artifacts_dir", "profile")
VENDOR_OPTIONS = ("debug", "disable_allocation_opt", "warmup", "iters", "enable_instruction_profiling",
                  "enable_memory_profiling", "enable_pipeline_profiling")


class IgnoredOption(UserWarning):
    """Warns that a decorator of kernels ignores an option that it does not know."""


def written_as(option: str) -> str:
    """Return the fix for an unknown option that resembles ``option``."""
    return f"write {option}="


def changes_of(mode: str, options: dict[str, object], suggestion: Callable[[str], str] = written_as
               ) -> dict[str, object]:
    """Return the attributes of a kernel that the options of a decorator change. ``suggestion`` says what to do instead
    of a name that resembles an option."""
    if not isinstance(mode, str) or mode not in MODES:
        raise UnknownMode(mode=mode if isinstance(mode, str) else type(mode), modes=", ".join(MODES)).here()
    target = options.get("platform_target")
    if target is not None and not isinstance(target, str):
        raise UnknownTarget(name=f"a value of type {type(target).__name__}", more="").here()
    for option in options.keys() - {*OPTIONS}:
        from difflib import get_close_matches  # start-up: imported on first use
        if similar := get_close_matches(option, OPTIONS, 1, ALIKE):
            raise UnknownOption(option=option, instead=suggestion(similar[0])).here()
        if option not in (*FILES, *VENDOR_OPTIONS):
            parts = {part: name for name in OPTIONS for part in name.split("_")}
            instead = f"; {suggestion(parts[part])}" if (part := nearest(option, parts)) else ""
            if similar := get_close_matches(option, (*FILES, *VENDOR_OPTIONS), 1, ALIKE):
                instead = f"; {written_as(similar[0])}"
            decorator = mode if mode in ("baremetal", "benchmark") else "jit"
            warn_once(f"nki.{decorator} has no option '{option}', and ignores it{instead}", IgnoredOption,
                      user_location())
    changes: dict[str, object] = {"mode": mode, "options": options}
    if options.get("kernel_return") is False:
        changes["by_reference"] = True
    return changes


def check_runs(decorator: str, option: str, value: Any, least: int, example: int) -> None:
    """Check that an option is an integer of at least ``least``."""
    if not is_integer(value) or value < least:
        raise NumberOfRuns(decorator=decorator, option=option, found=value, least=least, example=example).here()


class Decorators:
    """The decorators of a package. ``kernel_of`` converts a function to a kernel, ``simulator`` is the
    executor's name, ``suggestion`` says what to do instead of a name that resembles an option."""

    def __init__(self, kernel_of: Callable[[object], Any], simulator: str,
                 suggestion: Callable[[str], str] = written_as) -> None:
        self.kernel_of, self.simulator, self.suggestion = kernel_of, simulator, suggestion

    def decorated(self, kernel: object, changes: dict[str, object]) -> Any:
        if kernel is None:
            return lambda function: self.decorated(function, changes)
        decorated_kernel = self.kernel_of(kernel)
        return decorated_kernel.uncached(**changes | {"options": decorated_kernel.options | changes["options"]})

    @takes_kernel
    def jit(self, func: Callable[..., object] | None = None, mode: str = "auto", **kwargs: Any) -> Any:
        """Decorate a function as a kernel; it works with and without arguments, and on a kernel.

        Arguments:
            func: the function or kernel; without it the result is a decorator
            mode: one of ``MODES``: simulation runs the simulator, baremetal and benchmark do what ``nki.baremetal``
                and ``nki.benchmark`` do; with any other mode the arguments decide
            kwargs: platform_target (trn1, trn2, trn3), unless the environment names one; kernel_return=False: outputs
                are the parameters that are written; options of the vendor's compiler have no effect

        Result:
            A kernel. It returns arrays of the framework of its arguments: NumPy, JAX or PyTorch. ``kernel[grid]``
            launches programs.

        Errors:
            An unknown mode raises ``UnknownMode``.

        Example:
            @nki.jit(platform_target="trn2")
            def double(x):
                out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                nl.store(out, nl.multiply(nl.load(x), 2.0))
                return out
            assert np.array_equal(double(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
        """
        func = kwargs.pop("fn", func)
        changes = changes_of(mode, kwargs, self.suggestion)
        if mode in ("baremetal", "benchmark"):
            return getattr(self, mode)(func, **kwargs)
        if mode == "simulation":
            changes["executor"] = self.simulator
        return self.decorated(func, changes)

    @takes_kernel
    def trace(self, func: Callable[..., object] | None = None, **kwargs: object) -> Any:
        """Decorate a kernel that writes output parameters, or that other kernels call.

        Arguments:
            func: the function or kernel; without it the result is a decorator
            kwargs: as for jit

        Result:
            A kernel. If another kernel calls it, it becomes a part of that kernel.

        Errors:
            None.

        Example:
            @nki.trace
            def double(x, out):
                nl.store(out, nl.multiply(nl.load(x), 2.0))
            out = np.zeros((4, 8), np.float32)
            double(np.ones((4, 8), np.float32), out)
            assert np.array_equal(out, np.full((4, 8), 2.0))
        """
        return self.decorated(func, changes_of("trace", kwargs, self.suggestion))

    def measured(self, kernel: object, mode: str, options: dict[str, object]) -> "MeasuredKernel":
        """Return the kernel with the names of the files that its calls write."""
        names = {name: options[name] for name in FILES if options.get(name) is not None}
        from nki_mlir.language.measuring import MeasuredKernel, copy_as  # start-up: loads MLIR
        return copy_as(self.decorated(kernel, changes_of(mode, options)), MeasuredKernel, **names)

    @takes_kernel
    def baremetal(self, kernel: Callable[..., object] | None = None, **kwargs: object) -> Any:
        """Decorate a kernel for NumPy arrays; its calls write the program to the files that the options name.

        Arguments:
            kernel: the function or kernel; without it the result is a decorator
            kwargs: save_neff_name (the compiled kernel), save_trace_name (its trace), artifacts_dir (a folder for
                its MLIR), profile (a folder for what docs/profile.md describes); others as for jit

        Result:
            A kernel on NumPy arrays, whose results share no memory with its arguments.

        Errors:
            A kernel that does not compile to instruction streams where a file is named is an error.

        Example:
            kernel = nki.baremetal(double, artifacts_dir="files")
            assert np.array_equal(kernel(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
            assert os.listdir("files") == ["double.mlir"]
        """
        if kernel is None:
            return lambda function: self.baremetal(function, **kwargs)
        if any(kwargs.get(name) for name in FILES):
            return self.measured(kernel, "baremetal", kwargs)
        return self.decorated(kernel, changes_of("baremetal", kwargs))

    @takes_kernel
    def benchmark(self, kernel: Callable[..., object] | None = None, warmup: int = 10, iters: int = 100,
                  **kwargs: object) -> Any:
        """Decorate a kernel whose calls record a modeled latency, and write the files of baremetal.

        Arguments:
            kernel: the function or kernel; without it the result is a decorator
            warmup: no effect: modeled times do not vary
            iters: no effect
            kwargs: as for baremetal

        Result:
            A kernel; after a call ``benchmark_result.nc_latency.get_latency_percentile(p)`` is in microseconds.

        Errors:
            The errors of baremetal; a warmup that is not an integer from 0, and iters that are not one from 1.

        Example:
            kernel = nki.benchmark(double, warmup=5, iters=10)
            kernel(np.ones((4, 8), np.float32))
            assert kernel.benchmark_result.nc_latency.get_latency_percentile(50) > 0
        """
        check_runs("benchmark", "warmup", warmup, 0, 10)
        check_runs("benchmark", "iters", iters, 1, 100)
        if kernel is None:
            return lambda function: self.benchmark(function, warmup, iters, **kwargs)
        return self.measured(kernel, "benchmark", kwargs)

    @takes_kernel
    def profile(self, func: Callable[..., object] | None = None, *, working_directory: Any = None,
                save_neff_name: str = "file.neff",
                save_trace_name: str = "profile.ntff", additional_compile_opt: str = "", overwrite: bool = False,
                profile_nth: int = 1, num_execs: int | None = None, **kwargs: object) -> Any:
        """Decorate a kernel whose calls write the program, its modeled time and its profile into a folder.

        Arguments:
            func: the function or kernel; without it the result is a decorator
            working_directory: an absolute path; ``profile`` creates the directory if it is missing
            save_neff_name: the program's file
            save_trace_name: the summary's file; for execution n its name is ``<name>_exec_<n>``
            additional_compile_opt: --disable-dge makes the compiler write the descriptors of transfers
            overwrite: no effect: existing files are overwritten
            profile_nth: every execution whose number is a multiple of it writes a summary
            num_execs: the number of executions
            kwargs: no effect

        Result:
            A kernel.

        Errors:
            A working_directory that is not absolute, and numbers of executions that are not positive integers, are
            errors.

        Example:
            kernel = nki.profile(double, working_directory=os.getcwd())
            kernel(np.ones((4, 8), np.float32))
            assert {"file.neff", "profile.ntff"} <= set(os.listdir())
        """
        if working_directory is None or not Path(working_directory).is_absolute():
            raise ProfileDirectory(found=working_directory).here()
        check_runs("profile", "profile_nth", profile_nth, 1, 2)
        if num_execs is not None:
            check_runs("profile", "num_execs", num_execs, 1, 2)
        options = {"working_directory": working_directory, "save_neff_name": save_neff_name,
                   "save_trace_name": save_trace_name, "profile_nth": profile_nth, "num_execs": num_execs}
        if func is None:
            return lambda function: self.profile(function, additional_compile_opt=additional_compile_opt, **options)
        from nki_mlir.language.measuring import ProfiledKernel, copy_as  # start-up: loads MLIR
        kernel = self.kernel_of(func)
        chosen = {"options": kernel.options | {"additional_compile_opt": additional_compile_opt}}
        return copy_as(kernel.uncached(**chosen), ProfiledKernel, **options)

    @without_internal_frames
    def simulate_kernel(self, kernel: object, *args: object, **kwargs: object) -> Any:
        """Run a kernel on NumPy arrays in the simulator.

        Arguments:
            kernel: the function or kernel, with a grid or without
            args: its arguments; output parameters are updated in place
            kwargs: its arguments by keyword

        Result:
            The kernel's result; if it returns nothing, the parameters that it wrote.

        Errors:
            Arrays of a framework are errors; a run-time index out of bounds is an IndexError.

        Example:
            assert np.array_equal(nki.simulate_kernel(double, np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
        """
        NotNumpy.check("simulate_kernel", (*args, *kwargs.values()))
        chosen = self.kernel_of(kernel)
        if chosen.mode in DETACHED:             # the simulator updates arrays in place, whatever a launch would do
            chosen = replace(chosen, mode="simulation")
        with plain_index_errors():
            return chosen.run(args, kwargs, chosen.executor or self.simulator)


DIRECTIVE = """
Mark a kernel ``{name}``, which does not change its values. Decorate a function or a kernel with it.

Arguments:
    func: the function or kernel; without it the result is a decorator
    options: stored on the kernel

Result:
    The kernel.

Errors:
    None.

Example:
    kernel = {name}(nki.jit(double))
    assert np.array_equal(kernel(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
"""


def directive(name: str, kernel_of: Callable[[object], Any]) -> Callable[..., Any]:
    """Return a decorator of ``nki.compiler``, which marks a kernel."""
    def decorate(func: object = None, **options: object) -> object:
        if func is None:
            return lambda function: decorate(function, **options)
        kernel = kernel_of(func)
        return kernel.uncached(options=kernel.options | {name: options or True})
    decorate.__name__ = decorate.__qualname__ = name
    decorate.__doc__ = DIRECTIVE.format(name=name)
    return decorate
