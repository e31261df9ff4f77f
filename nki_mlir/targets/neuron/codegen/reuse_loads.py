# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""reuse-loads: load unchanged data, and copy them by DMA within SBUF, only once, if SBUF has room to keep them.

before:  load a = A[0]; p = a.T @ b; load c = A[0]; q = c.T @ d
after:   load a = A[0]; p = a.T @ b;                q = a.T @ d

A load is dropped if an earlier one of the same run of instructions loaded the same elements to a tile of the same form,
nothing wrote that HBM tensor or either tile since, nothing outside of the run uses the second tile, and the first one
can stay in SBUF until the last use of the second: in between, program order fills at most ``room`` percent of SBUF,
this tile included. The same holds for copies by DMA from SBUF, which repeat a row in all partitions, but they may
fill ``ROOM_OF_COPIES`` percent: the kernel has one such tile.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from nki_mlir.dialects.access import HBM, SBUF, Tile
from nki_mlir.dialects.nisa.meeting import Meeting
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
from nki_mlir.targets.neuron.codegen.schedule_instructions import NO_REORDER, runs_of

ROOM = 70                       # percent
ROOM_OF_COPIES = 95             # percent


class ReuseLoads(RecordsPass, name="reuse-loads", reads=Level.NISA):
    room: int = 70              # percent of SBUF that kept tiles may fill in program order

    def rewritten(self, code: Code) -> None:
        reuse_loads(code, self.room)


def reuse_loads(code: Code, room: int = ROOM, spaces: Sequence[str] = (HBM, SBUF)) -> list[Op]:
    """Drop repeated copies from the memories ``spaces`` to SBUF in place; return the dropped copies from HBM."""
    runs = [(block, run) for block in blocks(code.body) for run in runs_of(block.nodes)
            if has_repeated_loads(run, spaces)]
    if not runs:
        return []
    loaded, users = loaded_once(code, spaces), users_of(nodes_in(code.body))
    dropped: list[Op] = []
    for block, run in runs:
        dropped += _Reuse(code, block, run, loaded, users, room).dropped
    return dropped


def has_repeated_loads(run: Sequence[InstructionStep], spaces: Sequence[str]) -> bool:
    """Return whether two loads load the same elements."""
    loads = [step.op for step in run if is_load(step, spaces)]
    sources = [(op.src.handle, op.src.access) for op in loads]                                  # type: ignore[attr-defined]
    return len(set(sources)) < len(sources)


def loaded_once(code: Code, spaces: Sequence[str]) -> dict[DeviceBuffer, InstructionStep]:
    """For tiles in SBUF without an address whose only write is such a copy, return the copy."""
    writers: dict[DeviceBuffer, InstructionStep | None] = {}        # None: several, or something else
    for node in nodes_in(code.body):
        if type(node) is InstructionStep:
            for _, tile in node.op.targets():
                handle = tile.handle
                writers[handle] = None if handle in writers else node
        else:
            writers.update((tile.handle, None) for tile in tiles_of(node))
    return {buffer: step for buffer, step in writers.items()
            if step is not None and buffer.space == SBUF and is_load(step, spaces)
            and not (buffer.fixed or buffer.addresses or buffer.attributes)}


def users_of(nodes: Iterable[object]) -> dict[DeviceBuffer, int]:
    """Return the number of nodes that use each buffer."""
    users: dict[DeviceBuffer, int] = {}
    for node in nodes:
        if type(node) is InstructionStep:
            values = node.op.__dict__
            handles = [tile.handle for field in node.op.tiles if (tile := values[field.name]) is not None]
        else:
            handles = [tile.handle for tile in tiles_of(node)]
        for handle in handles if len(handles) < 2 else dict.fromkeys(handles):
            users[handle] = users.get(handle, 0) + 1
    return users


def is_load(step: InstructionStep, spaces: Sequence[str]) -> bool:
    op = step.op
    return (isinstance(op, (DmaCopyOp, DmaTransposeOp)) and op.dst.space == SBUF and op.src.space in spaces
            and not (op.mask or op.limits)
            and NO_REORDER not in op.extra)


class _Reuse:
    """One run. ``level``: bytes of a partition of SBUF that program order has in use at each step."""

    def __init__(self, code: Code, block: Block, run: Sequence[InstructionStep],
                 loaded: dict[DeviceBuffer, InstructionStep], users: dict[DeviceBuffer, int], room: int) -> None:
        self.dropped: list[Op] = []
        local = set(block.buffers)
        first_use: dict[DeviceBuffer, int] = {}
        last_use: dict[DeviceBuffer, int] = {}
        users_here: dict[DeviceBuffer, int] = {}
        for k, step in enumerate(run):
            values = step.op.__dict__
            for field in step.op.tiles:
                tile = values[field.name]
                if tile is not None and tile.space == SBUF and (last := last_use.get(buffer := tile.handle)) != k:
                    last_use[buffer] = k
                    if last is None:
                        first_use[buffer] = k
                        users_here[buffer] = 1
                    else:
                        users_here[buffer] += 1
        changes = [0] * (len(run) + 1)
        for buffer, k in first_use.items():
            changes[k if buffer in local else 0] += buffer.bytes_per_partition
            changes[(last_use[buffer] if buffer in local else len(run) - 1) + 1] -= buffer.bytes_per_partition
        level = np.cumsum(np.array(changes, np.int64))
        sbuf = code.machine.sbuf_bytes_per_partition
        limits = {HBM: sbuf * room // 100, SBUF: sbuf * max(room, ROOM_OF_COPIES) // 100}
        loaded_before: dict[DeviceBuffer, dict[tuple[object, ...], DeviceBuffer]] = {}      # by the source
        replacement: dict[DeviceBuffer, DeviceBuffer] = {}         # tiles whose load is dropped: their replacement
        dropped_steps: set[InstructionStep] = set()
        for k, step in enumerate(run):
            op = step.op
            if op.acts_outside or isinstance(op, Meeting):
                loaded_before.clear()
                continue
            for _, tile in op.targets():
                loaded_before.pop(tile.handle, None)
            if not isinstance(op, (DmaCopyOp, DmaTransposeOp)):
                continue
            buffer = op.dst.handle
            if loaded.get(buffer) is not step or buffer not in local or users_here[buffer] < users[buffer]:
                continue
            key = op.kind(), op.src.access, op.dst.access, buffer.shape, buffer.dtype, op.symbols
            same_source = loaded_before.setdefault(op.src.handle, {})
            before = same_source.setdefault(key, buffer)
            if before is buffer:
                continue
            begin, size = last_use[before] + 1, buffer.bytes_per_partition
            if begin < k and np.maximum.reduce(level[begin:k]) + size > limits[op.src.space]:
                same_source[key] = buffer
                continue
            level[begin:k] += size
            last_use[before] = max(last_use[before], last_use[buffer])
            replacement[buffer] = before
            dropped_steps.add(step)
        if not dropped_steps:
            return
        self.dropped = [step.op for step in run if step in dropped_steps and step.op.sources()[0][1].space == HBM]
        for step in run:
            if step not in dropped_steps and any([tile.handle in replacement for _, tile in step.op.sources()]):
                step.op = changed(step.op, lambda tile: in_tile(tile, replacement))
        block.nodes = [node for node in block.nodes if node not in dropped_steps]
        block.buffers = [buffer for buffer in block.buffers if buffer not in replacement]


def in_tile(tile: Tile, replacement: dict[DeviceBuffer, DeviceBuffer]) -> Tile:
    """Return the tile in the buffer that has its elements."""
    buffer = replacement.get(tile.handle)
    if buffer is None:
        return tile
    return tile.starting(buffer, tile.access)
