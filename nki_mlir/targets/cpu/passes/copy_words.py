# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""copy-words: copy pairs of a transposed tile as words, where they are neighbors in its source.

before:  copy(weights[:, 128 * j], transposed); words = pairs(transposed)      16-bit elements, one by one
after:   words = copy(weights[:, 128 * j])                             words of two elements

Pairs join neighbors of the summed axis of a product (`pair-factors`). They lie apart in a transposed copy of a tile
whose rows go along that axis. The pass needs a copy that only the join reads, and a tile that nothing writes between
copy and join.
"""

from dataclasses import replace

from nki_mlir.dialects.access import Linear
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu.forwarding import filled_tile, reading_source
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Compute, NativeBlock, RoutineCall, ScratchBuffer, calls_in, compute
from nki_mlir.targets.cpu.packed_products import JOIN
from nki_mlir.waist.nest import Nest, Operand
from nki_mlir.waist.recognize import is_copy

PAIR = 2                            # elements of a word


class CopyWords(FunctionPass, name="copy-words"):
    def rewrite(self, function: NativeFunction) -> None:
        new_calls: dict[RoutineCall, Compute] = {}
        unneeded: dict[NativeBlock, set[RoutineCall | ScratchBuffer]] = {}
        for block, copy, tile, users in function.tile_writers(copies_halves):
            join = users[-1]
            if len(users) == 2 and users[0] is copy and is_join(join) and join in block.nodes and (
                    is_unchanged(block, copy, join)):
                words = words_of_source(join, copy)
                if words is not None:
                    new_calls[join] = words
                    unneeded.setdefault(block, set()).update((copy, tile))
        for block, copies_and_tiles in unneeded.items():
            block.nodes[:] = block.without(copies_and_tiles)
        function.replace_calls(new_calls)


def copies_halves(copy: Compute) -> bool:
    """Return whether a computation copies 16-bit elements of a buffer to all of another one."""
    nest = copy.nest
    return is_copy(nest) and PAIR * nest.outputs[0].dtype.itemsize == FLOAT32.itemsize and not copy.symbols and (
        isinstance(copy.regions[0].root, ScratchBuffer) and filled_tile(copy) not in (None, copy.regions[0].root))


def is_join(call: RoutineCall) -> bool:
    """Return whether a computation joins pairs of elements to words."""
    return isinstance(call, Compute) and call.nest.steps == JOIN and isinstance(call.function, Nest)


def is_unchanged(block: NativeBlock, copy: Compute, join: RoutineCall) -> bool:
    """Return whether nothing writes the source of a copy before the join."""
    source = copy.regions[0].root
    assert isinstance(source, ScratchBuffer)
    between = calls_in(*block.nodes[block.nodes.index(copy) + 1:block.nodes.index(join)])
    return all(isinstance(call, Compute) and all(region.root is not source for region in call.output_regions)
               for call in between if source.number in call.buffers)


def words_of_source(join: RoutineCall, copy: Compute) -> Compute | None:
    """Return a copy of words from the source of a copy; None if the elements of a pair are no neighbors there."""
    assert isinstance(join, Compute)
    element, regions = copy.nest.outputs[0].dtype, list(join.regions)
    nest = replace(join.nest, inputs=tuple([replace(operand, dtype=element) for operand in join.nest.inputs]))
    for number in range(PAIR):
        forwarded = reading_source(nest, number, regions[number], copy)
        if forwarded is None:
            return None
        nest, regions[number] = forwarded
    first, second = nest.inputs
    start, distance = regions[0].offset, regions[1].offset.plus(regions[0].offset, -1)
    if first.strides != second.strides or distance != Linear(element.itemsize):
        return None
    if any(step % PAIR for step in first.strides) or any(
            n % FLOAT32.itemsize for n in (start.const, *[factor for _, factor in start.symbols])):
        return None
    words = Nest(nest.extents, frozenset(), (Operand(FLOAT32, tuple([s // PAIR for s in first.strides])),), 0,
                 (replace(nest.outputs[0], dtype=FLOAT32),), (), (0,)).simplified
    return compute(words, [regions[0], regions[2]])
