# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attributes of kernels beside their fields: those that users set, and those that follow from the fields.

One is the copy of a kernel for its last launch grid: a loop that launches a kernel mostly does so on the same grid.
"""

import operator
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import NamedTuple, TypeVar

T = TypeVar("T")

_changes = 0                    # how often users have set an attribute of a kernel


def takes_attributes(kernel_class: type[T]) -> type[T]:
    """Return a frozen dataclass whose objects take attributes beside the fields, as functions do."""
    names = frozenset(part.name for part in fields(kernel_class))                   # type: ignore[arg-type]

    def set_attribute(kernel: object, name: str, value: object) -> None:
        global _changes
        if name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(kernel, name, value)
        _changes += 1
    kernel_class.__setattr__ = set_attribute                                        # type: ignore[method-assign]
    return kernel_class


class LastLaunch(NamedTuple):
    """The copy of a kernel for a launch grid. It has the attributes that users had set ``changes`` times."""

    grid: tuple[int, ...]
    kernel: object
    changes: int

    def serves(self, grid: object) -> bool:
        """Return whether the copy is still that of this grid: the same integers, since True and 2.0 equal some."""
        return type(grid) is tuple and self.changes == _changes and len(grid) == len(self.grid) and all(
            map(operator.is_, grid, self.grid))


def launch_of(grid: object, kernel: object) -> LastLaunch | None:
    """Return the launch to keep for a grid; None where it is not a tuple of integers."""
    return LastLaunch(grid, kernel, _changes) if type(grid) is tuple and {*map(type, grid)} == {int} else None


class Derived:
    """Attributes that a kernel derives from its fields, once; and its last launch."""

    __name__: str
    __wrapped__: Callable[..., object]
    fixed: tuple[object, ...]
    identity: str
    last_launch: LastLaunch | None
