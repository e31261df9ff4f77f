# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""store-products: start sums of products from 0 in registers, and store them at the destination of their copy.

before:  set(sums, 0); sums += a.T @ b; copy(sums, scores + 512 * j)
after:   scores + 512 * j = a.T @ b

The pass drops the zeros if the product writes the complete tile that they fill, and nothing uses them in between; also
if it writes a box of the tile, outside of which nothing else uses the tile. It also drops the copy if it copies the
complete tile to a buffer of float32, and nothing else uses the tile.
"""

from collections.abc import Sequence

from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.contraction import TileProduct, contraction_of
from nki_mlir.targets.cpu.forwarding import filled_tile, stays_inside, writing_target, written_box, zeroed_tile
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.overlap import ByteRegion
from nki_mlir.waist.recognize import is_copy


class StoreProducts(FunctionPass, name="store-products"):
    def rewrite(self, function: NativeFunction) -> None:
        for block, product, tile, users in function.tile_writers(writes_a_box):
            zeros = zeros_before(block, product, users)
            if zeros is None:
                continue
            block.nodes.remove(zeros)
            position = block.nodes.index(product)
            copy = users[-1]
            moved = None
            if len(users) == 3 and isinstance(copy, cpu.Compute) and copy in block.nodes[position + 1:position + 2]:
                moved = stored_at_copy(product, copy)
            block.nodes[position] = moved or with_sums_from_zero(product, product.nest, product.regions)
            if moved is not None:
                block.nodes[:] = block.without({copy, tile})


def writes_a_box(call: cpu.Compute) -> bool:
    """Return whether a computation is a product in float32 that writes each element of a buffer, or of a box of it,
    once."""
    return (contraction_of(call.nest) is not None and isinstance(call.function, Nest | TileProduct)
            and written_box(call) is not None)


def zeros_before(block: cpu.NativeBlock, product: cpu.Compute, users: Sequence[cpu.RoutineCall]) -> cpu.Compute | None:
    """Return the computation that fills the product's tile with zeros, if nothing else uses the tile before the
    product, and nothing later uses elements that the product does not write."""
    if len(users) < 2 or users[1] is not product or (
            not isinstance(users[0], cpu.Compute) or users[0] not in block.nodes):
        return None
    tile, box = zeroed_tile(users[0]), written_box(product)
    if tile is None or tile is not product.regions[-1].root or box is None:
        return None
    return users[0] if filled_tile(product) is tile or all(
        isinstance(user, cpu.Compute) and stays_inside(box, tile, user) for user in users[1:]) else None


def with_sums_from_zero(product: cpu.Compute, nest: Nest, regions: Sequence[ByteRegion]) -> cpu.Compute:
    routine = TileProduct(nest, True, isinstance(product.function, TileProduct) and product.function.pairs)
    return cpu.Compute(routine, tuple(region.address for region in regions), nest, regions)


def stored_at_copy(product: cpu.Compute, copy: cpu.Compute) -> cpu.Compute | None:
    """Return the product with its sums at the destination of a copy; None if the copy has another form."""
    target = copy.regions[-1].root
    if not is_copy(copy.nest) or copy.nest.outputs[0].dtype is not FLOAT32 or (
            not isinstance(target, cpu.ScratchBuffer) or target in [region.root for region in product.regions]):
        return None
    stored = writing_target(product.nest, product.regions[-1], copy)
    if stored is None or stored[0].outputs[0].strides[contraction_column(product.nest)] != 1:
        return None
    return with_sums_from_zero(product, stored[0], [*product.regions[:-1], stored[1]])


def contraction_column(nest: Nest) -> int:
    contraction = contraction_of(nest)
    assert contraction is not None
    return contraction.column
