# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scalar registers of one engine while its stream is written: loop variables, and values computed from them."""

from collections.abc import Callable, Iterator, Sequence

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa.instruction import REGISTERS, Control, Register, RegisterAlu
from nki_mlir.targets.neuron.codegen import records
from nki_mlir.targets.neuron.codegen.segment_waits import SegmentWaits


class TooManyRegisters(NkiMlirError):
    code = "NKI-REGISTERS"
    message = "an instruction needs more than the {limit} registers of an engine"
    fix = "nest fewer loops that are not unrolled, or raise the unroll limit"


class RegisterFile:
    """Allocates the registers of an engine. A loop variable keeps its register while the loop is open; a computed value
    keeps it until another value needs the register, and the least recently used value is evicted first."""

    def __init__(self) -> None:
        self.pinned: dict[records.LoopVariable, Register] = {}
        self.computed: dict[records.Computed, Register] = {}        # the least recently used register comes first

    def pin(self, variable: records.LoopVariable) -> Register:
        self.pinned[variable] = self._free(())
        return self.pinned[variable]

    def release(self, variable: records.LoopVariable) -> None:
        del self.pinned[variable]

    def invalidate_computed(self) -> None:
        """Forget computed values, which are not valid where control flow joins."""
        self.computed.clear()

    def get(self, value: records.Value, keep: Sequence[records.Value], emit: Callable[[Control], object]) -> Register:
        """Return a register with the value; ``keep`` are values that an instruction needs at the same time."""
        if isinstance(value, records.LoopVariable):
            return self.pinned[value]
        assert isinstance(value, records.Computed)
        if value in self.computed:
            self.computed[value] = self.computed.pop(value)
            return self.computed[value]
        needed = *keep, value.lhs, value.rhs
        sides = [side if isinstance(side, int) else self.get(side, needed, emit) for side in (value.lhs, value.rhs)]
        register = self._free(needed)
        emit(RegisterAlu(value.op, register, *sides))
        self.computed[value] = register
        return register

    def _free(self, keep: Sequence[records.Computed | records.LoopVariable | int]) -> Register:
        used_numbers = {r.number for r in (*self.pinned.values(), *self.computed.values())}
        for number in range(REGISTERS):
            if number not in used_numbers:
                return Register(number)
        for value in self.computed:
            if not any(value is live for live in keep):
                return self.computed.pop(value)
        raise TooManyRegisters(limit=REGISTERS)


def numbers_used(part: object) -> Iterator[records.LoopVariable]:
    """Yield the variables that steps use, or a node and all nodes inside of it."""
    match part:
        case SegmentWaits():
            yield from (v for step in part.steps for symbol in step.op.symbols for v in records.variables_of(symbol))
        case records.InstructionStep():
            yield from (v for symbol in part.op.symbols for v in records.variables_of(symbol))
        case records.Load():
            yield part.variable
        case records.Branch() | records.While():
            yield from records.variables_of(part.condition)
    for block in records.sub_blocks(part):
        for node in block.nodes:
            yield from numbers_used(node)
