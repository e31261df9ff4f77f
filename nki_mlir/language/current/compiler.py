# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.compiler``: kernels compiled apart from a framework, to MLIR modules."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nki_mlir.language.current.kernel import Kernel, jit, kernel_of
from nki_mlir.language.launching import directive

if TYPE_CHECKING:
    from nki_mlir.language.specialization import Specialization


class CompiledKernel:
    """A kernel captured for given inputs: ``module`` is the MLIR module, ``specialization`` everything about it.

    Arguments:
        kernel: the kernel
        specialization: what was captured

    Errors:
        None.

    Example:
        compiled = compile_kernel(double, [((4, 8), np.float32)])
        assert isinstance(compiled, CompiledKernel) and "nki.binary_scalar" in str(compiled.module)
        assert np.array_equal(compiled(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
    """

    def __init__(self, kernel: Kernel, specialization: "Specialization") -> None:
        self.kernel, self.specialization = kernel, specialization

    @property
    def module(self) -> Any:
        """The MLIR module of the first program."""
        return self.specialization.modules[0]

    def __call__(self, *arguments: object, **keywords: object) -> Any:
        return self.kernel(*arguments, **keywords)


def compile_kernel(fn: Callable[..., object], inputs: Any, outputs: object = None, compile_opts: object = None,
                   **hyperparameters: object
                   ) -> CompiledKernel:
    """Capture a kernel.

    Arguments:
        fn: the function or kernel
        inputs: arrays, or (shape, dtype) of arrays, in a list or by name
        outputs: no effect
        compile_opts: CompileOptions, of which lnc has an effect: the cores of the launch
        hyperparameters: further arguments by keyword

    Result:
        A CompiledKernel.

    Errors:
        Those of the kernel.

    Example:
        assert "nki.binary_scalar" in str(compile_kernel(double, {"x": ((4, 8), np.float32)}).module)
    """
    kernel = jit(fn)
    lnc = getattr(compile_opts, "lnc", None)
    if lnc:
        kernel = kernel[lnc]
    values = inputs.values() if isinstance(inputs, dict) else inputs
    arrays = [v if isinstance(v, np.ndarray) else np.zeros(*v) for v in values]
    bound = kernel.bind(tuple(arrays), hyperparameters, lambda v: isinstance(v, np.ndarray), kernel.describe)
    return CompiledKernel(kernel, kernel.specialize(bound))


class CompileOptions:
    """Options of a compilation.

    Arguments:
        target: no effect: the environment's, or that of nki.jit
        lnc: the cores of the launch
        output_path: no effect
        artifacts_dir: no effect
        neuronx_cc_args: no effect

    Errors:
        None.

    Example:
        compiled = compile_kernel(double, [((4, 8), np.float32)], compile_opts=CompileOptions(lnc=1))
        assert compiled.kernel.grid == (1,)
    """

    def __init__(self, target: str | None = None, lnc: int | None = None, output_path: str | None = None,
                 artifacts_dir: str | None = None, neuronx_cc_args: object = ()) -> None:
        self.target, self.lnc, self.output_path = target, lnc, output_path
        self.artifacts_dir, self.neuronx_cc_args = artifacts_dir, neuronx_cc_args


class Frontend:
    """Captures kernels: ``compile(fn, inputs=...)`` gives a CompiledKernel.

    Example:
        assert isinstance(Frontend().compile(double, inputs=[((4, 8), np.float32)]), CompiledKernel)
    """

    def compile(self, fn: Callable[..., object], inputs: object = (), target: str | None = None, lnc: int | None = None,
                artifacts_dir: str | None = None, dump_python_ast: bool = False, output_names: object = None
                ) -> CompiledKernel:
        """``compile_kernel`` of the function, on ``lnc`` cores."""
        return compile_kernel(fn, inputs, compile_opts=CompileOptions(target, lnc))


skip_middle_end_transformations, enable_stack_allocator, force_auto_alloc = (
    directive(name, kernel_of) for name in ("skip_middle_end_transformations", "enable_stack_allocator",
                                            "force_auto_alloc"))
NKIFrontend = ParserFrontend = TracerFrontend = Frontend
__all__ = ["CompileOptions", "CompiledKernel", "Frontend", "compile_kernel", "enable_stack_allocator",
           "force_auto_alloc", "skip_middle_end_transformations"]
