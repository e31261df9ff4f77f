# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.compiler``: kernels compiled apart from a framework, to MLIR modules."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nki_mlir.language.current.compile_options import CompileOptions
from nki_mlir.language.current.driver import NirResult
from nki_mlir.language.current.kernel import kernel_of
from nki_mlir.language.launching import directive


def compile_kernel(fn: Callable[..., object], inputs: Any, outputs: object = None,
                   compile_opts: CompileOptions | None = None, **hyperparameters: object) -> NirResult:
    """Capture a kernel.

    Arguments:
        fn: the function or kernel
        inputs: arrays, or (shape, dtype) of arrays, in a list or by name
        outputs: no effect
        compile_opts: CompileOptions: the target and the cores of the launch
        hyperparameters: further arguments by keyword

    Result:
        A NirResult.

    Errors:
        Those of the kernel.

    Example:
        compiled = compile_kernel(double, {"x": ((4, 8), np.float32)}, compile_opts=CompileOptions(lnc=1))
        assert "nki.binary_scalar" in str(compiled.module)
    """
    options = compile_opts or CompileOptions()
    kernel = options.launched(fn)
    values = inputs.values() if isinstance(inputs, dict) else inputs
    arrays = [v if isinstance(v, np.ndarray) else np.zeros(*v) for v in values]
    bound = kernel.bind(tuple(arrays), hyperparameters, lambda v: isinstance(v, np.ndarray), kernel.describe)
    return NirResult(kernel, kernel.specialize(bound), options)


class Frontend:
    """Captures kernels: ``compile(fn, inputs=...)`` gives a NirResult.

    Example:
        assert isinstance(Frontend().compile(double, inputs=[((4, 8), np.float32)]), NirResult)
    """

    def compile(self, fn: Callable[..., object], inputs: object = (), target: str | None = None, lnc: int | None = None,
                artifacts_dir: str | None = None, dump_python_ast: bool = False, output_names: object = None
                ) -> NirResult:
        """``compile_kernel`` of the function, on ``lnc`` cores."""
        return compile_kernel(fn, inputs, compile_opts=CompileOptions(target, lnc))


skip_middle_end_transformations, enable_stack_allocator, force_auto_alloc = (
    directive(name, kernel_of) for name in ("skip_middle_end_transformations", "enable_stack_allocator",
                                            "force_auto_alloc"))
NKIFrontend = ParserFrontend = TracerFrontend = Frontend
__all__ = ["Frontend", "compile_kernel", "enable_stack_allocator", "force_auto_alloc",
           "skip_middle_end_transformations"]
