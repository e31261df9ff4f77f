# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds reads of on-chip memory that nothing has written, by walking through the loops of a captured kernel.

The walk is done if the first operation on a buffer does not write all of it, for the first and the last program of a
grid. It ends at addresses and conditions that only a run knows, and after ``MOST_STEPS`` operations.
"""

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Operation, Value
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.tensor import Buffer
from nki_mlir.diagnostics import Unsupported, warn_once
from nki_mlir.dialects.nisa.require_written import UnsetRegisters
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.dialects.symbol_ranges import symbol_range
from nki_mlir.environment import is_strict
from nki_mlir.targets.interpreter.scalars import scalar_function
from nki_mlir.targets.interpreter.unwritten_hbm import UnwrittenRead
from nki_mlir.targets.interpreter.unwritten_tiles import FreshTile, Shadow, UnwrittenTiles
from nki_mlir.waist import function as waist
from nki_mlir.waist.reader import Executor, read_function, scalar_value

MOST_STEPS = 20_000


class OnlyARunKnows(Exception):
    """Raised where only a run can tell which operations follow."""


class Walk:
    """The walk of one program through a function. ``fresh`` maps the results of allocations to their buffers."""

    def __init__(self, fresh: dict[Value, Buffer], program_ids: dict[Value, int]) -> None:
        self.fresh, self.numbers = fresh, program_ids
        self.shadows: dict[Value, Shadow] = {}
        self.tiles, self.left = UnwrittenTiles(), MOST_STEPS
        self.instructions: dict[waist.TileInstruction, Op] = {}

    def block(self, block: waist.FunctionBlock) -> None:
        for node in block.nodes:
            self.step(node)

    def step(self, node: waist.FunctionNode) -> None:
        match node:
            case waist.BufferAllocation():
                self.allocated(node)
            case waist.TileInstruction():
                self.perform(node)
            case waist.ForLoop():
                if node.span is None:
                    raise OnlyARunKnows
                for number in node.span:
                    self.numbers[node.variable] = number
                    self.block(node.body)
            case waist.IfBranch():
                side = node.then if self.number(node.condition) else node.otherwise
                self.block(side or waist.FunctionBlock())
            case waist.ElementLoad() | waist.ScalarValue():
                pass                                # numbers are computed where they are used
            case _:
                raise OnlyARunKnows

    def allocated(self, node: waist.BufferAllocation) -> None:
        buffer = self.fresh.get(node.result)
        self.shadows[node.result] = FreshTile(buffer.name, location_of(node.op)) if buffer is not None else None

    def perform(self, node: waist.TileInstruction) -> None:
        if not any(self.shadows.get(v) is not None for v in node.op.operands):
            return
        self.left -= 1
        if not self.left:
            raise OnlyARunKnows
        op = self.instructions.get(node)
        if op is None:
            op = self.instructions[node] = node.instruction
        handles = [tile.handle for _, tile in op.operands()]
        shadows = [self.shadows.get(h) for h in handles]
        after = self.tiles.perform(op, shadows, [self.number(s) for s in op.symbols], lambda: location_of(node.op))
        self.shadows.update(zip(handles, after))

    def number(self, value: Value) -> int:
        """Return the value of an index or truth value."""
        if value not in self.numbers:
            operation = defining(value)
            node = scalar_value(operation) if operation is not None else None
            if node is None:
                raise OnlyARunKnows
            return int(scalar_function(node)(*[self.number(v) for v in node.operands]))
        return self.numbers[value]


def report_unset_registers(engine: str, command: str) -> None:
    """Warn that an instruction reads accumulation registers that no instruction of the kernel has set.
    ``NKI_MLIR_STRICT`` makes it an error."""
    error = UnsetRegisters(engine=engine, command=command)
    if is_strict():
        raise error.here()
    text = f"{error.headline}: zeros where the kernel is compiled, anything on a device [{error.code}]; {error.fix}"
    warn_once(text, UnwrittenRead, user_location())


def report_unwritten(function: Operation, fresh: dict[Value, Buffer]) -> None:
    """Warn of reads of ``fresh`` buffers before the function has written them. ``NKI_MLIR_STRICT`` makes it
    an error."""
    ids = [a for a in function.regions[0].blocks[0].arguments if str(a.type) == "index"]
    try:
        body = read_function(function, Executor("in a search for reads of unwritten memory"))
    except Unsupported:
        return
    for end in range(2 if ids else 1):
        try:
            Walk(fresh, {a: symbol_range(a)[end] for a in ids}).block(body)
        except OnlyARunKnows:
            pass
