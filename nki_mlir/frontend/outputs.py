# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which outputs a captured kernel writes for certain, and the flags by which a run tells of the others.

An output that nobody wrote is an error. Where loops of the device, or conditions, decide whether any instruction that
writes it runs, capture is repeated with a flag: every write sets it, and the kernel ends with the check.
"""

import json
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from nki_mlir.bindings import ir
from nki_mlir.dialects.meeting import PROGRAMS
from nki_mlir.dialects.mlir_ops import write_op
from nki_mlir.dialects.nisa.collectives import AllReduceOp
from nki_mlir.dialects.nisa.require_written import RequireWrittenOp, idle
from nki_mlir.dialects.nki.movement import MemsetOp
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.frontend.conditions import happens, masks_of
from nki_mlir.frontend.index import Symbol
from nki_mlir.frontend.tensor import Buffer, View, tile_of
from nki_mlir.scalar.dtypes import INT32

if TYPE_CHECKING:
    from nki_mlir.frontend.mlir_builder import MlirBuilder


class OutputWrites:
    """The writes to the outputs of one attempt. ``flagged`` are the numbers of outputs that have a flag."""

    def __init__(self, builder: "MlirBuilder", flagged: set[int]) -> None:
        self.builder, self.flagged = builder, flagged
        self.certain: set[Buffer] = set()
        self.reasons: dict[Buffer, str] = {}        # why none of the writes may run, by the first of them

    def wrote(self, op: Op, buffer: Buffer, symbols: Sequence[Symbol]) -> None:
        """The operation, which stands where the builder is, writes the output."""
        scopes = self.builder.scopes
        runs = happens([s.holds for s in scopes if s.holds is not None] + masks_of(op, symbols))
        loop = next((scope.op for scope in scopes if scope.may_skip), None)
        if runs and loop is None:
            self.certain.add(buffer)
            return
        at = location_of(loop) if loop is not None and runs is not False else None
        first = self.builder.first_writes[buffer]
        self.reasons.setdefault(buffer, idle(at) if at is not None else
                                f"the condition of what writes it at line {first.line} never holds")
        if runs is not False and self.number(buffer) in self.flagged:
            outside, self.builder.accumulating = self.builder.accumulating, True    # whoever sets it, it is set
            self.builder.emit(MemsetOp, {"dst": self.flag(buffer)}, value=1.0)
            self.builder.accumulating = outside

    def number(self, buffer: Buffer) -> int:
        return self.builder.outputs.index(buffer)

    def flag(self, buffer: Buffer) -> View:
        return View.full(self.builder.state(f"written.{self.number(buffer)}", (1, 1), INT32))

    def known(self, results: Sequence[Buffer]) -> tuple[frozenset[int], frozenset[int]]:
        """The outputs among the results that may be written, and those that are for certain."""
        certain = frozenset(map(self.number, self.certain))
        written = {self.number(b) for b in results if b.role == "output" and b in self.builder.first_writes}
        return frozenset(written - certain), certain

    def check(self, results: Sequence[Buffer]) -> None:
        """End the function with the checks of its flags; those of several programs count together."""
        grid, end = self.builder.grid, self.builder.scopes[0].end
        for buffer in dict.fromkeys(results):
            if buffer.role != "output" or self.number(buffer) not in self.flagged:
                continue
            flag = tile_of(self.flag(buffer), {})
            flag = flag.on(flag.handle.value)
            at = buffer.created_at
            location = ir.Location.file(at.file, at.line, at.column + 1) if at else self.builder.unknown
            if prod(grid) > 1:
                everyone = json.dumps([list(range(prod(grid)))])
                write_op(AllReduceOp(dst=flag, src=flag, op="maximum", groups=everyone, over=PROGRAMS),
                         self.builder.make, location, end)
            reason = self.reasons.get(buffer, "its loops ran no iteration")      # another program's
            write_op(RequireWrittenOp(flag=flag, output=buffer.name, reason=reason), self.builder.make, location, end)
