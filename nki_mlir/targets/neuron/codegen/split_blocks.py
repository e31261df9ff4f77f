# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""split-blocks: split a buffer into a buffer for each block, if each instruction uses a single block.

before:  %t = memref.alloc() : memref<128x4x512xf32, "psum">   after:  %t_0 = memref.alloc() : memref<128x512xf32, ...>
         matmul into %t[:, 2], copy from %t[:, 2] ...                  %t_1 = ...

Each block then has a separate live range and PSUM bank. A constant that is written over several blocks becomes one
instruction for each block. Any other instruction that touches two blocks prevents the split, and so does an offset that
is known only at run time. The pass splits a buffer along its leading free axes into the smallest possible blocks.

Where the kernel chose an address for each block (``nki.addresses``), those blocks become buffers with these addresses.
An instruction that touches two of them requires contiguous addresses.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM, Access, Linear, Tile
from nki_mlir.dialects.nisa.movement import MemsetOp
from nki_mlir.dialects.op import with_tiles
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen import records
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass


class BlocksApart(NkiMlirError):
    code = "NKI-ADDRESS"
    message = "blocks of {buffer} that are used together have addresses that are not contiguous"
    why = "an instruction reaches several blocks only if they are contiguous and in the same partitions"
    fix = "give such blocks consecutive addresses, or use one block at a time"


class SplitBlocks(RecordsPass, name="split-blocks", reads=Level.NISA):
    def rewritten(self, code: records.Code) -> None:
        split_blocks(code)


def split_blocks(code: records.Code) -> None:
    """Split all buffers that can be split, in place, and drop addresses that were allocated for complete buffers."""
    records.forget_addresses(code)
    uses: dict[records.DeviceBuffer, list[tuple[records.InstructionStep | records.Load, Tile]]] = {
        buffer: [] for block in records.blocks(code.body) for buffer in block.buffers if may_split(buffer)}
    if not uses:
        return
    for node in records.nodes_in(code.body):
        for tile in records.tiles_of(node):
            if tile.handle in uses:
                uses[tile.handle].append((node, tile))
    parts: dict[records.DeviceBuffer, list[records.DeviceBuffer]] = {}
    for block in records.blocks(code.body):
        buffers: list[records.DeviceBuffer] = []
        for buffer in block.buffers:
            size = addressed_bytes(buffer, uses.get(buffer, [])) if buffer.addresses else block_bytes(
                buffer, uses.get(buffer, []))
            if size:
                parts[buffer] = pieces(buffer, size)
            buffers += parts.get(buffer, [buffer])
        block.buffers = buffers
    if parts:
        blocks_of = Pieces(parts)
        for block in records.blocks(code.body):
            nodes: list[object] = []
            for node in block.nodes:
                if type(node) is records.InstructionStep:
                    blocks_of.append(node, nodes)
                else:
                    nodes.append(node)
            block.nodes = nodes


def may_split(buffer: records.DeviceBuffer) -> bool:
    """Return whether a buffer's memory, shape and addresses allow splitting it."""
    if buffer.addresses:
        return True
    return buffer.space != HBM and len(buffer.shape) > 2 and not (buffer.fixed or buffer.attributes)


def addressed_bytes(buffer: records.DeviceBuffer, uses: list[tuple[records.InstructionStep | records.Load, Tile]]
                    ) -> int:
    """Return the bytes of the blocks that have addresses; 0 if the buffer stays in one piece, at the address of its
    first block."""
    size = buffer.bytes_per_partition // len(buffer.addresses)
    first_address = buffer.addresses[0]
    across = next((node for node, tile in uses if not fits(node, tile, size)), None)
    if across is None:
        return size
    if buffer.addresses != tuple((first_address[0], first_address[1] + k * size) for k in range(len(buffer.addresses))):
        raise BlocksApart(buffer=buffer.name).located(across.location)
    buffer.address, buffer.fixed, buffer.addresses = first_address, True, ()
    return 0


def block_bytes(buffer: records.DeviceBuffer, uses: list[tuple[records.InstructionStep | records.Load, Tile]]) -> int:
    """Return the bytes of the smallest blocks of which every use touches only one; 0 if the buffer is not split."""
    if not uses:
        return 0
    for axes in range(len(buffer.shape) - 2, 0, -1):
        count = prod(buffer.shape[1:1 + axes])
        size = buffer.bytes_per_partition // count
        if count > 1 and all(fits(step, tile, size) for step, tile in uses):
            return size
    return 0


def fits(node: object, tile: Tile, size: int) -> bool:
    """Return whether a use touches one block, or can be split at the starts of blocks."""
    _, _, start, after = tile.bounds
    if tile.access.free.symbols or size % tile.dtype.itemsize:
        return False
    if isinstance(node, records.InstructionStep) and start // size == (after - 1) // size:
        return True
    return isinstance(node, records.InstructionStep) and (
        type(node.op) is MemsetOp and not node.op.symbols and is_run(tile))


def is_run(tile: Tile) -> bool:
    """Return whether the free dims of a tile have all elements from the first to the last."""
    _, _, start, after = tile.bounds
    return tile.free_elements * tile.dtype.itemsize == after - start


def pieces(buffer: records.DeviceBuffer, size: int) -> list[records.DeviceBuffer]:
    """Return the buffers of the blocks."""
    count = buffer.bytes_per_partition // size
    axes = next(k for k in range(1, len(buffer.shape)) if prod(buffer.shape[1:1 + k]) == count)
    shape = buffer.shape[0], *buffer.shape[1 + axes:]
    parts = [replace(buffer, name=f"{buffer.name}_{k}" if buffer.name else "", shape=shape, addresses=())
            for k in range(count)]
    for block, address in zip(parts, buffer.addresses):
        block.address, block.fixed = address, True
    return parts


class Pieces:
    """The buffers that other buffers were cut into, and the tiles in them. Tiles of equal accesses are cut once."""

    def __init__(self, parts: dict[records.DeviceBuffer, list[records.DeviceBuffer]]) -> None:
        self.parts = parts
        self.pieces: dict[tuple[Access, int], tuple[int, Access] | None] = {}

    def append(self, step: records.InstructionStep, nodes: list[object]) -> None:
        """Append the step on blocks to ``nodes``; a constant over several blocks becomes a step for each."""
        op, parts = step.op, self.parts
        values = op.__dict__
        cut: dict[str, Tile] = {}
        for name in op.tile_names:
            tile = values[name]
            if tile is not None and tile.handle in parts:
                cut[name] = tile
        if not cut:
            nodes.append(step)
            return
        tiles = {name: piece for name, tile in cut.items() if (piece := self.piece(tile)) is not None}
        if len(tiles) == len(cut):
            nodes.append(step.with_op(with_tiles(op, tiles)))
        else:
            assert isinstance(op, MemsetOp)
            nodes += [step.with_op(with_tiles(op, {"dst": part})) for part in self.parts_in_blocks(op.dst)]

    def piece(self, tile: Tile) -> Tile | None:
        """Return a tile as a tile of the block that it touches; None if it touches several."""
        blocks_of, access = self.parts[tile.handle], tile.access
        size = blocks_of[0].bytes_per_partition
        key = access, size
        if key not in self.pieces:
            _, _, start, after = tile.bounds
            k = start // size
            self.pieces[key] = None if k != (after - 1) // size else (
                k, Access(access.dtype, access.partition,
                          access.free.plus(Linear(-k * size // access.dtype.itemsize)), access.dims))
        piece = self.pieces[key]
        if piece is None:
            return None
        block = blocks_of[piece[0]]
        return Tile(block, tile.space, block.shape, block.dtype, piece[1], block.name)

    def parts_in_blocks(self, tile: Tile) -> Iterator[Tile]:
        """Yield a tile as tiles of the blocks that it touches."""
        blocks_of, access = self.parts[tile.handle], tile.access
        size, item = blocks_of[0].bytes_per_partition, access.dtype.itemsize
        _, _, start, after = tile.bounds
        for k in range(start // size, (after - 1) // size + 1):
            block, begin, end = blocks_of[k], max(start, k * size), min(after, (k + 1) * size)
            free, dims = Linear((begin - k * size) // item), (access.dims[0], (1, (end - begin) // item))
            yield Tile(block, tile.space, block.shape, block.dtype,
                       Access(access.dtype, access.partition, free, dims), block.name)
