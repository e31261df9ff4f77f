# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results that wait: an allocation and the operation that writes it are emitted only when another operation follows,
since an assignment that follows at once may redirect them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nki_mlir.bindings import Attribute
from nki_mlir.capture.builder import Memo
from nki_mlir.capture.operands import Operands, form_of
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import Op


class WaitingWriter(NamedTuple):
    """The operation that writes the waiting allocation, with its marks and its operands' views."""

    op: Op
    operands: Operands
    memo: Memo
    marks: Mapping[str, Attribute]
    at: Location
    views: Sequence[View]

    def redirected(self, tile: Tile, memos: Mapping[tuple[object, ...], Memo], attributes: dict[str, object]
                   ) -> "tuple[Op, Operands, Memo] | None":
        """Return the operation with another destination, its operands and its memo; None unless an operation of that
        form, without mask, limits and symbols, has been verified."""
        cls, ((field, _), *sources) = type(self.op), self.operands
        if not self.memo or self.op.symbols or cls.has_linear_attributes:
            return None
        operands, key = [(field, tile), *sources], ("to", tile._form or tile.form)
        memo = self.memo.get(key)
        if memo is None:
            memo = memos.get(form_of(cls, operands, attributes))
            if memo is None or "apart" not in memo:
                return None
            self.memo[key] = memo
        op = object.__new__(cls)
        op.__dict__ = fields = memo["fields"].copy()
        for field, operand in operands:
            fields[field.name] = operand
        return op, operands, memo


@dataclass(eq=False, slots=True)
class WaitingResult:
    """An allocation and the operation that writes it, not yet emitted.

    ``writer_at``: the writer's location, if known before. ``stands`` is False in a replay, whose operations are erased.
    """

    buffer: Buffer
    attributes: dict[str, Attribute]
    at: Location
    writer_at: Location | None
    stands: bool
    writer: WaitingWriter | None = None
