# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tile-and-place: tile a graph's operations on HBM buffers of any size, and copy the tiles to and from the chip.

before:  linalg.generic ins(%a, %b) outs(%r) { in + in }            (memrefs in HBM)
after:   for each box of at most 128 rows:
           %x = memref.alloc() : memref<128x1024xf32, "sbuf">       linalg.generic ins(%part of %a) outs(%x)
           ...                                                      linalg.generic ins(%x, %y) outs(%z) { in + in }
           linalg.generic ins(%z) outs(%part of %r)

Axes that all operands step through as one are merged. The pass puts the largest axis of an elementwise operation along
the partitions, and divides the other axes so that a tile has at most ``elements`` in a partition. The remainders at the
ends of axes are separate boxes. A reduction keeps an axis along the partitions, or makes one: parts of the sum, which
are added up in a second step. Products become matrix products of tiles that add up in PSUM; operands in the other order
are transposed on chip. Operations that only move data between HBM buffers stay, because a DMA has no limit of size.

An operation whose result only one other operation uses is first fused with it. The pass loads no elements again that a
tile on chip has, and stores no result that nothing reads.
"""

from dataclasses import fields

from nki_mlir.analysis.effects import has_uses, memory_of
from nki_mlir.bindings import Module, Operation, ir, operations_of
from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.dialects.source_locations import errors_at
from nki_mlir.graph.choices import TileChoices
from nki_mlir.graph.kernel_rows import rows_of_kernels
from nki_mlir.graph.nests import in_hbm, read_nest
from nki_mlir.graph.placement import Placement
from nki_mlir.graph.tile_cache import TileCache
from nki_mlir.graph.tiles import drop_unread, load_on_chip
from nki_mlir.machine import machine_named
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.transforms.fuse_tiles import fuse_function
from nki_mlir.waist.expression import Constant
from nki_mlir.waist.tile_operand import TileNest


class TileAndPlace(Pass, name="tile-and-place", writes=Level.WAIST):
    elements: int = 1024        # most elements of a tile in a partition
    layouts: bool = True        # put the axis along the partitions that costs least, else the one that fills most
    even: bool = True           # cut axes after the innermost one into equal parts, else into full ones and a rest
    parts: bool = True          # read a part of a larger tile on chip, else only a tile of exactly these elements
    compose: bool = True        # assemble a tile from parts of several ones on chip, else load it
    transpose: bool = True      # transpose a tile on chip that has the rows as columns, else load it
    readers: bool = True        # drop tiles without later readers first, else the oldest
    exchange: bool = True       # exchange the factors of a product whose result would have rows of single elements
    columns: bool = True        # spread the columns of a product of one row over partitions, else one has all
    short_rows: bool = True     # load several neighboring short rows of a factor to one partition
    short_runs: bool = True     # load short runs of a factor with the elements between them
    neighbors: bool = True     # of axes of equal extent tile the one of neighboring results, else the outermost
    windows: bool = True        # load and transpose overlapping rows of a factor once, as those of a convolution
    images: bool = True         # keep the image of a convolution on chip, its channels along the partitions
    packed: bool = True         # copy a factor in HBM to rows of summed elements where products are then larger
    totals: bool = True         # fold the parts of a total in every partition, else in one, and load that to all
    later_rows: bool = True     # copy rows from later partitions of a tile on chip, else load them
    moves: bool = True          # let a copy's readers read the tiles on chip of its source, else copy from HBM to HBM
    kernel_rows: bool = True    # tile tensors that a kernel moves by rows by these rows, else as fills most partitions
    vectors: bool = True        # sum products of one row with one row on the vector engine, else on the tensor engine

    @property
    def choices(self) -> TileChoices:
        return TileChoices(**{choice.name: getattr(self, choice.name) for choice in fields(TileChoices)})

    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            for kernel in kernel_functions(module):
                fuse_function(kernel, in_hbm)
                placement = Placement(machine_named(kernel.target), self.choices, rows_of_kernels(kernel.op))
                for op in operations_of(kernel.op, lambda name: name == "memref.load"):
                    if has_uses(op.results[0]) and in_hbm(op) and not op.parent.name.startswith("linalg."):
                        load_on_chip(op, placement.tiles)
                nests = operations_of(kernel.op, lambda name: name in ("linalg.generic", "linalg.fill"))
                written: list[Operation] = []
                starts: list[tuple[Operation, float | int]] = []
                for op in nests:
                    if in_hbm(op) and "nki.mask" not in op.attributes:
                        written.append(op)
                        write_on_tiles(op, placement, starts)
                for op in written:
                    op.erase()
                for op in operations_of(kernel.op, lambda name: name == "memref.load"):
                    if not has_uses(op.results[0]):
                        op.erase()
                drop_unread(kernel.op)


def write_on_tiles(op: Operation, placement: Placement, starts: list[tuple[Operation, float | int]]) -> None:
    """Write one operation on tiles.

    A fill that only starts the next fold is written together with the fold: ``starts`` has the start values of folds.
    """
    with errors_at(op):
        nest, symbols, gathers = read_nest(op)
        for gather in gathers:
            placement.gather(op, gather)
        if isinstance(nest.body, Constant) and not nest.reduced:
            fold = next_operation(op, placement.tiles.cache)
            if fold is not None and fold.name == "linalg.generic" and in_hbm(fold):
                after, _, before = read_nest(fold)
                if after.reduced and not before and same_output(nest, after):
                    starts.append((fold, nest.body.value))
                    return
        placement.write(op, nest, symbols, next((value for fold, value in starts if fold == op), None))


def next_operation(op: Operation, cache: TileCache) -> Operation | None:
    """Return the next operation that touches the buffer that an operation writes."""
    block = [other.operation for other in op.block.operations]
    buffer = memory_of(op.operands[len(op.operands) - 1])
    return next((other for other in block[block.index(op) + 1:] if cache.effects_of(other).touches(buffer)), None)


def same_output(fill: TileNest, fold: TileNest) -> bool:
    """Return whether a fill writes the start value of a fold."""
    def walked(nest: TileNest) -> tuple[object, ...]:
        o = nest.output
        return o.handle, o.free, sorted((step, n) for step, n in zip(o.strides, nest.extents) if step and n > 1)
    return walked(fill) == walked(fold)
