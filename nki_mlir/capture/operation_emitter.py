# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emits single operations of an attempt at capture: at once, or only when the module is read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nki_mlir.bindings import Attribute, Operation, Type, Value, ir
from nki_mlir.capture.affine import Affine
from nki_mlir.capture.builder import Memo
from nki_mlir.capture.capture_attempt import CaptureAttempt, UnrollPlan
from nki_mlir.capture.index import Index, Symbol
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.operands import Operands
from nki_mlir.capture.scope import Scope
from nki_mlir.capture.tensor import View
from nki_mlir.capture.wrapping import definition_location, name_of
from nki_mlir.capture.writes import FirstUses
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.attributes import Attributes, expression
from nki_mlir.dialects.late_operations import DelayedAllocation, DelayedOperation, LateOperations, named_attributes
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.predicates import INTEGER_PREDICATES


class OperationEmitter(CaptureAttempt):
    """Emits the operations of one function of a module, and the index values and numbers that they read."""

    def __init__(self, function: Callable[..., object], grid: tuple[int, ...], plan: UnrollPlan, target: str) -> None:
        super().__init__(grid, plan, target)
        self.make = Attributes()
        self.first_uses = FirstUses()
        self.cache: dict[object, Any] = {}                # locations and constants
        self.last_at: Location | None = None
        self.last_location: ir.Location | None = None       # location of an operation there
        self.unknown, self.index_type = ir.Location.unknown(), ir.IndexType.get()
        name, self.defined_at = name_of(function), definition_location(function)   # not the caller's
        empty = ir.TypeAttr.get(ir.FunctionType.get([], []))
        self.module = ir.Module.create(self.unknown)
        self.module.operation.attributes["nki.target"] = ir.StringAttr.get(target)
        self.function = self._op("func.func", ip=ir.InsertionPoint(self.module.body), regions=1, at=self.defined_at,
                                 attributes={"sym_name": ir.StringAttr.get(name), "function_type": empty})
        self.scopes = [Scope(self.function.regions[0].blocks.append())]
        self.late = LateOperations(self.make, self.scopes[0].end, self.first_uses.allocations.__setitem__)

    def _op(self, name: str, operands: Sequence[Value] = (), *, results: Sequence[Type] = (),
            attributes: dict[str, Attribute] | None = None, regions: int = 0, ip: ir.InsertionPoint | None = None,
            skip: int = 2, at: Location | None = None) -> Operation:
        """Emit an operation. ``skip`` frames, this one included, are known not to be the kernel's; ``at`` is its
        location, if known."""
        if self.waiting is not None and ip is None and name != "affine.apply":      # no waiting operation uses that one
            self.emit_waiting()
        if ip is None:
            self.late.write()
        at = at or user_location(skip)
        if at is not self.last_at:          # an allocation and its writer are at the same location
            if (location := self.cache.get(at)) is None:
                location = self.cache[at] = ir.Location.file(at.file, at.line, at.column + 1)
            self.last_at, self.last_location = at, location
        op = ir.Operation.create(name, results, operands, attributes, None, regions,
                                 self.last_location, ip or self.scopes[-1].end)
        if ip is None:      # operations that go elsewhere (constants, the function) are not part of a loop body
            if len(self.scopes) > 1:
                self.trace.record(op)
            else:
                self.trace.counted += 1
        return op

    def write(self, op: Op, operands: Operands, memo: Memo, marks: Mapping[str, Attribute], at: Location | None = None
              ) -> None:
        """Emit an operation with these marks."""
        if self.writes_late():
            self.late.entries.append(DelayedOperation(op, operands, memo, marks, at or user_location(5)))
            self.trace.counted += 1
            return
        name, attributes = named_attributes(op, operands, memo, marks, self.make)
        self._op(name, [*[tile.handle.value for _, tile in operands], *op.symbols], attributes=attributes, skip=6,
                 at=at)

    def emit_waiting(self) -> None:
        """Emit the waiting allocation, and the operation that writes it, if there are any."""
        waiting, self.waiting = self.waiting, None
        if waiting is None:
            return
        buffer, at = waiting.buffer, waiting.at
        if waiting.stands and waiting.writer is None:
            self.first_uses.allocated(buffer)
        if self.writes_late():
            self.late.entries.append(DelayedAllocation(buffer, waiting.attributes, at))
            self.trace.counted += 1
            if waiting.writer is not None:
                self.write(*waiting.writer[:-1])
            return
        kind = self.make.memref(buffer.physical_shape, buffer.dtype, buffer.space)
        op = self._op("memref.alloc", (), results=(kind,), attributes=waiting.attributes, at=at)
        buffer.handle.define(op.result)
        if waiting.stands:
            self.first_uses.allocations[buffer] = op
        if waiting.writer is not None:
            self.write(*waiting.writer[:-1])

    def writes_late(self) -> bool:
        """Return whether operations become MLIR only when the module is read: outside of loops and branches, whose
        operations are compared."""
        return len(self.scopes) == 1 and not self.replaying

    def unit_attribute(self) -> object:
        return ir.UnitAttr.get()

    def mark(self) -> int:
        """Emit the waiting operation, and return the position in the trace."""
        self.emit_waiting()
        return self.trace.mark()

    # -- numbers and indices as values ---------------------------------------------------------------------------------
    def _constant(self, value: int) -> Value:
        if ("constant", value) not in self.cache:       # at the function's head, so that every block sees it
            ip = ir.InsertionPoint.at_block_begin(self.scopes[0].block)
            self.cache["constant", value] = self._op("arith.constant", results=[self.index_type], ip=ip, attributes={
                "value": ir.IntegerAttr.get(self.index_type, value)}).results[0]
        constant: Value = self.cache["constant", value]
        return constant

    def _number(self, value: View | int) -> Value:
        """Emit the load of a 32-bit number from a tile, or a constant."""
        kind = ir.IntegerType.get_signless(32)
        if isinstance(value, View):
            zero = self._constant(0)
            self.emit_waiting()                 # before its value is read
            return self._op("memref.load", [value.buffer.handle.value, zero, zero], results=[kind]).results[0]
        number = ir.IntegerAttr.get(kind, value)
        return self._op("arith.constant", results=[kind], attributes={"value": number}).results[0]

    def _value(self, index: Affine) -> Value:
        """Emit an index as an SSA value, for conditions."""
        symbols = self.symbols_of([index])
        form = index.linear({s: k for k, s in enumerate(symbols)})
        total = self._constant(form.const)
        for position, c in form.symbols:
            scaled = self._op("arith.muli", [symbols[position].value, self._constant(c)], results=[self.index_type])
            total = self._op("arith.addi", [total, scaled.results[0]], results=[self.index_type]).results[0]
        return total

    def _comparison(self, expression: Affine, equal: bool) -> Value:
        predicate = ir.IntegerAttr.get(self.make.i64, INTEGER_PREDICATES["eq" if equal else "sge"])
        return self._op("arith.cmpi", [self._value(expression), self._constant(0)], results=[self.make.i1],
                        attributes={"predicate": predicate}).results[0]

    def derive(self, kind: str, index: Index, divisor: int) -> Index:
        """Emit ``index // divisor`` or ``index % divisor``, and return it as a symbol."""
        symbols = self.symbols_of([index])
        dividend = expression(index.linear({s: k for k, s in enumerate(symbols)}))
        make = ir.AffineExpr.get_floor_div if kind == "floordiv" else ir.AffineExpr.get_mod
        affine = ir.AffineMapAttr.get(ir.AffineMap.get(0, len(symbols), [make(dividend, divisor)]))
        op = self._op("affine.apply", [s.value for s in symbols], results=[self.index_type], attributes={"map": affine})
        low, high = index.interval()
        least, greatest = (low // divisor, high // divisor) if kind == "floordiv" else (0, divisor - 1)
        name = f"({index}) {'//' if kind == 'floordiv' else '%'} {divisor}"
        symbol = Symbol(name, least, greatest, symbols[0].key, self, op.results[0], parents=tuple(symbols),
                        formula=(index, kind, divisor))
        return Index(0, {symbol: 1})
