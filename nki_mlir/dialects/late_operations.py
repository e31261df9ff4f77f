# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Allocations and operations of a function that become MLIR only when something reads the function.

A kernel whose Python runs its loops has thousands of operations in a single block. Instruction streams are compiled
from their records, so that for streams alone no MLIR is written.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, final

from nki_mlir.bindings import Attribute, Operation, Value, ir
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.mlir_ops import op_attributes
from nki_mlir.dialects.op import Op, TileField
from nki_mlir.scalar.dtypes import DType


class LateValue:
    """The SSA value of a buffer. It is written, with everything before it, when it is read; it is None while its
    allocation waits for an operation."""

    __slots__ = ("_late", "_value")

    def __init__(self, value: Value | None = None, late: "LateOperations | None" = None) -> None:
        self._value, self._late = value, late

    @property
    def value(self) -> Any:
        if self._value is None and self._late is not None:
            self._late.write()
        return self._value

    def define(self, value: Value) -> None:
        self._value, self._late = value, None


class NamedBuffer(Protocol):
    """A buffer as far as its allocation shows it. Its name may change until the function is complete."""

    name: str
    dtype: DType
    space: str
    handle: Any

    @property
    def physical_shape(self) -> tuple[int, ...]: ...


@final
class DelayedAllocation(NamedTuple):
    buffer: NamedBuffer
    attributes: dict[str, Attribute]
    at: Location


@final
class DelayedOperation(NamedTuple):
    """An operation on buffers whose handles are ``LateValue``. ``memo`` is shared by operations that differ only in
    their buffers and in the starts of their tiles; the memo of others is empty."""

    op: Op
    operands: Sequence[tuple[TileField, Tile]]
    memo: dict[Any, Any]
    marks: Mapping[str, Attribute]
    at: Location


def named_attributes(op: Op, operands: Sequence[tuple[TileField, Tile]], memo: dict[Any, Any],
                     marks: Mapping[str, Attribute], make: Attributes) -> tuple[str, dict[str, Attribute]]:
    """Return the name and the attributes of an operation, whose ``memo`` has those that do not depend on its tiles."""
    count = len(op.symbols)
    if (of_form := memo.get(count)) is None:
        of_form = memo[count] = op.full_name(), op_attributes(op, make, operands)
    return of_form[0], {**of_form[1], "access": make.accesses([tile for _, tile in operands], count),
                        **marks}


class LateOperations:
    """The entries at the end of a function's block that are not MLIR yet. ``wrote`` is called with each buffer that is
    allocated in MLIR. ``complete``: the entries are all operations of the function. ``checked``: they break no rule of
    the target on which the documents agree."""

    def __init__(self, make: Attributes, end: ir.InsertionPoint, wrote: Callable[[Any, Operation], None]) -> None:
        self.make, self.end, self.wrote = make, end, wrote
        self.entries: list[DelayedAllocation | DelayedOperation] = []
        self.complete, self.checked = True, False
        self.returns_at: Location | None = None         # where the function is defined, once it is complete
        self.locations: dict[Location, ir.Location] = {}

    def write(self) -> None:
        """Write the entries, and the end of a function that is complete. If that is interrupted, such a function has no
        operations again, and is written when it is read the next time."""
        entries, returns_at = self.entries, self.returns_at
        try:
            self.write_entries()
        except BaseException:
            if returns_at is not None:
                for written in reversed([*self.end.block.operations]):
                    written.operation.erase()
                self.entries, self.complete, self.returns_at = entries, True, returns_at
            raise

    def write_entries(self) -> None:
        entries, self.entries, self.complete = self.entries, [], False
        named: dict[str, Attribute] = {}
        for entry in entries:
            if type(entry) is DelayedOperation:
                self.write_operation(entry)
                continue
            op = self.write_allocation(entry, named, self.location(entry.at), self.end)
            entry.buffer.handle.define(op.result)
            self.wrote(entry.buffer, op)
        if self.returns_at is not None:
            ir.Operation.create("func.return", loc=self.location(self.returns_at), ip=self.end)
            self.returns_at = None

    def write_allocation(self, entry: DelayedAllocation, named: dict[str, Attribute], location: ir.Location,
                         end: ir.InsertionPoint) -> Operation:
        """Write an allocation. ``named`` memoizes the attributes of names."""
        buffer, attributes, _ = entry
        if (name := named.get(buffer.name)) is None:
            name = named[buffer.name] = ir.StringAttr.get(buffer.name)
        return ir.Operation.create("memref.alloc", [self.make.memref(buffer.physical_shape, buffer.dtype,
                                   buffer.space)], (), attributes | {"nki.name": name}, None, 0, location, end)

    def write_operation(self, late: DelayedOperation) -> None:
        values = [tile.handle.value for _, tile in late.operands]
        self.write_on(late, [*values, *late.op.symbols], self.location(late.at), self.end)

    def write_on(self, late: DelayedOperation, values: Sequence[Value], location: ir.Location, end: ir.InsertionPoint
                 ) -> None:
        """Write an operation with these operands."""
        name, attributes = named_attributes(late.op, late.operands, late.memo, late.marks, self.make)
        ir.Operation.create(name, (), values, attributes, None, 0, location, end)

    def reads(self, value: Value) -> bool:
        """Return whether an operation that is not MLIR yet reads a symbol's value."""
        return any(value in entry.op.symbols for entry in self.entries if type(entry) is DelayedOperation)

    def location(self, at: Location) -> ir.Location:
        if (location := self.locations.get(at)) is None:
            location = self.locations[at] = ir.Location.file(at.file, at.line, at.column + 1)
        return location
