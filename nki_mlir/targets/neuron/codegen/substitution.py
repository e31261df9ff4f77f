# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers in place of an operation's symbols."""

from collections.abc import Sequence
from typing import Any

from nki_mlir.dialects.access import Access, Constraint, Linear, Mask, Tile
from nki_mlir.dialects.op import Op, changed
from nki_mlir.targets.neuron.codegen.records import Computed, Value, value_range


def with_values(op: Op, symbols: Sequence[Value]) -> Op:
    """The operation with numbers in place of symbols; what is left is numbered anew, in the order given."""
    parts = [plus_number(symbol) for symbol in symbols]
    left: dict[Any, int] = {}
    for base, _ in parts:
        if base is not None:
            left.setdefault(base, len(left))

    def put(form: Linear) -> Linear:
        const, terms = form.const, dict[int, int]()
        for position, c in form.symbols:
            base, number = parts[position]
            const += c * number
            if base is not None:
                terms[left[base]] = terms.get(left[base], 0) + c
        return Linear(const, tuple(sorted((k, c) for k, c in terms.items() if c)), form.axes)

    def put_tile(tile: Tile) -> Tile:
        a = tile.access
        if not a.free.symbols and (a.partition is None or not a.partition.symbols):
            return tile
        access = Access(a.dtype, None if a.partition is None else put(a.partition), put(a.free), a.dims)
        return Tile(tile.handle, tile.space, tile.base_shape, tile.base_dtype, access, tile.label)

    def put_mask(mask: Mask) -> Mask:
        return tuple(Constraint(put(c.form), c.equal) for c in mask)

    fields: dict[str, Any] = {name: put(getattr(op, name)) for name, kind in op.attributes.items() if kind is Linear}
    return changed(op, put_tile, symbols=tuple(left), ranges=tuple(value_range(s) for s in left),
                   mask=put_mask(op.mask), limits=put_mask(op.limits), **fields)


def plus_number(value: Value) -> tuple[Value | None, int]:
    """A value as what a register holds (None: nothing) plus a number."""
    match value:
        case int():
            return None, value
        case Computed("add", lhs, int(number)):
            base, more = plus_number(lhs)
            return base, number + more
    return value, 0
