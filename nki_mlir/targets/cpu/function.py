# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel function as records: blocks of calls, loops and branches over buffers. What the passes of the CPU work on.

Index values are linear forms of slots of a program's frame, which are numbered in the order in which they are computed.
Addresses are such forms, too: a buffer's address is a symbol, whose value is known when all buffers have offsets.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nki_mlir.analysis.effects import effects_of
from nki_mlir.bindings import Value
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.op import Op
from nki_mlir.targets.cpu.loops import addressed, does_stream
from nki_mlir.targets.cpu.routines import Routine, RowCopies
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.overlap import ByteInterval

SELF, MEMORY, CODE, FIRST_ID = 0, 1, 2, 3           # slots of a frame
MOST_ARGUMENTS = 64                                 # room in the machine's `run`
BUFFERS = 1 << 32                                   # symbols from here on are buffers, by number
CONSTANTS = -1                                      # symbols from here down are arrays, by number
UNKNOWN = (-(1 << 62), 1 << 62)
ALIASES = "inputs"                  # the root of all inputs of a kernel where they may overlap


def slot_value(slot: int) -> Linear:
    return Linear(0, ((slot, 1),))


def slot_address(slot: int) -> Linear:
    return Linear(8 * slot, ((SELF, 1),))


# -- memory ------------------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class ScratchBuffer:
    """Memory of a program, ``number`` among its buffers, in the memory whose address is in the slot ``memory``."""

    size: int
    number: int
    memory: int = MEMORY
    zeroed: bool = False                # when it comes into being

    @property
    def base(self) -> Linear:
        return slot_value(BUFFERS + self.number)


@dataclass(frozen=True)
class ByteRegion:
    """Memory that something works on: where a buffer starts, its size, and how many bytes from there the region does.

    ``root`` is the buffer of the program that it is in, or what stands for memory from outside.
    """

    root: ScratchBuffer | str
    base: Linear
    size: int
    offset: Linear
    name: str = ""

    @property
    def address(self) -> Linear:
        return self.base.plus(self.offset) if self.offset != Linear() else self.base


# -- nodes -------------------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class ProgramLabel:
    """Where a jump leads; ``word`` is known when the words are laid out."""

    word: int = -1


@dataclass(frozen=True)
class Extent:
    """A number that is known when everything has an offset: the frame's slots, or the size of a memory."""

    memory: int | None = None


@dataclass(frozen=True)
class CodeAddress:
    """Where a routine's code is."""

    routine: Routine


Argument = Linear | ProgramLabel | Extent | CodeAddress


@dataclass(eq=False)
class RoutineCall:
    """``function`` is a routine, or the name of one of the machine's functions."""

    function: Routine | str
    arguments: tuple[Argument, ...]

    @property
    def buffers(self) -> list[int]:
        """The numbers of the buffers whose addresses are among the arguments."""
        return list(dict.fromkeys(slot - BUFFERS for a in self.arguments if isinstance(a, Linear)
                                  for slot, _ in a.symbols if slot >= BUFFERS))


@dataclass(eq=False)
class Compute(RoutineCall):
    """A nest on the regions of its operands."""

    nest: Nest
    regions: Sequence[ByteRegion]

    @property
    def streams(self) -> bool:
        return does_stream(self.function)

    @property
    def symbols(self) -> tuple[Argument, ...]:
        return self.arguments[len(self.regions):]

    @property
    def output_regions(self) -> Sequence[ByteRegion]:
        return self.regions[len(self.nest.inputs):]


def compute(nest: Nest, regions: Sequence[ByteRegion], symbols: Sequence[Argument] = (), streams: bool = False
            ) -> Compute:
    return Compute(addressed(nest, streams), (*(r.address for r in regions), *symbols), nest, regions)


@dataclass(eq=False)
class Spread(RoutineCall):
    """The equal parts of a large nest on the pool."""

    nest: Nest
    regions: Sequence[ByteRegion]


@dataclass(eq=False)
class NativeLoad(RoutineCall):
    """An integer of a buffer that a slot gets."""

    region: ByteRegion
    access: ByteInterval


@dataclass(eq=False)
class TileCall(RoutineCall):
    """An operation on whole tiles: rows that move by their numbers, or what the host runs.

    ``piece`` is where rows of a table are stored to, or read from.
    """

    op: Op
    regions: Sequence[ByteRegion]
    accesses: Sequence[ByteInterval] = ()
    piece: ByteRegion | None = None

    @property
    def on_host(self) -> bool:
        return not isinstance(self.function, RowCopies)


@dataclass(eq=False)
class Allocate:
    """A buffer comes into being."""

    buffer: ScratchBuffer


@dataclass(eq=False)
class NativeBlock:
    nodes: "list[Node]" = field(default_factory=list)


@dataclass(eq=False)
class NativeLoop:
    """A loop whose variable is in a slot; ``span`` are its values where they are known.

    ``parallel``: the kernel's author says that iterations are independent. ``on_pool``: they run on the pool, each with
    a memory whose address is in the slot ``memory``. ``guard`` gets whether a loop of unknown bounds runs at all.
    """

    slot: int
    low: Linear
    high: Linear
    step: Linear
    span: range | None
    body: NativeBlock = field(default_factory=NativeBlock)
    memory: int = MEMORY
    guard: int = -1
    parallel: bool = False
    on_pool: bool = False


@dataclass(eq=False)
class NativeBranch:
    """``then`` where the condition is not 0, else ``otherwise``."""

    condition: Linear
    then: NativeBlock = field(default_factory=NativeBlock)
    otherwise: NativeBlock | None = None


@dataclass(eq=False)
class NativeWhile:
    """``test``, and while the condition that it computes is not 0: ``body``, then ``test`` again."""

    test: NativeBlock = field(default_factory=NativeBlock)
    condition: Linear = field(default_factory=Linear)
    body: NativeBlock = field(default_factory=NativeBlock)


Node = RoutineCall | Allocate | NativeLoop | NativeBranch | NativeWhile


def sub_blocks(node: Node) -> list[NativeBlock]:
    """The blocks that a node has, in the order they run."""
    match node:
        case NativeLoop():
            return [node.body]
        case NativeBranch():
            return [node.then] if node.otherwise is None else [node.then, node.otherwise]
        case NativeWhile():
            return [node.test, node.body]
    return []


def blocks(block: NativeBlock) -> Iterator[NativeBlock]:
    """The block and all inside of it."""
    yield block
    for node in block.nodes:
        for inner in sub_blocks(node):
            yield from blocks(inner)


def nodes_in(*nodes: Node) -> Iterator[Node]:
    """Nodes and all inside of them, in order."""
    for node in nodes:
        yield node
        for inner in sub_blocks(node):
            yield from nodes_in(*inner.nodes)


def calls_in(*nodes: Node) -> Iterator[RoutineCall]:
    return (node for node in nodes_in(*nodes) if isinstance(node, RoutineCall))


# -- functions ---------------------------------------------------------------------------------------------------------
class Ranges(dict[int, tuple[int, int]]):
    """Least and greatest value of slots; unbounded where nothing is known."""

    def __missing__(self, slot: int) -> tuple[int, int]:
        return UNKNOWN


class NativeFunction:
    """A function while it is read and rewritten: nodes are appended to ``block``.

    ``constants`` are those of all functions of the kernel.
    """

    def __init__(self, kernel: KernelFunction, axes: int, constants: list[np.ndarray]) -> None:
        self.kernel, self.axes, self.constants = kernel, axes, constants
        self.inputs = {ALIASES} if kernel.may_alias else {spec.name for spec in kernel.inputs}
        self.slots = FIRST_ID + axes + len(kernel.inputs) + len(kernel.shared)
        self.buffers: list[ScratchBuffer] = []
        self.ranges: dict[int, tuple[int, int]] = Ranges()
        self.notes: list[str] = []              # what passes say of what they chose
        self.has_variants = False               # whether other programs of the grid have other functions
        self.merged = 1                         # programs along the grid's last axis that the function runs as one
        self.body = self.block = NativeBlock()

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def add(self, node: Node) -> None:
        if isinstance(node, RoutineCall) and len(node.arguments) > MOST_ARGUMENTS:
            raise Unsupported(feature=f"an operation with {len(node.arguments)} operands on the CPU",
                              instead="split it")
        self.block.nodes.append(node)

    def emit(self, function: Routine | str, *arguments: Argument) -> None:
        self.add(RoutineCall(function, arguments))

    @contextmanager
    def inside(self, block: NativeBlock) -> Iterator[None]:
        """Nodes are appended to another block."""
        outer, self.block = self.block, block
        yield
        self.block = outer

    def computed(self, function: str, *operands: Linear) -> Linear:
        """A value in a new slot."""
        slot = self.slot()
        self.emit(function, slot_address(slot), *operands)
        return slot_value(slot)

    @contextmanager
    def repeated(self, count: int) -> Iterator[Linear]:
        """A loop, with the value of its variable."""
        if count == 1:
            yield Linear()
            return
        loop = NativeLoop(self.slot(), Linear(), Linear(count), Linear(1), range(count))
        self.add(loop)
        with self.inside(loop.body):
            yield slot_value(loop.slot)

    def allocate(self, size: int, memory: int = MEMORY) -> ScratchBuffer:
        """A new buffer, which comes into being here."""
        buffer = ScratchBuffer(size, len(self.buffers), memory)
        self.buffers.append(buffer)
        self.add(Allocate(buffer))
        return buffer

    def constant(self, array: np.ndarray) -> Linear:
        """Keep an array as a constant of the function; returns its address."""
        self.constants.append(array)
        return slot_value(CONSTANTS - len(self.constants) + 1)

    def text(self) -> str:
        """The nodes for people."""
        from nki_mlir.targets.cpu.function_text import text_of  # circle: a text is of a function
        return text_of(self)

    def count(self) -> int:
        """How many nodes there are."""
        return sum(1 for _ in nodes_in(*self.body.nodes))

    @property
    def names(self) -> dict[int, str]:
        """What slots are called in texts."""
        arguments = [a.name for a in (*self.kernel.inputs, *self.kernel.shared)]
        return {MEMORY: "memory", **{FIRST_ID + k: f"id{k}" for k in range(self.axes)},
                **{FIRST_ID + self.axes + k: name for k, name in enumerate(arguments)}}

    # -- what is known of all operations -------------------------------------------------------------------------------
    @cached_property
    def only_written(self) -> set[str]:
        """The kernel's outputs that none of its operations reads."""
        return self._arguments("shared", effects_of(self.kernel.op).reads)

    @cached_property
    def only_read(self) -> set[str]:
        """The kernel's inputs that none of its operations writes; none where they may overlap one that is written."""
        return set() if self.kernel.may_alias else self._arguments("input", effects_of(self.kernel.op).writes)

    def _arguments(self, kind: str, besides: set[Value]) -> set[str]:
        arguments = zip(self.kernel.op.regions[0].blocks[0].arguments, self.kernel.arguments)
        return {spec.name for value, spec in arguments if spec.kind == kind and value not in besides}

    @property
    def targets(self) -> set[ScratchBuffer | str]:
        """The roots of all that is written."""
        roots = set[ScratchBuffer | str]()
        for call in calls_in(*self.body.nodes):
            if isinstance(call, Compute | Spread):
                roots |= {region.root for region in call.regions[len(call.nest.inputs):]}
            elif isinstance(call, TileCall):
                roots |= {r.root for (field, _), r in zip(call.op.operands(), call.regions) if field.writes}
        return roots

    def users(self) -> dict[ScratchBuffer, list[RoutineCall]]:
        """The calls that have an address in a buffer, in order."""
        users_of: dict[ScratchBuffer, list[RoutineCall]] = {}
        for call in calls_in(*self.body.nodes):
            for number in call.buffers:
                users_of.setdefault(self.buffers[number], []).append(call)
        return users_of
