# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""pair-factors: join neighbors of the summed axis to words, where the host multiplies pairs of bfloat16 faster.

before:  out += convert(a) * convert(b)              a of 64 x 128 and b of 64 x 512, in bfloat16
after:   x = pairs(a); y = pairs(b); out += x * y    32 x 128 and 32 x 512 words, of two products each

The 8-bit floats are bfloat16 numbers, so each product stays exact. Sums are float32; the order of their terms changes,
and the instruction treats inputs and sums below 2^-126 as 0. If the number of elements is odd, the last element forms a
pair with 0.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from nki_mlir.dialects.access import Linear
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, UINT16, UINT32
from nki_mlir.targets.cpu import host_measurements
from nki_mlir.targets.cpu.contraction import MULTIPLY_ADD, TileProduct, contraction_of, multiplies_in_pairs
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Compute, compute
from nki_mlir.targets.cpu.packed_products import JOIN, NARROWED_JOIN, NARROWED_WIDEN, PAIRED, WIDEN
from nki_mlir.targets.cpu.passes.widen_factors import dense_strides, elements_of
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.overlap import ByteRegion


class PairFactors(FunctionPass, name="pair-factors"):
    pairs: int = -1             # 1 joins pairs, 0 does not; -1 measures which is faster
    least: int = 16             # least times that a product must read each element of a factor
    most: int = 1_048_576       # most bytes of a factor in words

    def rewrite(self, function: NativeFunction) -> None:
        if self.pairs and host.multiplies_pairs():
            function.replace_computations(partial(self.in_pairs, function))

    def in_pairs(self, function: NativeFunction, call: Compute, memory: int) -> Compute:
        """Emit the words of a product's factors and return the product on them; return other calls unchanged."""
        nest = call.nest
        if contraction_of(nest) is None or not isinstance(call.function, Nest) or not self.are_worth_it(nest):
            return call
        axis = min((a for a in nest.reduced if nest.extents[a] > 1 and all(o.strides[a] for o in nest.inputs)),
                   key=lambda a: (nest.extents[a] % 2, a), default=None)
        if axis is None:
            return call
        words = [words_of(nest, k, axis) for k in range(2)]
        extents = halved(nest.extents, axis)
        product = Nest(extents, nest.reduced, tuple(words), 0, nest.outputs, MULTIPLY_ADD, (4,)).simplified
        if not multiplies_in_pairs(product) or not self.is_faster():
            return call
        regions = [*[self.joined(function, nest, k, axis, words[k], call.regions[k], memory) for k in range(2)],
                   call.regions[2]]
        return Compute(TileProduct(product, False, True), tuple(r.address for r in regions), product, regions)

    def are_worth_it(self, nest: Nest) -> bool:
        """Return whether bfloat16 holds both factors, which are small and read often."""
        counts = [elements_of(nest, k) for k in range(2)]
        return not nest.symbols and all(o.dtype in PAIRED for o in nest.inputs) and all(
            count * self.least <= nest.elements and 2 * count <= self.most for count in counts)

    def is_faster(self) -> bool:
        return self.pairs == 1 or (
            host_measurements.rate_of_unit("pairs") > host_measurements.rate_of_unit("float32"))

    def joined(self, function: NativeFunction, nest: Nest, factor: int, axis: int, words: Operand, region: ByteRegion,
               memory: int) -> ByteRegion:
        """Emit the words of a factor, and return where they are."""
        source, extent = nest.inputs[factor], nest.extents[axis]
        axes = sorted([a for a, step in enumerate(words.strides) if step], key=lambda a: -words.strides[a])
        buffer = function.allocate(FLOAT32.itemsize * (elements_of(nest, factor) // extent) * (-(-extent // 2)), memory)

        def convert(start: int, count: int, elements: int, steps: Sequence[Step]) -> None:
            """Emit ``count`` words along the summed axis from word ``start`` on, each of one or two ``elements``."""
            extents = tuple([count if a == axis else nest.extents[a] for a in axes])
            strides = tuple([source.strides[a] * (1 + (a == axis)) for a in axes])
            operand = Operand(UINT16 if source.dtype is BFLOAT16 else source.dtype, strides)
            target = Operand(UINT32, tuple([words.strides[a] for a in axes]))
            conversion = Nest(extents, frozenset(), (operand,) * elements, 0, (target,), tuple(steps),
                              (elements + len(steps),)).simplified
            step = source.strides[axis] * source.dtype.itemsize
            sources = [region.moved(Linear((2 * start + k) * step))
                       for k in range(elements)]
            written = replace(buffer.region, offset=Linear(start * words.strides[axis] * FLOAT32.itemsize))
            function.add(compute(conversion, [*sources, written]))
        convert(0, extent // 2, 2, JOIN if source.dtype is BFLOAT16 else NARROWED_JOIN)
        if extent % 2:
            convert(extent // 2, 1, 1, WIDEN if source.dtype is BFLOAT16 else NARROWED_WIDEN)
        return buffer.region


def halved(extents: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple([-(-n // 2) if a == axis else n for a, n in enumerate(extents)])


def words_of(nest: Nest, factor: int, axis: int) -> Operand:
    """Return the words of a factor without gaps, in the order in which it lies in memory."""
    return Operand(FLOAT32, dense_strides(nest.inputs[factor].strides, halved(nest.extents, axis)))
