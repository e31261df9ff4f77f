# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""transpose-loads: let the DMA engines transpose a load that copies single elements, where the target can.

before:  t[p, f] = copy x[f, p]             after:  t = transpose of x[f, p]

The pass transposes a load if the elements of neighboring partitions are neighbors in HBM, have 2 or 4 bytes and keep
their dtype, no mask applies, and the transpose takes less time by the machine's costs. ``stated`` restricts the pass to
loads that the kernel states as transposes (``nl.load_transpose2d``): the vendor's compiler has no others. That compiler
leaves only elements of 2 bytes to the DMA engines. It loads elements of 4 bytes without a transpose, and the tensor
engine transposes them:

before:  t[p, f] = copy x[f, p]             after:  r = copy x[f, p];  s = transpose of r (PSUM);  t = copy s
"""

from dataclasses import replace

from nki_mlir.dialects.access import HBM, PSUM, SBUF, Linear, Tile
from nki_mlir.dialects.nisa.matmul import NcTransposeOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp, DmaTransposeOp, TensorCopyOp
from nki_mlir.dialects.nki.movement import TRANSPOSES
from nki_mlir.dialects.op import FRESH, Op
from nki_mlir.dialects.target_findings import may_replace
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.move_psum_results import entire
from nki_mlir.targets.neuron.codegen.records import Block, Code, DeviceBuffer, InstructionStep, blocks
from nki_mlir.targets.neuron.timing.transfers import Transfers, transpose_rate

# The axes of the source by count, as the axes argument of nisa.dma_transpose has them.
PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}

TRANSPOSING = Engine.UNKNOWN.value, *(engine.value for engine in DmaTransposeOp.engines)


class TransposeLoads(RecordsPass, name="transpose-loads", reads=Level.NISA):
    stated: bool = False        # only loads that the kernel states as transposes

    def rewritten(self, code: Code) -> None:
        transpose_loads(code, self.stated)


def transpose_loads(code: Code, stated: bool) -> int:
    """Replace loads in place, and return their number. ``stated``: only those that the kernel states as transposes."""
    transfers, replaced = Transfers(code.machine), 0
    for block in list(blocks(code.body)):
        nodes: list[object] = []
        for node in block.nodes:
            nodes.append(node)
            if not isinstance(node, InstructionStep) or type(node.op) is not DmaCopyOp or (
                    stated and TRANSPOSES not in node.op.extra):
                continue
            transpose = as_transpose(node.op)
            if transpose is None or not transpose_rate(transpose, code.machine):
                continue
            if stated and node.op.dst.dtype.itemsize != 2:
                steps = on_tensor_engine(node, transpose, block, code.machine)
                nodes[-1:] = steps or [node]
                replaced += bool(steps)
            elif max(transfers.of(transpose).parts) < max(transfers.of(node.op).parts):
                node.op, node.work = transpose, None
                replaced += 1
        block.nodes = nodes
    return replaced


def on_tensor_engine(node: InstructionStep, transpose: DmaTransposeOp, block: Block, machine: Machine
                     ) -> list[InstructionStep]:
    """Return the steps that load the rows of a transpose, transpose them on the tensor engine, and copy the results to
    the destination, in pieces of at most 128 rows; an empty list if the tile has more axes than two, or if the engines
    cannot access it, such as one that begins at any partition."""
    op, dst, src = node.op, transpose.dst, transpose.src
    if len(dst.shape) != 2 or not dst.dtype.is_float:
        return []
    partitions, rows = dst.shape
    steps: list[InstructionStep] = []
    buffers: list[DeviceBuffer] = []
    for first in range(0, rows, machine.partitions):
        count = min(machine.partitions, rows - first)
        loaded = DeviceBuffer(dst.handle.name, SBUF, (count, partitions), dst.dtype, location=node.location)
        result = DeviceBuffer(dst.handle.name, PSUM, (partitions, count), dst.dtype, location=node.location)
        buffers += [loaded, result]
        ops: tuple[Op, ...] = (
            DmaCopyOp(dst=entire(loaded), src=part(src, 0, first, count), symbols=op.symbols, ranges=op.ranges,
                      engine=op.engine),
            NcTransposeOp(dst=entire(result), src=entire(loaded), engine=Engine.TENSOR.value),
            TensorCopyOp(dst=part(dst, 1, first, count), src=entire(result), symbols=op.symbols, ranges=op.ranges))
        if not all([may_replace(step, [op], machine) for step in ops]):
            return []
        steps += [node.with_op(step) for step in ops]
    block.buffers += buffers
    return steps


def part(tile: Tile, axis: int, first: int, count: int) -> Tile:
    """Return some elements of an axis of a tile."""
    access = tile.access.shifted(axis, Linear(first))
    dims = tuple([(step, count if k == axis else extent) for k, (step, extent) in enumerate(access.dims)])
    return replace(tile, access=replace(access, dims=dims))


def as_transpose(op: DmaCopyOp) -> DmaTransposeOp | None:
    """Return the transpose that replaces a copy from HBM to SBUF; None if the copy transposes nothing."""
    dst, src = op.dst, op.src
    if src.space != HBM or src.access.dims[0][0] != 1 or dst.space != SBUF or dst.dtype is not src.dtype or (
            op.mask or op.limits or FRESH in op.extra or op.engine not in TRANSPOSING):
        return None
    steps = [step for step, count in src.access.dims if count > 1]
    if src.access.dims[0][1] == 1 or len(steps) < 2 or 1 in steps[1:]:
        return None
    permutation = PERMUTATIONS.get(len(dst.shape))
    if permutation is None:
        return None
    axes = [permutation.index(axis) for axis in range(len(permutation))]
    return DmaTransposeOp(dst=dst, src=reordered(src, axes), permutation=permutation, engine=op.engine,
                          symbols=op.symbols, ranges=op.ranges, extra=op.extra)


def reordered(tile: Tile, axes: list[int]) -> Tile:
    """Return the tile in HBM with its axes in another order."""
    return tile.patterned(dims=tuple([tile.access.dims[axis] for axis in axes]))
