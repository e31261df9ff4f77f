# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spread-nests: divide large computations among threads, and smaller ones beside them.

before:  copy(w, tile); sums += x' * tile; copy(w + 262144, tile); sums += ...
after:   copy(w, tile) on the pool; sums += x' * tile on the pool; copy(w + 262144, tile) on the pool; sums += ...

A computation is divided if it is worth to wake the threads for it, and nothing around it runs on the pool. Idle threads
spin for a while before they sleep. So in a block in which the pass has divided a computation it costs little to divide
others, which need not be long enough to wake a thread; nor need they be if many of them follow each other.

The pass runs after those that join and forward computations: these see undivided computations, and a loop over chunks
on the pool needs fewer jobs than one for each computation.
"""

from nki_mlir.targets.cpu.contraction import TileProduct, multiplies_in_pairs
from nki_mlir.targets.cpu.function import MOST_ARGUMENTS, NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Compute, NativeBlock, NativeLoop, Spread, sub_blocks
from nki_mlir.targets.cpu.passes.parallelize import has_pool
from nki_mlir.targets.cpu.schedule import cost_of, parts_of
from nki_mlir.targets.runtime import host


class SpreadNests(FunctionPass, name="spread-nests"):
    worth: int = 50_000         # nanoseconds of work, roughly, for which it is worth to wake threads
    least: int = 1_000          # nanoseconds of work, roughly, that are worth a job for threads that are awake
    together: int = 200_000     # nanoseconds of such computations in a block for which it is worth to wake threads

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
        """Divide the computations of a block that take so many nanoseconds or more."""
        block.nodes[:] = [in_parts(node) if isinstance(node, Compute) and cost_of(node.nest) >= least else node
                          for node in block.nodes]


def in_parts(node: Compute) -> Compute | Spread:
    """Divide a computation into equal parts along its first axis, as many as threads or a few more, if that axis has
    them."""
    parts = parts_of(node.nest, host.threads(), 4 * host.threads())
    if parts is None or (isinstance(node.function, TileProduct) and node.function.pairs
                         and not multiplies_in_pairs(parts[0])):
        return node
    spread = Spread.over(node, parts)
    return spread if len(spread.arguments) <= MOST_ARGUMENTS else node
