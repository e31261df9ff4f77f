# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""forward-factors: let a product read a factor from its tile instead of from a transposed copy.

before:  copy(weights + 512 * j, copied); out += copied.T @ values
after:   out += (weights + 512 * j) @ values

A product broadcasts single elements of one factor, which it reads equally fast along rows and along columns. The pass
forwards a copy in float32 of a part of a tile if only the product after it reads the copy, and nothing in between
writes the tile.

A copy may convert narrower floats to float32. The pass then stores the tile in float32, with values rounded as before,
if everything else that reads the tile converts its elements as well.
"""

from collections.abc import Sequence

from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu.contraction import contraction_of, tile_of
from nki_mlir.targets.cpu.forwarding import filled_tile, reading_source
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Compute, NativeBlock, RoutineCall, ScratchBuffer, calls_in, compute
from nki_mlir.targets.cpu.passes.widen_tiles import can_be_wide, is_converted, widen, widened
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.recognize import is_copy


class ForwardFactors(FunctionPass, name="forward-factors"):
    most: int = 8               # most blocks of columns of a product: each reads the factor again
    size: int = 1_048_576       # most bytes of a tile that is stored in float32

    def rewrite(self, function: NativeFunction) -> None:
        self.widen_sources(function)
        new_products: dict[RoutineCall, Compute] = {}
        unneeded: dict[NativeBlock, set[Compute | ScratchBuffer]] = {}      # copies and their tiles
        for block, copy, tile, users in function.tile_writers(copies_into_tile):
            product = product_behind(block, copy, users)
            if product is None or product in new_products:
                continue
            forwarded = self.on_source(product, copy)
            if forwarded is not None:
                new_products[product] = forwarded
                unneeded.setdefault(block, set()).update((copy, tile))
        for block, copies_and_tiles in unneeded.items():
            block.nodes[:] = [new_products.get(node, node) if isinstance(node, RoutineCall) else node
                              for node in block.without(copies_and_tiles)]

    def widen_sources(self, function: NativeFunction) -> None:
        """Store narrow tiles in float32 if products could then read them instead of their converted copies."""
        users_of, new_calls = function.users(), dict[RoutineCall, Compute]()
        verdicts: dict[ScratchBuffer, bool] = {}        # whether a tile can be wide, as its users are now
        wide: set[ScratchBuffer] = set()
        for block, copy, _, users in function.tile_writers(converts_into_tile):
            source, product = copy.regions[0].root, product_behind(block, copy, users)
            if product is None or not isinstance(source, ScratchBuffer) or source in wide:
                continue
            if source not in verdicts:
                calls = [new_calls.get(user, user) for user in users_of[source]]
                verdicts[source] = can_be_wide(source, calls, self.size)
            scale = FLOAT32.itemsize // copy.nest.inputs[0].dtype.itemsize
            if verdicts[source] and self.on_source(product, widened(source, copy, scale)):
                widen(source, users_of[source], new_calls)
                wide.add(source)
                for buffer in function.buffers_of(users_of[source]):
                    verdicts.pop(buffer, None)
        function.replace_calls(new_calls)

    def on_source(self, product: Compute, copy: Compute) -> Compute | None:
        """Return the product that reads the source of the copy; None if it cannot, or if the copy is faster."""
        nest, regions = product.nest, list(product.regions)
        contraction = contraction_of(nest)
        assert contraction is not None
        factor, columns = contraction.broadcast, nest.extents[contraction.column]
        in_tile = [k for k, region in enumerate(regions) if region.root is copy.regions[-1].root]
        if in_tile != [factor] or columns > self.most * tile_of(columns).width:
            return None
        on_source = reading_source(nest, factor, regions[factor], copy)
        if on_source is None or 1 not in on_source[0].inputs[factor].strides:
            return None
        forwarded, regions[factor] = on_source
        after = contraction_of(forwarded)
        is_same = after is not None and (after.vector, after.column) == (contraction.vector, contraction.column)
        return compute(forwarded, regions, product.symbols) if is_same else None


def copies_into_tile(copy: Compute) -> bool:
    """Return whether a computation copies float32 elements of a buffer to all of another one."""
    return is_copy(copy.nest) and copy.nest.outputs[0].dtype is FLOAT32 and fills_another_tile(copy)


def converts_into_tile(copy: Compute) -> bool:
    """Return whether a computation converts narrower floats of a buffer to all of another one, in float32."""
    nest = copy.nest
    if not (len(nest.inputs) == len(nest.outputs) == len(nest.steps) == 1) or nest.mask or nest.reduced:
        return False
    source, target = nest.inputs[0].dtype, nest.outputs[0].dtype
    return (source.is_float and source.itemsize < target.itemsize and target is FLOAT32 and is_converted(nest, 0)
            and fills_another_tile(copy))


def fills_another_tile(copy: Compute) -> bool:
    """Return whether a computation of one input reads a buffer of the function and writes all of another one."""
    source = copy.regions[0].root
    return not copy.symbols and isinstance(source, ScratchBuffer) and filled_tile(copy) not in (None, source)


def product_behind(block: NativeBlock, copy: Compute, users: Sequence[RoutineCall]) -> Compute | None:
    """Return the product that is the only reader of a copy in the block; None if the copy's source changes before."""
    product = users[-1]
    if len(users) != 2 or users[0] is not copy or not isinstance(product, Compute) or product not in block.nodes:
        return None
    if not isinstance(product.function, Nest) or contraction_of(product.nest) is None:
        return None
    source = copy.regions[0].root
    assert isinstance(source, ScratchBuffer)
    between = calls_in(*block.nodes[block.nodes.index(copy) + 1:block.nodes.index(product) + 1])
    users_between = [call for call in between if source.number in call.buffers or call is product]
    stays = all(isinstance(call, Compute) and all(region.root is not source for region in call.output_regions)
                for call in users_between)
    return product if stays else None
