# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that use another implementation's names: the oracle's object of the same name replaces each."""

from collections.abc import Iterator
from enum import Enum
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from ..dtypes import DTYPES
from ..program import SOURCES
from . import MODULES, ncc, nisa, nki, nl
from .launch import Kernel, generation

BY_PATH = {"language": nl, "isa": nisa, "collectives": ncc, "nki": nki, "typing": MODULES["nki.typing"],
           "host_arrays": MODULES["nki.tensor"]}


def names(code: CodeType) -> Iterator[str]:
    """Return the names that code reads from its module, also in inner functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names(constant)


class Surroundings:
    """Rebuilds functions with other globals, in which the oracle's objects replace those of ``packages``."""

    def __init__(self, *packages: str) -> None:
        self.packages, self.rebuilt = tuple(f"{name}." for name in packages), {}

    def kernel(self, kernel: Any) -> Kernel:
        """Rebuild a kernel, or a function as a kernel."""
        return Kernel(self.function(getattr(kernel, "func", kernel)), generation, getattr(kernel, "grid", ()))

    def function(self, function: Any) -> Any:
        if id(function) not in self.rebuilt:
            code = function.__code__
            SOURCES.add(code.co_filename)
            around: dict[str, Any] = {"__builtins__": function.__globals__["__builtins__"], "__name__": function.__module__}
            cells = tuple(CellType() for _ in code.co_freevars)
            rebuilt = FunctionType(code, around, function.__name__, None, cells)
            self.rebuilt[id(function)] = rebuilt, function
            around.update({n: self.value(function.__globals__[n]) for n in names(code) if n in function.__globals__})
            for cell, old in zip(cells, function.__closure__ or ()):
                cell.cell_contents = self.value(old.cell_contents)
            rebuilt.__defaults__ = function.__defaults__ and tuple(map(self.value, function.__defaults__))
            rebuilt.__kwdefaults__ = function.__kwdefaults__ and {k: self.value(v) for k, v in function.__kwdefaults__.items()}
        return self.rebuilt[id(function)][0]

    def ours(self, thing: Any) -> bool:
        return f"{getattr(thing, '__module__', '')}.".startswith(self.packages)

    def value(self, value: Any) -> Any:
        if isinstance(value, ModuleType):
            return BY_PATH[value.__name__.rpartition(".")[2]] if f"{value.__name__}.".startswith(self.packages) else value
        if type(value) in (tuple, list):
            translated = type(value)(map(self.value, value))
            return translated if any(a is not b for a, b in zip(translated, value)) else value
        if type(value) is dict:
            changed = {k: self.value(v) for k, v in value.items()}
            return changed if any(changed[k] is not value[k] for k in value) else value
        if isinstance(value, Enum):
            return named(type(value).__name__)[value.name] if self.ours(type(value)) else value
        if isinstance(value, FunctionType) and not self.ours(value):
            return self.function(value)
        if isinstance(value, (type, FunctionType)):
            return named(value.__name__) if self.ours(value) else value
        if not self.ours(type(value)):
            return value
        if hasattr(value, "func"):
            return self.kernel(value)
        if type(value).__name__ == "ReplicaGroup":
            return ncc.ReplicaGroup(value.groups)
        name = getattr(value, "__name__", getattr(value, "name", type(value).__name__))
        return DTYPES.get(name.removesuffix("_")) or named(name)


def named(name: str) -> Any:
    return next(getattr(module, name) for module in (nl, nisa, ncc, nki) if hasattr(module, name))
