# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Find statements of an eager run whose results no operation reads, or other statements overwrite first.

A statement of a loop runs many times: it is dead if no operation reads any of its results. A statement that overwrites
its previous result in PSUM before anything reads it is reported, too: it probably should accumulate.
"""

from collections.abc import Sequence
from math import prod

from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.checking.report import WARNING, CheckFinding
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import PSUM, Tile
from nki_mlir.dialects.op import Op

Statement = tuple[Location | None, str]             # location and description
Part = tuple[object, ...]                           # part of a buffer: its access pattern
COMPLETE: Part = ()


class DeadStores:
    """Track the writes that no operation has read yet. The programs of a grid share one instance."""

    def __init__(self) -> None:
        self.unread: dict[Buffer, dict[Part, Statement]] = {}
        self.live: set[Statement] = set()                       # statements of whose results an operation has read one
        self.overwritten: dict[Statement, CheckFinding] = {}
        self.lost_sums: dict[Statement, CheckFinding] = {}
        self.last: Statement = (None, "")
        self.last_read: list[View] = []                         # the tiles that the last operation read
        self.last_results: list[Buffer] = []                    # the tiles that it wrote, if it has several results

    def record(self, op: Op, views: Sequence[View], statement: Statement) -> None:
        """Record the reads and writes of an operation that has run."""
        operands = list(zip(op.operands(), views))
        read = {name for name, _ in op.sources()}
        only_read = [view for (field, _), view in operands if field.name in read and not field.writes]
        (at, name), self.last = self.last, statement
        last_read, self.last_read = self.last_read, only_read
        at_once_again = at and statement[0] and at[:2] == statement[0][:2]
        of_the_same = len(last_read) == len(only_read) and all(map(View.same_elements, last_read, only_read))
        if name == statement[1] and (at_once_again or (op.mask and of_the_same)):     # it only updates its target
            self.live.add((at, name))
        if at_once_again and any(view.buffer in self.last_results for view in only_read):
            self.live.add(statement)                            # it assigns one of several results to its target
        for (field, _), view in operands:
            if field.name in read:
                self.live.update(self.unread.pop(view.buffer, {}).values())
        results = [view.buffer for (field, _), view in operands if field.writes]
        self.last_results = results if len(results) > 1 else []
        targets = [(tile, view) for (field, tile), view in operands if field.writes and field.name not in read]
        if len(targets) == 1 and not op.acts_outside and targets[0][1].mask is None:
            self.note_write(op, *targets[0], statement)

    def note_write(self, op: Op, tile: Tile, view: View, statement: Statement) -> None:
        """Record the write of a tile that the same operation does not read."""
        if is_register(view.buffer):                            # a loop that reads a condition is not an operation
            self.live.add(statement)
            return
        covers_view = tile.layout.form.covers_buffer and not op.mask and not op.limits
        part = COMPLETE if covers_view else (view.partition, view.free, view.dims, op.mask, op.limits)
        earlier = self.unread.setdefault(view.buffer, {})
        for last_write in list(earlier.values()) if covers_view else [earlier[part]] if part in earlier else []:
            if last_write == statement and view.buffer.space == PSUM:
                self.lost_sums[statement] = CheckFinding(
                    "dead-store", WARNING, f"{statement[1]} overwrites its last result in {view.buffer.name} before "
                    "anything reads it", statement[0], "let it accumulate, or read each result")
            self.overwritten.setdefault(last_write, CheckFinding(
                "dead-store", WARNING, f"what {last_write[1]} writes to {view.buffer.name} is overwritten at line "
                f"{statement[0].line if statement[0] else '?'} before anything reads it", last_write[0],
                "remove the statement, or read its result"))
        if covers_view:
            earlier.clear()
        earlier[part] = statement

    def findings(self, has_idle_loops: bool, results: Sequence[object] = ()) -> list[CheckFinding]:
        """Return the dead statements of a complete run. The caller reads outputs, and private tensors whose arrays are
        among ``results``. With ``has_idle_loops``, loops that did not run may read others."""
        unused: dict[Statement, CheckFinding] = {}
        for buffer, parts in () if has_idle_loops else self.unread.items():
            for at, name in parts.values():
                if buffer.role == "local" and not any(buffer.handle is array for array in results):
                    unused[at, name] = CheckFinding(
                        "dead-store", WARNING, f"nothing reads what {name} writes to {buffer.name}", at,
                        "remove the statement, or use its result")
                else:
                    self.live.add((at, name))
        return [*self.lost_sums.values(),
                *[f for statement, f in (self.overwritten | unused).items() if statement not in self.live]]


def is_register(buffer: Buffer) -> bool:
    """Return whether a tile may be a register, which loops and subscripts read."""
    return buffer.dtype.is_integer and prod(buffer.shape) == 1
