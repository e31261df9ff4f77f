# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""prefetch-factors: prefetch the factor of a loop's next product while sums of this one are computed.

before:  for j in 0..16:  scores + 512 * j = queries.T @ (keys + 65536 * j)
after:   the same, which prefetches keys + 65536 * (j + 1), a line in each iteration of each tile

All keys of such a loop leave the second cache, so each panel of them comes from the third cache or from memory. The
processor prefetches lines only while it reads a panel for the first time, faster than these caches can deliver it. With
prefetches in the code, a panel arrives while the processor computes the tiles of the previous panel. The last iteration
prefetches memory behind the factors, which changes no value.
"""

from dataclasses import replace
from math import prod

from nki_mlir.targets.cpu.contraction import TileProduct, contraction_of, prefetched_positions
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Compute, NativeLoop, nodes_in
from nki_mlir.waist.nest import Nest


class PrefetchFactors(FunctionPass, name="prefetch-factors"):
    least: int = 524_288        # least bytes of all factors that a loop reads: fewer stay in the second cache

    def rewrite(self, function: NativeFunction) -> None:
        for loop in [node for node in nodes_in(*function.body.nodes) if isinstance(node, NativeLoop)]:
            if loop.span is None or loop.on_pool:
                continue
            for call in loop.body.nodes:
                if isinstance(call, Compute) and isinstance(call.function, Nest | TileProduct):
                    ahead = self.prefetch_distance(call, loop.slot, loop.span)
                    if ahead:
                        product = call.function if isinstance(call.function, TileProduct) else TileProduct(call.nest)
                        call.function = replace(product, ahead=ahead)

    def prefetch_distance(self, call: Compute, slot: int, span: range) -> int:
        """Return the distance in bytes from the factor of a product to the factor of the loop's next iteration. Return
        0 if there is no such factor, or if all of them stay in the second cache."""
        nest, contraction = call.nest, contraction_of(call.nest)
        if contraction is None or call.symbols or not prefetched_positions(nest):
            return 0
        factor = nest.inputs[contraction.vector]
        step = dict(call.regions[contraction.vector].offset.symbols).get(slot, 0) * span.step
        size = factor.dtype.itemsize * prod(
            extent for extent, stride in zip(nest.extents, factor.strides) if stride)
        return step if abs(step) >= size and len(span) * size >= self.least else 0
