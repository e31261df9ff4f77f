# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""nki itself (language, section 8): kernels, their launch on cores, and on ranks side by side."""

import inspect
import itertools
from collections.abc import Sequence
from typing import Any

from .. import kernel
from ..kernel import Inputs, Outcome, function_of, sizes
from ..program import Program, Run, execute, execute_all

generation: Any = None          # the package of this module, which knows it only when it is complete


class Kernel(kernel.Kernel):
    """A kernel with the methods that schedule it, none of which changes its values."""

    def __getitem__(self, grid: Any) -> "Kernel":
        return Kernel(self.func, self.generation, sizes(grid), **self.options)

    def with_schedule(self, edges: Any) -> "Kernel":
        return self


def jit(fn: Any = None, **options: Any) -> Any:
    """Decorate a function: bare, called, or called with the function (8.1)."""
    if fn is None:
        return lambda function: jit(function, **options)
    return fn if isinstance(fn, kernel.Kernel) else Kernel(fn, generation, **options)


def simulate(kernel: Any) -> Any:
    """Call the kernel (8.2)."""
    return jit(kernel)


class _Annotation:
    """The annotation ``nt.tensor[shape]``, which checks the shape of a value."""

    def __getitem__(self, shape: Any) -> Any:
        return type("tensor", (), {"annotated_shape": shape if isinstance(shape, tuple) else (shape,)})


annotation = _Annotation()


def run_ranks(function: Any, arguments: Sequence[Sequence[Any]], *, grid: Any = None, names: dict[str, Any] | None = None,
              replace: Any = lambda value: None) -> list[Outcome]:
    """Return the outcome on each rank. All run the kernel at the same time, on different arrays."""
    grid = sizes(getattr(function, "grid", ()) if grid is None else grid)
    function = function_of(function, generation, names, replace)
    run = Run(grid, generation)
    ids = list(itertools.product(*map(range, run.grid)))
    inputs_of_ranks = [Inputs(run, generation) for _ in arguments]
    bound = [inspect.signature(function).bind(*values) for values in arguments]
    host = Program(run, (), -1)
    programs = [Program(run, one, rank * len(ids) + core, state={"rank": rank})
                for rank in range(len(arguments)) for core, one in enumerate(ids)]
    for inputs, values in zip(inputs_of_ranks, bound):
        execute(host, lambda: [inputs.value(v) for v in values.args])

    def body(program: Program) -> Any:
        rank = program.state["rank"]
        return function(*(inputs_of_ranks[rank].value(v) for v in bound[rank].args))

    returned = execute_all(run, programs, body)
    return [execute(host, lambda: inputs_of_ranks[r].outcome(returned[r * len(ids)]))
            for r in range(len(arguments))]
