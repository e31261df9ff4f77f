# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Count how often random programs draw each name of the language, and each of its parameters by position and by name.
"""

import ast
import inspect
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import ModuleType

from .spelling import parameters_of


@dataclass
class Drawn:
    """Counts of programs' calls, and of the forms that the writers note (``view.split``, ``mask.or``)."""

    modules: dict[str, ModuleType]
    programs: int = 0
    calls: Counter = field(default_factory=Counter)             # "nl.load"
    arguments: Counter = field(default_factory=Counter)         # ("nl.load", "src"): given at all
    forms: Counter = field(default_factory=Counter)

    def add(self, text: str, used: Iterable[str] = ()) -> None:
        self.programs += 1
        self.forms.update(used)
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Attribute(value=ast.Name(id=prefix), attr=name) if prefix in self.modules:
                    self.calls[f"{prefix}.{name}"] += 1
                case ast.Call(func=ast.Attribute(value=ast.Name(id=prefix), attr=name)) if prefix in self.modules:
                    function = getattr(self.modules[prefix], name)
                    if inspect.isfunction(function):
                        names = [p.name for p, _ in zip(parameters_of(function), node.args)]
                        names += [k.arg for k in node.keywords if k.arg]
                        self.arguments.update((f"{prefix}.{name}", parameter) for parameter in names)

    def rows(self, names: dict[str, Iterable[str]]) -> list[tuple[str, int]]:
        """A row for each function and each of its parameters, with how often it was drawn."""
        rows = []
        for prefix, listed in names.items():
            for name in sorted(listed):
                function = getattr(self.modules[prefix], name)
                title = f"{prefix}.{name}"
                rows.append((title, self.calls[title]))
                if inspect.isfunction(function):
                    rows += [(f"{title}({p.name}=)", self.arguments[title, p.name]) for p in parameters_of(function)
                             if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        return rows
