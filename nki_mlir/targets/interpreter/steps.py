# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The registry of what the interpreter executes: operation name -> the function that compiles it to a step.

A module of this folder registers with ``executes``; all of them are imported before the first function is compiled, so
that no list is kept.
"""

import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nki_mlir.diagnostics import InternalError

if TYPE_CHECKING:
    from nki_mlir.bindings import Operation
    from nki_mlir.targets.interpreter.module import FunctionCompiler

Env = list[Any]                     # one slot per SSA value
Step = Callable[[Env], None]
Compile = Callable[["FunctionCompiler", "Operation"], Step | None]

_STEPS: dict[str, Compile] = {}


def executes(*names: str) -> Callable[[Compile], Compile]:
    """Decorator of a function that compiles operations of these names; None: there is nothing to do for it."""
    def register(compile_step: Compile) -> Compile:
        for name in names:
            if name in _STEPS:
                both = " and ".join(f"{f.__module__}.{f.__qualname__}" for f in (_STEPS[name], compile_step))
                raise InternalError(f"'{name}' is compiled by {both}")
            _STEPS[name] = compile_step
        return compile_step
    return register


@cache
def steps() -> dict[str, Compile]:
    """All of them."""
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if file.stem != "__init__":
            importlib.import_module(f"{__package__}.{file.stem}")
    return _STEPS
