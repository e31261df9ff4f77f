# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""interleave-rows: let each partition take several neighboring rows of a loop over rows, in one longer transfer.

before:  for i in 0 to 1000:             after:  for i in 0 to 1000 by 2:
           t[p] = x[128 i + p]                     t[p, 0], t[p, 1] = x[128 i + 2 p], x[128 i + 2 p + 1]
           u = exp t                               u[:, 0] = exp t[:, 0];  u[:, 1] = exp t[:, 1]
           y[128 i + p] = u                        y[128 i + 2 p], y[128 i + 2 p + 1] = u[p, 0], u[p, 1]

There are half as many transfers, of as many runs of twice the length, for which HBM waits less often. The rows of the
joined iterations change places, so the pass applies to loops whose instructions compute each partition by itself,
equally in all partitions, and whose transfers move complete adjacent rows. It joins 2, 4 or 8 iterations, up to runs of
a page of HBM, if the transfers or their triggers take less time by the machine's costs, and if at least ``least``
iterations remain. It leaves loops whose engines take longer than the transfers: longer iterations overlap less.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.access import HBM, SBUF, Access, Linear, Tile
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.op import Op, changed
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Code,
    DeviceBuffer,
    InstructionStep,
    Loop,
    LoopVariable,
    blocks,
    steps_in,
    tiles_of,
)
from nki_mlir.targets.neuron.timing.transfers import Transfers

LEAST = 32                      # least iterations that remain: the first and the last ones overlap with fewer others
JOINED = 8, 4, 2                # numbers of iterations that become one
GAIN = 0.97                     # joined transfers take at most this part of the time of the separate ones
IN_FLIGHT = 3                   # iterations for which SBUF must have room at once


class InterleaveRows(RecordsPass, name="interleave-rows", reads=Level.NISA):
    least: int = LEAST          # least iterations of a loop that remain

    def rewritten(self, code: Code) -> None:
        interleave_rows(code, self.least)


def interleave_rows(code: Code, least: int = LEAST) -> int:
    """Join iterations of loops over rows, in place. Return the number of changed loops."""
    equal, transfers, changed_loops = EqualPartitions(code), Transfers(code.machine), 0
    for block in blocks(code.body):
        for at, loop in reversed([*enumerate(block.nodes)]):
            if type(loop) is Loop and (rows := rows_of(loop, equal)) is not None:
                count = joined_iterations(loop, rows, transfers, code.machine, least)
                if count > 1:
                    end = len(loop.span) - len(loop.span) % count
                    block.nodes[at:at + 1] = [joined(loop, loop.span[start:stop], rows, each) for start, stop, each in (
                        (0, end, count), (end, len(loop.span), 1)) if start < stop]
                    changed_loops += 1
    return changed_loops


# -- which loops -------------------------------------------------------------------------------------------------------
class RowTransfer(NamedTuple):
    """A transfer between a buffer on chip and as many complete rows of ``row`` elements as it has partitions."""

    step: InstructionStep
    chip: Tile
    home: Tile
    loads: bool

    @property
    def row(self) -> int:
        return self.chip.row


def rows_of(loop: Loop, equal: "EqualPartitions") -> dict[InstructionStep, RowTransfer] | None:
    """Return the transfers of a loop whose iterations may exchange rows; None if the loop has others, or if its
    instructions compute with more than one partition."""
    transfers: dict[InstructionStep, RowTransfer] = {}
    homes: set[DeviceBuffer] = set()
    locals_, partitions = set(loop.body.buffers), 0
    if len(loop.span) < 2 or any(b.fixed or b.addresses or b.attributes for b in locals_):
        return None
    for step in loop.body.nodes:
        if type(step) is not InstructionStep or not is_simple(step.op):
            return None
        if any(tile.space == HBM for tile in tiles_of(step)):
            transfer = row_transfer(step, loop)
            if transfer is None or transfer.chip.handle not in locals_ or transfer.home.handle in homes:
                return None
            homes.add(transfer.home.handle)
            transfers[step] = transfer
            partitions = partitions or transfer.chip.partitions
        elif step.op.queued or step.op.symbols or not computes_partitions_apart(step.op):
            return None
    for step in loop.body.nodes:
        written = {tile.handle for _, tile in step.op.targets()}
        for tile in tiles_of(step):
            if tile.space == HBM:
                continue
            start = tile.access.partition
            if start is None or start.symbols or tile.access.free.symbols:
                return None
            if tile.handle in locals_:
                if start.const or tile.access.dims[0] != (1, partitions) or tile.base_shape[0] != partitions:
                    return None
            elif tile.handle in written or not (tile.access.dims[0] == (0, partitions) or (
                    tile.access.dims[0] == (1, partitions) and equal.holds(tile.handle))):
                return None
    return transfers if transfers and in_order(loop.body.nodes, transfers) else None


def is_simple(op: Op) -> bool:
    """Return whether an instruction only computes its tiles, without masks, positions and state."""
    return not (op.mask or op.limits or op.acts_outside or op.extra or op.has_linear_attributes
                or op.index_forms() or op.partition_group > 1)


def row_transfer(step: InstructionStep, loop: Loop) -> RowTransfer | None:
    """Return the transfer of a step if it moves the rows of the iteration: complete, adjacent, after those of the
    previous iteration; else None."""
    op = step.op
    if type(op) is not DmaCopyOp:
        return None
    loads = op.src.space == HBM
    home, chip = (op.src, op.dst) if loads else (op.dst, op.src)
    if chip.space != SBUF or not chip.layout.form.covers_buffer or any(
            tile.dtype is not tile.base_dtype for tile in (chip, home)):
        return None
    partitions, row = chip.partitions, chip.row
    if chip.access.dims != ((1, partitions), (1, row)) or home.access.dims != ((row, partitions), (1, row)):
        return None
    moves = [c for position, c in home.access.free.symbols if op.symbols[position] is loop.variable]
    if len(moves) != 1 or moves[0] * loop.span.step != partitions * row or any(
            not isinstance(symbol, LoopVariable) for symbol in op.symbols):
        return None
    return RowTransfer(step, chip, home, loads)


def computes_partitions_apart(op: Op) -> bool:
    """Return whether each partition of the result depends only on the same partition of the sources."""
    if not op.is_loop_nest:
        return op.rows_apart
    try:
        iteration = op.iteration()
    except InternalError:
        return False
    return 0 in op.axes_apart(iteration) and all(iteration.axes[field.name][0] == 0 for field, _ in op.operands())


def in_order(nodes: Sequence[InstructionStep], transfers: dict[InstructionStep, RowTransfer]) -> bool:
    """Return whether each load is the first instruction on its buffer, and each store after the last that writes its
    buffer: all loads may then come first, and all stores last."""
    for at, step in enumerate(nodes):
        if (transfer := transfers.get(step)) is None:
            continue
        for other in nodes[:at] if transfer.loads else nodes[at + 1:]:
            tiles = tiles_of(other) if transfer.loads else [tile for _, tile in other.op.targets()]
            if any(tile.handle is transfer.chip.handle for tile in tiles):
                return False
    return True


class EqualPartitions:
    """The buffers of which all partitions have equal values."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.verdicts: dict[DeviceBuffer, bool] = {}
        self._writers: dict[DeviceBuffer, list[Op]] | None = None

    @property
    def writers(self) -> dict[DeviceBuffer, list[Op]]:
        if self._writers is None:
            self._writers = {}
            for step in steps_in(self.code.body):
                for _, tile in step.op.targets():
                    self._writers.setdefault(tile.handle, []).append(step.op)
        return self._writers

    def holds(self, buffer: DeviceBuffer) -> bool:
        if buffer not in self.verdicts:
            self.verdicts[buffer] = False                  # assumed while a buffer depends on itself
            self.verdicts[buffer] = bool(self.writers.get(buffer)) and all(
                self.keeps(op, buffer) for op in self.writers[buffer])
        return self.verdicts[buffer]

    def keeps(self, op: Op, buffer: DeviceBuffer) -> bool:
        """Return whether an instruction writes equal values to all partitions of a buffer."""
        if not is_simple(op) or any(
                tile.handle is not buffer or tile.access.dims[0] != (1, buffer.shape[0]) for _, tile in op.targets()):
            return False
        if not (isinstance(op, DmaCopyOp) or computes_partitions_apart(op)):
            return False
        return all(tile.access.dims[0][0] == 0 or (tile.on_chip and self.holds(tile.handle))
                   for _, tile in op.sources())


# -- how many iterations -----------------------------------------------------------------------------------------------
def joined_iterations(loop: Loop, rows: dict[InstructionStep, RowTransfer], transfers: Transfers, machine: Machine,
                      least: int) -> int:
    """Return how many iterations to join: the number for which the transfers, or their triggers if these take longer,
    take the least time per iteration; 1 if joining does not pay."""
    costs = machine.costs.dma
    issue_ns = (costs.static_issue_ns if machine.static_descriptors else costs.issue_ns) / len(DmaCopyOp.engines)

    def iteration_ns(count: int) -> float:
        transfer_ns = sum(max(transfers.of(joined_transfer(transfer, count).op).parts) for transfer in rows.values())
        return max(transfer_ns, len(rows) * issue_ns) / count
    longest_row_bytes = max(t.row * max(t.chip.dtype.itemsize, t.home.dtype.itemsize) for t in rows.values())
    partition_bytes = sum(buffer.bytes_per_partition for buffer in loop.body.buffers if buffer.space == SBUF)
    counts = [count for count in JOINED
              if len(loop.span) // count >= least
              and longest_row_bytes * count <= costs.page_bytes
              and partition_bytes * count * IN_FLIGHT <= machine.sbuf_bytes_per_partition]
    best = min(counts, key=iteration_ns, default=1)
    alone_ns = iteration_ns(1)
    return best if best > 1 and iteration_ns(best) < alone_ns * GAIN and computing_ns(loop, machine) < alone_ns else 1


def computing_ns(loop: Loop, machine: Machine) -> float:
    """Return ns that the instructions of an iteration take if all engines that may run one of them share their time
    evenly."""
    total, engines = 0.0, set[Engine]()
    for step in steps_in(loop.body):
        if not step.op.queued:
            total += step.op.busy_ns(machine)
            is_open = step.op.engine == Engine.UNKNOWN.value
            engines.update(step.op.shared_engines if is_open else (), (step.op.runs_on,))
    return total / max(len(engines), 1)


# -- the joined loop ---------------------------------------------------------------------------------------------------
def joined(loop: Loop, iterations: range, rows: dict[InstructionStep, RowTransfer], count: int) -> Loop:
    """Return a loop over ``iterations`` of a loop, in which each iteration does the work of ``count``."""
    span = iterations[::count]
    variable = replace(loop.variable, low=min(span[0], span[-1]), high=max(span[0], span[-1]))
    body = Block()
    moved = {transfer.chip.handle: wider(transfer.chip.handle, count) for transfer in rows.values()}
    parts = [{buffer: replace(buffer) for buffer in loop.body.buffers if buffer not in moved} for _ in range(count)]
    body.buffers = [*moved.values(), *[buffer for part in parts for buffer in part.values()]]
    for number, part in enumerate(parts):
        for step in loop.body.nodes:
            if (transfer := rows.get(step)) is not None:
                if number == (0 if transfer.loads else count - 1):
                    body.nodes.append(over(joined_transfer(transfer, count, moved[transfer.chip.handle]),
                                           loop.variable, variable))
                continue

            def tile_in(tile: Tile, number: int = number, part: dict[DeviceBuffer, DeviceBuffer] = part) -> Tile:
                if (wide := moved.get(tile.handle)) is not None:
                    start = Linear(tile.access.free.const + number * tile.row)
                    return Tile(wide, tile.space, wide.shape, wide.dtype, replace(tile.access, free=start), tile.label)
                buffer = part.get(tile.handle)
                return tile if buffer is None else tile.starting(buffer, tile.access)
            body.nodes.append(step.with_op(changed(step.op, tile_in)))
    return Loop(variable, span, body, loop.location, loop.attributes)


def wider(buffer: DeviceBuffer, count: int) -> DeviceBuffer:
    """Return a buffer with room for the rows of several iterations in each partition."""
    return replace(buffer, shape=(buffer.shape[0], count, *buffer.shape[1:]))


def joined_transfer(transfer: RowTransfer, count: int, wide: DeviceBuffer | None = None) -> InstructionStep:
    """Return the transfer of ``count`` neighboring rows for each partition."""
    partitions, row = transfer.chip.partitions, transfer.row * count
    wide = wide or wider(transfer.chip.handle, count)
    chip = Tile(wide, SBUF, wide.shape, wide.dtype,
                Access(wide.dtype, Linear(), Linear(), ((1, partitions), (1, row))), transfer.chip.label)
    home = transfer.home.patterned(dims=((row, partitions), (1, row)))
    return transfer.step.with_op(changed(transfer.step.op, lambda tile: home if tile is transfer.home else chip))


def over(step: InstructionStep, old: LoopVariable, new: LoopVariable) -> InstructionStep:
    """Return a step with another variable of its loop."""
    op = step.op
    symbols = tuple([new if symbol is old else symbol for symbol in op.symbols])
    return step.with_op(changed(op, None, symbols=symbols, ranges=tuple([(s.low, s.high) for s in symbols])))
