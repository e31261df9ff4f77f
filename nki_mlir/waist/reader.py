# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the function of a kernel into records (``waist/function.py``).

No other module matches the names of operations around nests; ``waist/nest_reader.py`` reads the nests.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from nki_mlir.analysis.effects import END_OF_MEMORY, RESHAPES, defining
from nki_mlir.analysis.view_starts import start_in_buffer
from nki_mlir.bindings import Operation, Value, ir, operations_of
from nki_mlir.diagnostics import InternalError, NkiMlirError, Unsupported
from nki_mlir.dialects import native
from nki_mlir.dialects.access import ZERO, Linear
from nki_mlir.dialects.op import REGISTRY
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.dialects.symbol_ranges import CASTS
from nki_mlir.waist import function as waist
from nki_mlir.waist.nest_reader import Reader, Structured, layout_of
from nki_mlir.waist.overlap import ByteRegion

INDEX_FUNCTIONS = {
    "arith.addi": "add", "arith.subi": "subtract", "arith.muli": "mult", "arith.andi": "and", "arith.ori": "or",
    "arith.xori": "xor", "arith.minsi": "min", "arith.maxsi": "max", "arith.floordivsi": "floordiv",
    "arith.select": "select"}
ENDS = ("scf.yield", "scf.condition", "func.return")
VALUES = ("arith.", "affine.", "scalar.")


class Executor(NamedTuple):
    """The caller that reads the records: its name in errors, and the advice for an operation that it does not support.

    ``multiplies_pairs``: whether it supports products of words of two bfloat16 (the mark ``native.pairs``).
    """

    where: str
    instead: str = "lower to the nki, waist or nisa level"
    multiplies_pairs: bool = False

    def refusal(self, op: Operation) -> NkiMlirError:
        return Unsupported(feature=f"'{op.name}' {self.where}", instead=self.instead).located(location_of(op))


def read_function(function: Operation, executor: Executor, nests: Reader | None = None) -> waist.FunctionBlock:
    """Read the body of a function. It may share the structures in ``nests``, which come from other functions."""
    return _FunctionReader(function, executor, nests or Reader()).body


def scalar_value(op: Operation) -> waist.ScalarValue | None:
    """Return the record of an operation that computes a number from numbers; None for any other operation."""
    name = op.name
    if not name.startswith(VALUES) or len(op.results) != 1:
        return None
    result, attributes = op.results[0], op.attributes
    if name == "arith.constant":
        value = attributes["value"]
        if not isinstance(value, ir.IntegerAttr | ir.FloatAttr | ir.BoolAttr):
            return None
        return waist.ScalarConstant(op, result, value.value)
    if name in INDEX_FUNCTIONS:
        return waist.IndexOperation(op, result, INDEX_FUNCTIONS[name])
    if name == "arith.cmpi":
        return waist.IndexOperation(op, result, waist.COMPARISONS[attributes["predicate"].value])
    if name in ("affine.apply", "affine.min", "affine.max"):
        return waist.IndexMap(op, result, attributes["map"].value, name.removeprefix("affine.").replace("apply", ""))
    if name in CASTS or name == "arith.trunci":
        return waist.IndexCast(op, result, name in ("arith.index_castui", "arith.extui"), name == "arith.trunci")
    if name.startswith("scalar."):
        return waist.ScalarStep(op, result)
    return None


class _FunctionReader:
    """Reads operations in the order of a walk, which visits an operation before the operations in it. (A walk creates
    no classes of dialects.)"""

    def __init__(self, function: Operation, executor: Executor, nests: Reader) -> None:
        self.executor, self.nests = executor, nests
        self.operations: Iterator[Operation] = iter(operations_of(function, lambda name: True)[1:])
        self.regions: dict[Value, ByteRegion] = {}          # of views
        self.numbers: dict[Value, int] = {}                 # of index values in offsets
        self.body, _ = self.block()
        self.body.index_values = list(self.numbers)

    def block(self) -> tuple[waist.FunctionBlock, Operation]:
        """Read the operations of one block. Return their records and the terminator."""
        nodes: list[waist.FunctionNode] = []
        for op in self.operations:
            name = op.name
            if name in REGISTRY:
                if self.regions:
                    nodes += self.viewed_buffers(op)
                nodes.append(waist.TileInstruction(op))
            elif name in ENDS:
                return waist.FunctionBlock(nodes), op
            elif (node := self.node(op, name)) is not None:
                nodes.append(node)
        raise InternalError("a block without a terminator")

    def node(self, op: Operation, name: str) -> waist.FunctionNode | None:
        if (read := _READERS.get(name)) is not None:
            return read(self, op)
        if name.startswith("native."):
            for _ in operations_of(op, lambda name: True)[1:]:
                next(self.operations)
            return waist.NativeOperation(op, [self.region(value) for value in op.operands])
        node = scalar_value(op)
        if node is None:
            raise self.executor.refusal(op)
        return node

    def nest(self, op: Operation) -> waist.FunctionNode:
        if native.PAIRS in op.attributes and not self.executor.multiplies_pairs:
            raise Unsupported(feature=f"a product of words of two bfloat16 ({native.PAIRS}) {self.executor.where}",
                              instead=self.executor.instead).located(location_of(op))
        inner = [next(self.operations)]
        while inner[-1].name != "linalg.yield":
            inner.append(next(self.operations))
        return self.computation(op, self.nests.read(op, inner))

    def copy(self, op: Operation) -> waist.FunctionNode:
        return self.computation(op, self.nests.read(op))

    def computation(self, op: Operation, read: Structured) -> waist.FunctionNode:
        return waist.NestComputation(op, read, [self.region(value) for value in read.values])

    def loop(self, op: Operation) -> waist.FunctionNode:
        low, high, step = _carrying_nothing(op, 3)
        return waist.ForLoop(op, op.regions[0].blocks[0].arguments[0], (low, high, step), self.block()[0])

    def branch(self, op: Operation) -> waist.FunctionNode:
        condition, = _carrying_nothing(op, 1)
        then, _ = self.block()
        return waist.IfBranch(op, condition, then, self.block()[0] if len(op.regions[1].blocks) else None)

    def while_loop(self, op: Operation) -> waist.FunctionNode:
        _carrying_nothing(op, 0)
        test, end = self.block()
        test.condition = end.operands[0]
        return waist.WhileLoop(op, test, self.block()[0])

    def region(self, value: Value) -> ByteRegion:
        """Return the memory of a memref; other values and buffers are roots."""
        return self.regions.get(value) or ByteRegion(value, ZERO, 0, ZERO)

    def view(self, op: Operation) -> None:
        result = op.results[0]
        start, size = start_in_buffer(result), layout_of(result.type).dtype.itemsize
        offset = Linear(start.offset * size)
        for value, c in start.terms:
            offset = offset.plus(Linear(0, ((self.numbers.setdefault(value, len(self.numbers)), c),)), size)
        self.regions[result] = ByteRegion(start.buffer, ZERO, 0, offset)

    def reshape(self, op: Operation) -> None:
        self.regions[op.results[0]] = self.region(op.operands[0])

    def viewed_buffers(self, op: Operation) -> list[waist.FunctionNode]:
        """Return the buffers that views show to an instruction, whose operands are complete buffers."""
        views = [defining(value) for value in op.operands if value in self.regions]
        return [self.reinterpreted(view, view.results[0]) for view in views if view is not None]

    def reinterpretation(self, op: Operation) -> waist.FunctionNode:
        return self.reinterpreted(op, op.operands[0])

    def reinterpreted(self, op: Operation, buffer: Value) -> waist.FunctionNode:
        root = self.region(buffer).root
        assert isinstance(root, Value)
        return waist.BufferReinterpretation(op, op.results[0], root)

    def load(self, op: Operation) -> waist.FunctionNode:
        memref, *subscripts = op.operands
        return waist.ElementLoad(op, op.results[0], memref, subscripts, self.region(memref))

    def store(self, op: Operation) -> waist.FunctionNode:
        value, memref, *subscripts = op.operands
        return waist.ElementStore(op, value, memref, subscripts, self.region(memref))

    def allocation(self, op: Operation) -> waist.FunctionNode:
        return waist.BufferAllocation(op, op.results[0])

    def constant(self, op: Operation) -> waist.FunctionNode:
        return waist.ConstantBuffer(op, op.results[0])

    def nothing(self, op: Operation) -> None:
        """Skip a deallocation: a live range ends with the last use."""


def _carrying_nothing(op: Operation, operands: int) -> list[ir.Value]:
    """Return the operands of a loop or branch. It must have at most ``operands`` of them, and no results."""
    values = list(op.operands)
    if len(op.results) or len(values) > operands:
        raise Unsupported(feature=f"'{op.name}' with loop-carried values", instead="keep them in a buffer"
                          ).located(location_of(op))
    return values


_READERS: dict[str, Callable[[_FunctionReader, Operation], waist.FunctionNode | None]] = {
    "scf.for": _FunctionReader.loop, "scf.if": _FunctionReader.branch, "scf.while": _FunctionReader.while_loop,
    **dict.fromkeys(("linalg.generic", "linalg.fill", "linalg.copy"), _FunctionReader.nest),
    "memref.copy": _FunctionReader.copy, "memref.load": _FunctionReader.load, "memref.store": _FunctionReader.store,
    **dict.fromkeys(("memref.alloc", "memref.alloca"), _FunctionReader.allocation),
    "memref.get_global": _FunctionReader.constant, END_OF_MEMORY: _FunctionReader.nothing,
    **dict.fromkeys(("nki.view", "memref.subview", "memref.reinterpret_cast"), _FunctionReader.view),
    **dict.fromkeys(RESHAPES, _FunctionReader.reshape), "nki.reinterpret": _FunctionReader.reinterpretation}
