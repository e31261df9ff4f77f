# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Resolves chains of views: the buffer behind a view, and how far after the buffer's start the view begins."""


from typing import NamedTuple

from nki_mlir.analysis.effects import RESHAPES, defining
from nki_mlir.bindings import Value, ir
from nki_mlir.dialects.view import start_of


class Start(NamedTuple):
    """The beginning of a view: the buffer, a constant offset in elements, and values with their factors."""

    buffer: ir.Value
    offset: int = 0
    terms: tuple[tuple[Value, int], ...] = ()


def start_in_buffer(value: Value) -> Start:
    """Return where a memref value lies: its buffer, and its start in elements of it, constant and per symbol."""
    op = defining(value)
    if op is None:
        return Start(value)
    name = op.name
    if name in RESHAPES and name != "nki.reinterpret":
        return start_in_buffer(op.operands[0])
    if name not in ("nki.view", "memref.subview", "memref.reinterpret_cast"):
        return Start(value)
    offset, terms = start_of(op)
    if name == "nki.view":
        return Start(op.operands[0], offset, tuple(terms))
    source = start_in_buffer(op.operands[0])
    if name == "memref.reinterpret_cast":                       # its offset counts from the start of the buffer
        source = Start(source.buffer)
    return Start(source.buffer, source.offset + offset, (*source.terms, *terms))
