# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stores past the caches, for outputs that are too large for them: the old contents of a line need not be read first.

The processor has such stores for whole vectors at multiples of their size only. Where the arrays of a call are not
aligned so, ordinary stores are used.
"""

from dataclasses import dataclass, replace

from nki_mlir.bindings import ir
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value
from nki_mlir.targets.cpu.loops import Loops, MemoryUse
from nki_mlir.targets.cpu.schedule import Schedule, schedule
from nki_mlir.targets.cpu.storage import LINE
from nki_mlir.waist.nest import Nest, Operand

SEQUENTIALLY_CONSISTENT = 7         # LLVM's ordering of a fence


@dataclass(frozen=True)
class AddressedNest:
    """A nest, and what is known of its memory. Its arguments are those of the nest; it ``can_stream`` if it streams."""

    nest: Nest
    use: MemoryUse

    @property
    def title(self) -> str:
        return self.nest.title + "_streamed" * self.use.streams + "_ahead" * bool(self.use.ahead)

    def emit(self, code: FunctionEmitter, words: Value) -> None:
        nest, plan = self.nest, schedule(self.nest)
        count, first = len(nest.operands), len(nest.inputs)
        pointers = [code.word(words, k, code.pointer) for k in range(count)]
        symbols = [code.word(words, count + k, code.i64_type) for k in range(nest.symbols)]
        if not self.use.streams:
            Loops(code, nest, plan, symbols, self.use).emit(pointers)
            return
        beyond = code.i64(0)                    # bits that no output's address may have
        for k, output in enumerate(nest.outputs):
            address = code.word(words, first + k, code.i64_type)
            beyond = code.or_(beyond, code.and_(address, _width(output, plan) - 1))
        branch = code.scf.IfOp(code.cmp("eq", beyond, 0), [], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            Loops(code, nest, plan, symbols, self.use).emit(pointers)
            # Other threads may see what they wait for before stores of this kind.
            ir.Operation.create("llvm.fence", attributes={
                "ordering": ir.IntegerAttr.get(code.i64_type, SEQUENTIALLY_CONSISTENT)})
            code.scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            Loops(code, nest, plan, symbols, replace(self.use, streams=False)).emit(pointers)
            code.scf.YieldOp([])


def addressed(nest: Nest, streams: bool, ahead: tuple[tuple[int, int], ...] = ()) -> "Nest | AddressedNest":
    """The nest, with what is known of its memory if that is anything."""
    return AddressedNest(nest, MemoryUse(streams, ahead)) if streams or ahead else nest


def does_stream(routine: object) -> bool:
    return isinstance(routine, AddressedNest) and routine.use.streams


def can_stream(nest: Nest) -> bool:
    """Whether each output is written once, in whole vectors at multiples of their size from where it begins."""
    if nest.reduced or nest.mask:
        return False
    plan = schedule(nest)
    return plan.vector is not None and plan.lanes > 1 and all(
        not nest.uses(nest.first_output + k) and _lies_in_vectors(output, plan)
        for k, output in enumerate(nest.outputs))


def _lies_in_vectors(output: Operand, plan: Schedule) -> bool:
    width = _width(output, plan)
    apart = [step * output.dtype.itemsize for axis, step in enumerate(output.strides) if axis != plan.vector]
    return width >= 16 and output.strides[plan.vector] == 1 and all(             # type: ignore[index]
        step % width == 0 for step in apart)


def _width(output: Operand, plan: Schedule) -> int:
    """Bytes of a vector, or of those that are stored at a time."""
    return min(plan.lanes * output.dtype.itemsize, LINE)
