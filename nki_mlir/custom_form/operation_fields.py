# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of an operation's custom form, read from its class: all classes share one form.

A tile operation is ``NAME FUNCTION WRITTEN = READ where MASK limits LIMITS symbols(VALUES) {ATTRIBUTES}``, any other
operation of our dialects ``NAME FUNCTION OPERANDS {ATTRIBUTES} -> TYPE``. The function is the attribute ``fn`` or
``op``; attributes come in the order of the class; the form leaves out attributes with their default value.
"""

import re
from dataclasses import dataclass
from functools import cache, cached_property
from inspect import get_annotations
from typing import Any, get_origin

from nki_mlir.bindings import ext, ir
from nki_mlir.dialects import catalog
from nki_mlir.dialects.attributes import Nki
from nki_mlir.dialects.isa.module import Isa
from nki_mlir.dialects.mlir_ops import Nisa
from nki_mlir.dialects.op import REGISTRY, Op, TileField
from nki_mlir.dialects.scalar.ops import Scalar

DIALECTS = ("nki", "nisa", "scalar", "isa")
FUNCTIONS = ("fn", "op")
VIEW, BUFFER = "nki.view", "nki.buffer"
DENSE = re.compile(r"array<i64(?::\s*([\d,\s]*))?>")      # dims of a view, which the custom form has in brackets


@dataclass(frozen=True)
class TileForm:
    """The form of a tile operation."""

    cls: type[Op]

    @property
    def function(self) -> str | None:
        """The attribute that is written after the operation's name."""
        return next((n for n in FUNCTIONS if self.cls.attributes.get(n) is str and n not in self.cls.defaults), None)

    @property
    def targets(self) -> list[TileField]:
        return [f for f in self.cls.tiles if f.writes]

    @property
    def sources(self) -> list[TileField]:
        return [f for f in self.cls.tiles if not f.writes]

    @cached_property
    def defaults(self) -> dict[str, object]:
        """The values of attributes that the text leaves out: those of the class, and false for booleans without one."""
        return {name: False for name, kind in self.cls.attributes.items() if kind is bool} | self.cls.defaults

    @property
    def listed(self) -> dict[str, type]:
        """The attributes in braces, by kind."""
        return {name: kind for name, kind in self.cls.attributes.items() if name != self.function}


@dataclass(frozen=True)
class PlainForm:
    """The form of an operation of the bindings' classes: its operands in order, then its attributes."""

    name: str
    attributes: tuple[str, ...]
    results: int
    has_region: bool
    strings: frozenset[str]             # the attributes that are strings
    about: str                          # the first paragraph of the class's description

    @cached_property
    def function(self) -> str | None:
        return next((n for n in FUNCTIONS if n in self.attributes), None)


def form_of(name: str) -> TileForm | PlainForm | None:
    """Return the form of an operation, or None if our dialects have no operation of that name."""
    catalog.load()
    cls = REGISTRY.get(name)
    return _plain_forms().get(name) if cls is None else TileForm(cls)


def operation_names() -> list[str]:
    """Return the names of all operations of our dialects."""
    catalog.load()
    return sorted((*REGISTRY, *_plain_forms()))


@cache
def _plain_forms() -> dict[str, PlainForm]:
    return {cls.OPERATION_NAME: _plain(cls) for dialect in (Nki, Nisa, Scalar, Isa) for cls in _operations(dialect)}


def _operations(dialect: Any) -> list[Any]:
    """Return the classes of a dialect's operations that have a name."""
    classes, waiting = [], list(dialect.Operation.__subclasses__())
    while waiting:
        cls = waiting.pop(0)
        waiting += cls.__subclasses__()
        if getattr(cls, "OPERATION_NAME", "").startswith(f"{dialect.DIALECT_NAMESPACE}."):
            classes.append(cls)
    return classes


def _plain(cls: Any) -> PlainForm:
    annotations: dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        annotations |= get_annotations(owner)
    attributes = tuple(name for name, kind in annotations.items() if _is_attribute(kind))
    results = sum(ext.Result in (kind, get_origin(kind)) for kind in annotations.values())
    strings = frozenset(name for name in attributes if annotations[name] is ir.StringAttr)
    return PlainForm(cls.OPERATION_NAME, attributes, results, ext.Region in annotations.values(), strings,
                     first_paragraph(cls))


def first_paragraph(cls: type) -> str:
    """Return the first paragraph of a class's description, as Markdown in one line."""
    paragraph = cls.__dict__.get("__doc__") or next((base.__doc__ for base in cls.__mro__ if base.__doc__), None) or ""
    return " ".join(paragraph.strip().split("\n\n")[0].replace("``", "`").split())


def _is_attribute(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ir.Attribute)
