# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Creates upstream operations that many passes need at the insertion point, and their types."""

from collections.abc import Callable, Sequence

from nki_mlir.bindings import Attribute, Block, Operation, Type, Value, ir
from nki_mlir.scalar.predicates import INTEGER_PREDICATES


def value_of(name: str, kind: Type, *operands: Value, **attributes: Attribute) -> Value:
    """Create an operation with one result, and return that."""
    return ir.Operation.create(name, results=[kind], operands=list(operands), attributes=attributes).results[0]


def constant(value: int, kind: Type | None = None) -> Value:
    """Create an integer constant; an index if no type is given."""
    kind = kind or ir.IndexType.get()
    return value_of("arith.constant", kind, value=ir.IntegerAttr.get(kind, value))


def compared(predicate: str, a: Value, b: Value) -> Value:
    """Create an ``arith.cmpi`` of two values; ``predicate`` is a name of ``INTEGER_PREDICATES``."""
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), INTEGER_PREDICATES[predicate])
    return value_of("arith.cmpi", ir.IntegerType.get_signless(1), a, b, predicate=number)


def applied(expression: ir.AffineExpr, symbols: Sequence[Value]) -> Value:
    """Create the index value of an affine expression of symbols."""
    mapping = ir.AffineMapAttr.get(ir.AffineMap.get(0, len(symbols), [expression]))
    return value_of("affine.apply", ir.IndexType.get(), *symbols, map=mapping)


def structured_operation(operands: Sequence[Value], maps: Sequence[ir.AffineMap], iterators: Attribute,
                         body: Callable[[list[Value]], Value], results: Sequence[Type] = ()) -> Operation:
    """Create a ``linalg.generic`` with one output, its last operand; ``body`` computes the yielded value."""
    op = ir.Operation.create("linalg.generic", results=results, operands=list(operands), regions=1, attributes={
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(mapping) for mapping in maps]),
        "iterator_types": iterators,
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands) - 1, 1])})
    kinds = [v.type.element_type if isinstance(v.type, ir.ShapedType) else v.type for v in operands]
    block = op.regions[0].blocks.append(*kinds, arg_locs=[op.location] * len(kinds))
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[body(list(block.arguments))])
    return op


def declared(name: Attribute, kind: Attribute) -> Operation:
    """Create a private function without a body."""
    return ir.Operation.create("func.func", regions=1, attributes={
        "sym_name": name, "function_type": kind, "sym_visibility": ir.StringAttr.get("private")})


def terminator(block: Block) -> Operation:
    """Return the operation that ends a block."""
    return block.operations[len(block.operations) - 1].operation


def buffer_type(kind: ir.MemRefType, element: Type | None = None) -> ir.MemRefType:
    """Return the type of a buffer with the shape and the memory of a view, and its element type or ``element``."""
    return ir.MemRefType.get(kind.shape, element or kind.element_type, None, kind.memory_space)
