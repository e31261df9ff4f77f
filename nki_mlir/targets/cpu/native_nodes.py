# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The nodes of a kernel function for the CPU: calls, loops and branches over buffers, in blocks.

Index values are linear forms of slots of a program's frame, which are numbered in the order in which they are computed.
Addresses are such forms, too: a buffer's address is a symbol, whose value is known when all buffers have offsets.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.dtypes import DType
from nki_mlir.targets.cpu.addressed_nest import addressed, does_stream
from nki_mlir.targets.cpu.contraction import TileProduct
from nki_mlir.targets.cpu.routines import Routine, RowCopies, TileRoutine
from nki_mlir.targets.cpu.searches import Search
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.overlap import ByteRegion

SELF, MEMORY, CODE, FIRST_ID = 0, 1, 2, 3           # slots of a frame
BUFFERS = 1 << 32                                   # symbols from this number on are buffers
CONSTANTS = -1                                      # symbols from this number down are arrays


def slot_value(slot: int) -> Linear:
    return Linear(0, ((slot, 1),))


def slot_address(slot: int) -> Linear:
    return Linear(8 * slot, ((SELF, 1),))


# -- memory ------------------------------------------------------------------------------------------------------------
@dataclass(eq=False, repr=False)
class ScratchBuffer:
    """A buffer of a program with its number, in the memory whose address is in the slot ``memory``."""

    size: int
    number: int
    memory: int = MEMORY
    zeroed: bool = False                # whether it is zeroed when it is allocated

    @property
    def base(self) -> Linear:
        return slot_value(BUFFERS + self.number)

    @property
    def region(self) -> ByteRegion:
        """Return all of the buffer."""
        return ByteRegion(self, self.base, self.size, Linear())


# -- nodes -------------------------------------------------------------------------------------------------------------
@dataclass(eq=False, repr=False)
class ProgramLabel:
    """The target of a jump; ``word`` is known once the program's words have positions."""

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


@dataclass(eq=False, repr=False)
class RoutineCall:
    """A call of a routine, or of a function of the machine by its name."""

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


@dataclass(eq=False, repr=False)
class NestCall(RoutineCall):
    """A nest on the regions of its operands. Passes change only those that are a ``Compute``."""

    nest: Nest
    regions: Sequence[ByteRegion]


Users = Mapping[ScratchBuffer, Sequence[RoutineCall]]              # the calls that have an address in a buffer
NestCallT = TypeVar("NestCallT", bound=NestCall)


@dataclass(eq=False, repr=False)
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


@dataclass(eq=False, repr=False)
class Spread(InParts, NestCall):
    """Equal parts of a large nest, which run on the pool."""

    @classmethod
    def over(cls, node: Compute, parts: tuple[Nest, int, int]) -> "Spread":
        """Return a computation in equal parts. ``parts`` is one of them, their number, and the extent of a part."""
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
    distance, symbol = other.base.plus(tile.base, -1), BUFFERS + tile.number
    arguments = [a.plus(distance) if isinstance(a, Linear) and symbol in dict(a.symbols) else a for a in call.arguments]
    return type(call)(call.function, tuple(arguments), call.nest, regions)


@dataclass(eq=False, repr=False)
class NativeLoad(RoutineCall):
    """A load of an integer of a buffer into a slot."""

    region: ByteRegion
    dtype: DType

    @property
    def access(self) -> ByteRegion:
        return self.region.accessed((), self.dtype.itemsize, False)


@dataclass(eq=False, repr=False)
class TileCall(RoutineCall):
    """An operation on tiles that is not a nest: a routine for such operations, or a call of the host. ``piece`` is the
    region to which rows of a table are copied, or from which they are. ``symbols`` are the values of the operation's
    symbols.
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


@dataclass(eq=False, repr=False)
class SpreadSearch(InParts, TileCall):
    """Equal parts of the rows of a search, which run on the pool."""

    @classmethod
    def over(cls, call: TileCall, part: Search, count: int) -> "SpreadSearch":
        """Return a search in ``count`` equal parts, of which ``part`` is one."""
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


@dataclass(eq=False, repr=False)
class Allocate:
    """The allocation of a buffer."""

    buffer: ScratchBuffer


@dataclass(eq=False, repr=False)
class NativeBlock:
    nodes: "list[Node]" = field(default_factory=list)

    def without(self, unneeded: "Set[RoutineCall | ScratchBuffer]") -> "Iterator[Node]":
        """Yield the nodes of the block without some calls, and without the allocations of some buffers."""
        return (node for node in self.nodes if (node.buffer if isinstance(node, Allocate) else node) not in unneeded)


@dataclass(eq=False, repr=False)
class NativeLoop:
    """A loop whose variable is in a slot; ``span`` has the variable's values if they are known.

    ``on_pool``: iterations run on the pool, each with its memory. ``guard`` is a slot that tells whether a loop of
    unknown bounds runs at all.
    """

    slot: int
    low: Linear
    high: Linear
    step: Linear
    span: range | None
    body: NativeBlock = field(default_factory=NativeBlock)
    guard: int = -1
    on_pool: bool = False

    @property
    def memory(self) -> int:
        """The slot with the address of an iteration's memory on the pool. The machine expects it in front of the
        variable's slot."""
        return self.slot - 1


@dataclass(eq=False, repr=False)
class NativeBranch:
    """A branch: ``then`` runs if the condition is not 0, else ``otherwise``."""

    condition: Linear
    then: NativeBlock = field(default_factory=NativeBlock)
    otherwise: NativeBlock | None = None


@dataclass(eq=False, repr=False)
class NativeWhile:
    """A loop that runs ``test`` and, while the condition that it computes is not 0, ``body`` and ``test`` again."""

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
