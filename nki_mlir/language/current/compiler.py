# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.compiler``: compiles kernels to MLIR modules without a framework."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nki_mlir.language.arguments import signature_of, zeros_of
from nki_mlir.language.current.compile_options import CompileOptions
from nki_mlir.language.current.driver import NirResult, compile_to_bir
from nki_mlir.language.current.kernel import kernel_of
from nki_mlir.language.launching import directive
from nki_mlir.machine import machine_named


def compile_kernel(fn: Callable[..., object], inputs: Any, outputs: object = None,
                   compile_opts: CompileOptions | None = None, **hyperparameters: object) -> NirResult:
    """Capture a kernel for given inputs.

    Arguments:
        fn: the function or kernel
        inputs: arrays, or (shape, dtype) of arrays, in a list or by name
        outputs: no effect
        compile_opts: CompileOptions: the target and the cores of the launch
        hyperparameters: further arguments by keyword

    Result:
        A NirResult.

    Errors:
        Errors of the kernel.

    Example:
        compiled = compile_kernel(double, {"x": ((4, 8), np.float32)}, compile_opts=CompileOptions(lnc=1))
        assert "nki.binary_scalar" in str(compiled.module)
    """
    return captured(fn, inputs, compile_opts or CompileOptions(), hyperparameters)


def captured(fn: Callable[..., object], inputs: Any, options: CompileOptions, hyperparameters: dict[str, object],
             output_names: Sequence[str] = ()) -> NirResult:
    """Capture a kernel for inputs given by name or in order."""
    if not isinstance(inputs, Mapping):
        names = list(signature_of(kernel_of(fn).func).parameters)
        inputs = dict(zip(names, inputs))
    values = {name: described_pair(value) for name, value in inputs.items()}
    return compile_to_bir(fn, inputs=values | hyperparameters, compile_opts=options, output_names=output_names)


def described_pair(value: Any) -> object:
    """Return an array of zeros for a pair (shape, dtype), and any other value unchanged."""
    is_pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], (tuple, list))
    return zeros_of(*value) if is_pair else value


class Frontend:
    """Captures kernels: ``compile(fn, inputs=...)`` returns a NirResult.

    Arguments:
        enable_backend_opt: no effect
        options: no effect

    Errors:
        None.

    Example:
        assert isinstance(Frontend().compile(double, inputs=[((4, 8), np.float32)]), NirResult)
    """

    def __init__(self, enable_backend_opt: bool = False, **options: object) -> None:
        self.enable_backend_opt = enable_backend_opt

    def compile(self, fn: Callable[..., object], inputs: object = (), target: str | None = None, lnc: int | None = None,
                artifacts_dir: str | None = None, dump_python_ast: bool = False,
                output_names: Sequence[str] | None = None) -> NirResult:
        """Capture a kernel like ``compile_kernel``, for ``target`` and ``lnc`` cores."""
        return captured(fn, inputs, CompileOptions(target, lnc, artifacts_dir=artifacts_dir), {}, output_names or ())


def resolve_frontend_cls(*choice: object, **options: object) -> type[Frontend]:
    """Return the class of frontends: ``Frontend``, the only one.

    Arguments:
        choice: no effect
        options: no effect

    Result:
        Frontend.

    Errors:
        None.

    Example:
        assert resolve_frontend_cls() is Frontend
    """
    return Frontend


def resolve_target(func: object, target: str | None = None) -> str:
    """Return the machine that a kernel is compiled for.

    Arguments:
        func: the function or kernel
        target: the name of a machine, by default the kernel's

    Result:
        trn1, trn2 or trn3, or one of their other names gen2 to gen4.

    Errors:
        A name that no machine has.

    Example:
        assert resolve_target(double, "trn3") == "trn3"
        assert resolve_target(nki.jit(double, platform_target="trn1")) == "trn1"
    """
    return machine_named(target or kernel_of(func).platform).name


skip_middle_end_transformations, enable_stack_allocator, force_auto_alloc = (
    directive(name, kernel_of) for name in ("skip_middle_end_transformations", "enable_stack_allocator",
                                            "force_auto_alloc"))
NKIFrontend = ParserFrontend = TracerFrontend = Frontend
__all__ = ["Frontend", "compile_kernel", "enable_stack_allocator", "force_auto_alloc", "resolve_frontend_cls",
           "resolve_target", "skip_middle_end_transformations"]
