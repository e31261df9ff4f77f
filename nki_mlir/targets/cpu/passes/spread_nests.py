# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spread-nests: divide large computations among threads, and smaller ones beside them.

before:  copy(w, tile); sums += x' * tile; copy(w + 262144, tile); sums += ...
after:   copy(w, tile) on the pool; sums += x' * tile on the pool; copy(w + 262144, tile) on the pool; sums += ...

The pass divides a computation that is worth waking the threads, if nothing around it runs on the pool. Idle threads
spin for a while before they sleep. So in a block with a divided computation, the pass divides shorter ones, too; also
in a block with many shorter computations. The pass runs after those that join and forward computations, so that these
see undivided computations. It also runs after `chunk-rows`, since a loop over chunks on the pool needs fewer jobs.
"""

from nki_mlir.targets.cpu.contraction import TileProduct
from nki_mlir.targets.cpu.function import MOST_ARGUMENTS, NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Compute, NativeBlock, NativeLoop, Spread, sub_blocks
from nki_mlir.targets.cpu.passes.parallelize import has_pool
from nki_mlir.targets.cpu.schedule import cost_of, parts_of
from nki_mlir.targets.runtime import host


class SpreadNests(FunctionPass, name="spread-nests"):
    worth: int = 50_000         # estimated nanoseconds of work for which it is worth waking threads
    least: int = 1_000          # estimated nanoseconds of work that are worth a job for threads that are awake
    together: int = 200_000     # nanoseconds of such computations in a block for which it is worth waking threads

    def rewrite(self, function: NativeFunction) -> None:
        if has_pool(function):
            self.block(function.body)

    def block(self, block: NativeBlock) -> None:
        costs = [cost_of(node.nest) for node in block.nodes if isinstance(node, Compute)]
        self.divide(block, self.worth)
        if any(isinstance(node, Spread) for node in block.nodes) or (
                sum([cost for cost in costs if cost >= self.least]) >= self.together):
            self.divide(block, self.least)
        for node in block.nodes:
            if not (isinstance(node, NativeLoop) and node.on_pool):
                for inner in sub_blocks(node):
                    self.block(inner)

    def divide(self, block: NativeBlock, least: int) -> None:
        """Divide the computations of a block that take ``least`` nanoseconds or more."""
        block.nodes[:] = [in_parts(node) if isinstance(node, Compute) and cost_of(node.nest) >= least else node
                          for node in block.nodes]


def in_parts(node: Compute) -> Compute | Spread:
    """Divide a computation into equal parts along its first axis, as many as there are threads or a few more, if the
    axis can be divided so."""
    parts = parts_of(node.nest, host.threads(), 4 * host.threads())
    if parts is None or (isinstance(node.function, TileProduct)
                         and not node.function.can_compute(parts[0])):
        return node
    spread = Spread.over(node, parts)
    return spread if len(spread.arguments) <= MOST_ARGUMENTS else node
