# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which structured operations compute the same on other views, so that they are read once."""

from collections.abc import Hashable, Sequence
from typing import Any

from nki_mlir.bindings import Operation, Value, ir


def structure_key(op: Operation, operands: Sequence[Value]) -> Hashable | None:
    """Equal for operations of equal attributes, operand types and bodies. None where numbers count among the operands,
    or the body uses what is outside of it: what those are is not part of a type.
    """
    types = [value.type for value in operands]
    if not all([isinstance(kind, ir.MemRefType) for kind in types]):
        return None
    place = {argument: k for k, argument in enumerate(op.regions[0].blocks[0].arguments)}
    body: list[Any] = []

    def visit(inner: Any) -> Any:
        if inner != op:
            body.append((inner.name, *inner.attributes.items(), *[place.get(value) for value in inner.operands]))
            for result in inner.results:
                place[result] = len(place)
                body.append(result.type)
        return ir.WalkResult.ADVANCE
    op.walk(visit, ir.WalkOrder.PRE_ORDER)
    if any([None in step for step in body if type(step) is tuple]):
        return None
    return (*types, *op.attributes.items(), *body)
