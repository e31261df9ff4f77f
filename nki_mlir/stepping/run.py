# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run kernels, modules and streams under a debugger."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.language.arguments import Bound
from nki_mlir.language.kernel import Kernel
from nki_mlir.stepping.debugger import Debugger

if TYPE_CHECKING:
    from nki_mlir.bindings import Module

Named = list[tuple[str, np.ndarray]]


def step_kernel(kernel: Kernel, bound: Bound, on: str, debugger: Debugger, level: str = "nki") -> Named:
    """Run a kernel on arrays, which do not change. Return its results by number."""
    arrays = [np.array(a) for a in bound.tensors]
    if on == "eager":
        from nki_mlir.stepping.eager_driver import EagerDriver  # start-up: imported on first use
        return [(f"result {k}", v) for k, v in enumerate(EagerDriver(debugger).run(kernel, bound, arrays))]
    spec = kernel.specialize(bound)
    shared = [np.zeros(s.shape, s.dtype.numpy) for s in spec.shared]
    if on == "isa":
        from nki_mlir.stepping.stream_driver import step_streams  # start-up: loads MLIR
        from nki_mlir.targets import neuron
        programs = neuron.streams(spec.captured, spec.grid, neuron.emission(level=0), spec.cores)
        step_streams(programs, arrays, shared, debugger)
    else:
        interpret({fixed: v.module for fixed, v in spec.captured.variants.items()}, spec.grid, level, arrays, shared,
                  debugger)
    results = [shared[r.shared] if r.shared is not None else arrays[r.input or 0] for r in spec.results]
    return [(f"result {k}", v) for k, v in enumerate(results)]


def step_module(module: "Module", inputs: Sequence[np.ndarray], debugger: Debugger, level: str) -> Named:
    """Run a module's kernel function on the interpreter. Return its outputs by name."""
    from nki_mlir.dialects.kernel_function import the_kernel  # start-up: loads MLIR
    kernel, arrays = the_kernel(module), [np.array(a) for a in inputs]
    shared = [np.zeros(a.shape, a.dtype.numpy) for a in kernel.shared if a.dtype is not None]
    interpret({(): module}, kernel.grid, level, arrays, shared, debugger)
    return [(a.name, shared[a.index]) for a in kernel.shared] or [(a.name, arrays[a.index]) for a in kernel.inputs]


def interpret(modules: "dict[tuple[tuple[int, int], ...], Module]", grid: tuple[int, ...], level: str,
              inputs: list[np.ndarray], shared: list[np.ndarray], debugger: Debugger) -> None:
    """Lower a kernel to a named level. Return the modules by the program ids that they are for."""
    from nki_mlir.bindings import cloned, ir  # start-up: loads MLIR
    from nki_mlir.capture.attempts import Captured, Variant
    from nki_mlir.dialects.kernel_function import the_kernel
    from nki_mlir.passes.levels import Level
    from nki_mlir.passes.pass_manager import pass_named, run_passes
    from nki_mlir.passes.pipelines import level_of, passes_to
    from nki_mlir.stepping.interpreter_driver import InterpreterDriver
    from nki_mlir.targets import interpreter
    driver, variants = InterpreterDriver(debugger), {}
    for fixed, module in modules.items():
        with module.context, ir.Location.unknown():
            copy = cloned(module)
            # kernels of instructions are captured at the nisa level
            if level == "waist" and level_of(copy) is Level.NISA:
                run_passes(copy, [pass_named("nisa-to-linalg")])
            elif level not in ("", "nki"):
                run_passes(copy, passes_to("linalg" if level == "waist" else level, copy))
        variants[fixed] = Variant(copy, [], None, 0)
        driver.parameters(the_kernel(copy), inputs, shared)
    captured = Captured(variants, 0, {})
    interpreter.load_freely(captured, grid, driver)(inputs, shared)
