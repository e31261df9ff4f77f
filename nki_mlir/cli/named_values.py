# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of ``--arg`` that name what the kernel's file defines: ``mode=Mode.ADD``, ``config=Config(rows=64)``.

They are parsed before the file is loaded, and computed from the names of the file afterwards: attributes of modules and
classes, and calls of classes that hold data. No other function is called.
"""

import ast
import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeGuard

from nki_mlir.cli.command import CommandLineError
from nki_mlir.similar_names import nearest

if TYPE_CHECKING:
    from nki_mlir.language.kernel import Kernel

NODES = (ast.Expression, ast.Name, ast.Load, ast.Attribute, ast.Call, ast.keyword, ast.Constant, ast.Tuple, ast.List,
         ast.Dict, ast.UnaryOp, ast.USub)


class BadNamedValue(CommandLineError):
    code = "NKI-ARG-NAME"
    message = "--arg {text}: {what}"
    fix = "name what the kernel's file defines or imports, for example --arg mode=Mode.ADD or --arg config=Config(4)"


@dataclass(frozen=True)
class NamedValue:
    """An expression over the names of the kernel's file."""

    text: str

    def value(self, names: Mapping[str, object]) -> object:
        """Return the value of the expression. Raise ``BadNamedValue``."""
        return self._value(ast.parse(self.text, mode="eval").body, names)

    def _value(self, node: ast.AST, names: Mapping[str, object]) -> object:
        match node:
            case ast.Name(id=name):
                return self._member(name, names, "the kernel's file")
            case ast.Attribute(value=owner, attr=name):
                holder = self._value(owner, names)
                members = vars(holder) if isinstance(holder, ModuleType) else {n: n for n in dir(holder)}
                self._member(name, members, ast.unparse(owner))
                return getattr(holder, name)
            case ast.Call(func=function, args=positional, keywords=keywords):
                kind = self._value(function, names)
                if not _holds_data(kind):
                    raise self._error(f"{ast.unparse(function)} is not a class of an enum, a dataclass, a named tuple "
                                      "or an NKIObject")
                try:
                    return kind(*(self._value(a, names) for a in positional),
                                **{str(k.arg): self._value(k.value, names) for k in keywords})
                except (TypeError, ValueError, AssertionError) as error:
                    raise self._error(str(error) or type(error).__name__) from None
            case ast.Tuple(elts=elements):
                return tuple(self._value(e, names) for e in elements)
            case ast.List(elts=elements):
                return [self._value(e, names) for e in elements]
            case ast.Dict(keys=keys, values=values):
                try:
                    return {self._value(k, names): self._value(v, names) for k, v in zip(keys, values) if k is not None}
                except TypeError as error:              # a key that has no hash
                    raise self._error(str(error)) from None
            case ast.UnaryOp(operand=ast.Constant(value=int() | float() | complex() as number)):
                return -number
            case ast.Constant(value=constant):
                return constant
            case _:
                raise self._error(f"{ast.unparse(node)} is not the negative of a number")

    def _member(self, name: str, members: Mapping[str, object], owner: str) -> object:
        if name not in members:
            suggestion = nearest(name, members)
            raise self._error(f"{owner} has no name '{name}'" + (f"; did you mean {suggestion}?" if suggestion else ""))
        return members[name]

    def _error(self, reason: str) -> BadNamedValue:
        return BadNamedValue(text=self.text if len(self.text) < 100 else f"{self.text[:80]}...", what=reason)


def _holds_data(kind: object) -> TypeGuard[Callable[..., object]]:
    """Return whether a call of a value creates an object that only holds data."""
    from nki_mlir.language.kernel_object import NKIObject  # start-up: loads the language
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, enum.Enum | NKIObject)
                                       or (issubclass(kind, tuple) and hasattr(kind, "_fields")))


def named_value(text: str) -> NamedValue | None:
    """Return the text as an expression that reads attributes or calls classes; None for another text."""
    try:
        nodes = [*ast.walk(ast.parse(text, mode="eval"))]
    except (ValueError, SyntaxError, RecursionError, MemoryError):      # the parser raises the last two on deep nesting
        return None
    if not all(isinstance(n, NODES) for n in nodes) or any(
            (isinstance(n, ast.Attribute) and n.attr.startswith("_")) or (isinstance(n, ast.keyword) and n.arg is None)
            or (isinstance(n, ast.Dict) and None in n.keys) for n in nodes):
        return None
    return NamedValue(text) if any(isinstance(n, ast.Attribute | ast.Call) for n in nodes) else None


def with_values(kernel: "Kernel", positional: Iterable[object], keywords: Mapping[str, object]
                ) -> tuple[list[object], dict[str, object]]:
    """Return the arguments of a kernel, in which values replace the expressions over the names of its file."""
    from nki_mlir.capture.wrapping import underlying  # start-up: loads MLIR
    names = getattr(underlying(kernel.func), "__globals__", {})

    def computed(argument: object) -> object:
        return argument.value(names) if isinstance(argument, NamedValue) else argument
    return [computed(a) for a in positional], {name: computed(a) for name, a in keywords.items()}


def refuse_names(arguments: Iterable[object]) -> None:
    """Raise ``BadNamedValue`` if an argument names what a kernel's file defines: modules and streams have no names."""
    for argument in arguments:
        if isinstance(argument, NamedValue):
            raise BadNamedValue(text=argument.text[:80], what="only a kernel takes it, not a module or streams")
