# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""parallelize: run iterations of independent loops, and parts of long searches, on the pool.

before:  for i in 0..8: exp(x + 4096 * i, y + 4096 * i)
after:   for i in 0..8 on the pool: exp(x + 4096 * i, y + 4096 * i)

The pass runs a loop on the pool if it proves that iterations touch disjoint memory, whatever the kernel's author calls
the loop; iterations that accumulate in one buffer, for example, do not. It assumes that the arrays of a kernel are
different memory.
"""

from collections.abc import Iterator
from math import prod

from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.routines import TileRoutine
from nki_mlir.targets.cpu.schedule import cost_of, dims_of
from nki_mlir.targets.cpu.searches import Search, part_of_search
from nki_mlir.targets.runtime import host
from nki_mlir.waist.overlap import ByteRegion, Iterations


class Parallelize(FunctionPass, name="parallelize"):
    worth: int = 50_000         # estimated nanoseconds of work for which it is worth waking threads

    def rewrite(self, function: NativeFunction) -> None:
        self.block(function, function.body, 1)

    def block(self, function: NativeFunction, block: cpu.NativeBlock, times: int) -> None:
        """Rewrite the nodes of a block that runs ``times`` times."""
        for k, node in enumerate(block.nodes):
            if isinstance(node, cpu.TileCall) and isinstance(node.function, Search):
                block.nodes[k] = self.spread_search(function, node, node.function)
            elif isinstance(node, cpu.NativeLoop) and self.can_run_on_pool(function, node, times):
                node.on_pool = True
                for inner in cpu.nodes_in(*node.body.nodes):
                    if isinstance(inner, cpu.Allocate):
                        inner.buffer.memory = node.memory
            else:
                for inner_block in cpu.sub_blocks(node):
                    self.block(function, inner_block, times * repetitions(node))

    def can_run_on_pool(self, function: NativeFunction, loop: cpu.NativeLoop, times: int) -> bool:
        """Return whether iterations are independent, and take long enough."""
        if not loop.span or len(loop.span) < 2:
            return False
        calls = list(cpu.calls_in(*loop.body.nodes))
        if any(isinstance(call, cpu.InParts) or (isinstance(call, cpu.TileCall) and call.on_host)
               for call in calls):
            return False
        private = {node.buffer for node in cpu.nodes_in(*loop.body.nodes) if isinstance(node, cpu.Allocate)}
        iterations = Iterations(loop.slot, loop.span, range(loop.slot + 1, cpu.BUFFERS), function.ranges)
        return running_cost(loop.body, times * len(loop.span)) >= self.worth and iterations.keep_apart(
            [access for call in calls for access in accesses_of(call)], private)

    def spread_search(self, function: NativeFunction, node: cpu.TileCall, search: Search) -> cpu.TileCall:
        """Divide the rows of a large search into parts, as those of a computation."""
        for count in range(host.threads(), 4 * host.threads() + 1):
            part = part_of_search(search, count) if has_pool(function) and search.cost >= self.worth else None
            if part is not None:
                return cpu.SpreadSearch.over(node, part, count)
        return node


def has_pool(function: NativeFunction) -> bool:
    """Return whether a function may use the pool. With a launch grid, its programs already run on the pool."""
    return prod(function.kernel.grid) == 1 and host.threads() > 1


def repetitions(node: cpu.Node) -> int:
    """Return how often a node runs its blocks: 1 if that is unknown."""
    return len(node.span) if isinstance(node, cpu.NativeLoop) and node.span else 1


def running_cost(block: cpu.NativeBlock, times: int = 1) -> float:
    """Estimate the nanoseconds of a block that runs ``times`` times."""
    total = 0.0
    for node in block.nodes:
        if isinstance(node, cpu.Compute | cpu.Spread):
            total += times * cost_of(node.nest)
        elif isinstance(node, cpu.TileCall) and isinstance(node.function, TileRoutine):
            total += times * node.function.cost
        total += sum(running_cost(inner, times * repetitions(node)) for inner in cpu.sub_blocks(node))
    return total


# -- independence ------------------------------------------------------------------------------------------------------
def accesses_of(call: object) -> Iterator[ByteRegion]:
    """Yield the bytes that a call accesses."""
    match call:
        case cpu.Compute():
            inputs = len(call.nest.inputs)
            for k, (region, operand) in enumerate(zip(call.regions, call.nest.operands)):
                yield region.accessed(dims_of(call.nest, k), operand.dtype.itemsize, k >= inputs)
        case cpu.NativeLoad():
            yield call.access
        case cpu.TileCall():
            yield from call.accesses
