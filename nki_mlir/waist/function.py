# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel function as records, which the CPU, the interpreter and the instruction streams read instead of MLIR.

A function is a block of nodes in order. Records refer to SSA values directly. Index arithmetic and constants are nodes,
too; the reader of the records maps a value to its representation (a slot, a linear form, a register). Views are not:
each operand in memory is a ``ByteRegion``, whose root is the buffer and whose offset has symbols, numbers of index
values in ``FunctionBlock.index_values``.
``waist/reader.py`` creates the records.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nki_mlir.bindings import Operation, Value, ir
from nki_mlir.dialects.mlir_ops import read_op
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.symbol_ranges import loop_span
from nki_mlir.scalar.dtypes import INT64, DType
from nki_mlir.scalar.predicates import INTEGER_PREDICATES
from nki_mlir.waist.nest import Step
from nki_mlir.waist.nest_reader import Structured, scalar_dtype, step_of
from nki_mlir.waist.overlap import ByteRegion

# Functions of `IndexOperation`, by the integers they take: predicates that compare numbers without sign start with "u".
COMPARISONS = tuple(name.removeprefix("s") for name in INTEGER_PREDICATES)


@dataclass(eq=False, repr=False)
class FunctionNode:
    """Base of all; ``op`` is the MLIR operation that it was read from."""

    op: Operation


@dataclass(eq=False, repr=False)
class FunctionBlock:
    """Nodes in order. ``condition`` is the value that the test of a ``WhileLoop`` computes.

    A function's block has the ``index_values`` of offsets, by their numbers.
    """

    nodes: list[FunctionNode] = field(default_factory=list)
    condition: Value | None = None
    index_values: Sequence[Value] = ()

    @property
    def is_idle(self) -> bool:
        """Return whether the block only counts and computes numbers that nothing outside of it reads."""
        return all(isinstance(node, ScalarValue) or (isinstance(node, ForLoop) and node.body.is_idle)
                   for node in self.nodes)


# -- control -----------------------------------------------------------------------------------------------------------
@dataclass(eq=False, repr=False)
class ForLoop(FunctionNode):
    """A loop with an index as its variable; ``bounds`` are its low, its high (excluded) and its step."""

    variable: Value
    bounds: tuple[Value, Value, Value]
    body: FunctionBlock

    @property
    def span(self) -> range | None:
        """Return the values of the variable; None if the bounds are known only at run time."""
        return loop_span(self.op)

    @property
    def parallel(self) -> bool:
        """Return whether the author of the kernel declares the iterations independent."""
        marks = self.op.attributes
        return "nki.loop" in marks and marks["nki.loop"].value == "parallel"


@dataclass(eq=False, repr=False)
class IfBranch(FunctionNode):
    """A branch: runs ``then`` if the condition holds, else ``otherwise``."""

    condition: Value
    then: FunctionBlock
    otherwise: FunctionBlock | None


@dataclass(eq=False, repr=False)
class WhileLoop(FunctionNode):
    """A loop: runs ``test``, and while its condition holds ``body``, then ``test`` again."""

    test: FunctionBlock
    body: FunctionBlock


# -- computations ------------------------------------------------------------------------------------------------------
@dataclass(eq=False, repr=False)
class NestComputation(FunctionNode):
    """A loop nest on memrefs and numbers; fills and copies are nests, too.

    ``regions`` are the memory of ``read.values``. The root of a number is the number.
    """

    read: Structured
    regions: Sequence[ByteRegion]


@dataclass(eq=False, repr=False)
class TileInstruction(FunctionNode):
    """An operation on tiles that is not a loop nest; an op class describes it."""

    @property
    def instruction(self) -> Op:
        """The op class's instance. Each use reads it anew, because functions have tens of thousands of instructions."""
        return read_op(self.op)


@dataclass(eq=False, repr=False)
class ElementLoad(FunctionNode):
    """The load of one element of a memref, which is ``region``."""

    result: Value
    memref: Value
    subscripts: Sequence[Value]
    region: ByteRegion


@dataclass(eq=False, repr=False)
class ElementStore(FunctionNode):
    """The store of a value to one element of a memref, which is ``region``."""

    value: Value
    memref: Value
    subscripts: Sequence[Value]
    region: ByteRegion


@dataclass(eq=False, repr=False)
class NativeOperation(FunctionNode):
    """An operation of the ``native`` dialect, which passes of the CPU write. ``regions`` are those of its operands, as
    of a nest."""

    regions: Sequence[ByteRegion]


# -- memory ------------------------------------------------------------------------------------------------------------
@dataclass(eq=False, repr=False)
class BufferAllocation(FunctionNode):
    """The allocation of a buffer."""

    result: Value


@dataclass(eq=False, repr=False)
class ConstantBuffer(FunctionNode):
    """A buffer of constants, whose elements the module has."""

    result: Value


@dataclass(eq=False, repr=False)
class BufferReinterpretation(FunctionNode):
    """A complete buffer with elements of another dtype, or as the complete buffer that an instruction takes."""

    result: Value
    source: Value


# -- values ------------------------------------------------------------------------------------------------------------
@dataclass(eq=False, repr=False)
class ScalarValue(FunctionNode):
    """Base of the operations that compute one number or truth value."""

    result: Value

    @property
    def operands(self) -> Sequence[Value]:
        return list(self.op.operands)


@dataclass(eq=False, repr=False)
class ScalarConstant(ScalarValue):
    """A number."""

    number: int | float

    @property
    def dtype(self) -> DType | None:
        """None for an index."""
        return scalar_dtype(self.result.type)


@dataclass(eq=False, repr=False)
class IndexOperation(ScalarValue):
    """Integer arithmetic on two values (``select``: on three), by the name that the ALU has for it, or a comparison."""

    function: str


@dataclass(eq=False, repr=False)
class IndexMap(ScalarValue):
    """The result of an affine map. If the map has several results, it is the least (``min``) or the greatest
    (``max``)."""

    mapping: ir.AffineMap
    choice: str = ""


@dataclass(eq=False, repr=False)
class IndexCast(ScalarValue):
    """A conversion of an integer to another type; ``unsigned`` reads the operand's bits as an unsigned number."""

    unsigned: bool
    narrows: bool


@dataclass(eq=False, repr=False)
class ScalarStep(ScalarValue):
    """A function of the scalar library on numbers outside of a nest."""

    @property
    def step(self) -> Step:
        return step_of(self.op, tuple(range(len(self.op.operands))))

    @property
    def dtypes(self) -> Sequence[DType]:
        """Return the dtypes of the operands."""
        return [scalar_dtype(v.type) or INT64 for v in self.op.operands]


def function_blocks(node: FunctionNode) -> tuple[FunctionBlock, ...]:
    """Return the blocks of a node in the order in which they run."""
    match node:
        case ForLoop():
            return (node.body,)
        case IfBranch():
            return (node.then,) if node.otherwise is None else (node.then, node.otherwise)
        case WhileLoop():
            return node.test, node.body
    return ()


def nodes_of(block: FunctionBlock) -> Iterator[FunctionNode]:
    """Yield all nodes of a block and of the blocks in it, in order."""
    for node in block.nodes:
        yield node
        for inner in function_blocks(node):
            yield from nodes_of(inner)
