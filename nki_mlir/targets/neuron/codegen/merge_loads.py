# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""merge-loads: let one transfer load tiles that several load one by one.

before:  t0 = load x[0:128]; ... t3 = load x[384:512]           after:  t = load x[0:512] as [128, 4, ...]

A trigger of a transfer takes its engine about as long as a few short rows take to move. The pass merges up to four
loads of one form whose tiles are at equal distances in one HBM buffer, and on chip in separate buffers of the block or
side by side in one, as ``merge-instructions`` merges operations: the separate buffers become one. Where the tiles
continue each other in HBM, the runs of the merged load are longer. A load whose transfer takes longer than its trigger
stays.
"""

from collections.abc import Sequence

from nki_mlir.dialects.access import HBM, SBUF
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.dependences import RunDependences
from nki_mlir.targets.neuron.codegen.engine_choice import ISSUERS
from nki_mlir.targets.neuron.codegen.merge_instructions import MergedForms, merge_runs
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code
from nki_mlir.targets.neuron.timing.transfers import Transfers

TOGETHER = 4                    # most loads that become one: a transfer of more tiles would delay the first reader


class MergeLoads(RecordsPass, name="merge-loads", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        merge_loads(code)


def merge_loads(code: Code, dependences: RunDependences | None = None) -> int:
    """Merge loads in place, and return the number of removed ones."""
    return merge_runs(code, LoadForms(code.machine), dependences or RunDependences())


class LoadForms(MergedForms):
    """Decides which loads may be merged."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine, 0)
        self.transfers, self.issue_ns = Transfers(machine), float(machine.costs.dma.issue_ns)

    def of(self, op: Op) -> object | None:
        """Return the form of a load that may be merged with others of its form; else None."""
        if type(op) is not DmaCopyOp or op.mask or op.limits or op.symbols or op.extra or (
                op.engine != Engine.UNKNOWN.value):
            return None
        form = op.form()
        verdict = self.verdicts.get(form)
        if verdict is None:
            verdict = self.verdicts[form] = self.is_short_load(op)
        return form if verdict else None

    def is_short_load(self, op: DmaCopyOp) -> bool:
        """Return whether a copy loads rows of neighboring elements, in less time than its trigger takes."""
        if op.src.space != HBM or op.dst.space != SBUF or op.src.dtype is not op.dst.dtype or (
                len(op.dst.shape) != 2 or op.index_forms()):
            return False
        steps = [step for tile in (op.src, op.dst) for step, count in tile.access.dims[1:] if count > 1]
        return set(steps) <= {1} and max(self.transfers.of(op).parts) < self.issue_ns

    def fit(self, ops: Sequence[Op]) -> bool:
        """Return whether the loads are few, and each begins behind the one before it."""
        starts = [op.src.access.free.const for op in ops if isinstance(op, DmaCopyOp)]
        return len(starts) <= TOGETHER and starts == sorted(set(starts))

    def is_profitable(self, old: Op, new: Op, count: int) -> bool:
        """Return whether the merged transfer takes no longer than the others one after the other, or their triggers."""
        each = max(*self.transfers.of(old).parts, self.issue_ns / len(ISSUERS))
        return max(self.transfers.of(new).parts) <= count * each
