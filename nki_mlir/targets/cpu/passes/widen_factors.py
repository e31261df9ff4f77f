# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""widen-factors: convert factors of a product that are narrower than float32 to float32 only once.

before:  out += convert(a) * convert(b)          each element of a tile of 128 x 128 by 128 x 512 some 16 times
after:   wide = convert(a); other = convert(b); out += wide * other

All narrower floats are float32 numbers, so products and sums stay the same.
"""

from collections.abc import Sequence
from functools import partial
from math import prod

from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu.contraction import MULTIPLY_ADD, contraction_of
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Compute, compute
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.overlap import ByteRegion


class WidenFactors(FunctionPass, name="widen-factors"):
    least: int = 8              # least times that a product must read each element of a factor
    most: int = 1_048_576       # most bytes of a converted factor

    def rewrite(self, function: NativeFunction) -> None:
        function.replace_computations(partial(self.widened, function))

    def widened(self, function: NativeFunction, call: Compute, memory: int) -> Compute:
        """Emit the conversions of a product's factors and return the product on them; return other calls as they
        are."""
        nest = call.nest
        if contraction_of(nest) is None:
            return call
        narrow = [k for k, o in enumerate(nest.inputs) if o.dtype is not FLOAT32]
        if not self.are_worth_it(nest, narrow):
            return call
        inputs, regions = list(nest.inputs), list(call.regions)
        for k in narrow:
            inputs[k], regions[k] = self.converted(function, nest, k, call.regions[k], memory)
        product = Nest(nest.extents, nest.reduced, tuple(inputs), 0, nest.outputs, MULTIPLY_ADD, (4,))
        return compute(product.simplified, regions)

    def are_worth_it(self, nest: Nest, narrow: list[int]) -> bool:
        """Return whether there are factors to convert, all of them small and read often."""
        counts = [elements_of(nest, k) for k in narrow]
        return bool(narrow) and not nest.symbols and all(
            count * self.least <= nest.elements and count * FLOAT32.itemsize <= self.most for count in counts)

    def converted(self, function: NativeFunction, nest: Nest, factor: int, region: ByteRegion, memory: int
                  ) -> tuple[Operand, ByteRegion]:
        """Emit the conversion of a factor to float32, without gaps, in the order in which it lies in memory."""
        source = nest.inputs[factor]
        wide = Operand(FLOAT32, dense_strides(source.strides, nest.extents))
        widened = function.allocate(FLOAT32.itemsize * elements_of(nest, factor), memory).region
        axes = [a for a, step in enumerate(source.strides) if step]
        conversion = Nest(tuple([nest.extents[a] for a in axes]), frozenset(), (source.along(axes),), 0,
                          (wide.along(axes),), (Step("convert", FLOAT32, (0,)),), (2,))
        function.add(compute(conversion.simplified, [region, widened]))
        return wide, widened


def dense_strides(steps: Sequence[int], extents: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of the same elements stored without gaps, in the same order in memory."""
    strides, size = [0] * len(steps), 1
    for axis in sorted([a for a, step in enumerate(steps) if step], key=lambda a: (abs(steps[a]), -extents[a])):
        strides[axis] = size
        size *= extents[axis]
    return tuple(strides)


def elements_of(nest: Nest, factor: int) -> int:
    """Count the elements of a factor."""
    return prod(n for n, step in zip(nest.extents, nest.inputs[factor].strides) if step)
