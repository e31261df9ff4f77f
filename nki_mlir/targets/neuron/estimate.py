# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An estimate of a kernel's time on the device, from the documented cost formula of each instruction.

Engines run beside each other and the DMA beside them, so the estimate is the busiest one's time plus the fixed cost of
a first transfer in and a last one out. Waiting, bank conflicts and descriptor overheads are not in it.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.meeting import PROGRAMS
from nki_mlir.dialects.mlir_ops import is_tile_op, loop_span, read_op
from nki_mlir.dialects.nisa.collectives import Collective
from nki_mlir.dialects.nisa.meeting import CoreBarrierOp, Meeting
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Engine, Machine, machine_named

if TYPE_CHECKING:
    from nki_mlir.bindings import Block, Module


@dataclass
class Estimate:
    """Nanoseconds each engine is busy, bytes moved to and from HBM, instructions per engine; one program's.

    ``programs`` are those that one core runs: programs that meet have a core each.
    """

    machine: Machine
    busy_ns: dict[str, float] = field(default_factory=dict)
    instructions: dict[str, int] = field(default_factory=dict)
    hbm_bytes: int = 0
    programs: int = 1

    @property
    def dma_ns(self) -> float:
        return self.hbm_bytes / self.machine.costs.dma.hbm_bytes_per_ns

    @property
    def latency_ns(self) -> float:
        """All programs that run on one core, one after the other."""
        busiest = max([self.dma_ns, *self.busy_ns.values()], default=0.0)
        return self.programs * busiest + 2 * (self.machine.costs.dma.trigger_ns + self.machine.costs.dma.notify_ns)

    def count(self, op: Op, times: int) -> None:
        engine = op.runs_on                                             # type: ignore[attr-defined]
        name = "dma" if engine is Engine.SYNC else engine.value
        self.instructions[name] = self.instructions.get(name, 0) + times
        if engine is not Engine.SYNC or not op.queued:
            spent = times * self.machine.cost(engine, op.work()).busy
            self.busy_ns[name] = self.busy_ns.get(name, 0.0) + spent
        if isinstance(op, Collective):                  # one after the other, beside the engines
            self.busy_ns["collectives"] = self.busy_ns.get("collectives", 0.0) + times * op.transfer_ns(self.machine)
        if isinstance(op, Meeting) and op.between == PROGRAMS:
            self.programs = 1
        for _, tile in op.operands():
            if tile.space == HBM and not isinstance(op, CoreBarrierOp):
                self.hbm_bytes += times * tile.free_elements * tile.dtype.itemsize


def estimate(module: "Module") -> Estimate:
    """The estimate of a module at the nisa level."""
    kernel = the_kernel(module)
    made = Estimate(machine_named(kernel.target))
    for extent in kernel.grid:
        made.programs *= extent

    def walk(block: "Block", times: int) -> None:
        for operation in block.operations:
            op = operation.operation
            if is_tile_op(op):
                if op.name.startswith("nisa."):
                    made.count(read_op(op), times)
                continue
            inner = times
            if op.name == "scf.for":
                span = loop_span(op)
                inner = times * (len(span) if span is not None else 1)
            for region in op.regions:
                for nested in region.blocks:
                    walk(nested, inner)
    walk(kernel.op.regions[0].blocks[0], 1)
    return made
