# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Other forms of the same calls: parameters by position or by name, in any order, and hints that change no value."""

import ast
import inspect
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

ELEMENTWISE = ("tensor_tensor", "tensor_scalar", "tensor_copy", "memset")
BETA_HINTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "engine": (ELEMENTWISE, ("nisa.unknown_engine", "nisa.vector_engine", "nisa.engine.vector")),
    "dge_mode": (("dma_copy",), ("nisa.dge_mode.unknown", "nisa.dge_mode.none")),
    "oob_mode": (("dma_copy",), ("nisa.oob_mode.error",)),
}
CURRENT_HINTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "engine": (ELEMENTWISE, ("nisa.unknown_engine", "nisa.engine.vector", "nisa.vector_engine")),
    "name": ((), ("None", "''", "NAME")),
    "priority": (("dma_copy",), ("None", "1")),
    "dge_mode": (("dma_copy",), ("nisa.dge_mode.unknown",)),
}


@cache
def parameters_of(function: Any) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())


class Spelling(ast.NodeTransformer):
    """Respells the calls of one program. ``modules`` are the values of its names; ``draw(n)`` decides."""

    def __init__(self, draw: Callable[[int], int], modules: dict[str, ModuleType], hints: dict) -> None:
        self.draw, self.modules, self.hints = draw, modules, hints
        self.names = 0
        self.repeated = 0                   # inside what runs more than once, where a name would be taken

    def visit_For(self, node: ast.For) -> ast.AST:
        return self.inside(node)

    visit_While = visit_For                                                     # type: ignore[assignment]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self.inside(node) if node.name != "kernel" else self.generic_visit(node)

    def inside(self, node: ast.AST) -> ast.AST:
        self.repeated += 1
        try:
            return self.generic_visit(node)
        finally:
            self.repeated -= 1

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in self.modules:
                function = getattr(self.modules[module], name)
                if inspect.isfunction(function) and self.draw(2) == 0:
                    return self.spelled(node, name, module == "nisa", parameters_of(function))
        return node

    def spelled(self, node: ast.Call, name: str, instruction: bool, parameters: tuple[inspect.Parameter, ...]) -> ast.Call:
        if any(p.kind is p.VAR_POSITIONAL for p in parameters) or any(k.arg is None for k in node.keywords):
            return node
        parameter_names = {p.name for p in parameters}
        passed = {p.name for p, _ in zip(parameters, node.args)} | {k.arg for k in node.keywords}
        if instruction:
            for hint, (functions, values) in self.hints.items():
                if hint in parameter_names - passed and (not functions or name in functions) and self.draw(2) == 0:
                    node.keywords.append(ast.keyword(hint, self.value(values[self.draw(len(values))])))
        first = self.draw(len(node.args) + 1)           # from here on by name
        moved = [ast.keyword(p.name, value) for p, value in zip(parameters, node.args)][first:]
        if all(p.kind is not p.POSITIONAL_ONLY for p in parameters):
            node.args[first:] = []
            node.keywords = moved + node.keywords
        for k in range(len(node.keywords) - 1, 0, -1):
            j = self.draw(k + 1)
            node.keywords[k], node.keywords[j] = node.keywords[j], node.keywords[k]
        return node

    def value(self, text: str) -> ast.expr:
        if text == "NAME":
            self.names += 1
            text = f"'step {self.names}'" if not self.repeated else "None"
        return ast.parse(text, mode="eval").body


def respelled(text: str, draw: Callable[[int], int], modules: dict[str, ModuleType], hints: dict) -> str:
    return ast.unparse(Spelling(draw, modules, hints).visit(ast.parse(text))) + "\n"
