# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What differs between the two packages, and what their functions get from the table of signatures.

Functions are written with the names of their newest signature and without its defaults, which are the table's.
"""

import ast
import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING

from nki_mlir.diagnostics import InternalError, KernelError, NkiMlirError
from nki_mlir.language.signatures import in_use
from nki_mlir.language.signatures.kinds import GenerationValues, ParameterKind
from nki_mlir.language.signatures.table import Signature, signatures

if TYPE_CHECKING:
    from nki_mlir.language.signatures.binding import BindingForm, Function

PLACED, KEYWORD_ONLY = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY


class Generation(ABC):
    """What differs between the two packages: what values are, and how errors read."""

    def __init__(self, name: str, names: dict[str, object]) -> None:
        """``names``: what defaults of the table name; a string is a module's name."""
        self.name, self.names, self.values = name, names, GenerationValues()
        self.defaults: dict[str, object] = {}

    def default(self, text: str) -> object:
        """The value of a default as the table writes it."""
        if text not in self.defaults:
            try:
                self.defaults[text] = ast.literal_eval(text)
            except ValueError:
                first, *rest = text.split(".")
                held = self.names[first]
                self.defaults[text] = reduce(getattr, rest, importlib.import_module(held) if isinstance(held, str)
                                             else held)
        return self.defaults[text]

    @abstractmethod
    def word(self, kind: ParameterKind) -> str:
        """What messages call the values of a kind; "" where functions themselves say what is wrong."""

    @abstractmethod
    def refuse(self, function: "Function", parameter: str, kind: ParameterKind, value: object) -> None:
        """Raise what is wrong with a value; return where the function itself says it."""

    @abstractmethod
    def unbound(self, function: "Function", text: str) -> NkiMlirError:
        """The error of arguments that bind to no signature."""

    def translated(self, error: KernelError) -> Exception:
        """An error of the core as this generation's."""
        return error

    @abstractmethod
    def cross(self, function: "Function", form: "BindingForm", arguments: dict[str, object]) -> object:
        """A call in a form of the other generation."""

    @abstractmethod
    def report(self, text: str) -> None:
        """Tell of a form that the newest release does not have."""


def signature_of(newest: Signature, generation: Generation, without: str = "") -> inspect.Signature:
    """A signature of the table as Python's, without a parameter that is not the function's."""
    return inspect.Signature([inspect.Parameter(
        p.name, KEYWORD_ONLY if p.keyword_only else PLACED,
        default=inspect.Parameter.empty if p.default is None else generation.default(p.default))
        for p in newest.parameters if p.name != without])


def with_defaults(function: Callable[..., object], name: str, generation: Generation) -> None:
    """Give a function the defaults of its newest signature. Where that has none, it may have one itself."""
    newest = signatures(name, generation.name)[:1]
    defaults = {p.name: p.default for s in newest for p in s.parameters if p.default is not None}
    table = {n: generation.default(text) for n, text in (in_use.LEFT_OUT.get(name, {}) | defaults).items()}
    code = function.__code__
    names = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    placed, named = names[:code.co_argcount], names[code.co_argcount:]
    own = dict(zip(reversed(placed), reversed(function.__defaults__ or ()))) | (function.__kwdefaults__ or {})
    if differ := [n for n in own if n in table and own[n] != table[n]]:
        raise InternalError(f"{name} has defaults of {', '.join(differ)} that are not those of the table")
    every = table | own
    function.__defaults__ = tuple(every[n] for n in placed if n in every)
    function.__kwdefaults__ = {n: every[n] for n in named if n in every}
