# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Spill tiles that several runs of instructions share, in loops, in branches and between them.

before:  a = ...; for i: b = ...; use b               after:  a = ...; store a; for i: b = ...; use b
         use a                                                a' = load; use a'

A shared tile occupies SBUF from its first use to its last, in all loops between. When it spills, HBM has its elements
at each boundary between runs: a run that uses it loads it into a buffer of the run's block before its first use
there, and stores it after the last instruction there that writes it. Such a buffer is then a tile of one run
(``spill_tiles``). Dependences between the loads and the stores, of this iteration and of the one before, are those of
any access to HBM.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nki_mlir.diagnostics import line_prefix
from nki_mlir.dialects.access import HBM, SBUF, Access, Linear, Tile
from nki_mlir.dialects.isa.program import SPILLED
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.op import Op, changed
from nki_mlir.targets.neuron.codegen import records
from nki_mlir.targets.neuron.codegen.liveness import Liveness, peak
from nki_mlir.targets.neuron.codegen.move_psum_results import entire, writes_all
from nki_mlir.targets.neuron.codegen.schedule_instructions import run_counts, runs_of
from nki_mlir.targets.neuron.codegen.step_table import occupied_bytes


@dataclass(eq=False)
class RunUse:
    """The steps of a run that use a tile. ``loads`` and ``stores``: whether the run has to load and store the tile if
    it spills; ``times``: how often the run is executed."""

    block: records.Block
    times: int
    steps: list[records.InstructionStep] = field(default_factory=list)
    loads: bool = True
    stores: bool = False


def spill_shared_tiles(code: records.Code, limit: int) -> None:
    """Spill shared tiles until SBUF needs at most ``limit`` bytes in program order, or no tile is left whose spill
    helps."""
    shared: dict[records.DeviceBuffer, list[RunUse]] | None = None
    while True:
        liveness = Liveness(code)
        lives = [life for life in liveness.of.values() if life.buffer.space == SBUF]
        most, where = peak(lives, lambda buffer: occupied_bytes(buffer, code.machine))
        if most <= limit:
            return
        if shared is None:
            shared = shared_tiles(code)
        used_buffers = {tile.handle for tile in records.tiles_of(liveness.steps[where])}
        candidates = [life.buffer for life in lives if life.first <= where <= life.last and life.buffer in shared
                      and life.buffer not in used_buffers]
        if not candidates:
            return
        at = liveness.steps[where]
        victim = min(candidates, key=lambda buffer: cost(shared[buffer], at))
        spill(code, victim, shared.pop(victim))


def cost(uses: Sequence[RunUse], at: records.InstructionStep) -> tuple[bool, int]:
    """Return a key that orders tiles by the transfers that their spill costs; tiles that the run of a step does not use
    come first."""
    return (any(at in runs_of_block(use.block, use.steps[0]) for use in uses),
            sum(use.times * (use.loads + use.stores) for use in uses))


def runs_of_block(block: records.Block, step: records.InstructionStep) -> list[records.InstructionStep]:
    """Return the run of a block that contains a step."""
    return next(run for run in runs_of(block.nodes) if step in run)


def shared_tiles(code: records.Code) -> dict[records.DeviceBuffer, list[RunUse]]:
    """Return the SBUF tiles that several runs use, with these runs in the order of the code. Tiles do not spill if the
    kernel chose their address, if registers load them, or if the block that allocates them does not use them first."""
    times = run_counts(code.body)
    uses: dict[records.DeviceBuffer, list[RunUse]] = {}
    stay: set[records.DeviceBuffer] = set()

    def visit(block: records.Block) -> None:
        run: dict[records.DeviceBuffer, RunUse] = {}
        for node in block.nodes:
            if isinstance(node, records.InstructionStep):
                for buffer in dict.fromkeys(tile.handle for tile in records.tiles_of(node)):
                    if buffer not in run:
                        run[buffer] = RunUse(block, times[block])
                        uses.setdefault(buffer, []).append(run[buffer])
                    run[buffer].steps.append(node)
                continue
            run = {}
            stay.update(tile.handle for tile in records.tiles_of(node))
            for inner in records.sub_blocks(node):
                visit(inner)

    visit(code.body)
    shared = {}
    for block in records.blocks(code.body):
        for buffer in block.buffers:
            of_buffer = uses.get(buffer, [])
            if buffer.space != SBUF or len(of_buffer) < 2 or of_buffer[0].block is not block or buffer in stay or (
                    buffer.fixed or buffer.addresses or buffer.attributes):
                continue
            for k, use in enumerate(of_buffer):
                use.loads = k > 0 and not overwrites(use.steps[0].op, buffer)
                is_last = k == len(of_buffer) - 1 and use.block is block
                use.stores = not is_last and any(writes(step.op, buffer) for step in use.steps)
            shared[buffer] = of_buffer
    return shared


def writes(op: Op, buffer: records.DeviceBuffer) -> bool:
    return any(tile.handle is buffer for _, tile in op.targets())


def overwrites(op: Op, buffer: records.DeviceBuffer) -> bool:
    """Return whether an operation writes all of a buffer and reads none of it."""
    return writes_all(op, buffer) and all(tile.handle is not buffer for _, tile in op.sources())


def spill(code: records.Code, buffer: records.DeviceBuffer, uses: Sequence[RunUse]) -> None:
    """Give each run that uses a tile a separate buffer, and insert the loads and stores between the runs."""
    row = buffer.bytes_per_partition // buffer.dtype.itemsize
    home = records.DeviceBuffer(f"{buffer.name or 'tile'}{SPILLED}", HBM, (1, buffer.partitions, row), buffer.dtype,
                                location=buffer.location)
    access = Access(buffer.dtype, None, Linear(), ((row, buffer.partitions), (1, row)))
    at_home = Tile(home, HBM, home.shape, buffer.dtype, access, home.name)
    before: dict[records.InstructionStep, records.InstructionStep] = {}
    after: dict[records.InstructionStep, records.InstructionStep] = {}
    for use in uses:
        local = replace(buffer, address=None)
        local_tile = entire(local)
        written = [step for step in use.steps if writes(step.op, buffer)]
        if use.loads:
            before[use.steps[0]] = use.steps[0].with_op(DmaCopyOp(dst=local_tile, src=at_home))
        if use.stores:
            after[written[-1]] = written[-1].with_op(DmaCopyOp(dst=at_home, src=local_tile))
        for step in use.steps:
            step.op = changed(step.op, lambda tile: tile.starting(local, tile.access)        # noqa: B023
                              if tile.handle is buffer else tile)
        use.block.buffers.append(local)
    for block in dict.fromkeys(use.block for use in uses):
        block.nodes = [new for node in block.nodes for new in (before.get(node), node, after.get(node))
                       if new is not None]
    declaring = uses[0].block
    declaring.buffers = [home, *(other for other in declaring.buffers if other is not buffer)]
    where = line_prefix(buffer.location)
    loads, stores = (sum(use.times * count for use, count in zip(uses, counts)) for counts in (
        [use.loads for use in uses], [use.stores for use in uses]))
    code.notes.append(f"{where}SBUF is full: {buffer.name or 'a tile'}, of {buffer.bytes_per_partition} bytes per "
                      f"partition, leaves it between loops and branches ({stores} copies to HBM and {loads} back)")
