# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""transpose-tiles: let the DMA engines transpose tiles in SBUF that the tensor engine transposes.

before:  p[0] = transpose of x[0]; ... p[3] = transpose of x[3] (PSUM); t = copy p
after:   t = transpose of x, by the DMA engines

The tensor engine transposes into PSUM, and the vector or the scalar engine copies the result to SBUF; the DMA engines
need neither. The pass replaces a copy of a complete tile in PSUM that only transposes write, in its order and from
tiles at equal distances in one buffer, if all tiles have one dtype of 2 or 4 bytes and nothing else reads the tile in
PSUM. Each element keeps its bits. ``percent`` says how many of the copies to replace. Up to ``LAST`` of the others are
those at the end, and the rest is distributed evenly, so that the engines share the work throughout.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nki_mlir.dialects.access import PSUM, SBUF, Tile
from nki_mlir.dialects.nisa.matmul import NcTransposeOp
from nki_mlir.dialects.nisa.movement import DmaTransposeOp, TensorCopyOp
from nki_mlir.dialects.op import changed
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.fuse_instructions import Uses, plain, uses_of
from nki_mlir.targets.neuron.codegen.fusion_patterns import in_one, is_dense
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code, InstructionStep, blocks
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of
from nki_mlir.targets.neuron.codegen.transpose_loads import PERMUTATIONS
from nki_mlir.targets.neuron.timing.transfers import transpose_rate

LAST = 8                        # most copies that stay at the end, where nothing hides the latency of transfers


class TransposedTile(NamedTuple):
    """A copy that the DMA engines can replace, the transposes that they replace with it, and their instruction."""

    copy: InstructionStep
    transposes: list[InstructionStep]
    op: DmaTransposeOp


class TransposeTiles(RecordsPass, name="transpose-tiles", reads=Level.NISA):
    percent: int = 100          # percent of the transposed tiles that the DMA engines transpose

    def rewritten(self, code: Code) -> None:
        transpose_tiles(code, self.percent)


def transpose_tiles(code: Code, percent: int = 100) -> int:
    """Replace copies of transposed tiles in place, and return how many."""
    replaceable = list(transposed_tiles(code))
    stay = those_that_stay(len(replaceable), percent)
    removed: set[InstructionStep] = set()
    for number, (copy, transposes, op) in enumerate(replaceable):
        if number not in stay:
            copy.op, copy.work = op, None
            removed.update(transposes)
    unused = {tile.handle for step in removed for _, tile in step.op.targets()}
    for block in blocks(code.body):
        block.nodes = [node for node in block.nodes if node not in removed]
        block.buffers = [buffer for buffer in block.buffers if buffer not in unused]
    return len(replaceable) - len(stay)


def those_that_stay(count: int, percent: int) -> set[int]:
    """Return the numbers of the copies that stay if ``percent`` of them are replaced."""
    number = count - count * percent // 100
    last = min(LAST, number)
    spread, among = number - last, count - last
    return {*range(among, count), *[k for k in range(among) if (k + 1) * spread // among > k * spread // among]}


def transposed_tiles(code: Code) -> Iterator[TransposedTile]:
    """Yield the copies that the DMA engines can replace, in program order."""
    runs = [run for block in blocks(code.body) for run in runs_of(block.nodes) if has_transposes(run)]
    uses = uses_of(code) if runs else Uses()
    for run in runs:
        yield from transposed(run, uses, code.machine)


def has_transposes(run: Sequence[InstructionStep]) -> bool:
    """Return whether the tensor engine may transpose tiles in a run."""
    return any([type(step.op) is NcTransposeOp for step in run])


def transposed(run: Sequence[InstructionStep], uses: Uses, machine: Machine
               ) -> Iterator[TransposedTile]:
    """Yield the copies of a run that the DMA engines can replace."""
    position = {step: k for k, step in enumerate(run)}
    for k, copy in enumerate(run):
        if type(copy.op) is not TensorCopyOp or copy.op.src.space != PSUM or copy.op.dst.space != SBUF or (
                copy.op.engine != Engine.UNKNOWN.value or not plain(copy.op)):
            continue
        bank = uses[copy.op.src.handle]
        if not bank.free or list(bank.readers) != [copy]:
            continue
        transposes = list(bank.writers)
        if not transposes or any(not 0 <= position.get(step, -1) < k or not is_transpose(step) for step in transposes):
            continue
        transposes.sort(key=position.__getitem__)
        op = as_transpose(copy.op, [step.op for step in transposes if isinstance(step.op, NcTransposeOp)])
        if op is None or not transpose_rate(op, machine):
            continue
        source = uses[op.src.handle]
        first = position[transposes[0]]
        if not source.free:                     # another buffer may have the same address in the meantime
            continue
        if op.src.handle is op.dst.handle:      # a transfer writes while it reads
            continue
        if any(first < position.get(step, -1) < k for step in source.writers):
            continue
        yield TransposedTile(copy, transposes, op)


def is_transpose(step: InstructionStep) -> bool:
    """Return whether the tensor engine transposes a tile, and the kernel does not name it."""
    op = step.op
    return type(op) is NcTransposeOp and op.engine == Engine.UNKNOWN.value and op.runs_on is Engine.TENSOR and (
        plain(op) and not op.mask and not op.limits)


def as_transpose(copy: TensorCopyOp, transposes: Sequence[NcTransposeOp]) -> DmaTransposeOp | None:
    """Return one transpose that replaces transposes and the copy of their result; None if there is none."""
    bank, first, count = copy.src, transposes[0], len(transposes)
    rows, columns = first.src.shape
    if copy.mask or copy.limits or len({bank.dtype, copy.dst.dtype, *[op.src.dtype for op in transposes]}) > 1 or (
            any(op.dst.dtype is not bank.dtype or op.src.shape != first.src.shape for op in transposes)):
        return None
    if not reads_parts(bank, [op.dst for op in transposes], rows, columns):
        return None
    distance = 0
    if count > 1:
        if any(op.symbols for op in transposes) or any(op.src.handle is not first.src.handle for op in transposes):
            return None
        distance = transposes[1].src.access.free.const - first.src.access.free.const
        for number, op in enumerate(transposes):
            if op.src.access.dims != first.src.access.dims or op.src.access.partition != first.src.access.partition or (
                    op.src.access.free.const != first.src.access.free.const + number * distance):
                return None
    dst = in_parts(copy.dst, count, rows)
    if dst is None or distance < 0:
        return None
    transpose, moved = in_one(first, changed(copy, None, dst=dst))
    assert isinstance(transpose, NcTransposeOp) and isinstance(moved, TensorCopyOp)
    src = transpose.src
    if count > 1:
        partitions, free = src.access.dims
        src = src.patterned(dims=(partitions, (distance, count), free))
    return DmaTransposeOp(dst=moved.dst, src=src, permutation=PERMUTATIONS[len(src.shape)], symbols=moved.symbols,
                          ranges=moved.ranges, engine=Engine.UNKNOWN.value, extra=copy.extra)


def reads_parts(bank: Tile, parts: Sequence[Tile], rows: int, columns: int) -> bool:
    """Return whether a tile is a complete buffer in the order of its elements, and the parts lie in it one after the
    other."""
    flat = len(parts) * rows
    if bank.access.symbols_used() or bank.access.free.const or bank.partitions != columns or (
            bank.free_elements != flat or not is_dense(bank)):
        return False
    starts = bank.access.partition
    return all(part.access.partition == starts and not part.access.symbols_used() and is_dense(part)
               and part.access.free.const == number * rows for number, part in enumerate(parts))


def in_parts(tile: Tile, count: int, rows: int) -> Tile | None:
    """Return a tile with an axis for its parts of ``rows`` elements, if there are several; None if it has no such
    pattern."""
    partitions, *free = tile.access.dims
    if len(free) == 2 and (free[0][1], free[1][1]) == (count, rows):
        return tile if count > 1 else tile.patterned(dims=(partitions, free[1]))
    if len(free) != 1:
        return None
    step = free[0][0]
    return tile if count == 1 else tile.patterned(dims=(partitions, (step * rows, count), (step, rows)))
