# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From a kernel and a framework's arguments to a callee: binding, the executor, and eager execution as a program."""

from collections.abc import Sequence

import numpy as np

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.native import Program
from nki_mlir.frameworks.registry import Callee, PlainResults, callee_of
from nki_mlir.language.arguments import Bound, map_leaves
from nki_mlir.language.eager_run import executed
from nki_mlir.language.kernel import Kernel, default_executor
from nki_mlir.language.results import check_written
from nki_mlir.language.specialization import Specialization


class NumberAsTensor(NkiMlirError, TypeError):
    code = "NKI-NUMBER"
    message = "argument {argument} of kernel {kernel} is a number in an array"
    why = "numbers are constants of a kernel, which is compiled for them"
    fix = "pass a Python number: x.item(); in jax.jit name it in static_argnames, or bind it with functools.partial"


class SymbolicShape(NkiMlirError, TypeError):
    code = "NKI-SYMBOLIC-SHAPE"
    message = "kernel {name} is called with {what}: sizes cannot stay open"
    why = "a kernel is compiled for its shapes"
    fix = "export the program once for each size; {instead}"


def callee_for(kernel: Kernel, bound: Bound, plain: PlainResults = PlainResults()) -> Callee:
    """The callee for bound arguments; the kernel is captured if these shapes and constants are new."""
    for tensor in bound.specs:
        if not tensor.shape:
            raise NumberAsTensor(argument=tensor.name, kernel=kernel.__name__).here()
    spec = kernel.specialize(bound)
    on = kernel.executor or default_executor()
    return callee_of(spec, on, plain, eager_program(kernel, bound, spec) if on == "eager" else None)


class _TensorSlot:
    """Stands for a tensor in arguments that are kept."""


def eager_program(kernel: Kernel, bound: Bound, spec: Specialization) -> Program:
    """The kernel's own Python on concrete numbers, as ``run(inputs, shared)``. Keeps no tensor of the call."""
    values = {n: map_leaves(v, bound.is_tensor, lambda _: _TensorSlot) for n, v in bound.values.items()}
    kept = Bound(bound.names, values, bound.specs)
    kept.is_tensor, kept.call = lambda value: value is _TensorSlot, bound.call

    def run(inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        programs = executed(kernel, kept, list(inputs), kernel.eager_program(), lambda checks, programs: None)
        check_written(programs, kernel.location, kernel.must_write)
        for result, buffer in zip(spec.results, programs[-1].buffers):
            if result.shared is not None:
                shared[result.shared][...] = buffer.handle
    return run
