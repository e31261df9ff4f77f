# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program for one core: instruction streams, HBM variables, semaphores, DMA queues; and the addresses of memory.

Text, binary container, the ``isa`` dialect and the simulator all represent this one record.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nki_mlir.dialects.access import HBM, PSUM, SBUF, Access, Linear, Tile
from nki_mlir.dialects.isa.instruction import BY_ASM, Instruction
from nki_mlir.dialects.op import Op
from nki_mlir.machine import ENGINES, Engine, Machine
from nki_mlir.scalar.dtypes import UINT8, DType

PARTITION_STRIDE = 0x40000              # between partitions in the linear on-chip address space
PSUM_BASE = 0x2000000                   # SBUF starts at 0
KINDS = ("input", "output", "internal", "constant")
SPILLED = ".spilled"            # suffix of the names of variables for spilled tiles


@dataclass(frozen=True, eq=False)
class Variable:
    """A tensor in HBM. ``index`` counts the kernel's inputs, or its outputs; ``data`` are a constant's bytes."""

    name: str
    kind: str
    index: int
    shape: tuple[int, ...]
    dtype: DType
    data: bytearray = field(default_factory=bytearray)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Semaphore:
    """A counter; its number is its index in ``Program.semaphores``. ``name`` tells which engine or queue counts
    it up."""

    name: str


@dataclass(frozen=True)
class Queue:
    """A DMA queue: the engine whose stream fills it, and the semaphore that counts its transfers."""

    name: str
    engine: Engine
    semaphore: int


class DeviceLiveRange(NamedTuple):
    """A buffer on chip, and its uses by instructions: for each engine, in the order of ``ENGINES``, the first and the
    last index in its stream.

    It has ``size`` bytes from ``byte`` on in each of ``partitions`` from ``partition`` on.
    """

    name: str
    space: str
    partition: int
    partitions: int
    byte: int
    size: int
    spans: tuple[tuple[Engine, int, int], ...]

    @property
    def address(self) -> int:
        """The address of its first byte in the address space of on-chip memories."""
        return linear_address(self.space, self.partition, self.byte)

    def __str__(self) -> str:
        """Return the range in assembly, as ``t sbuf 0x400 128*512 pe:3-9 act:2-2``."""
        spans = " ".join([f"{engine.asm}:{begin}-{end}" for engine, begin, end in self.spans])
        return f"{self.name} {self.space} {self.address:#x} {self.partitions}*{self.size} {spans}"

    @classmethod
    def read(cls, text: str) -> "DeviceLiveRange | None":
        """Parse the range in assembly; None if the text is none."""
        match = LIVE_RANGE.fullmatch(text)
        if match is None:
            return None
        space, partition, byte = split_address(int(match[3], 16))
        if space != match[2]:
            return None
        spans = {engine: (int(begin), int(end)) for engine, begin, end in SPAN.findall(match[6])}
        if len(spans) < len(match[6].split()):
            return None                         # it names an engine twice
        return cls(match[1], space, partition, int(match[4]), byte, int(match[5]), tuple(
            (engine, *spans[engine.asm]) for engine in ENGINES if engine.asm in spans))


SPAN = re.compile(r"(\w+):(\d+)-(\d+)")
LIVE_RANGE = re.compile(r"([A-Za-z_][\w.]*) (sbuf|psum) (0x[0-9a-f]{1,12}) (\d{1,6})\*(\d{1,9})"
                        rf"((?: (?:{'|'.join(BY_ASM)}):\d{{1,9}}-\d{{1,9}}){{1,{len(BY_ASM)}}})")


@dataclass(repr=False)
class Program:
    """All that one core needs to run a kernel.

    High-water marks are bytes per partition; ``notes`` say how it was compiled. ``live`` has the buffers on chip
    where they are known, which only checks need. ``static_descriptors``: the compiler writes the
    descriptors of all transfers, which neither text nor binary records.
    """

    kernel: str
    target: str
    variables: list[Variable] = field(default_factory=list)
    semaphores: list[Semaphore] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    streams: dict[Engine, list[Instruction]] = field(default_factory=lambda: {e: [] for e in ENGINES})
    sbuf_bytes: int = 0
    psum_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    live: list[DeviceLiveRange] = field(default_factory=list)
    static_descriptors: bool = False

    def __repr__(self) -> str:
        counts = ", ".join(f"{engine.value} {len(stream)}" for engine, stream in self.streams.items() if stream)
        return f"<streams of {self.kernel} for {self.target}: {counts or 'no'} instructions>"

    def _repr_html_(self) -> str:
        from nki_mlir import display  # start-up: needed in a notebook
        return display.table(["engine", "instructions", "first"], [
            [engine.value, len(stream), stream[0].op.mnemonic] for engine, stream in self.streams.items() if stream])

    def of_kind(self, kind: str) -> list[Variable]:
        """Return the variables of a kind, by index."""
        return sorted((v for v in self.variables if v.kind == kind), key=lambda v: v.index)


def instruction_counts(program: Program) -> dict[str, int]:
    """Map the names of engines to the lengths of their streams."""
    return {engine.value: len(stream) for engine, stream in program.streams.items()}


# -- physical memory ---------------------------------------------------------------------------------------------------
def memory_shape(space: str, machine: Machine) -> tuple[int, int]:
    """Return (partitions, bytes per partition) of an on-chip memory."""
    size = machine.sbuf_physical_bytes_per_partition if space == SBUF else machine.psum_bytes_per_partition
    return machine.partitions, size


def on_chip_tile(space: str, access: Access, machine: Machine, label: str = "") -> Tile:
    """Return a tile whose base buffer is a complete memory; the access has its physical partition and offset."""
    return Tile(None, space, memory_shape(space, machine), UINT8, access, label)


def hbm_tile(variable: Variable, access: Access, label: str = "") -> Tile:
    return Tile(variable, HBM, variable.shape, variable.dtype, access, label)


def linear_address(space: str, partition: int, byte: int) -> int:
    """Return the address of a byte of a partition in the linear on-chip address space."""
    return (PSUM_BASE if space == PSUM else 0) + partition * PARTITION_STRIDE + byte


def split_address(address: int) -> tuple[str, int, int]:
    """Return (memory, partition, byte) of a linear address."""
    space, offset = (PSUM, address - PSUM_BASE) if address >= PSUM_BASE else (SBUF, address)
    return space, offset // PARTITION_STRIDE, offset % PARTITION_STRIDE


def scaled(form: Linear, factor: int) -> Linear:
    """Return the form times a number: offsets in elements become bytes."""
    return Linear(form.const * factor, tuple((s, c * factor) for s, c in form.symbols))


def descriptors(op: Op) -> tuple[int, int] | None:
    """Return the number of runs of a transfer that are contiguous on both sides, and the bytes of each; None if the
    operation is no copy."""
    axes, tiles = op.iteration().axes, {f.name: t for f, t in op.operands()}
    if tiles.keys() != {"dst", "src"} or sorted(axes["dst"]) != sorted(axes["src"]):
        return None
    dst, src = tiles["dst"], tiles["src"]
    step_of = dict(zip(axes["src"], _steps(src)))
    dims = [(step, step_of[axis], extent) for step, axis, extent in zip(_steps(dst), axes["dst"], dst.shape)]
    run = 1
    while dims and (dims[-1][2] == 1 or dims[-1][0] == dims[-1][1] == run):
        run *= dims.pop()[2]
    return math.prod(extent for *_, extent in dims), run * max(dst.dtype.itemsize, src.dtype.itemsize)


def _steps(tile: Tile) -> Sequence[int]:
    """Return steps in elements; a step to another partition is never contiguous."""
    steps = [step for step, _ in tile.access.dims]
    return [0, *steps[1:]] if tile.on_chip else steps
