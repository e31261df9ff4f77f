# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""transpose-loads: let the DMA engines transpose a load that copies single elements, where the target can.

before:  t[p, f] = copy x[f, p]             after:  t = transpose of x[f, p]

That is so where the elements of neighbouring partitions are neighbours in HBM, have 2 or 4 bytes and keep their dtype,
no mask applies, and the transpose takes less time by the machine's costs. ``stated`` restricts the pass to loads of 2
bytes that the kernel states as transposes (``nl.load_transpose2d``): the vendor's compiler has no others.
"""

from nki_mlir.dialects.access import HBM, SBUF, Tile
from nki_mlir.dialects.nisa.movement import DmaCopyOp, DmaTransposeOp
from nki_mlir.dialects.nki.movement import TRANSPOSES
from nki_mlir.dialects.op import FRESH
from nki_mlir.machine import Engine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code, InstructionStep, nodes_in
from nki_mlir.targets.neuron.timing.transfers import Transfers, transpose_rate

# The axes of the source by count, as the axes argument of nisa.dma_transpose has them.
PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


class TransposeLoads(RecordsPass, name="transpose-loads", reads=Level.NISA):
    stated: bool = False        # only loads that the kernel states as transposes

    def rewritten(self, code: Code) -> None:
        transpose_loads(code, self.stated)


def transpose_loads(code: Code, stated: bool = False) -> int:
    """Replace loads in place, and return how many. ``stated``: only those that the kernel states as transposes."""
    transfers, replaced = Transfers(code.machine), 0
    for node in nodes_in(code.body):
        if not isinstance(node, InstructionStep) or type(node.op) is not DmaCopyOp or (
                stated and (TRANSPOSES not in node.op.extra or node.op.dst.dtype.itemsize != 2)):
            continue
        transpose = as_transpose(node.op)
        if transpose is None or not transpose_rate(transpose, code.machine):
            continue
        if max(transfers.of(transpose).parts) < max(transfers.of(node.op).parts):
            node.op, node.work = transpose, None
            replaced += 1
    return replaced


def as_transpose(op: DmaCopyOp) -> DmaTransposeOp | None:
    """Return the transpose that does what a copy from HBM to SBUF does; None if the copy transposes nothing."""
    dst, src, engines = op.dst, op.src, (Engine.UNKNOWN.value, *(e.value for e in DmaTransposeOp.engines))
    if (dst.space, src.space) != (SBUF, HBM) or dst.dtype is not src.dtype or op.mask or op.limits or (
            FRESH in op.extra or op.engine not in engines):
        return None
    steps = [step for step, count in src.access.dims if count > 1]
    if src.access.dims[0][0] != 1 or src.access.dims[0][1] == 1 or len(steps) < 2 or 1 in steps[1:]:
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
