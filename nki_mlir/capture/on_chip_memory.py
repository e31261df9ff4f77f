# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the on-chip memory of a kernel: tiles that are too large, too many live tiles, addresses that collide.

Each emitted operation has a number. A tile is live from the first to the last operation that uses it; a tile that was
allocated before a loop that uses it is live from the beginning to the end of the loop.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.dialects.target_rules import Finding, TargetRule
from nki_mlir.machine import Machine
from nki_mlir.waist.overlap import boxes_overlap

NAMED = 8                       # the most tiles that a message names


class TileTooLarge(TargetRule):
    code = "NKI-TILE-SIZE"
    message = ("a tile of shape {shape} of {dtype} takes {bytes} bytes of each partition; {memory} of {target} has "
               "{limit}")
    fix = "work on {most} elements of a partition at a time, in a loop"


class HeldAtOnce(TargetRule):
    code = "NKI-MEMORY-HELD"
    message = ("{count} tiles that are live at once take {needed} bytes of each partition; {memory} of {target} has "
               "{limit}: {held}")
    why = "the compiler spills tiles that do not fit to HBM, or refuses the kernel"
    fix = "make tiles smaller, or use a tile for the last time before you allocate the next"


class AddressesCollide(TargetRule):
    code = "NKI-ADDRESS"
    message = "{a} and {b} have addresses that overlap in {memory}, and the kernel uses {b} before its last use of {a}"
    fix = "choose addresses that do not overlap, or use one only after the other's last use"


class OutsideMemory(TargetRule):
    code = "NKI-ADDRESS"
    message = ("a tile of {count} partitions at partition {partition}, bytes {byte} to {end} is not inside {memory}: "
               "kernels of {target} may use {limit} bytes of it")
    fix = "choose another address"


class TileFootprint(NamedTuple):
    """The size that tiles of one shape, dtype and memory have, and the rule that each of them breaks, if any."""

    space: str
    partitions: int
    bytes: int
    block_bytes: int
    broken: TargetRule | None

# The footprint of a tile whose allocation was undone.
NO_ROOM = {space: TileFootprint(space, 0, 0, 0, None) for space in (SBUF, PSUM)}


class OnChipTile:
    """The live range of a tile.

    ``first`` and ``last`` are the numbers of the operations that use it (0: none does), ``created`` is the number of
    the last operation before its allocation, ``blocks`` are the addresses, (partition, byte), that the kernel chose.
    """

    __slots__ = ("blocks", "created", "first", "kind", "last", "location", "name")

    def __init__(self, kind: TileFootprint, name: str, created: int, location: Location | None) -> None:
        self.kind, self.name, self.created, self.location = kind, name, created, location
        self.first = self.last = 0
        self.blocks: tuple[tuple[int, int], ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of a partition that the tile takes; blocks with the same address count once."""
        return union([self]) if self.blocks else self.kind.bytes


class OnChipMemory:
    """The live ranges of the tiles of one program."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        # Bytes of a partition: those that kernels may use, and those that the hardware has.
        self.usable = {SBUF: machine.sbuf_bytes_per_partition, PSUM: machine.psum_bytes_per_partition}
        self.physical = self.usable | {SBUF: machine.sbuf_physical_bytes_per_partition}
        self.now = 0
        self.tiles: list[OnChipTile] = []
        self.kinds: dict[object, TileFootprint] = {}
        self.total = {SBUF: 0, PSUM: 0}
        self.loops: list[tuple[int, int]] = []      # numbers of the first and last operation of each
        self.has_addresses = False

    def allocate(self, buffer: Buffer, attributes: Mapping[str, Any] | None, location: Location | None
                 ) -> Finding | None:
        """Record an allocation. Return the rule that the tile alone breaks, or None."""
        key = buffer.shape, buffer.dtype.name, buffer.space, buffer.partition_dim
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = self.kind_of(buffer)
        buffer.live_range = tile = OnChipTile(kind, buffer.name, self.now, location)
        self.tiles.append(tile)
        self.total[kind.space] += kind.bytes
        if attributes:
            tile.blocks = self.addresses(attributes)
            self.has_addresses |= bool(tile.blocks)
        if kind.broken is not None:
            return Finding(kind.broken)
        return self.outside(tile) if tile.blocks else None

    def kind_of(self, buffer: Buffer) -> TileFootprint:
        physical, blocks = buffer.physical_shape, max(1, prod(buffer.shape[:buffer.partition_dim]))
        size, limit = prod(physical[1:]) * buffer.dtype.itemsize, self.physical[buffer.space]
        block = size // blocks
        broken = None if block <= limit else TileTooLarge(
            shape=list(buffer.shape), dtype=buffer.dtype, bytes=block, memory=buffer.space.upper(), limit=limit,
            target=self.machine.name, most=limit // buffer.dtype.itemsize)
        return TileFootprint(buffer.space, physical[0], size, block, broken)

    def outside(self, tile: OnChipTile) -> Finding | None:
        """Return the finding of a block that does not lie inside the memory, None if there is none."""
        kind, limit, partitions = tile.kind, self.usable[tile.kind.space], self.machine.partitions
        for partition, byte in tile.blocks:
            end = byte + kind.block_bytes
            if byte < 0 or end > limit or partition < 0 or partition + kind.partitions > partitions:
                return Finding(OutsideMemory(count=kind.partitions, partition=partition, byte=byte, end=end - 1,
                                             memory=kind.space.upper(), limit=limit, target=self.machine.name))
        return None

    def undo_allocation(self, buffer: Buffer) -> None:
        """Undo an allocation: the operation that made the tile has been removed."""
        tile = buffer.live_range
        if tile is not None:
            self.total[tile.kind.space] -= tile.kind.bytes
            tile.kind, tile.blocks = NO_ROOM[tile.kind.space], ()

    def record_operands(self, views: Sequence[View]) -> None:
        """Note the operands of the next operation."""
        self.now = number = self.now + 1
        for view in views:
            if (tile := view.buffer.live_range) is not None:
                tile.last = number
                if not tile.first:
                    tile.first = number

    def begin_loop(self) -> int:
        """Begin a loop, and return the number of the operation that stands for its beginning."""
        self.now += 1
        return self.now

    def close(self, began: int) -> None:
        """End the loop whose first operation is number ``began``."""
        self.loops.append((began, self.now))

    def findings(self) -> Iterator[tuple[Finding, Location | None]]:
        """Yield the rules that the complete kernel breaks, with source locations."""
        full = [space for space in (SBUF, PSUM) if self.total[space] > self.usable[space]]
        if not full and not self.has_addresses:
            return
        self.extend()
        for space in full:
            yield from self.peak(space)
        if self.has_addresses:
            yield from self.collisions()

    # -- parts -------------------------------------------------------------------------------------------------------
    def addresses(self, attributes: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
        """Return (partition, byte) of each block; in PSUM the first generation gives (bank, partition, byte)."""
        attribute = attributes.get("nki.addresses") or ([a] if (a := attributes.get("nki.address")) else [])
        bank = self.machine.psum_bank_bytes
        return tuple((a[-2], a[-1] + (a[0] * bank if len(a) == 3 else 0)) for a in attribute)

    def extend(self) -> None:
        """Extend the live range of each tile over the loops that use it and did not allocate it."""
        for tile in self.tiles:
            for began, ended in self.loops:
                if tile.created < began and tile.first and tile.first <= ended and tile.last > began:
                    tile.first, tile.last = min(tile.first, began), max(tile.last, ended)

    def peak(self, space: str) -> Iterator[tuple[Finding, Location | None]]:
        tiles = [tile for tile in self.tiles if tile.kind.space == space and tile.first]
        most, where = peak_bytes(tiles)
        if most <= self.usable[space]:
            return
        held_there = [tile for tile in tiles if tile.first <= where <= tile.last]
        latest = max(held_there, key=lambda tile: (tile.first, tile.created))
        largest = sorted(held_there, key=lambda tile: (-tile.bytes, tile.created))
        names = [f"{tile.name} {tile.bytes}" + (f" (line {tile.location.line})" if tile.location else "")
                 for tile in largest[:NAMED]]
        if len(largest) > NAMED:
            names.append(f"{len(largest) - NAMED} more")
        error = HeldAtOnce(count=len(held_there), needed=most, memory=space.upper(), target=self.machine.name,
                           limit=self.usable[space], held=", ".join(names))
        yield Finding(error, uncertain=True), latest.location

    def collisions(self) -> Iterator[tuple[Finding, Location | None]]:
        """Yield findings of tiles that share bytes while both are live. For a tile of several blocks the finding is
        uncertain: the kernel may use its blocks in turn."""
        with_addresses = [tile for tile in self.tiles if tile.blocks and tile.first]
        for k, earlier in live_together(with_addresses):
            a, b = with_addresses[earlier], with_addresses[k]
            if share(a, b):
                first, second = sorted((a, b), key=lambda tile: (tile.first, tile.created))
                error = AddressesCollide(a=first.name, b=second.name, memory=a.kind.space.upper())
                yield Finding(error, uncertain=max(len(a.blocks), len(b.blocks)) > 1), second.location


def live_together(tiles: Sequence[OnChipTile]) -> list[tuple[int, int]]:
    """Return the indices (k, earlier) of the pairs of tiles that are in one memory and live at once, in order."""
    pairs: list[tuple[int, int]] = []
    live: dict[str, list[int]] = {}
    for k in sorted(range(len(tiles)), key=lambda k: tiles[k].first):
        tile = tiles[k]
        still_live = [n for n in live.get(tile.kind.space, ()) if tiles[n].last >= tile.first]
        pairs += [(max(n, k), min(n, k)) for n in still_live]
        live[tile.kind.space] = [*still_live, k]
    return sorted(pairs)


def peak_bytes(tiles: Sequence[OnChipTile]) -> tuple[int, int]:
    """Return the most bytes of a partition that tiles take at once, and the first operation at which they do."""
    firsts = np.array([tile.first for tile in tiles], np.int64)
    lasts = np.array([tile.last for tile in tiles], np.int64)
    # A tile with an address adds no bytes here: tiles that share an address are counted together.
    free = np.array([0 if tile.blocks else tile.kind.bytes for tile in tiles], np.int64)
    steps, at = np.unique(np.concatenate([firsts, lasts + 1]), return_inverse=True)
    change = np.zeros(len(steps), np.int64)
    np.add.at(change, at, np.concatenate([free, -free]))
    total = np.cumsum(change)
    if with_addresses := [tile for tile in tiles if tile.blocks]:
        since, occupied = zip(*taken_by(with_addresses))
        total += np.array([0, *occupied])[np.searchsorted(since, steps, "right")]
    return int(total.max()), int(steps[total.argmax()])


def taken_by(tiles: Sequence[OnChipTile]) -> Iterator[tuple[int, int]]:
    """Yield pairs (operation, bytes): from that operation on, tiles with addresses take that number of bytes of
    a partition."""
    changes: dict[int, list[OnChipTile]] = {}
    for tile in tiles:
        changes.setdefault(tile.first, []).append(tile)
        changes.setdefault(tile.last + 1, []).append(tile)
    live: dict[OnChipTile, None] = {}
    for step in sorted(changes):
        for tile in changes[step]:
            if tile.first == step:
                live[tile] = None
            else:
                live.pop(tile)
        yield step, union(live)


def union(tiles: Iterable[OnChipTile]) -> int:
    """Return the bytes of a partition that tiles with addresses take together."""
    total = reached = 0
    for start, end in sorted({(byte, byte + tile.kind.block_bytes) for tile in tiles for _, byte in tile.blocks}):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def share(a: OnChipTile, b: OnChipTile) -> bool:
    """Return whether some blocks have a byte in common."""
    boxes, other_boxes = ({(p, p + tile.kind.partitions, byte, byte + tile.kind.block_bytes)
                           for p, byte in tile.blocks} for tile in (a, b))
    return any(boxes_overlap(box, other) for box in boxes for other in other_boxes)
