# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""split-tiles: give a tile another buffer from each operation on that overwrites all of it.

before:  linalg.generic ins(%a, %b) outs(%t) { add }         after:  linalg.generic ins(%a, %b) outs(%t) { add }
         linalg.generic ins(%t) outs(%r)                             linalg.generic ins(%t) outs(%r)
         linalg.generic ins(%a, %b) outs(%t) { multiply }            linalg.generic ins(%a, %b) outs(%u) { multiply }
         linalg.generic ins(%t) outs(%sums) { in + out }             linalg.generic ins(%u) outs(%sums) { in + out }

Kernels use a tile again because memory on chip is small. Each live range then has a buffer that nothing else uses, so
that ``fuse-tiles`` can fuse its operations, and other passes can run its iterations at the same time. ``reuse-tiles``
lets buffers share memory whose live ranges do not overlap.

The operation that overwrites the tile is in the block of the allocation: a loop's later iterations see no other value.
"""

from bisect import bisect_right

from nki_mlir.analysis.effects import VIEWS, memory_of, users_through_views
from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.kernel_function import KernelFunction, kernel_functions
from nki_mlir.graph.views import complete_buffer
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.waist.fusion import fusible

PLAIN = frozenset({"nki.name", "operandSegmentSizes"})      # attributes of tiles that the kernel does not place
OTHER_NAMES = ("scf.", "func.", "cf.")                      # operations that may give a buffer another name


class SplitTiles(Pass, name="split-tiles"):
    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            for kernel in kernel_functions(module):
                OverwrittenTiles(kernel).split()


class OverwrittenTiles:
    """The operations of a function by number, in their order."""

    def __init__(self, kernel: KernelFunction) -> None:
        operations = operations_of(kernel.op, lambda name: True)
        self.tiles = [op for op in operations if op.name == "memref.alloc"]
        self.numbers = {op: number for number, op in enumerate(operations)}

    def split(self) -> None:
        for tile in self.tiles:
            attributes = tile.attributes
            if {attributes[k].name for k in range(len(attributes))} <= PLAIN:
                self.split_tile(tile)

    def split_tile(self, tile: Operation) -> None:
        users = users_through_views(tile.results[0])
        if len(users) < 3 or any(user.name.startswith(OTHER_NAMES) for user in users):
            return
        first = min(self.numbers[user] for user in users)
        starts = sorted(self.numbers[user] for user in users if user.block == tile.block
                        and self.numbers[user] > first and overwrites(user, tile.results[0]))
        if not starts:
            return
        copies = [tile.clone(ip=ir.InsertionPoint(tile)) for _ in starts]
        self.use(tile.results[0], [tile.results[0], *[copy.results[0] for copy in copies]], starts)

    def use(self, value: Value, replacements: list[Value], starts: list[int]) -> None:
        """Let the users of a tile, or of a view, use its replacement in the live range that they are in: the number of
        ``starts`` up to them."""
        for use in [*value.uses]:
            op, operand = use.owner.operation, use.operand_number
            if op.name not in VIEWS:
                op.operands[operand] = replacements[bisect_right(starts, self.numbers[op])]
                continue
            ranges = sorted({bisect_right(starts, self.numbers[user]) for user in users_through_views(op.results[0])})
            views = dict.fromkeys(ranges[:1], op) | {n: op.clone(ip=ir.InsertionPoint(op)) for n in ranges[1:]}
            if len(views) > 1:
                results = [views[n].results[0] if n in views else op.results[0] for n in range(len(replacements))]
                self.use(op.results[0], results, starts)
            for n, view in views.items():
                view.operands[operand] = replacements[n]


def overwrites(op: Operation, tile: Value) -> bool:
    """Return whether an operation writes each element of a tile, and reads none."""
    nest = fusible(op, indices=True)
    if nest is None or not (nest.parallel and nest.writes_only and nest.writes_each_element_once):
        return False
    written = complete_buffer(nest.output)
    return (written is not None and written == tile
            and not any(memory_of(v) == tile for v in nest.inputs if isinstance(v.type, ir.MemRefType)))
