# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the tiles of a function that are registers: conditions, bounds and counters of run-time loops.

A capture keeps a register in a [1, 1] tile of int32. Such a tile is a register in the text if a loop needs one and all
its uses are possible for registers: they are set, loaded, stored, and used as an address.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nki_mlir.bindings import Value
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.nisa.elementwise import TensorScalarOp
from nki_mlir.dialects.nki.elementwise import BinaryScalarOp
from nki_mlir.dialects.nki.movement import Copying, Filling
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.dtypes import INT32
from nki_mlir.waist import function as waist

ADDRESSES = ("index", "offset")             # operands that are a part of an address


@dataclass(frozen=True)
class LoopTest:
    """The condition that a loop tests before each iteration: ``register (comparison) limit``."""

    register: Value
    comparison: str
    limit: Value | int


@dataclass(frozen=True)
class LoopRegister:
    """A register that only a loop uses and that ``begin`` sets before it; it is the loop's counter if ``step`` is
    set."""

    register: Value
    begin: Op
    limit: Value | int
    step: int = 0
    outer: Value | None = None      # the tile copied to it before the loop and at the end of the body
    adds: waist.FunctionNode | None = None        # the node that adds the step; the text of the loop has the step


def loop_test(loop: waist.WhileLoop, constants: Mapping[Value, int]) -> LoopTest | None:
    """Return the test of a loop, or None if it is not a comparison of a tile's element."""
    numbers: dict[Value, Value | int] = dict(constants)
    for node in loop.test.nodes:
        match node:
            case waist.ElementLoad():
                numbers[node.result] = node.memref
            case waist.IndexCast(narrows=False) if node.operands[0] in numbers:
                numbers[node.result] = numbers[node.operands[0]]
            case waist.IndexOperation() if node.result == loop.test.condition:
                left, right = (numbers.get(v) for v in node.operands)
                if left is None or right is None or isinstance(left, int):
                    return None
                return LoopTest(left, node.function, right)
    return None


def _with_number(op: Op) -> tuple[str, float]:
    """Return the operator and the number that an operation applies to each element of its source, or no operator if it
    does something else."""
    match op:
        case BinaryScalarOp(mask=(), reverse=False):
            return op.op, op.scalar
        case TensorScalarOp(mask=(), operand0=None, reverse0=False, op1="bypass"):
            return op.op0, op.imm0
    return "", 0.0


def _adds_to(node: waist.FunctionNode, register: Value) -> int:
    """Return the number that a node adds to a register, or 0 if it does something else."""
    if not isinstance(node, waist.TileInstruction):
        return 0
    op = node.instruction
    operator, number = _with_number(op)
    return int(number) if operator == "add" and register == op.dst.handle == op.src.handle else 0    # type: ignore[attr-defined]


def loads_condition(op: Op, register: Value) -> bool:
    """Return whether an operation tests a tile for 0, as a loop tests the register that would be loaded from the tile.
    """
    return isinstance(op, BinaryScalarOp | TensorScalarOp) and _with_number(op) == ("not_equal", 0) and (
        op.dst.handle == register != op.src.handle) and op.src.dtype is INT32 and op.src.on_chip


def _last_step(loop: waist.WhileLoop, register: Value) -> waist.FunctionNode | None:
    """Return the node that adds a positive number to a loop's register, after all other uses in the body."""
    users = [n for n in loop.body.nodes
             if any(_uses(part, register) for part in waist.nodes_of(waist.FunctionBlock([n])))]
    return users[-1] if users and _adds_to(users[-1], register) > 0 else None


def _uses(node: waist.FunctionNode, value: Value) -> int:
    return sum(operand == value for operand in node.op.operands)


class Registers:
    """The registers of a function, and its counted loops: ``loops`` by the node of the loop.

    ``loads_conditions``: a loop of the printed kernel ends when the tile of its condition is 0, so a comparison with 0
    needs no statement.
    """

    def __init__(self, body: waist.FunctionBlock, loads_conditions: bool) -> None:
        self.loads_conditions = loads_conditions
        self.loops: dict[waist.FunctionNode, LoopRegister] = {}
        self.begins: set[waist.FunctionNode] = set()          # nodes that set a loop's register
        self.tests: dict[waist.FunctionNode, LoopTest] = {}
        self.values: set[Value] = set()
        self.numbers: dict[Value, int] = {}         # registers that a number sets and only a loop begins with
        self.constants = {n.result: int(n.number) for n in waist.nodes_of(body)
                          if isinstance(n, waist.ScalarConstant) and isinstance(n.number, int)}
        for block in _blocks(body):
            self._note_loops(block)
        if self.tests:
            self._note_registers(body)

    def _note_loops(self, block: waist.FunctionBlock) -> None:
        for position, node in enumerate(block.nodes):
            if isinstance(node, waist.WhileLoop) and (test := loop_test(node, self.constants)) is not None:
                self.tests[node] = test
                begin = _begin(node, test.register, block.nodes[:position])
                if begin is not None and (
                        register := self._loop_register(node, test, begin.instruction)) is not None:
                    self.loops[node] = register
                    self.begins.add(begin)

    def _loop_register(self, loop: waist.WhileLoop, test: LoopTest, begin: Op) -> LoopRegister | None:
        """Return the register of a loop, or None if the loop uses its register as no loop of the language does."""
        register, nodes = test.register, list(waist.nodes_of(loop.body))
        adds = _last_step(loop, register) if test.comparison == "lt" else None
        if adds is None and (test.comparison, test.limit) != ("ne", 0):
            return None
        if begin.mask or not isinstance(begin, Filling | Copying) or begin.dst.handle != register:
            return None
        loads, read = False, False
        for node in nodes:
            if not isinstance(node, waist.TileInstruction) or node is adds:
                continue
            op = node.instruction
            if adds is None and self.loads_conditions and loads_condition(op, register):
                loads = True
                continue
            uses = [(f, t) for f, t in op.operands() if t.handle == register]
            if not all(is_register_use(op, f.name, t) and not (adds is not None and f.writes) for f, t in uses):
                return None
            read = read or not all(f.writes for f, _ in uses)
        if loads and read:                      # a register would hold the number, not whether it is 0
            return None
        last = nodes[-1].instruction if nodes and isinstance(nodes[-1], waist.TileInstruction) else None
        copies = [op.src.handle for op in (begin, last) if isinstance(op, Copying) and op.dst.handle == register]
        outer = copies[0] if adds is None and len(copies) == 2 and copies[0] == copies[1] else None
        step = 0 if adds is None else _adds_to(adds, register)
        return LoopRegister(register, begin, test.limit, step, outer, adds)

    @property
    def of_loops(self) -> set[Value]:
        """The registers that belong to loops."""
        return {loop.register for loop in self.loops.values()}

    def _note_registers(self, body: waist.FunctionBlock) -> None:
        read_registers, compared = set[Value](), set[Value]()       # read by counted loops, by an instruction
        for while_loop, test in self.tests.items():
            tested = {v for v in (test.register, test.limit) if not isinstance(v, int)}
            (read_registers if while_loop in self.loops else compared).update(tested)
        for loop in self.loops.values():
            if isinstance(loop.begin, Copying):
                read_registers.add(loop.begin.src.handle)
        read_registers -= self.of_loops | compared
        possible = {n.result for n in waist.nodes_of(body)
                    if isinstance(n, waist.BufferAllocation) and n.result in read_registers
                    and memref_parts(n.result.type) == ((1, 1), INT32, "sbuf")}
        for node in waist.nodes_of(body):
            if isinstance(node, waist.TileInstruction) and node not in self.begins:
                op = node.instruction
                possible -= {t.handle for f, t in op.operands()
                             if t.handle in possible and not is_register_use(op, f.name, t)}
        self.values = possible
        self._note_numbers(body)

    def _note_numbers(self, body: waist.FunctionBlock) -> None:
        """Note the registers that are set to a number and otherwise only initialize a loop's register."""
        copied = {loop.begin.src.handle for loop in self.loops.values() if isinstance(loop.begin, Copying)}
        for node in waist.nodes_of(body):
            op = node.instruction if isinstance(node, waist.TileInstruction) else None
            if isinstance(op, Filling) and not op.mask and op.dst.handle in copied & self.values and (
                    len(list(op.dst.handle.uses)) == 2):
                self.numbers[op.dst.handle] = round(op.value)
                self.begins.add(node)
        self.values -= self.numbers.keys()


def _begin(loop: waist.WhileLoop, register: Value, before: Sequence[waist.FunctionNode]
           ) -> waist.TileInstruction | None:
    """Return the node that sets a register before a loop, or None if anything but that node and the loop uses it.
    """
    begins = [n for n in before if isinstance(n, waist.TileInstruction) and _uses(n, register)]
    inside = sum(_uses(node, register) for node in [*waist.nodes_of(loop.test), *waist.nodes_of(loop.body)])
    if len(begins) != 1 or inside + _uses(begins[0], register) != len(list(register.uses)):
        return None
    return begins[0]


def is_register_use(op: Op, field: str, tile: Tile) -> bool:
    """Return whether a register can be this operand of an operation."""
    if op.mask or tile.dtype is not INT32:
        return False
    if field in ADDRESSES:
        return tile.shape == (1, 1)
    if isinstance(op, Filling):
        return True
    return isinstance(op, Copying) and all(t.dtype is INT32 or not t.dtype.is_integer or t.dtype.itemsize < 4
                                           for t in (op.dst, op.src)) and op.dst.handle != op.src.handle


def _blocks(block: waist.FunctionBlock) -> Iterator[waist.FunctionBlock]:
    yield block
    for node in block.nodes:
        for inner in waist.function_blocks(node):
            yield from _blocks(inner)
