# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spill-tiles: spill tiles until their next use, or compute them again, if SBUF or PSUM is full.

before:  a = ...; b = ...; c = b + b; d = a + c       (a, b and c do not fit at once)
after:   a = ...; store a; b = ...; c = b + b; a' = load; d = a' + c

A tile of PSUM spills to SBUF, and returns if a later product adds to it; otherwise instructions read it in SBUF. A tile
of SBUF spills to HBM. The pass stores no tile that the next use overwrites, that HBM still has, or that its instruction
can recompute from tiles in SBUF in less time. Among the tiles that a step does not need, the pass spills the tile that
costs the least time for the bytes and steps of room that it frees. The code's notes say how many tiles of a line
spilled, the bytes that moved, and their time.

Tiles of SBUF that several runs of instructions use, as loops and the code around them do, spill between these runs
(``shared_tiles``). Tiles whose address the kernel chose stay, and so do tiles of PSUM that several runs use. If these
and the operands of one step leave no room, ``allocate-on-chip`` raises the error.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf

from nki_mlir.diagnostics import line_prefix
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Access, Linear, Tile
from nki_mlir.dialects.instruction_order import is_pinned
from nki_mlir.dialects.isa.program import SPILLED
from nki_mlir.dialects.nisa.elementwise import ActivationOp, TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.nisa.matmul import NcMatmulOp, NcTransposeOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp, IotaOp, MemsetOp, TensorCopyOp
from nki_mlir.dialects.op import Op, changed
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.liveness import Liveness, peak
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.move_psum_results import entire, line, reading, writes_all
from nki_mlir.targets.neuron.codegen.records import Block, Code, DeviceBuffer, InstructionStep, blocks, tiles_of
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of
from nki_mlir.targets.neuron.codegen.shared_tiles import spill_shared_tiles
from nki_mlir.targets.neuron.codegen.step_table import occupied_bytes
from nki_mlir.targets.neuron.timing.transfers import Transfers

REPEATABLE = (ActivationOp, DmaCopyOp, IotaOp, MemsetOp, NcMatmulOp, NcTransposeOp, TensorCopyOp, TensorScalarOp,
              TensorTensorOp)   # operations that compute the same values again from the same operands


class SpillTiles(RecordsPass, name="spill-tiles", reads=Level.NISA):
    memory: int = 100           # percent of SBUF that tiles may fill in program order
    recompute: bool = True      # allow tiles to be computed again instead of stored

    def rewritten(self, code: Code) -> None:
        spill_tiles(code, self.memory, self.recompute)


def spill_tiles(code: Code, memory: int = 100, recompute: bool = True) -> None:
    """Spill tiles from PSUM, then from SBUF, until the others fit in program order, in place."""
    machine = code.machine
    for space, limit in ((PSUM, machine.psum_bytes_per_partition),
                         (SBUF, machine.sbuf_bytes_per_partition * memory // 100)):
        liveness = Liveness(code)
        lives = [life for life in liveness.of.values() if life.buffer.space == space]
        if peak(lives, lambda buffer: occupied_bytes(buffer, machine))[0] <= limit:
            continue
        if space == SBUF:
            spill_shared_tiles(code, limit)
            liveness = Liveness(code)
            lives = [life for life in liveness.of.values() if life.buffer.space == space]
        movable = tiles_of_one_run(code, space)
        changes = [0] * (len(liveness.steps) + 1)
        for life in lives:
            if life.buffer not in movable:
                changes[life.first] += occupied_bytes(life.buffer, machine)
                changes[life.last + 1] -= occupied_bytes(life.buffer, machine)
        level = list(accumulate(changes))
        number = {step: k for k, step in enumerate(liveness.steps)}
        for block in blocks(code.body):
            for run in list(runs_of(block.nodes)):
                first_number = number[run[0]]
                _SpillRun(code, block, run, movable, level[first_number:first_number + len(run)], space, limit,
                     recompute).apply()


def tiles_of_one_run(code: Code, space: str) -> set[DeviceBuffer]:
    """Return the tiles in a memory that one run of instructions uses, and that its block declares."""
    first_run: dict[DeviceBuffer, int] = {}
    elsewhere: set[DeviceBuffer] = set()
    tiles: set[DeviceBuffer] = set()
    number = 0
    for block in blocks(code.body):
        for run in runs_of(block.nodes):
            number += 1
            for step in run:
                for tile in tiles_of(step):
                    if first_run.setdefault(tile.handle, number) != number:
                        elsewhere.add(tile.handle)
        for node in block.nodes:
            if not isinstance(node, InstructionStep):
                elsewhere.update(tile.handle for tile in tiles_of(node))
        number += 1
        tiles.update(buffer for buffer in block.buffers if buffer.space == space
                     and not (buffer.fixed or buffer.addresses or buffer.attributes))
    declared = {buffer: block for block in blocks(code.body) for buffer in block.buffers if buffer in tiles}
    for block in blocks(code.body):
        for node in block.nodes:
            elsewhere.update(tile.handle for tile in tiles_of(node) if declared.get(tile.handle, block) is not block)
    return tiles - elsewhere


@dataclass(eq=False)
class _SpilledTile:
    """A tile over the steps of a run. ``there``: the buffer in the memory that has it now; ``stale``: the spilled copy
    does not have its elements; ``following``: the steps to which a store of them is appended; ``recipe``: the step that
    computed all of it."""

    buffer: DeviceBuffer
    size: int
    uses: list[int] = field(default_factory=list)
    position: int = 0                   # index of the next use
    there: DeviceBuffer | None = None
    latest: DeviceBuffer | None = None
    stale: bool = True
    following: list["InstructionStep | _Copy"] = field(default_factory=list)
    recipe: int | None = None
    slot: int | None = None
    elsewhere: DeviceBuffer | None = None       # for a tile of PSUM, the buffer that readers use from now on
    last_write: int = -1
    copy_ns: float = 0.0
    recipe_ns: float = 0.0
    overwritten: tuple[int, bool] = (-1, False)         # by use: whether that step writes all of it, without reading it

    def next_use(self) -> float:
        return self.uses[self.position] if self.position < len(self.uses) else inf


@dataclass(eq=False)
class _Copy:
    """A store of a tile, or a load of it: to or from ``buffer``."""

    tile: _SpilledTile
    buffer: DeviceBuffer
    store: bool


@dataclass
class _Moved:
    """The spills of the tiles of one line: how many tiles, transfers and ns."""

    tiles: list[_SpilledTile] = field(default_factory=list)
    stores: int = 0
    loads: int = 0
    repeated: int = 0
    ns: float = 0.0


class _SpillRun:
    """One run in program order. ``level``: bytes of the memory that tiles which cannot spill take at each step."""

    def __init__(self, code: Code, block: Block, run: Sequence[InstructionStep], movable: set[DeviceBuffer],
                 level: Sequence[int], space: str, limit: int, recompute: bool) -> None:
        self.code, self.machine, self.block, self.run = code, code.machine, block, run
        self.space, self.limit, self.recompute = space, limit, recompute
        self.transfers = Transfers(self.machine)
        self.before: list[list[InstructionStep | _Copy]] = [[] for _ in run]
        self.after: list[list[InstructionStep | _Copy]] = [[] for _ in run]
        self.names: list[dict[DeviceBuffer, DeviceBuffer]] = [{} for _ in run]      # by step
        self.added: list[DeviceBuffer] = []
        self.moved: dict[object, _Moved] = {}
        self.unused: set[int] = set()           # steps
        self.slots: dict[_SpilledTile, DeviceBuffer] = {}
        self.tiles: dict[DeviceBuffer, _SpilledTile] = {}
        self.last: dict[DeviceBuffer, int] = {}         # use of each buffer in the run
        self.writes: dict[DeviceBuffer, int] = {}      # number of writes so far
        self.versions: list[dict[DeviceBuffer, int]] = [{} for _ in run]    # by step that computes a tile: its operands
        for k, step in enumerate(run):
            for tile in dict.fromkeys(t.handle for t in tiles_of(step)):
                self.last[tile] = k
                if tile in movable:
                    spilled = self.tiles.get(tile)
                    if spilled is None:
                        spilled = self.tiles[tile] = _SpilledTile(tile, occupied_bytes(tile, self.machine))
                        spilled.copy_ns = self.ns_of_copy(tile)
                    spilled.uses.append(k)
            for _, written in step.op.targets():
                if written.handle in self.tiles:
                    self.tiles[written.handle].last_write = k
        self.resident: dict[_SpilledTile, None] = {}
        self.used = 0
        for k, step in enumerate(run):
            self.step(k, step.op, level[k])

    # -- the plan ------------------------------------------------------------------------------------------------------
    def step(self, k: int, op: Op, level: int) -> None:
        needed = [self.tiles[buffer] for buffer in dict.fromkeys(t.handle for _, t in op.operands())
                  if buffer in self.tiles]
        missing = [tile for tile in needed if tile.there is None and not self.read_elsewhere(tile, k)]
        demand = level + self.used + sum(tile.size for tile in missing)
        while demand > self.limit and (victim := self.cheapest(k, needed)) is not None:
            self.evict(victim)
            demand -= victim.size
        for tile in missing:
            self.reload(tile, k, op)
        for tile in needed:
            self.names[k][tile.buffer] = tile.there or tile.elsewhere       # type: ignore[assignment]
        written = {tile.handle for _, tile in op.targets()}
        read = {tile.handle for _, tile in op.sources()}
        for buffer in written:
            self.writes[buffer] = self.writes.get(buffer, 0) + 1
            if (written_tile := self.tiles.get(buffer)) is not None:
                fresh = buffer not in read and (not written_tile.position or writes_all(op, buffer))
                written_tile.recipe = k if fresh and self.repeatable(op) else None
                written_tile.recipe_ns = self.ns(op) if written_tile.recipe is not None else inf
                written_tile.stale, written_tile.following = True, self.after[k]
        if any(tile.recipe == k for tile in needed):
            self.versions[k] = {buffer: self.writes.get(buffer, 0) for buffer in read}
        for tile in needed:
            tile.position += 1
            if tile.position == len(tile.uses) and tile in self.resident:
                self.used -= tile.size
                del self.resident[tile]

    def read_elsewhere(self, tile: _SpilledTile, k: int) -> bool:
        """Return whether a tile of PSUM, which nothing adds to any more, is read where it was copied to."""
        if self.space != PSUM or not tile.position or tile.last_write >= k:
            return False
        if tile.elsewhere is None:
            self.save(tile)
            tile.elsewhere = self.slot(tile)
        return True

    def cheapest(self, k: int, needed: Sequence[_SpilledTile]) -> _SpilledTile | None:
        """Return the tile that costs the least time to restore for the room that its spill frees."""
        candidates = [tile for tile in self.resident if tile not in needed]
        return min(candidates, default=None, key=lambda tile: self.ns_of(tile) / (
            tile.size * (tile.next_use() - k)))

    def ns_of(self, tile: _SpilledTile) -> float:
        """Estimate the time to restore the tile."""
        at = int(tile.next_use())
        if tile.overwritten[0] != at:
            op = self.run[at].op
            tile.overwritten = at, tile.buffer not in {t.handle for _, t in op.sources()} and writes_all(
                op, tile.buffer)
        if tile.overwritten[1]:
            return 0.0
        copies = tile.copy_ns * (1 + tile.stale)
        if tile.recipe is None or tile.recipe_ns >= copies or not self.computable(tile, at, expected=True):
            return copies
        return tile.recipe_ns

    def evict(self, tile: _SpilledTile) -> None:
        tile.there = None
        self.used -= tile.size
        del self.resident[tile]

    def reload(self, tile: _SpilledTile, k: int, op: Op) -> None:
        """Allocate the tile again, and restore its elements if the step reads them."""
        if not tile.position:
            tile.there = tile.latest = tile.buffer
        else:
            tile.there = replace(tile.buffer, address=None)
            self.added.append(tile.there)
            read = tile.buffer in {t.handle for _, t in op.sources()}
            if read or not writes_all(op, tile.buffer):
                self.restore(tile, k)
            tile.latest = tile.there
        self.resident[tile] = None
        self.used += tile.size

    def restore(self, tile: _SpilledTile, k: int) -> None:
        moved, copies = self.of_line(tile), tile.copy_ns * (1 + tile.stale)
        current = tile.there
        assert current is not None
        if tile.recipe is not None and tile.recipe_ns < copies and self.computable(tile, k):
            again = self.run[tile.recipe].op
            names = {buffer: self.name_at(buffer) for buffer in self.versions[tile.recipe]} | {tile.buffer: current}
            self.before[k].append(self.run[tile.recipe].with_op(changed(again, lambda t: renamed(t, names))))
            if tile.slot is None and tile.uses[tile.position - 1] == tile.recipe:
                self.unused.add(tile.recipe)            # nothing read its result
            moved.repeated += 1
            moved.ns += tile.recipe_ns
            tile.stale, tile.following = True, self.before[k]
            return
        self.save(tile)
        self.before[k].append(_Copy(tile, current, store=False))
        moved.loads += 1
        moved.ns += tile.copy_ns

    def save(self, tile: _SpilledTile) -> None:
        """Store a tile after the step that wrote it last, unless it is stored already."""
        moved = self.of_line(tile)
        if tile.slot is None:
            tile.slot = len(moved.tiles)
            moved.tiles.append(tile)
        if tile.stale:
            assert tile.latest is not None
            tile.following.append(_Copy(tile, tile.latest, store=True))
            tile.stale = False
            moved.stores += 1
            if self.space == PSUM:
                self.slot(tile)
            moved.ns += tile.copy_ns

    def of_line(self, tile: _SpilledTile) -> _Moved:
        return self.moved.setdefault(line(tile.buffer), _Moved())

    # -- computing again -----------------------------------------------------------------------------------------------
    def repeatable(self, op: Op) -> bool:
        return (self.recompute and type(op) in REPEATABLE and not is_pinned(op) and not op.acts_outside
                and len(op.targets()) == 1 and not (op.mask or op.limits))

    def computable(self, tile: _SpilledTile, k: int, expected: bool = False) -> bool:
        """Return whether the operands of the step that computed the tile are available at step ``k``, unchanged;
        ``expected``: return whether they may be."""
        assert tile.recipe is not None
        for buffer, version in self.versions[tile.recipe].items():
            if self.writes.get(buffer, 0) != version:
                return False
            if buffer.space != HBM and self.last[buffer] < k:
                return False
            operand = self.tiles.get(buffer)
            if operand is not None and operand.there is None and not expected:
                return False
        return True

    def name_at(self, buffer: DeviceBuffer) -> DeviceBuffer:
        """Return the buffer that has the elements of a buffer now."""
        tile = self.tiles.get(buffer)
        return buffer if tile is None or tile.there is None else tile.there

    # -- facts ---------------------------------------------------------------------------------------------------------
    def ns(self, op: Op) -> float:
        if op.queued:
            transfer = self.transfers.of(op)
            return max(max(transfer.parts), transfer.hbm_bytes / self.machine.hbm_bytes_per_ns(1))
        return op.busy_ns(self.machine)

    def ns_of_copy(self, buffer: DeviceBuffer) -> float:
        entire_tile = entire(buffer)
        if self.space == PSUM:
            return self.ns(TensorCopyOp(dst=entire_tile, src=entire_tile))
        return self.ns(DmaCopyOp(dst=entire_tile, src=in_hbm(buffer, buffer, 1, 0)))

    # -- the new code --------------------------------------------------------------------------------------------------
    def slot(self, tile: _SpilledTile) -> DeviceBuffer:
        """Return the tile of SBUF to which a tile of PSUM is copied."""
        buffer = self.slots.get(tile)
        if buffer is None:
            buffer = self.slots[tile] = replace(tile.buffer, space=SBUF, address=None)
            self.added.append(buffer)
        return buffer

    def apply(self) -> None:
        """Insert the copies into the block, and let each step use the buffer that holds its tile at that step."""
        if not self.moved and not self.added:
            return
        homes: dict[object, DeviceBuffer] = {}
        if self.space == SBUF:
            for name, moved in self.moved.items():
                if moved.tiles:
                    homes[name] = spilled_to(moved.tiles[0].buffer, len(moved.tiles))
        self.block.buffers += [*self.added, *homes.values()]
        for step, names in zip(self.run, self.names):
            if any(old is not new for old, new in names.items()):
                step.op = self.with_names(step.op, names)
        numbers = {step: k for k, step in enumerate(self.run)}
        nodes: list[object] = []
        for node in self.block.nodes:
            k = numbers.get(node)
            if k is None:
                nodes.append(node)
            else:
                nodes += [*self.steps(self.before[k], homes, k), *([] if k in self.unused else [node]),
                          *self.steps(self.after[k], homes, k)]
        self.block.nodes = nodes
        self.code.notes += [self.describe(moved) for moved in self.moved.values()]

    @staticmethod
    def with_names(op: Op, names: dict[DeviceBuffer, DeviceBuffer]) -> Op:
        for old, new in names.items():
            if new.space != old.space:
                op = reading(op, old, new)
        return changed(op, lambda tile: renamed(tile, names))

    def steps(self, steps_and_copies: Sequence[InstructionStep | _Copy], homes: dict[object, DeviceBuffer], k: int
              ) -> Iterator[InstructionStep]:
        for step in steps_and_copies:
            if isinstance(step, InstructionStep):
                yield step
                continue
            tile = step.tile
            local_tile = entire(step.buffer)
            if self.space == PSUM:
                home_tile = entire(self.slot(tile))
            else:
                home = homes[line(tile.buffer)]
                assert tile.slot is not None
                home_tile = in_hbm(home, tile.buffer, home.shape[0], tile.slot)
            dst, src = (home_tile, local_tile) if step.store else (local_tile, home_tile)
            copy = TensorCopyOp if self.space == PSUM else DmaCopyOp
            yield self.run[k].with_op(copy(dst=dst, src=src))

    def describe(self, moved: _Moved) -> str:
        """Return a note on the spilled tiles: ``FILE:LINE: 12 tiles scores of 2048 bytes per partition ...``."""
        tiles = moved.tiles
        buffer = tiles[0].buffer if tiles else next(t.buffer for t in self.tiles.values()
                                                    if self.moved.get(line(t.buffer)) is moved)
        where = line_prefix(buffer.location)
        memory = "HBM" if self.space == SBUF else "SBUF"
        parts = [f"{moved.stores} copies to {memory} and {moved.loads} back"] if moved.stores or moved.loads else []
        parts += [f"computed again {moved.repeated} times"] if moved.repeated else []
        return (f"{where}{self.space.upper()} is full: tiles like {buffer.name or 'this'}, of "
                f"{buffer.bytes_per_partition} bytes per partition, are spilled "
                f"({', '.join(parts)}: {moved.ns:.0f} ns)")


def renamed(tile: Tile, names: dict[DeviceBuffer, DeviceBuffer]) -> Tile:
    """Return the tile in the buffer that has its elements now."""
    buffer = names.get(tile.handle, tile.handle)
    return tile if buffer is tile.handle else Tile(buffer, buffer.space, tile.base_shape, tile.base_dtype, tile.access,
                                                  tile.label)


def spilled_to(buffer: DeviceBuffer, count: int) -> DeviceBuffer:
    """Allocate memory in HBM for that many tiles."""
    row = buffer.bytes_per_partition // buffer.dtype.itemsize
    return DeviceBuffer(f"{buffer.name or 'tile'}{SPILLED}", HBM, (count, buffer.partitions, row), buffer.dtype,
                        location=buffer.location)


def in_hbm(home: DeviceBuffer, tile: DeviceBuffer, count: int, slot: int) -> Tile:
    """Return one tile of the memory in HBM."""
    row = tile.bytes_per_partition // tile.dtype.itemsize
    access = Access(tile.dtype, None, Linear(slot * tile.partitions * row), ((row, tile.partitions), (1, row)))
    return Tile(home, HBM, (count, tile.partitions, row), tile.dtype, access, home.name)
