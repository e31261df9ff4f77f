# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stores past the caches, for outputs that are too large for them: the old contents of a line need not be read first.

The processor has such stores for whole vectors at multiples of their size only. Where the arrays of a call are not
aligned so, ordinary stores are used.
"""

from dataclasses import dataclass

from nki_mlir.bindings import ir
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value
from nki_mlir.targets.cpu.loops import Loops
from nki_mlir.targets.cpu.schedule import Schedule, schedule
from nki_mlir.waist.nest import Nest, Operand

SEQUENTIALLY_CONSISTENT = 7         # LLVM's ordering of a fence


@dataclass(frozen=True)
class Streamed:
    """A nest on memory that no cache holds. Its arguments are those of the nest.

    ``stores``: its outputs go past the caches; it is one that ``can_stream``. ``ahead``: of inputs, by their numbers,
    what lies so many bytes further on is asked for while they are read.
    """

    nest: Nest
    stores: bool = True
    ahead: tuple[tuple[int, int], ...] = ()

    @property
    def title(self) -> str:
        return f"{self.nest.title}_streamed"

    def emit(self, code: FunctionEmitter, words: Value) -> None:
        nest, plan = self.nest, schedule(self.nest)
        count, first = len(nest.operands), len(nest.inputs)
        pointers = [code.word(words, k, code.pointer) for k in range(count)]
        symbols = [code.word(words, count + k, code.i64_type) for k in range(nest.symbols)]
        if not self.stores:
            Loops(code, nest, plan, symbols, ahead=dict(self.ahead)).emit(pointers)
            return
        beyond = code.i64(0)                    # bits that no output's address may have
        for k, output in enumerate(nest.outputs):
            address = code.word(words, first + k, code.i64_type)
            beyond = code.or_(beyond, code.and_(address, _width(output, plan) - 1))
        branch = code.scf.IfOp(code.cmp("eq", beyond, 0), [], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            Loops(code, nest, plan, symbols, streams=True, ahead=dict(self.ahead)).emit(pointers)
            # Other threads may see what they wait for before stores of this kind.
            ir.Operation.create("llvm.fence", attributes={
                "ordering": ir.IntegerAttr.get(code.i64_type, SEQUENTIALLY_CONSISTENT)})
            code.scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            Loops(code, nest, plan, symbols, ahead=dict(self.ahead)).emit(pointers)
            code.scf.YieldOp([])


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
    """Bytes of a vector."""
    return plan.lanes * output.dtype.itemsize
