# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""store-products: begin sums of products that start from 0 in registers, and store them where they are copied to.

before:  set(sums, 0); sums += a.T @ b; copy(sums, scores + 512 * j)
after:   scores + 512 * j = a.T @ b

The pass drops the zeros where the product writes all of the tile that they fill, and nothing uses them in between. It
drops the copy as well where that takes all of the tile, which nothing else uses, to a buffer of float32.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu.contraction import TileProduct, contraction_of
from nki_mlir.targets.cpu.function import (
    ByteRegion,
    Compute,
    NativeBlock,
    NativeFunction,
    RoutineCall,
    ScratchBuffer,
)
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.waist.fusion import ElementMove
from nki_mlir.waist.nest import Nest, Operand
from nki_mlir.waist.recognize import is_copy


class StoreProducts(FunctionPass, name="store-products"):
    def rewrite(self, function: NativeFunction) -> None:
        for block, product, tile, users in function.tile_writers(fills_a_tile):
            zeros = zeros_before(block, product, users)
            if zeros is None:
                continue
            block.nodes.remove(zeros)
            position = block.nodes.index(product)
            copy = users[-1]
            moved = None
            if len(users) == 3 and isinstance(copy, Compute) and copy in block.nodes[position + 1:position + 2]:
                moved = stored_at_copy(product, copy)
            block.nodes[position] = moved or with_sums_from_zero(product, product.nest, product.regions)
            if moved is not None:
                block.nodes[:] = block.without(copy, tile)


def fills_a_tile(call: Compute) -> bool:
    """Whether a computation is a product in float32 that writes each element of a buffer."""
    nest, region = call.nest, call.regions[-1]
    if contraction_of(nest) is None or not isinstance(call.function, Nest | TileProduct):
        return False
    parallel = [axis for axis in range(len(nest.extents)) if axis not in nest.reduced]
    return isinstance(region.root, ScratchBuffer) and region.offset.symbols == () and region.offset.const == 0 and (
        is_dense(nest.outputs[0], nest.extents, parallel)
        and prod(nest.extents[axis] for axis in parallel) * FLOAT32.itemsize == region.root.size)


def is_dense(operand: Operand, extents: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether an operand has one element for each position of some axes, without gaps."""
    size = 1
    for stride, extent in sorted((operand.strides[axis], extents[axis]) for axis in axes if extents[axis] > 1):
        if stride != size:
            return False
        size *= extent
    return True


def zeros_before(block: NativeBlock, product: Compute, users: Sequence[RoutineCall]) -> Compute | None:
    """Return the computation that fills the product's tile with zeros, if it is the one use of the tile before the
    product."""
    if len(users) < 2 or users[1] is not product or not isinstance(users[0], Compute) or users[0] not in block.nodes:
        return None
    nest, region = users[0].nest, users[0].regions[-1]
    step = nest.steps[0] if len(nest.steps) == 1 else None
    is_zero = step is not None and step.kind == "constant" and float(step.number) == 0.0
    if not is_zero or nest.inputs or nest.mask or nest.reduced or len(nest.outputs) != 1 or (
            region.offset.symbols or region.offset.const or region.root is not product.regions[-1].root):
        return None
    covers = is_dense(nest.outputs[0], nest.extents, range(len(nest.extents)))
    return users[0] if covers and nest.elements * FLOAT32.itemsize == region.root.size else None    # type: ignore[union-attr]


def with_sums_from_zero(product: Compute, nest: Nest, regions: Sequence[ByteRegion]) -> Compute:
    routine = TileProduct(nest, True, isinstance(product.function, TileProduct) and product.function.pairs)
    return Compute(routine, tuple(region.address for region in regions), nest, regions)


def stored_at_copy(product: Compute, copy: Compute) -> Compute | None:
    """Return the product with its sums where a copy puts them; None where the copy is another one."""
    source, target = copy.regions[0], copy.regions[-1]
    if not is_copy(copy.nest) or copy.symbols or source.offset.symbols or source.offset.const or (
            copy.nest.outputs[0].dtype is not FLOAT32 or not isinstance(target.root, ScratchBuffer)
            or copy.nest.elements * FLOAT32.itemsize != source.root.size                            # type: ignore[union-attr]
            or target.root in [region.root for region in product.regions]):
        return None
    move = ElementMove(copy.nest, source.offset, target.offset)
    stored = move.at_target(product.nest.outputs[0], product.regions[-1].offset, product.nest.extents)
    if stored is None or not is_dense(copy.nest.inputs[0], copy.nest.extents, range(len(copy.nest.extents))) or (
            stored[0].strides[contraction_column(product.nest)] != 1):
        return None
    nest = replace(product.nest, outputs=(stored[0],))
    return with_sums_from_zero(product, nest, [*product.regions[:-1], replace(target, offset=stored[1])])


def contraction_column(nest: Nest) -> int:
    contraction = contraction_of(nest)
    assert contraction is not None
    return contraction.column
