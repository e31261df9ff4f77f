# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Running a kernel: every program of its grid, one after the other, on copies of the arrays (document: beta 2).

``run("def kernel(x): ...", [array], generation=beta)`` or ``run(function, ...)`` gives an ``Outcome``.
"""

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from . import source
from .dtypes import dtype_of
from .memory import HBM, View, allocate
from .program import Finding, Program, Run, execute, execute_all, running


@dataclass
class Outcome:
    """What a run gave: results in the order of the kernel's, findings, and what was printed."""

    results: Any
    findings: list[Finding]
    printed: list[tuple[str, np.ndarray]]
    incomparable: list[bool] = field(default_factory=list)     # of each result: a random generator had a say

    def kinds(self) -> set[str]:
        return {f.kind for f in self.findings}


class Kernel:
    """What ``nki.jit`` makes of a function: called in a kernel it is a function, elsewhere it runs."""

    def __init__(self, function: Callable[..., Any], generation: Any, grid: tuple[int, ...] = (), **options: Any) -> None:
        self.func, self.generation, self.grid, self.options = function, generation, grid, options
        self.__name__ = getattr(function, "__name__", "kernel")

    def __getitem__(self, grid: Any) -> "Kernel":
        return Kernel(self.func, self.generation, sizes(grid), **self.options)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if running():
            return self.func(*arguments, **keywords)
        return run(self, arguments, keywords, grid=self.grid, generation=self.generation).results


def sizes(grid: Any) -> tuple[int, ...]:
    """The sizes of a grid, whatever its entries are (beta 2.2)."""
    if grid is None:
        return ()
    flat: list[int] = []
    for entry in grid if isinstance(grid, (tuple, list)) else (grid,):
        flat += sizes(entry) if isinstance(entry, (tuple, list)) else (int(entry),)
    return tuple(flat)


def function_of(kernel: Any, generation: ModuleType, names: dict[str, Any] | None = None,
                replace: Callable[[Any], Any] = lambda value: None, name: str = "kernel") -> Callable[..., Any]:
    """A kernel's function with the oracle's names: from a text, or from a function of a file.

    ``names``: what the text does not import itself. ``replace``: the oracle's object for one of the surroundings.
    """
    if isinstance(kernel, Kernel):
        return kernel.func
    if isinstance(kernel, str):
        function = source.from_text(kernel, generation.MODULES, names or {})[name]
        return function.func if isinstance(function, Kernel) else function
    if isinstance(kernel, FunctionType):
        return source.Translator(generation.MODULES, replace).function(kernel)
    raise TypeError(f"no kernel: {kernel!r}")


def run(kernel: Any, arguments: Sequence[Any], keywords: dict[str, Any] | None = None, *, generation: Any,
        grid: Any = None, names: dict[str, Any] | None = None, shuffle: int | None = None,
        replace: Callable[[Any], Any] = lambda value: None, fill: int = 0) -> Outcome:
    """The outcome of a kernel. Arrays that it updates are updated in place.

    ``shuffle``: the seed of another order of parallel loops' iterations and of programs. ``fill``: the byte that memory
    holds before something writes it; a result is undefined where it depends on this byte.
    """
    function = function_of(kernel, generation, names, replace)
    again = [copied(arguments), copied(keywords or {})]
    outcome, random = run_once(function, arguments, keywords or {}, generation, grid, shuffle, 0, fill)
    if random:
        others = [run_once(function, copied(again[0]), copied(again[1]), generation, grid, shuffle, luck, fill)[0]
                  for luck in (1, 2)]
        outcome.incomparable = [known or any(not np.array_equal(bits(mine), bits(their)) for their in theirs) for
                                known, mine, *theirs in zip(outcome.incomparable, arrays(outcome.results),
                                                            *(arrays(o.results) for o in others))]
    return outcome


def copied(value: Any) -> Any:
    """Run on copies of the arrays."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(copied, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(copied, value))
    return {k: copied(v) for k, v in value.items()} if isinstance(value, dict) else value


def arrays(results: Any) -> list[np.ndarray]:
    """The results one after the other."""
    return [a for r in results for a in arrays(r)] if isinstance(results, (tuple, list)) else [results]


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)


def run_once(function: Callable[..., Any], arguments: Sequence[Any], keywords: dict[str, Any], generation: Any,
             grid: Any, shuffle: int | None, luck: int, fill: int) -> tuple[Outcome, bool]:
    run = Run(sizes(grid), generation, shuffle, luck=luck, fill=fill)
    inputs = Inputs(run, generation)
    bound = inspect.signature(function).bind(*arguments, **keywords)
    host = Program(run, (), -1)
    execute(host, lambda: [inputs.value(v) for v in (*bound.args, *bound.kwargs.values())])
    ids = list(itertools.product(*map(range, run.grid)))
    programs = [Program(run, one, number) for number, one in enumerate(ids)]

    def body(program: Program) -> Any:
        positional = [inputs.value(v) for v in bound.args]
        named = {k: inputs.value(v) for k, v in bound.kwargs.items()}
        return function(*positional, **named)

    returned = execute_all(run, programs, body)
    return execute(host, lambda: inputs.outcome(returned[0])), run.random


class Inputs:
    """The arrays of a launch as tensors in HBM, one for all programs, and back."""

    def __init__(self, run: Run, generation: Any) -> None:
        self.run, self.generation = run, generation
        self.tensors: dict[int, tuple[np.ndarray, View]] = {}

    def value(self, value: Any) -> Any:
        """A tensor for an array; other values are constants."""
        if isinstance(value, np.ndarray):
            if id(value) not in self.tensors:
                tensor = allocate(self.generation.Tensor, value.shape, dtype_of(value.dtype), HBM,
                                  f"input{len(self.tensors)}", written=True)
                tensor.storage.elements(tensor.dtype)[:value.size] = value.reshape(-1)
                self.tensors[id(value)] = value, tensor
            return self.tensors[id(value)][1]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.value, value))
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.value, value))
        if isinstance(value, dict):
            return {k: self.value(v) for k, v in value.items()}
        return value

    def outcome(self, returned: Any) -> Outcome:
        written = [array for array, tensor in self.tensors.values() if tensor.storage.writer.any()]
        for array, tensor in self.tensors.values():
            if tensor.storage.writer.any() and array.flags.writeable:
                array[...] = tensor.read(quietly=True)
        results: Any = tuple(written) if len(written) != 1 else written[0]
        if returned is None:
            return Outcome(results, self.run.findings, self.run.printed, [False] * len(written))
        flags: list[bool] = []
        return Outcome(self.array(returned, flags), self.run.findings, self.run.printed, flags)

    def array(self, value: Any, flags: list[bool]) -> Any:
        if isinstance(value, View):
            flags.append(getattr(value.storage, "random", False))
            missing = ~value.written()
            if missing.any():
                index = tuple(int(n[0]) for n in np.nonzero(missing))
                self.run.find("missing", value.name, index, f"{int(missing.sum())} elements of {value.name} are not "
                                                            f"written, the first is {list(index)}")
            return value.read(quietly=True)
        if isinstance(value, (tuple, list)):
            return type(value)(self.array(v, flags) for v in value)
        return value
