# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""group-transposes: let the tensor engine transpose tiles one after the other, so that it reaches its full speed.

before:  p0 = transpose of x0; t0 = copy p0; products of t0;   p1 = transpose of x1; t1 = copy p1; products of t1
after:   p0 = transpose of x0; t0 = copy p0; p1 = transpose of x1; t1 = copy p1;   products of t0; products of t1

The tensor engine has half of its speed until it is used enough (``timing/ramp.py``). Products of few rows do not use it
enough, but keep the full speed for a time once 32 transposes in succession have brought it (variants V051 to V054). The
pass moves each transpose whose operand does not depend on products, with what it needs and with the instructions that
read its result from PSUM, to the first one of its group of ``together``. Loads whose tiles the DMA engines would
transpose become loads of rows, transposes on the tensor engine and copies: each element keeps its bits.
"""

from collections.abc import Sequence
from itertools import groupby

from nki_mlir.dialects.access import HBM, PSUM
from nki_mlir.dialects.instruction_order import is_pinned
from nki_mlir.dialects.nisa.matmul import NcTransposeOp
from nki_mlir.dialects.nisa.movement import DmaTransposeOp
from nki_mlir.dialects.nki.movement import TRANSPOSES
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Engine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.dependences import RunDependences
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.ranked_order import ranked_order
from nki_mlir.targets.neuron.codegen.records import Code, InstructionStep, blocks, forget_addresses
from nki_mlir.targets.neuron.codegen.transpose_loads import TRANSPOSING, on_tensor_engine

TOGETHER = 32                   # transposes of a group: on trn2 as many in succession bring full speed


class GroupTransposes(RecordsPass, name="group-transposes", reads=Level.NISA):
    together: int = 32          # transposes of a group

    def rewritten(self, code: Code) -> None:
        group_transposes(code, self.together)


def group_transposes(code: Code, together: int = TOGETHER, dependences: RunDependences | None = None) -> int:
    """Group transposes in place, and return the number of instructions that are new or come at another position."""
    dependences = dependences or RunDependences()
    changed = transpose_loaded_tiles(code)
    for block in blocks(code.body):
        nodes: list[object] = []
        for kind, part in groupby(block.nodes, type):
            run = list(part)
            if kind is InstructionStep and not any([is_pinned(step.op) for step in run]):
                order = grouped_order(run, together, dependences)
                changed += sum([k != at for at, k in enumerate(order)])
                run = [run[k] for k in order]
            nodes += run
        block.nodes = nodes
    if changed:
        forget_addresses(code)
    return changed


def transpose_loaded_tiles(code: Code) -> int:
    """Let the tensor engine transpose what the DMA engines would transpose on its way from HBM, in place. Return the
    number of new instructions."""
    count = 0
    for block in list(blocks(code.body)):
        nodes: list[object] = []
        for node in block.nodes:
            steps: list[InstructionStep] = []
            if isinstance(node, InstructionStep) and type(node.op) is DmaTransposeOp and is_open_load(node.op):
                steps = on_tensor_engine(node, node.op, block, code.machine)
            count += len(steps)
            nodes += steps or [node]
        block.nodes = nodes
    return count


def is_open_load(op: DmaTransposeOp) -> bool:
    """Return whether the tile comes from HBM and keeps its dtype, and the kernel neither masks nor orders the load."""
    return op.src.space == HBM and op.src.dtype is op.dst.dtype and not (
        op.mask or op.limits or op.index_forms()) and op.engine in TRANSPOSING and {TRANSPOSES}.issuperset(op.extra)


def grouped_order(run: Sequence[InstructionStep], together: int, dependences: RunDependences) -> list[int]:
    """Return the numbers of a run's steps in the order in which its transposes are in groups."""
    ranks = list(range(len(run)))
    if sum([is_transpose(step.op) for step in run]) < 2:
        return ranks
    before = dependences.of([step.op for step in run]).lists
    after_product: list[bool] = []
    transposes: list[int] = []
    for k, step in enumerate(run):
        late = any([after_product[other] for other in before[k]])
        if not late and is_transpose(step.op):
            transposes.append(k)
        after_product.append(late or (step.op.runs_on is Engine.TENSOR and not is_transpose(step.op)))
    first_of_group = {k: transposes[n - n % together] for n, k in enumerate(transposes)}
    results = {tile.handle: first for k, first in first_of_group.items() for _, tile in run[k].op.targets()}
    for k, step in enumerate(run):
        groups = [first_of_group[k]] if k in first_of_group else [] if after_product[k] else [
            results[tile.handle] for _, tile in step.op.sources() if tile.space == PSUM and tile.handle in results]
        ranks[k] = min([k, *groups])
    for k in reversed(range(len(run))):
        for other in before[k]:
            ranks[other] = min(ranks[other], ranks[k])
    return ranked_order(before, ranks)


def is_transpose(op: Op) -> bool:
    return type(op) is NcTransposeOp and op.runs_on is Engine.TENSOR
