# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A nisa-level kernel as records: blocks of steps, loops and branches over buffers. The emission passes rewrite them.
``read_code`` reads them from a module, ``write_code`` writes them to one. Several passes on records process tens of
thousands of instructions without building MLIR in between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import HBM, Linear, Tile
from nki_mlir.dialects.isa.instruction import ARITHMETIC, SourceIteration
from nki_mlir.dialects.nisa.meeting import Meeting
from nki_mlir.dialects.op import Op, with_forms
from nki_mlir.machine import Machine, Work
from nki_mlir.scalar.dtypes import DType

if TYPE_CHECKING:
    from nki_mlir.bindings import Attribute

# -- values ------------------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class LoopVariable:
    """An index value that a register holds: a loop's variable, a program id, or a number that was loaded."""

    name: str
    low: int                        # least and greatest value
    high: int
    axis: int | None = None         # the grid's axis, for a program id


@dataclass(eq=False)
class Computed:
    """A value computed from others: ``lhs op rhs``, with the operations of the ALU instruction."""

    op: str
    lhs: "Value"
    rhs: "Value"


Value = int | LoopVariable | Computed


NEUTRAL = {"add": 0, "subtract": 0, "mult": 1}
TRUTHS = ("eq", "ne", "lt", "le", "gt", "ge")


def compute(op: str, lhs: Value, rhs: Value) -> Value:
    """Return ``lhs op rhs``: a number if both are numbers."""
    if isinstance(lhs, int) and isinstance(rhs, int):
        return int(ARITHMETIC[op](lhs, rhs))
    if op in ("add", "mult") and isinstance(lhs, int):
        lhs, rhs = rhs, lhs
    if rhs == NEUTRAL.get(op):
        return lhs
    if op in ("min", "max"):
        for candidate, other in ((lhs, rhs), (rhs, lhs)):             # an operand may always be the result
            below, above = (candidate, other) if op == "min" else (other, candidate)
            if value_range(below)[1] <= value_range(above)[0]:
                return candidate
    return Computed(op, lhs, rhs)


def value_range(value: Value) -> tuple[int, int]:
    """Return an interval that contains the value."""
    match value:
        case int():
            return value, value
        case LoopVariable():
            return value.low, value.high
    if value.op in TRUTHS:
        return 0, 1
    low, high = value_range(value.lhs)
    match value.op, value.rhs:
        case "and" | "or", rhs:
            return range_of_bits(value.op, (low, high), value_range(rhs))
        case "mod", int(by):
            return (low, high) if 0 <= low and high < by else (0, by - 1)
        case "floordiv", int(by):
            return low // by, high // by
    corners = [ARITHMETIC[value.op](a, b) for a in (low, high) for b in value_range(value.rhs)]
    return min(corners), max(corners)


def range_of_bits(op: str, lhs: tuple[int, int], rhs: tuple[int, int]) -> tuple[int, int]:
    """Return an interval that contains ``lhs and rhs``, or ``lhs or rhs``, of numbers in two intervals."""
    bits = max([number.bit_length() for number in (*lhs, *rhs)])
    if min(lhs[0], rhs[0]) < 0:
        return -1 << bits, (1 << bits) - 1
    return (0, min(lhs[1], rhs[1])) if op == "and" else (max(lhs[0], rhs[0]), (1 << bits) - 1)


def variables_of(value: Value) -> Iterator[LoopVariable]:
    match value:
        case LoopVariable():
            yield value
        case Computed():
            yield from variables_of(value.lhs)
            yield from variables_of(value.rhs)


# -- memory ------------------------------------------------------------------------------------------------------------
@dataclass(eq=False, slots=True)
class DeviceBuffer:
    """An allocation or an HBM tensor. ``role`` is local, or input, output or constant with its ``index`` and ``data``.

    ``address`` is (partition, byte in the partition) on chip. ``fixed``: the kernel chose it. ``addresses`` are the
    addresses that the kernel chose for the blocks along the leading free axes, row-major.
    """

    name: str
    space: str
    shape: tuple[int, ...]
    dtype: DType
    role: str = "local"
    index: int = 0
    data: bytes = b""
    address: tuple[int, int] | None = None
    fixed: bool = False
    addresses: tuple[tuple[int, int], ...] = ()
    location: Location | None = None
    attributes: "dict[str, Attribute]" = field(default_factory=dict)
    _bytes: int | None = field(default=None, init=False, repr=False)

    @property
    def bytes_per_partition(self) -> int:
        """Bytes per partition; in HBM, all bytes."""
        if self._bytes is None:
            self._bytes = prod(self.shape if self.space == HBM else self.shape[1:]) * self.dtype.itemsize
        return self._bytes

    @property
    def partitions(self) -> int:
        return 1 if self.space == HBM else self.shape[0]

    def copied(self) -> "DeviceBuffer":
        """Return another buffer with equal fields."""
        return DeviceBuffer(self.name, self.space, self.shape, self.dtype, self.role, self.index, self.data,
                            self.address, self.fixed, self.addresses, self.location, self.attributes)


# -- code --------------------------------------------------------------------------------------------------------------
@dataclass(eq=False, slots=True)
class InstructionStep:
    """One instruction: tile handles are ``DeviceBuffer``, symbols are ``Value``. ``work``: its work for the engine,
    once computed; ``iteration``: in unrolled code, the iteration of the kernel's innermost loop, if it is known."""

    op: Op
    location: Location | None = None
    work: Work | None = None
    iteration: SourceIteration | None = None

    def with_op(self, op: Op) -> "InstructionStep":
        """Return a step of the same source line and iteration with another operation."""
        return InstructionStep(op, self.location, None, self.iteration)


@dataclass(eq=False)
class Loop:
    variable: LoopVariable
    span: range
    body: "Block"
    location: Location | None = None
    attributes: "dict[str, Attribute]" = field(default_factory=dict)


@dataclass(eq=False)
class Branch:
    """A branch: ``then`` runs if the condition is not 0, else ``otherwise``."""

    condition: Value
    then: "Block"
    otherwise: "Block"
    location: Location | None = None


@dataclass(eq=False)
class Load:
    """A load of the integer in one element on chip into a register."""

    variable: LoopVariable
    tile: Tile
    location: Location | None = None


@dataclass(eq=False)
class While:
    """A loop that runs ``test`` and, while the condition that it computes is not 0, ``body`` and ``test`` again."""

    test: "Block"
    condition: Value
    body: "Block"
    location: Location | None = None


@dataclass(eq=False)
class Block:
    """Nodes in order, and the buffers that are allocated each time the block is entered."""

    nodes: list[Any] = field(default_factory=list)
    buffers: list[DeviceBuffer] = field(default_factory=list)


@dataclass(eq=False)
class Code:
    """A kernel. ``globals`` are the HBM tensors from outside of it: inputs, outputs, constants. ``coalesced``: copies
    were coalesced, as those in unrolled iterations will be."""

    name: str
    machine: Machine
    globals: list[DeviceBuffer]
    body: Block
    grid: tuple[int, ...] = ()
    programs: list[LoopVariable] = field(default_factory=list)      # program ids that the body uses
    notes: list[str] = field(default_factory=list)
    coalesced: bool = False


def tiles_of(node: object) -> Sequence[Tile]:
    """Return the tiles that a node accesses, without the nodes inside of it."""
    if type(node) is InstructionStep:
        op = node.op
        tiles: Sequence[Tile] = type(op).tiles_in(op.__dict__)
        return [tile for tile in tiles if tile is not None] if op.has_optional_tiles else tiles
    return [node.tile] if isinstance(node, Load) else ()


def used_buffers(steps: Sequence[InstructionStep]) -> list[DeviceBuffer]:
    """Return the buffers that steps use, in the order in which they are first used."""
    buffers: dict[DeviceBuffer, None] = {}
    for step in steps:
        for tile in type(step.op).tiles_in(step.op.__dict__):
            if tile is not None:
                buffers[tile.handle] = None
    return list(buffers)


def sub_blocks(node: object) -> list[Block]:
    """Return the blocks of a node, in the order in which they run."""
    match node:
        case Loop():
            return [node.body]
        case Branch():
            return [node.then, node.otherwise]
        case While():
            return [node.test, node.body]
    return []


def blocks(block: Block) -> Iterator[Block]:
    """Yield the block and all blocks inside of it."""
    yield block
    for node in block.nodes:
        if type(node) is not InstructionStep:
            for inner in sub_blocks(node):
                yield from blocks(inner)


def copied(block: Block) -> Block:
    """Return a copy of the block and its nodes, which shares buffers and operations."""
    return Block([InstructionStep(node.op, node.location, node.work, node.iteration)
                  if type(node) is InstructionStep else copied_node(node) for node in block.nodes], list(block.buffers))


def copied_node(node: Any) -> Any:
    match node:
        case Loop():
            return replace(node, body=copied(node.body))
        case Branch():
            return replace(node, then=copied(node.then), otherwise=copied(node.otherwise))
        case While():
            return replace(node, test=copied(node.test), body=copied(node.body))
    return node


def nodes_in(block: Block) -> Iterator[Any]:
    """Yield the nodes of a block and all inside of them, in order."""
    for node in block.nodes:
        yield node
        if type(node) is not InstructionStep:
            for inner in sub_blocks(node):
                yield from nodes_in(inner)


def steps_in(block: Block) -> Iterator[InstructionStep]:
    """Yield the instructions of a block and of all blocks inside of it, in order."""
    for node in block.nodes:
        if type(node) is InstructionStep:
            yield node
        else:
            for inner in sub_blocks(node):
                yield from steps_in(inner)


def exchanges_data(code: Code) -> bool:
    """Return whether programs exchange data, so that each needs a separate core."""
    return any(isinstance(step.op, Meeting) for step in steps_in(code.body))


def forget_addresses(code: Code) -> None:
    """Drop the addresses that were allocated; addresses that the kernel chose stay."""
    for block in blocks(code.body):
        for buffer in block.buffers:
            if not buffer.fixed:
                buffer.address = None


# -- numbers in place of an operation's symbols ------------------------------------------------------------------------
def with_values(op: Op, symbols: Sequence[Value]) -> Op:
    """Return the operation with numbers in place of symbols; the remaining symbols are renumbered in their order."""
    if not symbols:
        return op
    parts = [plus_number(symbol) for symbol in symbols]
    remaining: dict[Value, int] = {}
    for base, _ in parts:
        if base is not None:
            remaining.setdefault(base, len(remaining))

    def put(form: Linear) -> Linear:
        const = form.const
        terms: dict[int, int] = {}
        for position, c in form.symbols:
            base, number = parts[position]
            const += c * number
            if base is not None:
                terms[remaining[base]] = terms.get(remaining[base], 0) + c
        return Linear(const, tuple(sorted((k, c) for k, c in terms.items() if c)), form.axes)

    return with_forms(op, put, symbols=tuple(remaining), ranges=tuple(value_range(s) for s in remaining))


def plus_number(value: Value) -> tuple[Value | None, int]:
    """Return a value as the sum of a register's value (None: 0) and a number."""
    match value:
        case int():
            return None, value
        case Computed("add", lhs, int(number)):
            base, offset = plus_number(lhs)
            return base, number + offset
    return value, 0
