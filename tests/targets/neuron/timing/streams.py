# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small streams as text, for tests of the timed machine."""

from collections.abc import Sequence

from nki_mlir.dialects.isa.program import Program
from nki_mlir.targets.neuron.format.assembly import parse_program
from nki_mlir.targets.neuron.timing.machine import Loaded, TimedMachine

HEADER = """\
.nki_isa 1
.kernel k
.target {target}
.input x fp32[4096,8192] 0
.output y fp32[4096,8192] 0
.semaphore 0 Vector
.semaphore 1 Scalar
.semaphore 2 Tensor
.semaphore 3 GpSimd
.semaphore 4 qSyncIO0
.semaphore 5 qSyncIO1
.semaphore 6 qScalarIO0
.queue 0 qSyncIO0 sp 4
.queue 1 qSyncIO1 sp 5
.queue 2 qScalarIO0 act 6
"""
OF_QUEUE = {0: "S[4] (qSyncIO0)", 1: "S[5] (qSyncIO1)", 2: "S[6] (qScalarIO0)"}


def program(streams: dict[str, Sequence[str]], target: str = "trn2") -> Program:
    """The program of streams by engine, an instruction a line without its place."""
    lines = [HEADER.format(target=target)]
    for engine, instructions in streams.items():
        lines.append(f".stream {engine}\n")
        lines += [f"{engine} {at:04d}: {text}\n" for at, text in enumerate(instructions)]
    return parse_program("".join(lines))


def ran(streams: dict[str, Sequence[str]], target: str = "trn2", loaded: Loaded | None = None) -> TimedMachine:
    """The timed run of one core's streams."""
    machine = TimedMachine([program(streams, target)], loaded)
    machine.run()
    return machine


def copy(dst: int, src: int, n: int = 512, *, waits: str = "", signals: str = "", dtype: str = "fp32") -> str:
    """A copy between two places in SBUF (bytes), or in PSUM from 0x2000000 on."""
    instruction = f"COPY dst={dtype}@{dst:#x}[1][{n}] src={dtype}@{src:#x}[1][{n}] channels=128"
    return " ".join(filter(None, (waits, instruction, signals)))


def activation(dst: int, src: int, n: int = 512, *, waits: str = "", signals: str = "") -> str:
    instruction = f"ACTIVATE fn=exp dst=fp32@{dst:#x}[1][{n}] src=fp32@{src:#x}[1][{n}] channels=128"
    return " ".join(filter(None, (waits, instruction, signals)))


def load(rows: int = 128, columns: int = 512, *, queue: int = 0, waits: str = "", dst: int = 0, at: int = 0) -> str:
    """Rows of the input to SBUF."""
    instruction = (f"DMA queue={queue} dst=fp32@{dst:#x}[1][{columns}] src=fp32@x+{at:#x}[1,8192][{columns},{rows}] "
                   f"channels={rows} {OF_QUEUE[queue]}+=16@complete")
    return f"{waits} {instruction}" if waits else instruction


def starts(machine: TimedMachine, engine: str) -> list[float]:
    """When each instruction of an engine began, in ns."""
    record = machine.record
    return [record.start[k] for k in range(len(record))
            if machine.agents[record.agent[k]].stream.engine.asm == engine]


def ends(machine: TimedMachine, engine: str) -> list[float]:
    """When the engine was free again."""
    record = machine.record
    return [record.end[k] for k in range(len(record))
            if machine.agents[record.agent[k]].stream.engine.asm == engine]
