# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""forward-transfers: let an engine reverse tiles that transfers would walk backwards.

before:  t[p, 5 - f] = x[p, f]                  after:  s = x[p, f];  t[p, 5 - f] = copy s
         y[p, f] = t[p, 5 - f]                          s = copy t[p, 5 - f];  y[p, f] = s

A transfer that steps backwards moves single elements, one descriptor each; an engine reads and writes in any
direction. A transfer may step through both of its tiles from either end, so the pass first lets the tile in HBM step
forwards. It does not change transfers whose rows of HBM go to the partitions in reverse order: they have as many
descriptors as in the other order. Nor does it change a transfer that writes a tile backwards at a partition where no
engine starts, unless the other tile, also on chip, can step backwards instead: an engine reads rows from any partition
together with the rows before them.
"""

from collections.abc import Sequence
from dataclasses import replace

from nki_mlir.dialects.access import HBM, SBUF, Linear, Tile, full_tile
from nki_mlir.dialects.nisa.movement import DmaCopyOp, TensorCopyOp
from nki_mlir.dialects.nki.movement import Copying
from nki_mlir.dialects.op import changed
from nki_mlir.dialects.target_rules import rows_around, starts_legally
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Block, Code, DeviceBuffer, InstructionStep, blocks


class ForwardTransfers(RecordsPass, name="forward-transfers", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        forward_transfers(code)


def forward_transfers(code: Code) -> None:
    """Split the transfers that step backwards on chip, in place."""
    for block in list(blocks(code.body)):
        if any(_is_backwards(node) for node in block.nodes):
            block.nodes = [step for node in block.nodes
                           for step in (_split(node, block, code) if _is_backwards(node) else [node])]


def is_backwards(tile: Tile) -> bool:
    """Return whether a pattern has a negative step."""
    for step, count in tile.access.dims:        # faster than ``any``
        if step < 0 and count > 1:
            return True
    return False


def with_hbm_forwards(op: Copying) -> tuple[Copying, bool]:
    """Return a transfer without a mask whose tile in HBM steps forwards, after reversing some axes of both tiles; and
    whether its rows still go to the partitions from the last to the first."""
    outside, other_tile = (op.dst, op.src) if op.dst.space == HBM else (op.src, op.dst)
    axes = [axis for axis, (step, _) in enumerate(outside.access.dims) if step < 0]
    by_rows = 0 in axes and other_tile.on_chip and other_tile.shape[0] > 1
    if by_rows:
        del axes[0]
    return changed(op, lambda tile: from_other_end(tile, axes)), by_rows


def with_target_forwards(op: Copying) -> Copying:
    """Return a copy within a memory whose destination steps forwards along its free axes."""
    axes = [axis for axis, (step, _) in enumerate(op.dst.access.dims) if step < 0]
    return changed(op, lambda tile: from_other_end(tile, axes))


def rows_of(tile: Tile, rows: range) -> Tile:
    """Return rows of a tile that begins at partition 0."""
    return tile.patterned(partition=Linear(rows.start), dims=((1, len(rows)), *tile.access.dims[1:]))


def from_other_end(tile: Tile, axes: Sequence[int]) -> Tile:
    """Return the tile with some axes reversed."""
    for axis in axes:
        moved = tile.access.shifted(axis, Linear(tile.shape[axis] - 1))
        dims = tuple((-s, n) if k == axis else (s, n) for k, (s, n) in enumerate(tile.access.dims))
        tile = tile.patterned(partition=moved.partition, free=moved.free, dims=dims)
    return tile


def _is_backwards(node: object) -> bool:
    return type(node) is InstructionStep and type(node.op) is DmaCopyOp and not (node.op.mask or node.op.limits) and (
        is_backwards(node.op.dst) or is_backwards(node.op.src))


def _split(step: InstructionStep, block: Block, code: Code) -> list[InstructionStep]:
    """Return the steps that replace a transfer: the transfer, and copies from and to the tiles that stepped backwards.
    """
    op, _ = with_hbm_forwards(step.op)              # type: ignore[arg-type]
    if op.dst.space == op.src.space == SBUF and not starts_legally(code.machine, op.dst):
        op = with_target_forwards(op)
    before, after = [], []
    for field, tile in op.operands():
        if not (tile.space == SBUF and is_backwards(tile)):
            continue
        rows = range(tile.shape[0])
        if not starts_legally(code.machine, tile):
            around = None if field.writes else rows_around(code.machine, tile)
            if around is None:
                continue
            tile, rows = around
        buffer = DeviceBuffer(tile.handle.name, SBUF, tile.shape, tile.dtype, location=step.location)
        block.buffers.append(buffer)
        staged = replace(full_tile(buffer, tile.shape, tile.dtype, SBUF), label=buffer.name)
        if field.writes:
            after.append(step.with_op(TensorCopyOp(dst=tile, src=staged, symbols=op.symbols, ranges=op.ranges)))
        else:
            before.append(step.with_op(TensorCopyOp(dst=staged, src=tile, symbols=op.symbols, ranges=op.ranges)))
        op = changed(op, lambda tile: tile, **{field.name: rows_of(staged, rows)})
    return [*before, step.with_op(op), *after]
