# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""forward-stores: read the tile that was stored instead of loading its elements, and drop stores that nothing reads.

before:  store A[0] = t; load c = A[0]; q = c + d          after:  store A[0] = t; q = t + d

The pass drops a load if an earlier store of the same run of instructions wrote its elements from one tile in the same
order, nothing has written these elements or that tile since, nothing outside of the run uses the loaded tile, and the
stored tile can stay in SBUF until the last use of the loaded tile: in between, program order fills at most ``room``
percent of SBUF. The load may be of fewer rows and columns. If it has more columns than each store, the tiles of several
stores become parts of the loaded one, so that their writers write to it:

before:  store A[:, 0:4] = t; store A[:, 4:8] = u; load c = A; q = c + d          after:  t is c[:, 0:4], u is c[:, 4:8]

In the body of a loop of the device, both addresses must use the same registers, whose values do not change in a run; a
write through other registers may touch any bytes in their range. If nothing then reads a tensor in HBM that is local to
the program, ``unread-results`` drops its stores, and the instructions that only these stores need: values between the
kernels and operations of a graph stay on chip.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from nki_mlir.dialects.access import HBM, SBUF, Access, Linear, Tile
from nki_mlir.dialects.instruction_order import is_pinned
from nki_mlir.dialects.nisa.indirect import DataAddressed
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.op import REGISTERS, Op, changed
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.dependences import accessed
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Block, Code, DeviceBuffer, InstructionStep, blocks
from nki_mlir.targets.neuron.codegen.reuse_loads import ROOM, BytesInUse, RunUses, is_load, used_elsewhere
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of
from nki_mlir.targets.neuron.codegen.unread_results import unread_results
from nki_mlir.waist.byte_nest import nest_of
from nki_mlir.waist.overlap import Region, region_of

NOTHING = Linear(0)
MOST = 256          # most stores of one tensor in the table: each later store is compared with them


class ForwardStores(RecordsPass, name="forward-stores", reads=Level.NISA):
    room: int = 70              # percent of SBUF that kept tiles may fill in program order
    join: bool = True           # let the tiles of several stores become parts of a loaded one

    def rewritten(self, code: Code) -> None:
        forward_stores(code, self.room, self.join)


def forward_stores(code: Code, room: int = ROOM, join: bool = True) -> list[Op]:
    """Read stored tiles instead of loading them, in place, and drop stores that nothing reads then. Return the dropped
    loads."""
    runs = [(block, run) for block in blocks(code.body) for run in runs_of(block.nodes)]
    reading = [loads_what_was_stored(run) for _, run in runs]
    if not any(reading):
        return []
    uses = [RunUses(run) for _, run in runs]
    elsewhere = used_elsewhere(code, uses)
    dropped: list[Op] = []
    for (block, run), of_run, reads in zip(runs, uses, reading):
        if reads:
            dropped += _Forwarding(code, block, run, of_run, elsewhere, room, join).dropped
    if dropped:
        unread_results(code)
    return dropped


def loads_what_was_stored(run: Sequence[InstructionStep]) -> bool:
    """Return whether a step loads from a tensor that an earlier step stored to."""
    stored: set[DeviceBuffer] = set()
    for step in run:
        if not step.op.queued:
            continue
        if is_store(step.op):
            stored.add(step.op.dst.handle)                                                      # type: ignore[attr-defined]
        elif is_load(step.op, (HBM,)) and step.op.src.handle in stored:                         # type: ignore[attr-defined]
            return True
    return False


def is_store(op: Op) -> bool:
    """Return whether an operation copies the elements of a tile in SBUF to HBM, all and in their dtype."""
    return (type(op) is DmaCopyOp and op.dst.space == HBM and op.src.space == SBUF and op.dst.dtype is op.src.dtype
            and not (op.mask or op.limits) and not is_pinned(op))


class StoredTile(NamedTuple):
    """A store at a position of a run: its pattern and its region in HBM, and the tile that it stored. ``low`` and
    ``high``: those of the region."""

    position: int
    access: Access
    region: Region
    tile: Tile
    low: int
    high: int


# For each replaced buffer: the buffer that has its elements, and how many elements of a row precede them there.
Replacement = dict[DeviceBuffer, tuple[DeviceBuffer, int]]


class _Forwarding:
    """One run. ``elsewhere``: buffers that other code uses, too."""

    def __init__(self, code: Code, block: Block, run: Sequence[InstructionStep], uses: RunUses,
                 elsewhere: set[DeviceBuffer], room: int, joins: bool) -> None:
        self.dropped: list[Op] = []
        self.loads: set[InstructionStep] = set()                        # the loads that are dropped
        self.run, self.uses, self.joins = run, uses, joins
        self.local, self.elsewhere = set(block.buffers), elsewhere
        self.last_use = {buffer: positions[-1] for buffer, positions in uses.users.items()}
        self.writes_of: dict[DeviceBuffer, list[int]] = {}              # positions of the steps that write each tile
        self.level = BytesInUse(uses.changes(self.local, len(run)))
        self.limit = code.machine.sbuf_bytes_per_partition * room // 100
        self.stores: dict[DeviceBuffer, list[StoredTile]] = {}
        self.replacement: Replacement = {}
        for k, step in enumerate(run):
            for tile in accessed(step.op)[1]:
                if tile is not None and tile.space == SBUF:
                    self.writes_of.setdefault(tile.handle, []).append(k)
        for k, step in enumerate(run):
            self.visit(k, step.op)
        if self.replacement:
            self.replace(block)

    def visit(self, k: int, op: Op) -> None:
        if op.acts_outside:
            self.stores.clear()
            return
        if self.stores and type(op) is DmaCopyOp and is_load(op, (HBM,)) and self.forward(k, op):
            return
        for tile in accessed(op)[1]:
            if tile is not None and tile.space == HBM and tile.handle in self.stores:
                self.invalidate(op, tile)
        if type(op) is DmaCopyOp and is_store(op):
            stored = self.stores.setdefault(op.dst.handle, [])
            if len(stored) < MOST:
                src = in_stored_tile(op.src, self.replacement)
                region = region_in_hbm(op, op.dst)
                stored.append(StoredTile(k, op.dst.access, region, src, region.low, region.high))

    def invalidate(self, op: Op, tile: Tile) -> None:
        """Forget the stores of a tensor that an operation overwrites."""
        if isinstance(op, DataAddressed):
            del self.stores[tile.handle]
            return
        region = region_in_hbm(op, tile)
        self.stores[tile.handle] = [s for s in self.stores[tile.handle] if not s.region.overlaps(region)]

    def forward(self, k: int, op: DmaCopyOp) -> bool:
        """Let a stored tile replace the one that a load writes, if it can."""
        buffer = op.dst.handle
        if self.uses.writer[buffer] != k or self.uses.users[buffer][0] != k or not self.is_free(buffer) or (
                # the tile of the previous iteration may be live
                buffer not in self.local or buffer in self.elsewhere):
            return False
        last, region = self.last_use[buffer], region_in_hbm(op, op.src)
        low, high, registers = region.low, region.high, region.symbolic
        overlapping_stores = [store for store in self.stores.get(op.src.handle, ())
                              if store.region.bounds_overlap(region)]
        for store in overlapping_stores:
            if low < store.low or store.high < high or store.region.symbolic != registers:
                continue                        # the load reads bytes that the store did not write
            before, stored = distance(op, store), store.tile.handle
            if before is None or not self.is_free(stored) or (before and self.is_reinterpreted(buffer)):
                continue
            writes = self.writes_of.get(stored, [])
            if bisect_right(writes, last) > bisect_right(writes, store.position):
                continue                        # the tile is overwritten before the last use
            begin = self.last_use[stored] + 1
            if begin <= last and not self.level.raised(begin, last + 1, stored.bytes_per_partition, self.limit):
                continue
            self.last_use[stored] = max(self.last_use[stored], last)
            self.replacement[buffer] = stored, before
            self.drop(k, op)
            return True
        return self.joins and self.join(k, op, region, overlapping_stores)

    def drop(self, k: int, op: DmaCopyOp) -> None:
        self.dropped.append(op)
        self.loads.add(self.run[k])

    def join(self, k: int, op: DmaCopyOp, region: Region, overlapping_stores: Sequence[StoredTile]) -> bool:
        """Let tiles that were stored side by side become parts of the one that a load of a region writes, if they can.
        They are among the ``overlapping_stores``."""
        buffer = op.dst.handle
        last, width = self.last_use[buffer], columns_of_rows(op.dst, op.src.access)
        if not width:
            return False
        stores = [store for store in overlapping_stores if store.region.overlaps(region)]
        if sum(store.tile.form.row for store in stores) != width:
            return False
        starts = [part_of_row(op, store, region) for store in stores]
        tiles = [store.tile.handle for store in stores]
        if None in starts or len({buffer, *tiles}) <= len(tiles) or not all(map(self.may_be_part, tiles)):
            return False
        writes = [self.writes_of.get(tile, []) for tile in tiles]
        if any(bisect_right(of_tile, last) > bisect_right(of_tile, store.position)
               for of_tile, store in zip(writes, stores)):
            return False                        # a tile is overwritten before the last use
        if not self.raise_parts(tiles, k):
            return False
        self.replacement.update({tile: (buffer, start) for tile, start in zip(tiles, starts) if start is not None})
        self.last_use[buffer] = max(last, *[self.last_use[tile] for tile in tiles])
        self.writes_of[buffer] = sorted({at for of_tile in writes for at in of_tile})
        joined = set(tiles)
        for tensor, of_tensor in self.stores.items():
            self.stores[tensor] = [store._replace(tile=in_stored_tile(store.tile, self.replacement))
                                   if store.tile.handle in joined else store for store in of_tensor]
        self.drop(k, op)
        return True

    def may_be_part(self, buffer: DeviceBuffer) -> bool:
        """Return whether a tile may become a part of another one: the compiler chooses its address, only this run uses
        it, with one dtype, and it does not stand for registers of an engine."""
        if buffer not in self.local or buffer in self.elsewhere or not self.is_free(buffer):
            return False
        ops = [self.run[k].op for k in self.uses.users[buffer]]
        return not self.is_reinterpreted(buffer) and not any(
            (tile := getattr(op, name, None)) is not None and tile.handle is buffer for op in ops for name in REGISTERS)

    def raise_parts(self, tiles: Sequence[DeviceBuffer], k: int) -> bool:
        """Add the bytes of tiles that become parts of the tile of load ``k``: also before their first and after their
        last uses, from the first use of any of them to the load. Return whether there is room."""
        users = self.uses.users
        first = min(users[tile][0] for tile in tiles)
        spans = [(begin, end, tile.bytes_per_partition) for tile in tiles for begin, end in (
            (first, users[tile][0]), (self.last_use[tile] + 1, k)) if begin < end]
        for number, (begin, end, size) in enumerate(spans):
            if not self.level.raised(begin, end, size, self.limit):
                for raised_begin, raised_end, raised_size in spans[:number]:
                    self.level.raised(raised_begin, raised_end, -raised_size, self.limit)
                return False
        return True

    def is_reinterpreted(self, buffer: DeviceBuffer) -> bool:
        """Return whether a step accesses a tile in another dtype."""
        return any(tile.handle is buffer and tile.dtype is not buffer.dtype
                   for k in self.uses.users[buffer] for _, tile in self.run[k].op.operands())

    @staticmethod
    def is_free(buffer: DeviceBuffer) -> bool:
        """Return whether the compiler chooses the address of a tile."""
        return not (buffer.fixed or buffer.addresses or buffer.attributes)

    def replace(self, block: Block) -> None:
        """Drop the loads, and let other steps read the stored tiles."""
        run, users = self.run, self.uses.users
        for step in {run[k]: None for buffer in self.replacement for k in users[buffer]}:
            if step not in self.loads:
                step.op, step.work = changed(step.op, lambda tile: in_stored_tile(tile, self.replacement)), None
        block.nodes = [node for node in block.nodes if node not in self.loads]
        block.buffers = [buffer for buffer in block.buffers if buffer not in self.replacement]


def region_in_hbm(op: Op, tile: Tile) -> Region:
    """Return the region of an operation's tile in HBM."""
    return region_of(tile.access, HBM, symbols=op.symbols, ranges=op.ranges)


def distance(load: DmaCopyOp, store: StoredTile) -> int | None:
    """Return how many elements of a partition the stored tile has before those of the loaded buffer; None if it does
    not have all elements that the load reads, in their order."""
    loaded, outside, stored = load.dst.access, load.src.access, store.tile.access
    dtypes = {loaded.dtype, outside.dtype, stored.dtype, load.dst.base_dtype, store.tile.base_dtype}
    if len(dtypes) > 1 or not load.dst.form.covers_buffer or loaded.partition != stored.partition or (
            loaded.symbols_used() or stored.symbols_used() or len(outside.dims) != len(loaded.dims)):
        return None
    columns = outside.free.const - store.access.free.const
    if outside.dims == store.access.dims and loaded.dims == stored.dims and not columns:
        return stored.free.const - loaded.free.const
    (row, rows), (stored_row, stored_rows) = outside.dims[0], store.access.dims[0]
    if loaded.dims[0] != (1, rows) or stored.dims[0] != (1, stored_rows) or rows > stored_rows or (
            row != stored_row and rows > 1) or outside.dims[1:] != loaded.dims[1:] or (
            store.access.dims[1:] != stored.dims[1:]):
        return None
    run = nest_of(store.access.dims[1:], 1)     # in elements
    low, high = outside.box([0] * len(outside.dims), [1, *outside.shape[1:]]).reach()
    if run.pairs or not run.exact or run.shift or (stored_rows > 1 and run.extent > abs(stored_row)) or (
            columns + low < 0 or columns + high >= run.extent):
        return None
    return stored.free.const + columns - loaded.free.const


def columns_of_rows(tile: Tile, outside: Access) -> int:
    """Return how many elements of each partition of a complete tile a transfer moves from or to contiguous elements of
    a tensor's rows, in order; 0 for any other transfer."""
    access = tile.access
    run = nest_of(access.dims[1:], 1)           # in elements
    (row, rows), partitions = outside.dims[0], access.dims[0]
    dtypes = {access.dtype, outside.dtype, tile.base_dtype}
    if len(dtypes) > 1 or not tile.form.covers_buffer or access.partition != NOTHING or access.free != NOTHING or (
            partitions != (1, rows) or outside.dims[1:] != access.dims[1:] or run.pairs or not run.exact or run.shift):
        return 0
    return run.extent if run.extent == tile.form.row and (rows == 1 or run.extent <= abs(row)) else 0


def part_of_row(load: DmaCopyOp, store: StoredTile, region: Region) -> int | None:
    """Return how many columns of a load precede those of a store of complete rows that it contains; None for any other
    store."""
    if not columns_of_rows(store.tile, store.access) or store.region.symbolic != region.symbolic or (
            store.tile.dtype is not load.dst.dtype):
        return None
    outside, other = load.src.access, store.access
    (row, rows), (stored_row, stored_rows) = outside.dims[0], other.dims[0]
    columns = other.free.const - outside.free.const
    if rows != stored_rows or (row != stored_row and rows > 1):
        return None
    return columns if 0 <= columns <= load.dst.form.row - store.tile.form.row else None


def in_stored_tile(tile: Tile, replacement: Replacement) -> Tile:
    """Return the tile in the buffer that has its elements."""
    if tile.handle not in replacement:
        return tile
    buffer, before = replacement[tile.handle]
    while buffer in replacement:
        buffer, further = replacement[buffer]
        before += further
    access = tile.access
    if before:
        access = Access(access.dtype, access.partition, access.free.plus(Linear(before)), access.dims)
    return Tile(buffer, tile.space, buffer.shape, buffer.dtype, access, tile.label)
