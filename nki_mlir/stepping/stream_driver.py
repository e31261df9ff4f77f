# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Step through instruction streams on the simulator, instruction by instruction and transfer by transfer."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from nki_mlir.capture.prompts import GENERATED
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Tile
from nki_mlir.dialects.isa.instruction import Instruction
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Engine
from nki_mlir.stepping.debugger import Debugger
from nki_mlir.stepping.moment import MachineView, Moment, ShownTile, Table
from nki_mlir.stepping.source_names import written_variable
from nki_mlir.targets.interpreter.execute import Pattern
from nki_mlir.targets.mesh import Exchanges
from nki_mlir.targets.neuron.execution import PADDING, padded
from nki_mlir.targets.neuron.format.assembly import instruction_text
from nki_mlir.targets.neuron.simulated_core import Core, Transfer
from nki_mlir.targets.neuron.simulator import run


class SteppedCore(Core, MachineView):
    """A core of the simulator that stops before and after each step of its engines and queues."""

    debugger: Debugger

    def watched_by(self, debugger: Debugger) -> None:
        """Attach a debugger, and name the tensors in HBM."""
        self.debugger = debugger
        for v in self.program.variables:
            debugger.add_tile(ShownTile(v.name, v.shape, str(v.dtype), HBM, partial(np.asarray, self.memory[v])))

    # -- steps ---------------------------------------------------------------------------------------------------------
    def step(self, engine: Engine) -> None:
        instruction = self.streams[engine][self.pc[engine]]
        text = f"{engine.asm} {self.pc[engine]:04d} {self.text_of(instruction)}"
        writes = instruction.queue is None and isinstance(instruction.op, Op)
        moment = self.moment(text, instruction.op if writes else None, instruction.location, self.registers[engine])
        self.debugger.before(moment)
        super().step(engine)
        self.debugger.after(moment)

    def move(self, transfer: Transfer) -> bool:
        instruction = transfer.instruction
        assert instruction.queue is not None
        text = f"{self.program.queues[instruction.queue].name} moves {instruction.op.mnemonic}"
        assert isinstance(instruction.op, Op)
        registers = transfer.starts[2 * len(instruction.op.operands()):]
        moment = self.moment(text, instruction.op, instruction.location, registers)
        self.debugger.before(moment)
        moved = super().transfer_data(transfer)
        self.debugger.after(moment)
        return moved

    def moment(self, text: str, op: object, at: Location | None, registers: Sequence[int]) -> Moment:
        tiles = [self.shown(tile, field.name, at, registers) for field, tile in op.operands() if field.writes] \
            if isinstance(op, Op) else []
        prefix = f"core {self.number} " if self.exchanges is not None else ""
        return Moment("isa", self.debugger.count(), prefix + text, at, tiles, self)

    def shown(self, tile: Tile, field: str, at: Location | None, registers: Sequence[int]) -> ShownTile:
        """Return the tile that an instruction writes, named by the variable of its statement."""
        array = self.array(tile)

        def values() -> np.ndarray:
            return np.array(Pattern(replace(tile, base_shape=padded(tile))).at(array, registers))
        if tile.space == HBM:
            return ShownTile(tile.handle.name, tuple(tile.shape), str(tile.dtype), HBM, values)
        access = tile.access
        address = (access.partition.const if access.partition is not None else 0,
                   access.free.const * tile.dtype.itemsize)
        live_name = self.live_name(tile.space, *address)
        return ShownTile(written_variable(at) or live_name or field, tuple(tile.shape), str(tile.dtype), tile.space,
                         values,
                         address)

    def live_name(self, space: str, partition: int, byte: int) -> str:
        """Return the author's name of the buffer that is live at an address, if there is one."""
        return next((b.name for b in self.program.live if b.space == space and b.byte <= byte < b.byte + b.size and
                     b.partition <= partition < b.partition + b.partitions and not GENERATED.fullmatch(b.name)), "")

    # -- what can be looked at -----------------------------------------------------------------------------------------
    def tables(self) -> list[Table]:
        engines = [(engine.asm, f"{min(self.pc[engine], len(stream))}/{len(stream)}", self.next_instruction(engine))
                   for engine, stream in self.streams.items() if stream]
        semaphores = [(str(n), s.name, str(value))
                      for n, (s, value) in enumerate(zip(self.program.semaphores, self.semaphores))]
        queues = [(q.name, str(len(pending)), "; ".join(t.instruction.op.mnemonic for t in pending[:4]))
                  for q, pending in zip(self.program.queues, self.queues)]
        return [Table("engines", ("engine", "at", "next"), engines),
                Table("semaphores", ("number", "name", "value"), semaphores),
                Table("queues", ("queue", "transfers", "operations"), queues)]

    def next_instruction(self, engine: Engine) -> str:
        """Return the next instruction of an engine, and whether it waits."""
        at, stream = self.pc[engine], self.streams[engine]
        if at >= len(stream):
            return "ended"
        return f"{'' if self.can_start(engine) else 'waits: '}{self.text_of(stream[at])}"

    def text_of(self, instruction: Instruction) -> str:
        """Return an instruction as in assembly, without the comment that names its source."""
        return instruction_text(instruction, self.program).partition("  //")[0]

    def row(self, memory: str, partition: int, start: int, count: int) -> np.ndarray | None:
        array = self.memory.get(memory) if memory in (SBUF, PSUM) else None
        if array is None or partition >= array.shape[0] or start + count > array.shape[1] - PADDING:
            return None
        return np.asarray(array[partition, start:start + count])


def step_streams(programs: Sequence[Program], inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray],
                 debugger: Debugger) -> None:
    """Run one program on each core. Updated inputs and all outputs are written in place."""
    exchanges = Exchanges() if len(programs) > 1 else None
    cores = [SteppedCore(p, inputs, outputs, number, exchanges) for number, p in enumerate(programs)]
    for core in cores:
        core.watched_by(debugger)
    run(cores)
