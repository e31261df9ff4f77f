# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""move-psum-results: copy results that later instructions only read from PSUM to SBUF, if PSUM is full.

before:  p0 = l.T @ m0 ... p8 = l.T @ m8              after:  p0 = l.T @ m0; t0 = copy p0 ... p8 = l.T @ m8; t8 = ...
         max of p0 ... max of p8                              max of t0 ... max of t8

A result is moved when its last product is done, as far as products wrote its tile; all later instructions read it
from SBUF. A tile of several banks each of which has its own products is moved bank by bank: each bank is copied, and
free, when its last product is done. The pass moves all tiles of the kernel's line that occupies most of PSUM at the
peak, then the tiles of the next line, until the others fit in program order. Tiles to which later products add, whose
address the kernel chose, or that other runs of instructions use as well, stay; if PSUM is then too small,
``allocate-on-chip`` raises the error.

A ``percent`` below 100 keeps the rest of PSUM free, and one more byte: products of the next iteration start there while
this iteration's results are read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

import numpy as np

from nki_mlir.analysis.dead_code import covers
from nki_mlir.dialects.access import PSUM, SBUF, Access, Linear, Tile, full_tile
from nki_mlir.dialects.nisa.movement import TensorCopyOp
from nki_mlir.dialects.op import NisaOp, Op, changed, on_engine
from nki_mlir.machine import Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.liveness import Liveness, peak
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Block, Code, DeviceBuffer, InstructionStep, blocks, tiles_of
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of
from nki_mlir.targets.neuron.codegen.split_blocks import Pieces, fits


class MovePsumResults(RecordsPass, name="move-psum-results", reads=Level.NISA):
    percent: int = 100          # percent of PSUM that results may fill in program order

    def rewritten(self, code: Code) -> None:
        move_psum_results(code, self.percent)


@dataclass
class PsumResult:
    """A tile in PSUM that one run of instructions uses: the steps that write it, and the steps that only read it."""

    block: Block
    run: int
    writes: list[InstructionStep] = field(default_factory=list)
    readers: list[InstructionStep] = field(default_factory=list)        # readers after the last writer
    read_before: bool = False           # whether other steps read the tile before its last writer


def move_psum_results(code: Code, percent: int = 100) -> bool:
    """Move results until the others fill at most ``percent`` of PSUM in program order, in place. Return whether it
    moved any."""
    moved: set[DeviceBuffer] = set()
    while (held_bytes := held_at_peak(code, percent)) and (chosen := to_move(held_bytes, results(code), moved)):
        moved.update(chosen)
        moved.update(move(code, chosen))
    return bool(moved)


def held_at_peak(code: Code, percent: int) -> list[DeviceBuffer]:
    """Return the tiles in PSUM at its peak; none if they fit in ``percent`` of it or, below 100, in less than that."""
    limit = code.machine.psum_bytes_per_partition * percent // 100 - (percent < 100)
    if sum(occupied_bytes(buffer, code.machine) for block in blocks(code.body) for buffer in block.buffers
           if buffer.space == PSUM) <= limit:
        return []
    lives = list(Liveness(code, (PSUM,)).of.values())
    most, where = peak(lives, lambda buffer: occupied_bytes(buffer, code.machine))
    if most <= limit:
        return []
    return [life.buffer for life in lives if life.first <= where < life.last]


def occupied_bytes(buffer: DeviceBuffer, machine: Machine) -> int:
    """Return the bytes of a partition that a tile occupies, with the gap that keeps it from crossing banks."""
    size, bank = buffer.bytes_per_partition, machine.psum_bank_bytes
    return -(-size // bank) * bank if 2 * size > bank else size


def to_move(live: list[DeviceBuffer], results: dict[DeviceBuffer, PsumResult], moved: set[DeviceBuffer],
            ) -> dict[DeviceBuffer, PsumResult]:
    """Return the results to move: those of the kernel's line whose results fill the most bytes of PSUM."""
    bytes_of: dict[object, int] = {}
    for buffer in live:
        if buffer in results and buffer not in moved:
            bytes_of[line(buffer)] = bytes_of.get(line(buffer), 0) + buffer.bytes_per_partition
    if not bytes_of:
        return {}
    most = max(bytes_of, key=bytes_of.__getitem__)
    return {buffer: result for buffer, result in results.items() if line(buffer) == most and buffer not in moved}


def line(buffer: DeviceBuffer) -> object:
    """Return a key that the tiles of one line of a kernel share."""
    return buffer if buffer.location is None else (buffer.location, buffer.shape, buffer.dtype)


def results(code: Code) -> dict[DeviceBuffer, PsumResult]:
    """Return the tiles in PSUM that can be moved: one run computes them, and reads them when they are complete."""
    result_of: dict[DeviceBuffer, PsumResult] = {}
    block_of = {buffer: block for block in blocks(code.body) for buffer in block.buffers}
    elsewhere: set[DeviceBuffer] = set()
    for buffer, block, run, step in uses(code):
        result = result_of.setdefault(buffer, PsumResult(block, run))
        if step is None or result.block is not block or result.run != run:
            elsewhere.add(buffer)
        elif any(tile.handle is buffer for _, tile in step.op.targets()):
            result.writes.append(step)
            result.read_before |= bool(result.readers)
            result.readers.clear()
        else:
            result.readers.append(step)
    return {buffer: result for buffer, result in result_of.items() if buffer not in elsewhere and not buffer.fixed
            and block_of[buffer] is result.block and result.writes and result.readers}


def uses(code: Code) -> Iterator[tuple[DeviceBuffer, Block, int, InstructionStep | None]]:
    """Yield each use of a tile in PSUM: by a step of a run in a block, or by something else."""
    for block in blocks(code.body):
        for number, run in enumerate(runs_of(block.nodes)):
            for step in run:
                for buffer in {tile.handle: None for tile in tiles_of(step) if tile.space == PSUM}:
                    yield buffer, block, number, step
        for node in block.nodes:
            if not isinstance(node, InstructionStep):
                for tile in tiles_of(node):
                    yield tile.handle, block, -1, None


def move(code: Code, chosen: dict[DeviceBuffer, PsumResult]) -> list[DeviceBuffer]:
    """Copy tiles to SBUF after their last products, and let all later steps read the copies. Return the buffers in PSUM
    into which tiles were cut."""
    bank = code.machine.psum_bank_bytes
    after: dict[InstructionStep, list[InstructionStep]] = {}
    banks: dict[DeviceBuffer, list[DeviceBuffer]] = {}
    written: dict[DeviceBuffer, list[DeviceBuffer]] = {}
    for buffer, result in chosen.items():
        sbuf_copy = DeviceBuffer(buffer.name, SBUF, buffer.shape, buffer.dtype, location=buffer.location)
        result.block.buffers.append(sbuf_copy)
        writes_of = writes_by_bank(buffer, result, bank)
        if len(writes_of) > 1:
            banks[buffer] = [DeviceBuffer(buffer.name, PSUM, (buffer.partitions, bank // buffer.dtype.itemsize),
                                          buffer.dtype, location=buffer.location)
                             for _ in range(buffer.bytes_per_partition // bank)]
            written[buffer] = [banks[buffer][number] for number in sorted(writes_of)]
        for number, writes in writes_of.items():
            part = entire(buffer) if len(writes_of) == 1 else bank_of(entire(buffer), number, bank)
            after.setdefault(writes[-1], []).extend(
                writes[-1].with_op(TensorCopyOp(dst=moved_to(tile, sbuf_copy), src=tile))
                for tile in written_tiles(part, writes))
        for step in result.readers:
            step.op = reading(step.op, buffer, sbuf_copy)
    pieces = Pieces(banks)
    for block in blocks(code.body):
        block.buffers = [part for buffer in block.buffers for part in written.get(buffer, [buffer])]
        nodes: list[object] = []
        for old in block.nodes:
            for node in (old, *after.get(old, ())):
                if banks and isinstance(node, InstructionStep):
                    pieces.append(node, nodes)
                else:
                    nodes.append(node)
        block.nodes = nodes
    return list(chain.from_iterable(written.values()))


def writes_by_bank(buffer: DeviceBuffer, result: PsumResult, bank: int) -> dict[int, list[InstructionStep]]:
    """Return the steps that write each bank of a tile, if each step but those that fill it uses one bank, if some banks
    are complete before others, and if nothing reads the tile before it is complete; otherwise return all writers, as if
    the tile were in one bank."""
    together = {0: result.writes}
    if result.read_before or buffer.bytes_per_partition % bank or buffer.bytes_per_partition == bank:
        return together
    writes: dict[int, list[InstructionStep]] = {}
    for step in result.writes:
        for _, tile in step.op.operands():
            if tile.handle is buffer:
                if not fits(step, tile, bank):
                    return together
                _, _, start, end = tile.bounds
                for number in range(start // bank, (end - 1) // bank + 1):
                    writes.setdefault(number, []).append(step)
    return writes if len({steps[-1] for steps in writes.values()}) > 1 else together


def bank_of(tile: Tile, number: int, bank: int) -> Tile:
    """Return the part of an entire tile that is in one of its banks."""
    elements = bank // tile.dtype.itemsize
    access = Access(tile.dtype, tile.access.partition, tile.access.free.plus(Linear(number * elements)),
                    (tile.access.dims[0], (1, elements)))
    return Tile(tile.handle, tile.space, tile.base_shape, tile.base_dtype, access, tile.label)


def written_tiles(part: Tile, writes: list[InstructionStep]) -> list[Tile]:
    """Return the tiles that instructions write in a part of a buffer, or the part itself if they write all of it. The
    pass does not copy elements that no instruction writes, since none may read them."""
    _, _, start, end = part.bounds
    tiles = {tile.access: tile for step in writes for _, tile in step.op.targets() if tile.handle is part.handle}
    if any(access.symbols_used() for access in tiles) or cover(part.partitions, start, end, tuple(tiles)):
        return [part]
    return [*tiles.values()]


@lru_cache(1 << 12)
def cover(partitions: int, start: int, end: int, accesses: tuple[Access, ...]) -> bool:
    """Return whether patterns have all bytes from ``start`` to ``end`` of all partitions. Memoized, since many buffers
    have the same patterns."""
    flags = np.zeros((partitions, end), np.bool_)
    for access in accesses:
        itemsize, first = access.dtype.itemsize, access.partition.const         # type: ignore[union-attr]
        starts = np.zeros(1, np.int64)
        for step, count in access.free_dims:
            starts = np.add.outer(starts, np.arange(count) * step).reshape(-1)
        columns = np.add.outer((starts + access.free.const) * itemsize, np.arange(itemsize)).reshape(-1)
        flags[first:first + access.dims[0][1], columns[columns < end]] = True
    return bool(flags[:, start:].all())


def moved_to(tile: Tile, buffer: DeviceBuffer) -> Tile:
    """Return the same part of another buffer of the same shape, in SBUF."""
    return Tile(buffer, SBUF, tile.base_shape, tile.base_dtype, tile.access, tile.label)


def entire(buffer: DeviceBuffer) -> Tile:
    row = buffer.bytes_per_partition // buffer.dtype.itemsize
    flat = full_tile(buffer, (buffer.partitions, row), buffer.dtype, buffer.space)
    return Tile(buffer, buffer.space, buffer.shape, buffer.dtype, flat.access, buffer.name)


def writes_all(op: Op, buffer: DeviceBuffer) -> bool:
    """Return whether an operation writes all of a buffer."""
    return not (op.mask or op.limits) and any(
        tile.handle is buffer and covers(tile, entire(buffer)) for _, tile in op.targets())


def reading(op: Op, buffer: DeviceBuffer, destination: DeviceBuffer) -> Op:
    """Return the operation with the tile in its new memory, on the engine that it would have without the move."""
    def tile(old: Tile) -> Tile:
        return old if old.handle is not buffer else moved_to(old, destination)
    moved = changed(op, tile)
    return on_engine(moved, op.runs_on) if isinstance(op, NisaOp) and moved.runs_on is not op.runs_on else moved
