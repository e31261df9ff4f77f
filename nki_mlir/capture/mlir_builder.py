# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emits nki-level MLIR during an attempt at capturing a kernel: its memory, its operations, its loops and branches."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from nki_mlir.bindings import Module, ir
from nki_mlir.capture.builder import Marks, Memo, Site
from nki_mlir.capture.capture_attempt import UnrollPlan
from nki_mlir.capture.errors import OfAnotherCall, OutOfScope
from nki_mlir.capture.index import Index, Mask, NeedsValue, Symbol
from nki_mlir.capture.iterations import LoopRun
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.loop_state import BlockArguments
from nki_mlir.capture.operands import Operands
from nki_mlir.capture.operation_emitter import OperationEmitter
from nki_mlir.capture.races.hazards import CaptureDependences
from nki_mlir.capture.scope import Scope
from nki_mlir.capture.shared_tensors import SharedTensor
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.capture.waiting_result import WaitingResult, WaitingWriter
from nki_mlir.capture.writes import OutputWrites
from nki_mlir.diagnostics import DeviceRules, KernelError, Location
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.instruction_order import NO_REORDER, marks_by_label
from nki_mlir.dialects.kernel_function import write_signature
from nki_mlir.dialects.late_operations import DelayedOperation, LateValue
from nki_mlir.dialects.nki.movement import TRANSPOSES
from nki_mlir.dialects.op import In, Op, fills
from nki_mlir.machine import DEFAULT_TARGET
from nki_mlir.scalar.dtypes import BOOL, TFLOAT32, UINT8, UINT16, UINT32, DType
from nki_mlir.scalar.predicates import INTEGER_PREDICATES

MARKS = {NO_REORDER: "no_reorder", TRANSPOSES: "transposes"}         # mark -> the builder's property that sets it
NO_MARKS: dict[str, ir.Attribute] = {}


class MlirBuilder(OperationEmitter):
    """Emits the operations of one attempt at capturing a kernel as a function of a module."""

    def __init__(self, function: Callable[..., object], grid: tuple[int, ...], plan: UnrollPlan, point: dict[int, int],
                 target: str = DEFAULT_TARGET) -> None:
        super().__init__(function, grid, plan, target)
        self.point_key = tuple(sorted(point.items()))
        self.point, self.unit = point, ir.UnitAttr.get()
        self.orders = marks_by_label([key[2:] for key in plan.reasons if key[:2] == ("order", self.point_key)])
        self.unproved = 0                   # operations with bounds that a run checks
        self.dependences = CaptureDependences()
        self.outputs: list[Buffer] = []     # the tensors that all programs share
        self.arguments: list[dict[str, Any]] = []         # attributes of the function's arguments
        self.branches: list[tuple[Scope, Scope]] = []
        self.taken_back: dict[Buffer, tuple[object, ...]] = {}
        self.plain_allocation: dict[str, ir.Attribute] = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])}
        self.output_writes = OutputWrites(self, {key[1] for key in plan.reasons if key[0] == "written"})

    # -- memory --------------------------------------------------------------------------------------------------------
    def parameter(self, shape: tuple[int, ...], dtype: DType, name: str, role: str = "input", **marks: object
                  ) -> Buffer:
        """Return the buffer of a new function argument. Arguments keep the order of creation."""
        value = self.scopes[0].block.add_argument(self.make.memref(tuple(shape), dtype, "hbm"), self.unknown)
        self.arguments.append({"nki.name": name, **marks})
        buffer = Buffer(tuple(shape), dtype, "hbm", name, handle=LateValue(value), scope=self.scopes[0], role=role)
        self.touches.shared.append(buffer)
        return buffer

    def allocate(self, shape: tuple[int, ...], dtype: DType, space: str, *, shared: bool = False,
                 partition_dim: int = 0, name: str = "", attributes: Marks | None = None,
                 at: Location | None = None) -> Buffer:
        is_plain, key = not name and not attributes, name
        name = self.new_name(name)
        private = self.new_private() if space == "hbm" and not shared else None
        if shared or (private is not None and ("output", *private) in self.plan.reasons):
            if self.recorder is not None:
                self.recorder.repeatable = False
            number = self.plan.shared.number(self.shared_key(key), shape, dtype, name)
            return self.shared_parameter(number, SharedTensor(shape, dtype, name))
        buffer = Buffer(tuple(shape), dtype, space, name, partition_dim, LateValue(late=self.late), self.scopes[-1],
                        iteration=self.touches.iteration)
        if self.recorder is not None:
            self.recorder.allocated(buffer, is_plain)
        if private is not None:
            self.private[buffer] = private
        named = self.plain_allocation
        if attributes:
            named = named | {k: self.make.value(v) for k, v in attributes.items()}
        self.emit_waiting()
        self.waiting = WaitingResult(buffer, named, location := at or user_location(2), at, not self.replaying)
        if not self.replaying:
            self.track(buffer, attributes, location)
        return buffer

    def shared_parameter(self, number: int, tensor: SharedTensor) -> Buffer:
        """Return the buffer of the argument for a tensor that all programs share."""
        buffer = self.parameter(tensor.shape, tensor.dtype, tensor.name, "output", **{"nki.shared": number})
        buffer.shared = number
        self.outputs.append(buffer)
        return buffer

    def allocate_state(self, shape: tuple[int, ...], dtype: DType, name: str) -> Buffer:
        buffer = Buffer(shape, dtype, "sbuf", name, scope=self.scopes[0])
        self.late.write()
        named = self.plain_allocation | {"nki.name": self.make.value(name)}
        ip = ir.InsertionPoint.at_block_begin(self.scopes[0].block)
        op = self._op("memref.alloc", results=[self.make.memref(shape, dtype, "sbuf")], attributes=named, ip=ip)
        buffer.handle = LateValue(op.results[0])
        self.first_uses.allocated(buffer, zeroed=True)
        self.first_uses.allocations[buffer] = op
        return buffer

    def promote(self, buffer: Buffer) -> None:
        self.requests.setdefault(("output", *self.private[buffer]), "it is returned")
        raise NeedsValue

    def rename(self, buffer: Buffer, name: str) -> None:
        super().rename(buffer, name)
        if buffer.role == "output":
            self.arguments[buffer.handle.value.arg_number]["nki.name"] = name

    def constant(self, array: np.ndarray, dtype: DType) -> Buffer:
        """Return a read-only global of the module. Equal arrays share one; dtypes without MLIR attributes become their
        bytes."""
        flat = np.ascontiguousarray(array).reshape(array.shape)
        if dtype.numpy.isbuiltin != 1 or dtype in (BOOL, TFLOAT32):
            dtype = {1: UINT8, 2: UINT16, 4: UINT32}[dtype.itemsize]
            flat = flat.view(dtype.numpy)
        kind = self.make.memref(flat.shape, dtype, "hbm")
        key = "global", flat.shape, dtype.name, flat.tobytes()
        if key not in self.cache:
            self.cache[key] = name = f"constant_{len(self.module.body.operations) - 1}"
            self._op("memref.global", ip=ir.InsertionPoint.at_block_begin(self.module.body), attributes={
                "sym_name": ir.StringAttr.get(name), "type": ir.TypeAttr.get(kind),
                "initial_value": ir.DenseElementsAttr.get(flat, signless=flat.dtype.kind != "u"),
                "constant": ir.UnitAttr.get(), "sym_visibility": ir.StringAttr.get("private")})
        name = self.cache[key]
        op = self._op("memref.get_global", results=[kind], attributes={"name": ir.FlatSymbolRefAttr.get(name)})
        buffer = Buffer(flat.shape, dtype, "hbm", name, handle=LateValue(op.results[0]), scope=self.scopes[-1])
        self.touches.constant(buffer, flat)
        return buffer

    def program_id(self, axis: int) -> Index | int:
        if axis in self.point:
            return self.point[axis]
        if self.grid[axis] == 1:
            return 0
        if axis not in self.programs:
            value = self.scopes[0].block.add_argument(self.index_type, self.unknown)
            self.arguments.append({"nki.program_id": axis})
            self.programs[axis] = Symbol(f"program_id({axis})", 0, self.grid[axis] - 1, ("program_id", axis),
                                         self, value)
        return Index(0, {self.programs[axis]: 1})

    def reads(self, symbol: Symbol) -> bool:
        """Return whether an operation reads a symbol."""
        return bool(list(symbol.value.uses)) or self.late.reads(symbol.value)

    # -- operations ----------------------------------------------------------------------------------------------------
    def order(self, label: str, producer: str) -> None:
        key = "order", self.point_key, label, producer
        if key not in self.plan.reasons:        # the next attempt marks both instructions
            self.requests.setdefault(key, "instructions are ordered")

    def perform(self, op: Op, operands: Operands, views: Sequence[View], symbols: Sequence[Symbol],
                memo: Memo) -> None:
        scopes, waiting = self.scopes, self.waiting
        for view in views:
            if (buffer := view.buffer) in self.taken_back:
                self.requests.setdefault(self.taken_back[buffer], "the result is also used elsewhere")
                raise NeedsValue
            if buffer.scope not in scopes:
                self.out_of_scope(buffer)
        if (len(scopes) > 1 or self.grid) and not self.accumulating:
            self.dependences.check(op, views, symbols, scopes, self.open_programs())
        if not self.replaying and (
                self.touches.iteration is not None or self.touches.has_several_programs or op.acts_outside):
            self.touches.performed(op, views, symbols, self.accumulating, scopes)
        self.unproved += bool(op.limits) and not self.replaying
        marks: dict[str, ir.Attribute] = {mark: self.unit for mark, of in MARKS.items() if self.properties.get(of)}
        if self.instruction in self.orders:
            marks |= self.orders[self.instruction]
        waits = waiting is not None and waiting.writer is None and views and views[0].buffer is waiting.buffer
        if waiting is not None and waits:
            waiting.writer = WaitingWriter(op, operands, memo, marks, waiting.writer_at or user_location(5), views)
            is_filled = fills(op, operands) and not any([view.buffer is waiting.buffer for view in views[1:]])
            if not is_filled and waiting.stands:
                self.first_uses.allocated(waiting.buffer)
        elif waiting is not None:
            self.emit_waiting()                 # the operation may read the waiting one's result
        self.first_uses.record_operands(op, operands, views, scopes)
        if not waits:
            self.write(op, operands, memo, marks)

    def repeats(self) -> bool:
        is_marked = self.instruction in self.orders or any(map(self.properties.get, MARKS.values()))
        return self.writes_late() and not (self.masking or self.taken_back or is_marked)

    def perform_again(self, op: Op, operands: Operands, views: Sequence[View], memo: Memo, at: Location) -> None:
        self.advance()
        self.memory.record_operands(views)
        scope, opened = self.scopes[0], self.first_uses.open
        unsettled = False                       # whether a later capture may change the first use of a buffer
        for view in views:
            if (buffer := view.buffer).scope is not scope:
                self.out_of_scope(buffer)
            unsettled |= buffer in opened
        if self.grid:
            self.dependences.check(op, views, (), self.scopes, self.open_programs())
        if self.touches.iteration is not None or self.touches.has_several_programs or op.acts_outside:
            self.touches.performed(op, views, (), False, self.scopes)
        waiting = self.waiting
        waits = waiting is not None and waiting.writer is None and views[0].buffer is waiting.buffer
        if waiting is not None and waits:
            waiting.writer = WaitingWriter(op, operands, memo, NO_MARKS, waiting.writer_at or at, views)
            if "fills" not in memo:
                memo["fills"] = fills(op, operands)
            if not memo["fills"] or any([view.buffer is waiting.buffer for view in views[1:]]):
                self.first_uses.allocated(waiting.buffer)
                unsettled = True
        elif waiting is not None:
            self.emit_waiting()
            unsettled = True
        if unsettled:
            self.first_uses.record_operands(op, operands, views, self.scopes)
        if not waits:
            self.late.entries.append(DelayedOperation(op, operands, memo, NO_MARKS, at))
            self.trace.counted += 1
        self.last = op
        for (field, _), view in zip(operands, views):
            if field.role is not In:
                buffer = view.buffer
                buffer.is_written = True
                if buffer.space == HBM:
                    self.wrote(op, buffer, ())

    def wrote(self, op: Op, buffer: Buffer, symbols: Sequence[Symbol]) -> None:
        super().wrote(op, buffer, symbols)
        if buffer.role == "output" and buffer not in self.output_writes.certain:
            self.output_writes.wrote(op, buffer, symbols)

    def out_of_scope(self, buffer: Buffer) -> None:
        """Raise the error for a tensor of a block that has ended, or, after a branch that only program ids decide,
        request their numbers."""
        if not isinstance(buffer.scope, Scope) or buffer.scope.root() != self.scopes[0].root():
            raise OfAnotherCall(name=buffer.name)
        roots = [r for e in buffer.scope.condition for s in e.symbols for r in s.roots()]
        if roots and all(r.key[0] == "program_id" for r in roots):
            for root in roots:
                self.requests.setdefault(root.key, f"the tensor {buffer.name} is created in a branch on it")
            raise NeedsValue
        raise OutOfScope(name=buffer.name, is_parallel=buffer.scope.parallel)

    def open_programs(self) -> list[tuple[int, Symbol | None]]:
        """Return the axes of the grid along which this attempt stands for several programs, with their symbols."""
        if not self.independent_programs:
            return []
        return [(axis, self.programs.get(axis)) for axis, extent in enumerate(self.grid)
                if extent > 1 and axis not in self.point]

    def undo(self, result: View) -> bool:
        """Remove the operation that computed ``result`` if it was the last one, so that it can write elsewhere.

        The result's buffer is removed, too; if the kernel reads it later, capture runs again without undoing this.
        """
        waiting = self.waiting
        key = "result", *user_location(2)[:3]
        if waiting is None or waiting.writer is None or waiting.buffer is not result.buffer or key in self.plan.reasons:
            return False
        self.waiting = self.last = None
        self.taken_back[result.buffer] = key
        self.first_uses.remove_buffer(result.buffer)
        self.memory.undo_allocation(result.buffer)
        return True

    def retarget(self, result: View, target: View, attributes: dict[str, object]) -> bool:
        """Undo the operation that computed ``result`` and perform it with ``target`` as its destination, if one like it
        has been verified; return whether it does."""
        writer = None if self.waiting is None else self.waiting.writer
        tile = target._tile or target.plain_tile()
        if writer is None or tile is None or not target.dims[0].partition:
            return False
        redirected = writer.redirected(tile, self.memos, attributes)
        if redirected is None or not self.undo(result):
            return False
        op, operands, memo = redirected
        self.advance()
        try:
            self.perform_verified(op, operands, [target, *writer.views[1:]], (), memo)
        except KernelError as error:
            raise error.here() from None
        return True

    # -- structure -----------------------------------------------------------------------------------------------------
    def open_loop(self, span: range, site: Site, parallel: bool, name: str) -> Index:
        start, stop = (span.start, span.stop) if span.step == 1 else (0, len(span))
        bounds = [self._constant(start), self._constant(stop), self._constant(1)]
        kind = self.make.value("parallel" if parallel else "sequential")
        op = self._op("scf.for", bounds, regions=1, attributes={"nki.loop": kind})
        block = op.regions[0].blocks.append(self.index_type, arg_locs=[self.unknown])
        self.trace.record(BlockArguments(block.arguments))
        symbol = Symbol(name or f"loop variable of line {site[1]}", span[0], span[-1], site, self,
                        block.arguments[0], span.step)
        self.scopes.append(Scope(block, op, symbol, parallel=parallel, began=self.memory.begin_loop()))
        self.touches.enter(LoopRun(parallel, symbol.name, symbol), None)
        self.last = None
        return Index(0, {symbol: 1})

    @contextmanager
    def open_while(self, register: View, comparison: str, limit: View | int, may_skip: bool = True) -> Iterator[None]:
        """Open a loop that ends by a run-time value of a [1, 1] tile of int32: operations emitted in the ``with``
        block are its body.

        It runs while ``register (comparison) limit`` holds; ``may_skip`` says whether it may run no iteration.
        """
        loop = self._op("scf.while", regions=2)
        before, after = (region.blocks.append() for region in loop.regions)
        self.scopes.append(Scope(before, loop))
        left, right = self._number(register), self._number(limit)
        holds = self._op("arith.cmpi", [left, right], results=[self.make.i1], attributes={
            "predicate": ir.IntegerAttr.get(self.make.i64, INTEGER_PREDICATES[comparison])}).results[0]
        self._op("scf.condition", [holds])
        self.scopes.pop()
        self.scopes.append(Scope(after, loop, may_skip=may_skip, began=self.memory.begin_loop()))
        self.last = None
        yield
        self._terminate()

    def open_if(self, condition: Mask) -> None:
        bits = [self._comparison(expression, equal) for expression, equal in condition.terms]
        while len(bits) > 1:
            bits.append(self._op("arith.andi", [bits.pop(), bits.pop()], results=[self.make.i1]).results[0])
        op = self._op("scf.if", bits, regions=2)
        then, otherwise = (r.blocks.append() for r in op.regions)
        outside = (~condition).facts if len(condition.terms) == 1 else ()
        terms = tuple(e for e, _ in condition.terms)
        first = Scope(then, op, None, condition.facts, terms, holds=condition)
        second = Scope(otherwise, op, None, outside, terms, holds=~condition)
        if condition.negated:
            first.facts, second.facts = Mask(condition.terms).facts, ()
            first.holds, second.holds = second.holds, first.holds
        self.branches.append((second, first) if condition.negated else (first, second))
        self.scopes.append(self.branches[-1][0])
        self.last = None

    def open_else(self) -> None:
        self._terminate()
        self.scopes.append(self.branches[-1][1])

    def close_if(self) -> None:
        self._terminate()
        self.branches.pop()

    def close_loop(self) -> None:
        symbol = self.scopes[-1].symbol
        assert symbol is not None
        symbol.is_open = False
        self.touches.leave()
        self._terminate()

    def _terminate(self) -> None:
        self._op("scf.yield")
        began = self.scopes.pop().began
        if began is not None:
            self.memory.close(began)
        if len(self.scopes) == 1:
            self.trace.clear_entries()
        self.last = None

    def finish(self, results: Sequence[Buffer]) -> Module:
        """Close the function, and return the module. ``nki.results`` has the numbers of the arguments that contain the
        results."""
        allocated = {buffer.shared for buffer in self.outputs}
        for number, tensor in enumerate(self.plan.shared.by_key.values()):
            if number not in allocated:             # only other programs allocate it
                self.shared_parameter(number, tensor)
        self.emit_waiting()
        if self.output_writes.flagged or self.first_uses.zeros:
            self.late.write()
        self.output_writes.check(results)
        self.check_memory()
        if self.late.complete:
            self.late.returns_at = self.defined_at
            self.late.checked = self.rules is not DeviceRules.OFF and not self.breaks_rules
        else:
            self._op("func.return", at=self.defined_at)
        for buffer, allocation in self.first_uses.allocations.items():
            allocation.attributes["nki.name"] = ir.StringAttr.get(buffer.name)
        write_signature(self.function, self.make, self.arguments, self.grid,
                        [r.handle.value.arg_number for r in results])
        self.first_uses.fill(self.make, self.function)
        return self.module
