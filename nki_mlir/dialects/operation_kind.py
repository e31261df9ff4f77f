# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One object for each class with equal attributes, which makes the keys of passes short."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

KIND = "_kind"                  # the field of an operation that has its kind, once known


class OperationKind:
    """The common properties of the operations of one class with equal attributes (``Op.kind``). ``on_engines``: the
    kinds of the same operations on other engines, by the engine's name."""

    __slots__ = ("on_engines",)

    def __init__(self) -> None:
        self.on_engines: dict[str, OperationKind] = {}


@lru_cache(1 << 16)
def kind_of(key: Hashable) -> OperationKind:
    """Return the kind of operations with that class and those keys of attributes (``same_value``)."""
    return OperationKind()


def same_value(value: Any) -> Hashable:
    """Return a key that is equal for identical values. Equal numbers may differ: 1 and True, 0.0 and -0.0."""
    kind = type(value)
    if kind is str:
        text: str = value
        return text
    return kind, value if kind in (float, bool, int) and value > 0 else repr(value)
