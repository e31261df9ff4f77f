# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check the rules of single instructions, and of the order of one engine's stream.

These are rules of the target, high-water marks, and the function sets of the scalar engine.
"""

from collections.abc import Iterator

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import PSUM, Access, Tile
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.op import Op, with_forms
from nki_mlir.dialects.target_findings import findings
from nki_mlir.machine import Engine, machine_named
from nki_mlir.targets.neuron.checker.trace import Event


class TargetRules:
    """Checks the instructions of a core against the target's rules, once for all instructions that no rule
    distinguishes."""

    def __init__(self, program: Program) -> None:
        self.machine = machine_named(program.target)
        self.judged: dict[object, KernelError | None] = {}

    def broken(self, event: Event) -> KernelError | None:
        """Return the rule that an instruction breaks, or None. Rules on which documents disagree are skipped."""
        op = event.instruction.op
        if not isinstance(op, Op):
            return None
        if op.symbols:
            values = event.values
            if not all(isinstance(v, int) for v in values):
                return None
            op = with_forms(op, lambda form: type(form)(form.at(values), (), form.axes))   # type: ignore[arg-type]
        bank = self.machine.psum_bank_bytes
        starts = tuple([self.start(tile, tile.access, bank) for _, tile in op.operands() if tile.on_chip])
        key = op.form(), starts
        if key not in self.judged:
            self.judged[key] = next((f.error for f in findings(op, self.machine) if not f.uncertain), None)
        return self.judged[key]

    @staticmethod
    def start(tile: Tile, access: Access, bank: int) -> tuple[int, int]:
        """Return the part of a tile's start on which rules depend: the partition, and in PSUM the byte within the
        bank."""
        assert access.partition is not None
        byte = access.free.const * access.dtype.itemsize % bank if tile.space == PSUM else 0
        return access.partition.const, byte


def missing_tables(events: list[Event]) -> Iterator[tuple[Event, str, str]]:
    """Yield (event, required set, loaded set) of each event of the scalar engine whose function set is not loaded."""
    table = ""
    for event in events:
        op = event.instruction.op
        if isinstance(op, isa.ActTableLoad):
            table = op.table
        elif isinstance(op, Op) and event.engine is Engine.SCALAR and op.function_set and op.function_set != table:
            yield event, op.function_set, table
            table = op.function_set
