# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""parallelize: run iterations of independent loops, and parts of large computations, on the pool.

before:  for i in 0..8: exp(x + 4096 * i, y + 4096 * i)
after:   for i in 0..8 on the pool: exp(x + 4096 * i, y + 4096 * i)

The pass runs a loop that the kernel's author calls parallel on the pool only if it proves that iterations touch
disjoint memory; iterations that accumulate in one buffer, for example, do not. It assumes that the arrays of a kernel
are different memory.
"""

from collections.abc import Iterator
from math import prod

from nki_mlir.targets.cpu.function import (
    BUFFERS,
    MOST_ARGUMENTS,
    Allocate,
    Compute,
    NativeBlock,
    NativeFunction,
    NativeLoad,
    NativeLoop,
    Node,
    Spread,
    TileCall,
    calls_in,
    nodes_in,
    sub_blocks,
)
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.routines import RowCopies
from nki_mlir.targets.cpu.schedule import cost_of, dims_of, parts_of, reach_of
from nki_mlir.targets.runtime import host
from nki_mlir.waist.overlap import ByteInterval, Iterations


class Parallelize(FunctionPass, name="parallelize"):
    worth: int = 50_000         # nanoseconds of work, roughly, for which it is worth to wake threads

    def rewrite(self, function: NativeFunction) -> None:
        self.block(function, function.body, 1)

    def block(self, function: NativeFunction, block: NativeBlock, times: int) -> None:
        """Rewrite the nodes of a block that runs ``times`` times."""
        for k, node in enumerate(block.nodes):
            if isinstance(node, Compute):
                block.nodes[k] = self.spread(function, node)
            elif isinstance(node, NativeLoop) and node.parallel and node.span and len(node.span) > 1:
                if self.can_run_on_pool(function, node, times):
                    node.on_pool = True
                    for inner in nodes_in(*node.body.nodes):
                        if isinstance(inner, Allocate):
                            inner.buffer.memory = node.memory
            else:
                for inner_block in sub_blocks(node):
                    self.block(function, inner_block, times * repetitions(node))

    def can_run_on_pool(self, function: NativeFunction, loop: NativeLoop, times: int) -> bool:
        """Whether iterations are independent, and take long enough."""
        calls = list(calls_in(*loop.body.nodes))
        if any(isinstance(call, TileCall) and call.on_host for call in calls):
            return False
        private = {node.buffer for node in nodes_in(*loop.body.nodes) if isinstance(node, Allocate)}
        assert loop.span is not None
        iterations = Iterations(loop.slot, loop.span, range(loop.slot + 1, BUFFERS), function.ranges)
        return running_cost(loop.body, times * len(loop.span)) >= self.worth and iterations.keep_apart(
            [access for call in calls for access in accesses_of(call)], private)

    def spread(self, function: NativeFunction, node: Compute) -> Compute | Spread:
        """Divide a large computation into parts, unless something around it runs on the pool."""
        alone = prod(function.kernel.grid) == 1 and host.threads() > 1
        parts = parts_of(node.nest, host.threads(), 4 * host.threads()) if (
            alone and cost_of(node.nest) >= self.worth) else None
        if parts is None:
            return node
        spread = Spread.over(node, parts)
        return spread if len(spread.arguments) <= MOST_ARGUMENTS else node


def repetitions(node: Node) -> int:
    """Return how often a node runs its blocks, as far as that is known."""
    return len(node.span) if isinstance(node, NativeLoop) and node.span else 1


def running_cost(block: NativeBlock, times: int = 1) -> float:
    """Estimate the nanoseconds of a block that runs so often."""
    total = 0.0
    for node in block.nodes:
        if isinstance(node, Compute | Spread):
            total += times * cost_of(node.nest)
        elif isinstance(node, TileCall) and isinstance(node.function, RowCopies):
            total += times * (node.function.count * cost_of(node.function.row))
        total += sum(running_cost(inner, times * repetitions(node)) for inner in sub_blocks(node))
    return total


# -- independence ------------------------------------------------------------------------------------------------------
def accesses_of(call: object) -> Iterator[ByteInterval]:
    """Yield the intervals that a call touches."""
    match call:
        case Compute():
            inputs = len(call.nest.inputs)
            for k, (region, operand) in enumerate(zip(call.regions, call.nest.operands)):
                yield ByteInterval(region.root, region.address, *reach_of(call.nest, k), k >= inputs,
                                   dims_of(call.nest, k), operand.dtype.itemsize)
        case NativeLoad():
            yield call.access
        case TileCall():
            yield from call.accesses
