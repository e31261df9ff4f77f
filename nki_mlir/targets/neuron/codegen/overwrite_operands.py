# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""overwrite-operands: write results over operands that no later instruction reads, so that fewer tiles are live.

before:  b = a * s; c = b + t; store c                after:  a = a * s; a = a + t; store a

An instruction writes over an operand if it computes each element of its result from the element at the same position of
the operand, in the same pattern. The operand and the result have equal partitions, bytes and dtypes, the kernel chose
the address of neither, and only instructions of one run use them. The instruction writes the complete result; no
instruction after it uses the operand, and none before it the result. Values stay the same. The instruction now
comes after all others that read the operand, so the gain depends on the kernel: it is large if two iterations do not
fit in SBUF.
"""

from collections.abc import Sequence

from nki_mlir.analysis.dead_code import covers
from nki_mlir.dialects.access import SBUF, Tile
from nki_mlir.dialects.op import Op, changed
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.dependences import accessed
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.move_psum_results import entire
from nki_mlir.targets.neuron.codegen.records import Code, DeviceBuffer, InstructionStep, blocks, tiles_of
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of, shared_buffers


class OverwriteOperands(RecordsPass, name="overwrite-operands", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        overwrite_operands(code)


def overwrite_operands(code: Code) -> bool:
    """Overwrite operands in place, and return whether there were any."""
    shared = shared_buffers(code.body)
    overwritten: dict[DeviceBuffer, DeviceBuffer] = {}
    for block in blocks(code.body):
        candidates = {buffer for buffer in block.buffers
                      if buffer.space == SBUF and not (buffer.fixed or buffer.addresses or buffer in shared)}
        results: set[DeviceBuffer] = set()
        for run in runs_of(block.nodes):
            results |= overwrite_in(run, candidates, overwritten)
        if results:
            block.buffers = [buffer for buffer in block.buffers if buffer not in results]
    return bool(overwritten)


def overwrite_in(run: Sequence[InstructionStep], candidates: set[DeviceBuffer],
                 overwritten: dict[DeviceBuffer, DeviceBuffer]) -> set[DeviceBuffer]:
    """Rewrite the steps of a run. Return the buffers of results that it does not use any more; ``overwritten`` maps
    each of them to the operand's buffer."""
    first: dict[DeviceBuffer, int] = {}
    last: dict[DeviceBuffer, int] = {}
    for at, step in enumerate(run):
        for tile in tiles_of(step):
            first.setdefault(tile.handle, at)
            last[tile.handle] = at
    results: set[DeviceBuffer] = set()
    for at, step in enumerate(run):
        op = step.op
        if results and not results.isdisjoint([tile.handle for tile in tiles_of(step)]):
            op = changed(op, lambda tile: in_operand_buffer(tile, overwritten))
            step.op, step.work = op, None
        result = result_of(op)
        if result is None or result.handle not in candidates or first[result.handle] != at:
            continue
        read = [tile.handle for tile in accessed(op)[0] if tile is not None]
        ending = [buffer for buffer in read if buffer in candidates and (
            last[buffer] == at and is_like(buffer, result.handle))]
        if not ending or not writes_all(op, result):
            continue
        for operand in overwritable(op, result):
            buffer = operand.handle
            if buffer in ending:
                overwritten[result.handle] = buffer
                results.add(result.handle)
                last[buffer] = last[result.handle]
                step.op, step.work = changed(op, lambda tile: in_operand_buffer(tile, overwritten)), None
                break
    return results


def result_of(op: Op) -> Tile | None:
    """Return the only result of an engine's instruction."""
    if op.queued or not op.is_loop_nest or op.mask or op.limits:
        return None
    written = [tile for tile in accessed(op)[1] if tile is not None]
    return written[0] if len(written) == 1 else None


def writes_all(op: Op, result: Tile) -> bool:
    """Return whether an instruction writes all of the result's buffer, which it does not read, and computes each
    element independently of the others."""
    if op.iteration().reduced or any([source is not None and source.handle is result.handle
                                      for source in accessed(op)[0]]):
        return False
    return covers(result, entire(result.handle))


def overwritable(op: Op, result: Tile) -> list[Tile]:
    """Return the operands whose elements the instruction reads at the positions that it writes. Exclude an operand if
    the instruction reads other elements of the same buffer, which would be overwritten first."""
    axes = op.iteration().axes
    (target, _), *_ = op.targets()
    at_same_positions: list[Tile] = []
    read_elsewhere: set[DeviceBuffer] = set()
    for name, tile in op.sources():
        if tile.access == result.access and axes[name] == axes[target]:
            at_same_positions.append(tile)
        else:
            read_elsewhere.add(tile.handle)
    return [tile for tile in at_same_positions if tile.handle not in read_elsewhere]


def is_like(buffer: DeviceBuffer, result: DeviceBuffer) -> bool:
    return (buffer.partitions, buffer.bytes_per_partition, buffer.dtype) == (
        result.partitions, result.bytes_per_partition, result.dtype)


def in_operand_buffer(tile: Tile, overwritten: dict[DeviceBuffer, DeviceBuffer]) -> Tile:
    """Return the tile in the buffer of the operand over which its buffer is written."""
    buffer = overwritten.get(tile.handle)
    return tile if buffer is None else Tile(buffer, tile.space, buffer.shape, buffer.dtype, tile.access, tile.label)
