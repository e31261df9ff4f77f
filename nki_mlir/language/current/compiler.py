# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.compiler``: kernels compiled apart from a framework, to MLIR modules."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nki_mlir.language.current.kernel import Kernel, jit, kernel_of
from nki_mlir.language.launching import directive


class CompiledKernel:
    """A kernel captured for given inputs: ``module`` is the MLIR module, ``specialization`` everything about it."""

    def __init__(self, kernel: Kernel, specialization: Any) -> None:
        self.kernel, self.specialization = kernel, specialization

    @property
    def module(self) -> Any:
        return self.specialization.modules[0]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.kernel(*arguments, **keywords)


def compile_kernel(fn: Callable, inputs: Any, outputs: Any = None, compile_opts: Any = None, **hyperparameters: Any
                   ) -> CompiledKernel:
    """Capture ``fn(*inputs, **hyperparameters)``; inputs are arrays, or (shape, dtype) pairs of arrays."""
    kernel = jit(fn)
    lnc = getattr(compile_opts, "lnc", None)
    if lnc:
        kernel = kernel[lnc]
    values = inputs.values() if isinstance(inputs, dict) else inputs
    arrays = [v if isinstance(v, np.ndarray) else np.zeros(*v) for v in values]
    bound = kernel.bind(tuple(arrays), hyperparameters, lambda v: isinstance(v, np.ndarray), kernel.describe)
    return CompiledKernel(kernel, kernel.specialize(bound))


class CompileOptions:
    """Options of a compilation."""

    def __init__(self, target: str | None = None, lnc: int | None = None, output_path: str | None = None,
                 artifacts_dir: str | None = None, neuronx_cc_args: Any = ()) -> None:
        self.target, self.lnc, self.output_path = target, lnc, output_path
        self.artifacts_dir, self.neuronx_cc_args = artifacts_dir, neuronx_cc_args


class Frontend:
    """Captures kernels: ``compile(fn, inputs=...)`` gives an object with the MLIR ``module``."""

    def compile(self, fn: Callable, inputs: Any = (), target: str | None = None, lnc: int | None = None,
                artifacts_dir: str | None = None, dump_python_ast: bool = False, output_names: Any = None
                ) -> CompiledKernel:
        return compile_kernel(fn, inputs, compile_opts=CompileOptions(target, lnc))


skip_middle_end_transformations, enable_stack_allocator, force_auto_alloc = (
    directive(name, kernel_of) for name in ("skip_middle_end_transformations", "enable_stack_allocator",
                                            "force_auto_alloc"))
NKIFrontend = ParserFrontend = TracerFrontend = Frontend
