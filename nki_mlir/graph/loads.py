# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers in HBM that decide where a graph goes on or what it reads: registers are loaded from memory on chip.

before:  %n = memref.load %x[] : memref<i32, "hbm">
after:   %t = memref.alloc() : memref<1x1xi32, "sbuf">; linalg.generic ins(%x) outs(%t); %n = memref.load %t[%c0, %c0]
"""

from dataclasses import replace

from nki_mlir.bindings import Operation, Value, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.graph.bodies import chosen, compared, numbers, unsigned
from nki_mlir.graph.tiles import Tiles
from nki_mlir.scalar.dtypes import BOOL, INT32
from nki_mlir.waist.tile_nest import Input
from nki_mlir.waist.tile_reader import NestReader

GREATEST = (1 << 31) - 1
UNSIGNED = ("arith.index_castui", "arith.extui")


def load_on_chip(load: Operation, tiles: Tiles) -> None:
    """Rewrite one load."""
    kind = load.results[0].type
    if not isinstance(kind, ir.IntegerType) or kind.width > 32:
        raise Unsupported(feature=f"a choice or an index of type {kind} in a graph as engine instructions",
                          instead="use an int32").located(location_of(load))
    reader = NestReader(load)
    view = reader.view(load.operands[0])
    access = view.tile.access
    for d, subscript in zip(view.dims, list(load.operands)[1:]):
        access = access.moved(d, reader.form(subscript))
    tiles.at(load, tuple(reader.numbering.values))
    tile = tiles.buffer((1, 1), access.dtype)
    tiles.copy(tile, replace(view.tile, access=replace(access, dims=((1, 1), (1, 1)))))
    casts = [use.owner.operation for use in load.results[0].uses if use.owner.name in UNSIGNED]
    if casts and tile.dtype is not BOOL:
        number = without_sign(tile, tiles)
        for cast in casts:
            cast.results[0].replace_all_uses_with(tiles.writer.create(
                "arith.index_cast", [number], [cast.results[0].type]).results[0])
    load.results[0].replace_all_uses_with(loaded(tile, tiles))
    load.erase()


def without_sign(tile: Tile, tiles: Tiles) -> Value:
    """A number whose highest bit is no sign. It is at most the greatest int32, which is behind all places, too."""
    number = tiles.buffer((1, 1), INT32)
    value, zero = unsigned(Input(tile.dtype, 0), tile.dtype.bits), numbers(0, INT32)
    tiles.apply(number, tile, chosen(compared("less", value, zero), numbers(GREATEST, INT32), value))
    return loaded(number, tiles)


def loaded(tile: Tile, tiles: Tiles) -> Value:
    """The number in a tile of one element."""
    write = tiles.writer
    zero = write.create("arith.constant", [], [write.make.index], {
        "value": ir.IntegerAttr.get(write.make.index, 0)}).results[0]
    kind = ir.MemRefType(tile.handle.type).element_type
    return write.create("memref.load", [tile.handle, zero, zero], [kind]).results[0]
