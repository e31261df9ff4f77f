# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spread-neighbors: divide smaller computations among the threads that a neighboring computation keeps awake.

before:  copy(w, tile); sums += x' * tile on the pool; copy(w + 262144, tile); sums += ...
after:   copy(w, tile) on the pool; sums += x' * tile on the pool; copy(w + 262144, tile) on the pool; sums += ...

Idle threads of the pool spin for a while before they sleep. In a block in which `parallelize` has divided a computation
it costs little to divide others, which need not be long enough to wake a thread. The pass runs after those that join
and forward computations, since these do not read parts.
"""

from nki_mlir.targets.cpu.function import Compute, NativeFunction, Spread, blocks
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.passes.parallelize import has_pool, in_parts
from nki_mlir.targets.cpu.schedule import cost_of


class SpreadNeighbors(FunctionPass, name="spread-neighbors"):
    least: int = 1_000          # nanoseconds of work, roughly, that are worth a job for threads that are awake

    def rewrite(self, function: NativeFunction) -> None:
        for block in blocks(function.body) if has_pool(function) else ():
            if any(isinstance(node, Spread) for node in block.nodes):
                block.nodes[:] = [in_parts(node) if isinstance(node, Compute) and cost_of(node.nest) >= self.least
                                  else node for node in block.nodes]
