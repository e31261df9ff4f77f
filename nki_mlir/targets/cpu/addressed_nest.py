# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nests with facts about the memory of their operands: outputs of streaming stores, inputs to prefetch.

Outputs that exceed the caches are written by streaming stores, for which the processor does not load a line first.
These stores write only whole vectors at multiples of their size. If the arrays of a call are not aligned in this way,
ordinary stores are used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from nki_mlir.bindings import Type, ir
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value
from nki_mlir.targets.cpu.loops import Loops, MemoryUse, stored_bytes
from nki_mlir.targets.cpu.schedule import Schedule, schedule
from nki_mlir.waist.nest import Nest, Operand

SEQUENTIALLY_CONSISTENT = 7         # LLVM's ordering of a fence


@dataclass(frozen=True)
class AddressedNest:
    """A nest with facts about its memory, and the forms that its code has (``code_forms.py``). Its arguments are the
    nest's. If it has streaming stores, ``can_stream`` holds for it."""

    nest: Nest
    use: MemoryUse
    forms: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.nest.title + "_streamed" * bool(self.use.streams) + "_ahead" * bool(self.use.ahead) + (
            "_words" * ("words" in self.forms))

    def emit(self, code: FunctionEmitter, words: Value) -> None:
        nest, plan = self.nest, schedule(self.nest)
        count, first_output = len(nest.operands), len(nest.inputs)
        pointers = [code.word(words, k, code.pointer) for k in range(count)]
        symbols = [code.word(words, count + k, code.i64_type) for k in range(nest.symbols)]
        code.selects_from_16, code.tests_zeros = "powers" in self.forms, "zeros" in self.forms
        code.adds_words = "dots" in self.forms
        if not self.use.streams:
            Loops(code, nest, plan, symbols, self.use, self.forms).emit(pointers)
            return
        assert can_stream(nest, self.use.streams), f"{self.title} does not write whole vectors"
        outputs = [(code.word(words, first_output + k, code.i64_type), stored_bytes(nest.outputs[k], plan))
                   for k in self.use.streams]

        def version(streams: bool) -> list[Value]:
            use = self.use if streams else replace(self.use, streams=())
            Loops(code, nest, plan, symbols, use, self.forms).emit(pointers)
            return []
        where_aligned(code, outputs, version)


def where_aligned(code: FunctionEmitter, outputs: Sequence[tuple[Value, int]], version: Callable[[bool], list[Value]],
                  results: Sequence[Type] = ()) -> list[Value]:
    """Emit ``version(True)``, with streaming stores, for calls in which the address of each output is a multiple of its
    number in ``outputs``, else ``version(False)``. Both return values of the types ``results``."""
    beyond = code.i64(0)                        # bits that must be 0 in the outputs' addresses
    for address, size in outputs:
        beyond = code.or_(beyond, code.and_(address, size - 1))
    branch = code.scf.IfOp(code.cmp("eq", beyond, 0), list(results), has_else=True)
    for streams, block in ((True, branch.then_block), (False, branch.else_block)):
        with ir.InsertionPoint(block):
            yielded = version(streams)
            if streams:         # a later store, for which other threads wait, may become visible first
                ir.Operation.create("llvm.fence", attributes={
                    "ordering": ir.IntegerAttr.get(code.i64_type, SEQUENTIALLY_CONSISTENT)})
            code.scf.YieldOp(yielded)
    return list(branch.results)


def addressed(nest: Nest, streams: bool, ahead: tuple[tuple[int, int], ...] = ()) -> "Nest | AddressedNest":
    """Return the nest with prefetches, and with streaming stores if ``streams`` and its stores allow them. ``ahead``
    has inputs by number with the distances in bytes of their prefetches. Return the nest itself if it gets neither."""
    use = MemoryUse(tuple(range(len(nest.outputs))) if streams and can_stream(nest) else (), ahead)
    return AddressedNest(nest, use) if use != MemoryUse() else nest


def with_memory(routine: "Nest | AddressedNest") -> AddressedNest:
    return routine if isinstance(routine, AddressedNest) else AddressedNest(routine, MemoryUse())


def does_stream(routine: object) -> TypeGuard[AddressedNest]:
    return isinstance(routine, AddressedNest) and bool(routine.use.streams)


def can_stream(nest: Nest, chosen: Sequence[int] | None = None) -> bool:
    """Return whether the nest writes each output once, in whole vectors at multiples of their size from the output's
    start."""
    outputs = [(k, nest.outputs[k]) for k in (range(len(nest.outputs)) if chosen is None else chosen)]
    if nest.mask or not all(o.strides[a] for _, o in outputs for a in nest.reduced):
        return False
    plan = schedule(nest)
    return plan.vector is not None and plan.lanes > 1 and all(
        not nest.uses(nest.first_output + k) and _lies_in_vectors(output, plan) for k, output in outputs)


def _lies_in_vectors(output: Operand, plan: Schedule) -> bool:
    width = stored_bytes(output, plan)
    other_steps = [step * output.dtype.itemsize for axis, step in enumerate(output.strides) if axis != plan.vector]
    return width >= 16 and output.strides[plan.vector] == 1 and all(             # type: ignore[index]
        step % width == 0 for step in other_steps)
