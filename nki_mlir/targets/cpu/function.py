# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel function as records: blocks of calls, loops and branches over buffers. Passes of the CPU rewrite them.

Index values are linear forms of slots of a program's frame, which are numbered in the order in which they are computed.
Addresses are such forms, too: a buffer's address is a symbol, whose value is known when all buffers have offsets.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from nki_mlir.analysis.effects import effects_of
from nki_mlir.bindings import Attribute, Type, Value
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects import native
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.dtypes import DType
from nki_mlir.targets.cpu.addressed_nest import addressed, does_stream
from nki_mlir.targets.cpu.contraction import TileProduct
from nki_mlir.targets.cpu.image import Site
from nki_mlir.targets.cpu.routines import Routine, RowCopies, TileRoutine
from nki_mlir.targets.cpu.searches import Search
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.overlap import ByteRegion

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
    """A buffer of a program with its number, in the memory whose address is in the slot ``memory``."""

    size: int
    number: int
    memory: int = MEMORY
    zeroed: bool = False                # when it is allocated

    @property
    def base(self) -> Linear:
        return slot_value(BUFFERS + self.number)

    @property
    def region(self) -> ByteRegion:
        """Return all of the buffer."""
        return ByteRegion(self, self.base, self.size, Linear())


# -- nodes -------------------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class ProgramLabel:
    """The target of a jump; ``word`` is known when the words are laid out."""

    word: int = -1


@dataclass(frozen=True)
class Extent:
    """A number that is known once all offsets are assigned: the number of the frame's slots, or the size of a
    memory."""

    memory: int | None = None


@dataclass(frozen=True)
class CodeAddress:
    """The address of a routine's code."""

    routine: Routine


Argument = Linear | ProgramLabel | Extent | CodeAddress


@dataclass(eq=False)
class RoutineCall:
    """Calls a routine, or one of the machine's functions, which ``function`` names."""

    function: Routine | str
    arguments: tuple[Argument, ...]

    @property
    def buffers(self) -> list[int]:
        """List the numbers of the buffers whose addresses are among the arguments."""
        return list(dict.fromkeys(slot - BUFFERS for a in self.arguments if isinstance(a, Linear)
                                  for slot, _ in a.symbols if slot >= BUFFERS))


class InParts(RoutineCall):
    """A call whose equal parts run on the pool."""

    @property
    def count(self) -> int:
        """The number of parts."""
        count = self.arguments[1]
        assert isinstance(count, Linear)
        return count.const


@dataclass(eq=False)
class NestCall(RoutineCall):
    """A nest on the regions of its operands, which no pass changes unless it is a ``Compute``."""

    nest: Nest
    regions: Sequence[ByteRegion]


NestCallT = TypeVar("NestCallT", bound=NestCall)


@dataclass(eq=False)
class Compute(NestCall):
    """A nest that one routine computes."""

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
class Spread(InParts, NestCall):
    """Equal parts of a large nest, which run on the pool."""

    @classmethod
    def over(cls, node: Compute, parts: tuple[Nest, int, int]) -> "Spread":
        """Return a computation as equal parts: one of them, how many there are, and the extent of a part."""
        part, count, extent = parts
        steps = [o.strides[0] * extent * o.dtype.itemsize for o in node.nest.operands] + [0] * len(node.symbols)
        pairs = [n for value, step in zip(node.arguments, steps) for n in (value, Linear(step))]
        routine = replace(node.function, nest=part) if isinstance(node.function, TileProduct) else (
            addressed(part, node.streams))
        arguments = (CodeAddress(routine), Linear(count), Linear(len(steps)), *pairs)
        return cls("nki_spread", arguments, node.nest, node.regions)

    @property
    def part(self) -> Routine:
        code = self.arguments[0]
        assert isinstance(code, CodeAddress)
        return code.routine

    @part.setter
    def part(self, routine: Routine) -> None:
        self.arguments = (CodeAddress(routine), *self.arguments[1:])


def on_buffer(call: NestCallT, tile: ScratchBuffer, other: ScratchBuffer) -> NestCallT:
    """Return a computation, perhaps in parts, that uses another buffer instead of a tile."""
    regions = [replace(region, root=other, base=other.base) if region.root is tile else region
               for region in call.regions]
    moved, symbol = other.base.plus(tile.base, -1), BUFFERS + tile.number
    arguments = [a.plus(moved) if isinstance(a, Linear) and symbol in dict(a.symbols) else a for a in call.arguments]
    return type(call)(call.function, tuple(arguments), call.nest, regions)


@dataclass(eq=False)
class NativeLoad(RoutineCall):
    """A load of an integer of a buffer into a slot."""

    region: ByteRegion
    dtype: DType

    @property
    def access(self) -> ByteRegion:
        return self.region.accessed((), self.dtype.itemsize, False)


@dataclass(eq=False)
class TileCall(RoutineCall):
    """An operation on tiles that is not a nest: a routine of its kind, or a call of the host.

    ``piece`` is the region to which rows of a table are stored, or from which they are read. ``symbols`` are the values
    of the operation's symbols.
    """

    op: Op
    regions: Sequence[ByteRegion]
    symbols: Sequence[Linear] = ()
    accesses: Sequence[ByteRegion] = ()
    piece: ByteRegion | None = None

    @property
    def on_host(self) -> bool:
        return not isinstance(self.function, TileRoutine)

    @property
    def site(self) -> Argument:
        """The failure site of the operation."""
        return self.arguments[-1 if isinstance(self.function, RowCopies) else 0]


@dataclass(eq=False)
class SpreadSearch(InParts, TileCall):
    """Equal parts of the rows of a search, which run on the pool."""

    @classmethod
    def over(cls, call: TileCall, part: Search, count: int) -> "SpreadSearch":
        """Return a search as equal parts, of which ``part`` is one."""
        steps = [0] + [tile.row_step * part.count * tile.dtype.itemsize for tile in part.tiles]
        pairs = [n for value, step in zip(call.arguments, steps) for n in (value, Linear(step))]
        arguments = (CodeAddress(part), Linear(count), Linear(len(steps)), *pairs)
        return cls("nki_spread", arguments, call.op, call.regions, call.symbols, call.accesses)

    @property
    def on_host(self) -> bool:
        return False

    @property
    def site(self) -> Argument:
        return self.arguments[3]


@dataclass(eq=False)
class Allocate:
    """The allocation of a buffer."""

    buffer: ScratchBuffer


@dataclass(eq=False)
class NativeBlock:
    nodes: "list[Node]" = field(default_factory=list)

    def without(self, unneeded: "Set[RoutineCall | ScratchBuffer]") -> "Iterator[Node]":
        """Yield the nodes except some calls, and except the allocations of some buffers."""
        return (node for node in self.nodes if (node.buffer if isinstance(node, Allocate) else node) not in unneeded)


@dataclass(eq=False)
class NativeLoop:
    """A loop whose variable is in a slot; ``span`` has the variable's values if they are known.

    ``parallel``: the kernel's author declares iterations independent. ``on_pool``: they run on the pool, each with a
    memory whose address is in the slot ``memory``. ``guard`` is a slot that tells whether a loop of unknown bounds runs
    at all.
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
    """Runs ``then`` where the condition is not 0, else ``otherwise``."""

    condition: Linear
    then: NativeBlock = field(default_factory=NativeBlock)
    otherwise: NativeBlock | None = None


@dataclass(eq=False)
class NativeWhile:
    """Runs ``test``, and while the condition that it computes is not 0: ``body``, then ``test`` again."""

    test: NativeBlock = field(default_factory=NativeBlock)
    condition: Linear = field(default_factory=Linear)
    body: NativeBlock = field(default_factory=NativeBlock)


Node = RoutineCall | Allocate | NativeLoop | NativeBranch | NativeWhile


def sub_blocks(node: Node) -> list[NativeBlock]:
    """List the blocks of a node in the order in which they run."""
    match node:
        case NativeLoop():
            return [node.body]
        case NativeBranch():
            return [node.then] if node.otherwise is None else [node.then, node.otherwise]
        case NativeWhile():
            return [node.test, node.body]
    return []


def blocks(block: NativeBlock) -> Iterator[NativeBlock]:
    """Yield a block and all blocks inside of it."""
    yield block
    for node in block.nodes:
        for inner in sub_blocks(node):
            yield from blocks(inner)


def nodes_in(*nodes: Node) -> Iterator[Node]:
    """Yield nodes and all nodes inside of them, in order."""
    for node in nodes:
        yield node
        for inner in sub_blocks(node):
            yield from nodes_in(*inner.nodes)


def calls_in(*nodes: Node) -> Iterator[RoutineCall]:
    return (node for node in nodes_in(*nodes) if isinstance(node, RoutineCall))


# -- functions ---------------------------------------------------------------------------------------------------------
class Ranges(dict[int, tuple[int, int]]):
    """The least and greatest value of each slot; unbounded where nothing is known."""

    def __missing__(self, slot: int) -> tuple[int, int]:
        return UNKNOWN


class NativeFunction:
    """A function while passes rewrite it: new nodes are appended to ``block``.

    All functions of the kernel share ``constants`` and the failure ``sites`` of checks.
    """

    def __init__(self, kernel: KernelFunction, axes: int, constants: list[np.ndarray], sites: list[Site]) -> None:
        self.kernel, self.axes, self.constants, self.sites = kernel, axes, constants, sites
        self.tables: dict[int, Nest] = {}                       # functions of constants that are tables, by number
        self.globals: dict[int, tuple[Attribute, Type]] = {}    # names and types of constants of the module, by number
        self.inputs = {ALIASES} if kernel.may_alias else {spec.name for spec in kernel.inputs}
        self.slots = FIRST_ID + axes + len(kernel.inputs) + len(kernel.shared)
        self.buffers: list[ScratchBuffer] = []
        self.ranges: dict[int, tuple[int, int]] = Ranges()
        marks = kernel.op.attributes
        self.is_written = native.FUNCTION in marks          # by passes of the CPU, before it was read
        self.notes: list[str] = [note.value for note in marks[native.NOTES]] if native.NOTES in marks else []
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
        """Append nodes to another block."""
        outer, self.block = self.block, block
        yield
        self.block = outer

    def replace_computations(self, replacement: "Callable[[Compute, int], Compute]") -> None:
        """Replace each computation by ``replacement(computation, slot)``, where the slot points to the memory of its
        block's buffers. Nodes that a replacement appends to the function come before it."""
        self._replace_in(self.body, MEMORY, replacement)

    def _replace_in(self, block: NativeBlock, memory: int,
                    replacement: "Callable[[Compute, int], Compute]") -> None:
        nodes, block.nodes = block.nodes, []
        with self.inside(block):
            for node in nodes:
                inside = node.memory if isinstance(node, NativeLoop) and node.on_pool else memory
                for inner in sub_blocks(node):
                    self._replace_in(inner, inside, replacement)
                self.add(replacement(node, memory) if isinstance(node, Compute) else node)

    def computed(self, function: str, *operands: Linear) -> Linear:
        """Compute a value into a new slot, and return it."""
        slot = self.slot()
        self.emit(function, slot_address(slot), *operands)
        return slot_value(slot)

    @contextmanager
    def repeated(self, count: int) -> Iterator[Linear]:
        """Append a loop, and yield its variable's value."""
        if count == 1:
            yield Linear()
            return
        loop = NativeLoop(self.slot(), Linear(), Linear(count), Linear(1), range(count))
        self.add(loop)
        with self.inside(loop.body):
            yield slot_value(loop.slot)

    def allocate(self, size: int, memory: int = MEMORY) -> ScratchBuffer:
        """Append the allocation of a buffer, and return the buffer."""
        buffer = ScratchBuffer(size, len(self.buffers), memory)
        self.buffers.append(buffer)
        self.add(Allocate(buffer))
        return buffer

    def constant(self, array: np.ndarray) -> Linear:
        """Keep an array as a constant of the function, once; returns its address."""
        number = next((k for k, other in enumerate(self.constants) if other is array), len(self.constants))
        self.constants[number:] = self.constants[number:] or [array]
        return slot_value(CONSTANTS - number)

    @property
    def names(self) -> dict[int, str]:
        """Return the names of slots in texts."""
        arguments = [a.name for a in (*self.kernel.inputs, *self.kernel.shared)]
        return {MEMORY: "memory", **{FIRST_ID + k: f"id{k}" for k in range(self.axes)},
                **{FIRST_ID + self.axes + k: name for k, name in enumerate(arguments)}}

    # -- facts about all operations ------------------------------------------------------------------------------------
    @cached_property
    def only_written(self) -> set[str]:
        """Return the kernel's outputs that none of its operations reads."""
        return self._arguments("shared", effects_of(self.kernel.op).reads)

    @cached_property
    def only_read(self) -> set[str]:
        """Return the kernel's inputs that none of its operations writes; none of them if inputs may overlap a written
        one."""
        return set() if self.kernel.may_alias else self._arguments("input", effects_of(self.kernel.op).writes)

    def _arguments(self, kind: str, besides: set[Value]) -> set[str]:
        arguments = zip(self.kernel.op.regions[0].blocks[0].arguments, self.kernel.arguments)
        return {spec.name for value, spec in arguments if spec.kind == kind and value not in besides}

    @property
    def targets(self) -> set[object]:
        """Return the roots of all memory that the function writes."""
        roots = set[object]()
        for call in calls_in(*self.body.nodes):
            if isinstance(call, Compute | Spread):
                roots |= {region.root for region in call.regions[len(call.nest.inputs):]}
            elif isinstance(call, TileCall):
                roots |= {r.root for (field, _), r in zip(call.op.operands(), call.regions) if field.writes}
        return roots

    def written_by(self, node: Node) -> set[object]:
        """Return the roots of the memory that a node may write."""
        roots = set[object]()
        for call in calls_in(node):
            roots |= {region.root for region in call.regions[len(call.nest.inputs):]} if isinstance(
                call, NestCall) else {self.buffers[number] for number in call.buffers}
        return roots

    def replace_calls(self, new_calls: Mapping[RoutineCall, NestCall]) -> None:
        """Replace calls by new ones."""
        for block in blocks(self.body) if new_calls else ():
            block.nodes[:] = [new_calls.get(node, node) if isinstance(node, RoutineCall) else node
                              for node in block.nodes]

    def tile_writers(self, is_wanted: Callable[[Compute], bool]
                     ) -> Iterator[tuple[NativeBlock, Compute, ScratchBuffer, Sequence[RoutineCall]]]:
        """Yield (block, computation, buffer, calls that use the buffer) for each wanted computation that writes a
        buffer of the function."""
        writers = [(block, node, node.regions[-1].root) for block in blocks(self.body) for node in block.nodes
                   if isinstance(node, Compute) and is_wanted(node)]
        users = self.users() if writers else {}
        for block, call, tile in writers:
            if isinstance(tile, ScratchBuffer):
                yield block, call, tile, users[tile]

    def users(self) -> dict[ScratchBuffer, list[RoutineCall]]:
        """List for each buffer the calls that have an address in it, in order."""
        users_of: dict[ScratchBuffer, list[RoutineCall]] = {}
        for call in calls_in(*self.body.nodes):
            for number in call.buffers:
                users_of.setdefault(self.buffers[number], []).append(call)
        return users_of

    def buffers_of(self, calls: Sequence[RoutineCall]) -> set[ScratchBuffer]:
        """Return the buffers in which some calls have addresses."""
        return {self.buffers[number] for call in calls for number in call.buffers}
