# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""deepen-products: add products of several iterations of a loop in registers.

before:  for j in 0..16:       sums += weights[:, 128 * j + k] * values[128 * j + k]         over 128 k
after:   for j in 0..16 by 4:  sums += weights[:, 128 * (j + i) + k] * values[...]           over 4 i and 128 k

Before, each iteration loads and stores all sums. The pass applies to loops without other operations whose variable
moves only factors, so that sums keep the order of their terms.
"""

from dataclasses import replace
from math import prod

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.contraction import TileProduct, contraction_of
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Allocate, Compute, NativeLoop, nodes_in
from nki_mlir.waist.nest import Nest, Operand


class DeepenProducts(FunctionPass, name="deepen-products"):
    depth: int = 512            # most terms of a sum in registers: panels of more leave the second cache

    def rewrite(self, function: NativeFunction) -> None:
        for loop in [node for node in nodes_in(*function.body.nodes) if isinstance(node, NativeLoop)]:
            # unused allocations do not count
            nodes = [node for node in loop.body.nodes if not isinstance(node, Allocate)]
            product = nodes[0] if len(nodes) == 1 else None
            if isinstance(product, Compute) and loop.span is not None and not loop.on_pool:
                deep = self.deepened(product, loop.slot, loop.span)
                if deep is not None:
                    loop.body.nodes[:], times = [deep[0]], deep[1]
                    loop.step, loop.span = Linear(loop.span.step * times), loop.span[::times]
                    function.ranges[loop.slot] = loop.span[0], loop.span[-1]

    def deepened(self, product: Compute, slot: int, span: range) -> tuple[Compute, int] | None:
        """Return the product that adds the terms of several iterations, and the number of these; None if the loop stays
        unchanged."""
        nest, function = product.nest, product.function
        contraction = contraction_of(nest)
        if contraction is None or product.symbols or not (isinstance(function, Nest) or (
                isinstance(function, TileProduct) and not function.fresh)):
            return None
        steps = [dict(region.offset.symbols).get(slot, 0) * span.step for region in product.regions]
        sizes = [operand.dtype.itemsize for operand in nest.operands]
        terms = prod(nest.extents[axis] for axis in nest.reduced)
        times = next((n for n in range(min(len(span), self.depth // terms), 1, -1) if len(span) % n == 0), 1)
        if times == 1 or steps[2] or not (steps[0] and steps[1]) or any(s % n for s, n in zip(steps, sizes)):
            return None
        deep = with_sum(nest, times, [step // size for step, size in zip(steps, sizes)])
        roots = [region.root for region in product.regions]
        if roots[2] in roots[:2] or contraction_of(deep) is None:
            return None
        routine = replace(function, nest=deep) if isinstance(function, TileProduct) else deep
        return Compute(routine, product.arguments, deep, product.regions), times


def with_sum(nest: Nest, times: int, steps: list[int]) -> Nest:
    """Return a nest with one more axis, of extent ``times``, along which it adds. The new axis comes before the reduced
    axes."""
    first = min(nest.reduced)

    def stepping(operand: Operand, step: int) -> Operand:
        return replace(operand, strides=(*operand.strides[:first], step, *operand.strides[first:]))
    a, b, out = map(stepping, nest.operands, steps)
    return replace(nest, extents=(*nest.extents[:first], times, *nest.extents[first:]), inputs=(a, b), outputs=(out,),
                   reduced=frozenset({first, *(axis + (axis >= first) for axis in nest.reduced)}))
