# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that return the tiles of an operation from the dict of its fields: passes call them for each instruction,
several times."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

FieldValues: TypeAlias = Callable[[dict[str, Any]], Sequence[Any]]
AccessedTiles: TypeAlias = Callable[[dict[str, Any]], tuple[Sequence[Any], Sequence[Any]]]


def values_at(names: tuple[str, ...]) -> FieldValues:
    """Return a function that returns the values of a dict at these names."""
    if len(names) == 1:
        name, = names
        return lambda values: (values[name],)
    return itemgetter(*names) if names else lambda values: ()


def accessed_at(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> AccessedTiles:
    """Return a function that returns the values of a dict at the names of inputs, and those at the names of outputs.
    Most operations write one tile."""
    reads, writes = values_at(inputs), values_at(outputs)
    if len(outputs) != 1:
        return lambda values: (reads(values), writes(values))
    output, = outputs
    if len(inputs) != 1:
        return lambda values: (reads(values), (values[output],))
    name, = inputs
    return lambda values: ((values[name],), (values[output],))
