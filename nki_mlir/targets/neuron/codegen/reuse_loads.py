# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""reuse-loads: load unchanged data, and copy them by DMA within SBUF, only once, if SBUF has room to keep them.

before:  load a = A[0]; p = a.T @ b; load c = A[0]; q = c.T @ d
after:   load a = A[0]; p = a.T @ b;                q = a.T @ d

The pass drops a load if an earlier load of the same run of instructions loaded the same elements to a tile of the same
form, nothing has written that HBM tensor or either tile since, nothing outside of the run uses the second tile, and the
first tile can stay in SBUF until the last use of the second: in between, program order fills at most ``room`` percent
of SBUF, this tile included. The same conditions apply to copies by DMA from SBUF, which repeat a row in all partitions,
but their tiles may fill ``ROOM_OF_COPIES`` percent. A tile at an address that the kernel chose stays there, so the pass
keeps it only if no other tile at an address that the kernel chose uses its bytes in the meantime.
"""

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from nki_mlir.dialects.access import HBM, SBUF, Access, Bounds, Tile
from nki_mlir.dialects.instruction_order import is_pinned
from nki_mlir.dialects.nisa.movement import DmaCopyOp, DmaTransposeOp
from nki_mlir.dialects.op import Op, changed
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Code,
    DeviceBuffer,
    InstructionStep,
    blocks,
    nodes_in,
    tiles_of,
)
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of
from nki_mlir.waist.overlap import boxes_overlap

ROOM = 70                       # percent
ROOM_OF_COPIES = 95             # percent
PIECE = 4_096                   # steps


class ReuseLoads(RecordsPass, name="reuse-loads", reads=Level.NISA):
    room: int = 70              # percent of SBUF that kept tiles may fill in program order

    def rewritten(self, code: Code) -> None:
        reuse_loads(code, self.room)


def reuse_loads(code: Code, room: int = ROOM, spaces: Sequence[str] = (HBM, SBUF)) -> list[Op]:
    """Drop repeated copies from the memories ``spaces`` to SBUF in place; return the dropped copies from HBM."""
    runs = [(block, run) for block in blocks(code.body) for run in runs_of(block.nodes)]
    repeating = [has_repeated_loads(run, spaces) for _, run in runs]
    if not any(repeating):
        return []
    uses = [RunUses(run) for _, run in runs]
    elsewhere = used_elsewhere(code, uses)
    sbuf = code.machine.sbuf_bytes_per_partition
    percent = {HBM: room, SBUF: max(room, ROOM_OF_COPIES)}
    limits = {space: sbuf * percent[space] // 100 for space in spaces}
    dropped: list[Op] = []
    for (block, run), of_run, repeats in zip(runs, uses, repeating):
        if repeats:
            dropped += _Reuse(block, run, of_run, elsewhere, limits).drop_loads()
    return dropped


def has_repeated_loads(run: Sequence[InstructionStep], spaces: Sequence[str]) -> bool:
    """Return whether two loads load the same elements."""
    sources = set[tuple[object, object]]()
    for step in run:
        if step.op.queued and is_load(step.op, spaces):
            src = step.op.src                                                                   # type: ignore[attr-defined]
            source = src.handle, src.access
            if source in sources:
                return True
            sources.add(source)
    return False


class RunUses:
    """The uses of buffers in SBUF by the steps of a run. ``users``: the positions of the steps that use each;
    ``writer``: the position of the only step that writes it, -1 if there are several."""

    def __init__(self, run: Sequence[InstructionStep]) -> None:
        users: dict[DeviceBuffer, list[int]] = {}
        writer: dict[DeviceBuffer, int] = {}
        for k, step in enumerate(run):
            op = step.op
            values = op.__dict__
            for name in op.tile_names:
                tile = values[name]
                if tile is not None and tile.space == SBUF:
                    buffer = tile.handle
                    positions = users.get(buffer)
                    if positions is None:
                        users[buffer] = [k]
                    elif positions[-1] != k:
                        positions.append(k)
                    if name in op.outputs:
                        writer[buffer] = -1 if buffer in writer else k
        self.users, self.writer = users, writer

    def changes(self, local: Collection[DeviceBuffer], steps: int) -> list[int]:
        """Return by how many bytes each step of the run, and its end, changes what a partition of SBUF has in use.
        Tiles that are not local to the block are in use all the time."""
        changes = [0] * (steps + 1)
        for buffer, positions in self.users.items():
            size, is_local = buffer.bytes_per_partition, buffer in local
            changes[positions[0] if is_local else 0] += size
            changes[(positions[-1] if is_local else steps - 1) + 1] -= size
        return changes


def used_elsewhere(code: Code, uses: Sequence[RunUses]) -> set[DeviceBuffer]:
    """Return the buffers that several runs use, or other nodes than instructions."""
    other_nodes = [node for node in nodes_in(code.body) if type(node) is not InstructionStep]
    run_counts = Counter([buffer for of_run in uses for buffer in of_run.users]) if len(uses) > 1 else {}
    elsewhere = {buffer for buffer, count in run_counts.items() if count > 1}
    elsewhere.update(tile.handle for node in other_nodes for tile in tiles_of(node))
    return elsewhere


def is_load(op: Op, spaces: Collection[str]) -> bool:
    return (isinstance(op, (DmaCopyOp, DmaTransposeOp)) and op.dst.space == SBUF and op.src.space in spaces
            and not (op.mask or op.limits)
            and not is_pinned(op))


class _Reuse:
    """The loads of one run, and those of them that an earlier load replaces.

    ``elsewhere``: the buffers that other code uses, too. ``limits``: by the memory that a load reads, the bytes of a
    partition of SBUF that may be in use while a tile stays for a later load.
    """

    def __init__(self, block: Block, run: Sequence[InstructionStep], uses: RunUses, elsewhere: set[DeviceBuffer],
                 limits: dict[str, int]) -> None:
        self.block, self.run, self.uses, self.elsewhere, self.limits = block, run, uses, elsewhere, limits
        self.local = set(block.buffers)
        self.last_use = {buffer: positions[-1] for buffer, positions in uses.users.items()}
        self.level, self.chosen = BytesInUse(uses.changes(self.local, len(run))), ChosenAddresses(uses)
        self.replacement: dict[DeviceBuffer, DeviceBuffer] = {}     # the replacement of each tile whose load is dropped

    def drop_loads(self) -> list[Op]:
        """Drop the loads that an earlier one replaces. Return those of them that read HBM."""
        dropped: list[Op] = []
        # By the source and its access pattern: the loaded tiles, each with the other properties of its load.
        loaded_before: dict[DeviceBuffer, dict[Access, list[tuple[DeviceBuffer, tuple[object, ...]]]]] = {}
        for k, step in enumerate(self.run):
            op = step.op
            if op.acts_outside:
                loaded_before.clear()
                continue
            values = op.__dict__
            for name in op.outputs:
                tile = values[name]
                if tile is not None and tile.handle in loaded_before:
                    del loaded_before[tile.handle]
            if not op.queued or not is_load(op, self.limits):
                continue
            assert isinstance(op, (DmaCopyOp, DmaTransposeOp))
            src, dst = op.src, op.dst
            buffer = dst.handle
            if not self.may_drop(buffer, k):
                continue
            same_elements = loaded_before.setdefault(src.handle, {}).setdefault(src.access, [])
            form = op.kind(), dst.access, buffer.shape, buffer.dtype, op.symbols
            at = next((at for at, (_, other) in enumerate(same_elements) if other == form), -1)
            if at < 0:
                same_elements.append((buffer, form))
            elif not self.extend_live_range(same_elements[at][0], buffer, k, self.limits[src.space]):
                same_elements[at] = buffer, form
            elif src.space == HBM:
                dropped.append(op)
        if self.replacement:
            self.replace(self.block, self.replacement)
        return dropped

    def may_drop(self, buffer: DeviceBuffer, load: int) -> bool:
        """Return whether another tile may replace a buffer: only this load writes it, only this run uses it, and it has
        neither attributes nor addresses for its blocks."""
        return (self.uses.writer[buffer] == load and buffer in self.local and buffer not in self.elsewhere
                and not (buffer.addresses or buffer.attributes))

    def extend_live_range(self, before: DeviceBuffer, buffer: DeviceBuffer, load: int, limit: int) -> bool:
        """Keep a loaded tile until the last use of the buffer that it replaces, whose load is at ``load``. Return
        False if the bytes that are in use would exceed the limit, or if another tile needs the tile's address."""
        last_use = self.last_use
        begin = last_use[before] + 1
        if before.fixed and not self.chosen.are_unused(before, begin, buffer, load, last_use[buffer]):
            return False
        if begin < load and not self.level.raised(begin, load, buffer.bytes_per_partition, limit):
            return False
        last_use[before] = max(last_use[before], last_use[buffer])
        self.replacement[buffer] = before
        if before.fixed:
            self.chosen.add(before, self.uses.users[buffer])
        return True

    def replace(self, block: Block, replacement: dict[DeviceBuffer, DeviceBuffer]) -> None:
        """Drop the loads of these buffers, and let other steps read their replacements."""
        run, users, writer = self.run, self.uses.users, self.uses.writer
        dropped_steps = {run[writer[buffer]] for buffer in replacement}
        for step in {run[k]: None for buffer in replacement for k in users[buffer]}:
            if step not in dropped_steps:
                step.op = changed(step.op, lambda tile: in_tile(tile, replacement))
        block.nodes = [node for node in block.nodes if node not in dropped_steps]
        block.buffers = [buffer for buffer in block.buffers if buffer not in replacement]


class ChosenAddresses:
    """The uses by a run's steps of the bytes at addresses that the kernel chose. ``users``: by the partitions and bytes
    of buffers, the positions of the steps, in order."""

    def __init__(self, uses: RunUses) -> None:
        self.users: defaultdict[Bounds, list[int]] = defaultdict(list)
        self.sharing: dict[Bounds, list[Bounds]] = {}
        for buffer, positions in uses.users.items():
            if buffer.fixed:
                self.users[bounds_of(buffer)] += positions
        for positions in self.users.values():
            positions.sort()

    def are_unused(self, buffer: DeviceBuffer, begin: int, dropped: DeviceBuffer, load: int, last: int) -> bool:
        """Return whether no other buffer uses the bytes of a buffer from ``begin`` to the last use of the one that it
        replaces, whose load is at ``load``; from there on, a buffer with the same bytes has them for itself."""
        bounds = bounds_of(buffer)
        end = load - 1 if dropped.fixed and bounds_of(dropped) == bounds else last
        if bounds not in self.sharing:
            self.sharing[bounds] = [other for other in self.users if boxes_overlap(bounds, other)]
        return all(bisect_right(self.users[other], end) <= bisect_right(self.users[other], begin - 1)
                   for other in self.sharing[bounds])

    def add(self, buffer: DeviceBuffer, positions: Sequence[int]) -> None:
        """Record that these steps use a buffer."""
        for position in positions:
            insort(self.users[bounds_of(buffer)], position)


def bounds_of(buffer: DeviceBuffer) -> Bounds:
    """Return the bounds of the partitions, and of the bytes of each, at the address of a buffer."""
    partition, byte = buffer.address or (0, 0)
    return partition, partition + buffer.partitions, byte, byte + buffer.bytes_per_partition


class BytesInUse:
    """Bytes of a partition of SBUF that program order has in use at each step. ``added``: the bytes to add at each step
    of a piece of ``PIECE`` steps; ``highest``: the most bytes in a piece, -1 where that is not known."""

    def __init__(self, changes: Sequence[int]) -> None:
        count = -(-len(changes) // PIECE)
        steps = np.zeros(count * PIECE, np.int64)
        steps[:len(changes)] = np.cumsum(np.array(changes, np.int64))
        self.pieces = list(steps.reshape(count, PIECE))
        self.added = [0] * count
        self.highest = [-1] * count

    def raised(self, begin: int, end: int, size: int, limit: int) -> bool:
        """Add ``size`` bytes to each step from ``begin`` to before ``end``, unless one of these would then have more
        than ``limit``. Return whether the bytes were added."""
        first, last = begin // PIECE, (end - 1) // PIECE
        parts = [(first, self.pieces[first][begin - first * PIECE:end - first * PIECE])]
        if first < last:
            parts.append((last, self.pieces[last][:end - last * PIECE]))
        for piece, part in parts:
            if np.maximum.reduce(part) + self.added[piece] + size > limit:
                return False
        for piece in range(first + 1, last):
            if self.most_in(piece) + size > limit:
                return False
        for piece, part in parts:
            part += size
            self.highest[piece] = -1
        for piece in range(first + 1, last):
            self.added[piece] += size
            self.highest[piece] += size
        return True

    def most_in(self, piece: int) -> int:
        """Return the most bytes in a piece."""
        if self.highest[piece] < 0:
            self.highest[piece] = int(np.maximum.reduce(self.pieces[piece])) + self.added[piece]
        return self.highest[piece]


def in_tile(tile: Tile, replacement: dict[DeviceBuffer, DeviceBuffer]) -> Tile:
    """Return the tile in the buffer that has its elements."""
    buffer = replacement.get(tile.handle)
    if buffer is None:
        return tile
    return tile.starting(buffer, tile.access)
