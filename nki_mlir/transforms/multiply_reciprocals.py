# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""multiply-reciprocals: compute quotients of floats as products with reciprocals, because no device divides.

before:  q = divide(x, sums)                     after:  inverse = reciprocal(sums)
         r = divide(x, 3.0)                              q = multiply(x, inverse)
                                                         r = multiply(x, 1 / 3)

The result is rounded twice, so its last bit may differ, and the reciprocal of a number below 2^-128 overflows. Elements
that an operation repeats along an axis have one reciprocal. Quotients of integers, and those under a mask, stay.
"""

from collections.abc import Callable, Sequence

from nki_mlir.bindings import Module, Operation, ir, operations_of
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import SBUF, Tile, full_tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.mlir_ops import read_op, write_op
from nki_mlir.dialects.nisa.elementwise import ReciprocalOp, ScalarTensorTensorOp, TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.nki.elementwise import BinaryOp, BinaryScalarOp, UnaryOp
from nki_mlir.dialects.op import Op, changed
from nki_mlir.dialects.verification import verify
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.scalar.dtypes import FLOAT32

NewTile = Callable[[Tile], Tile]            # returns a float32 tile on chip of the shape of another one
DIVIDING = (BinaryOp, BinaryScalarOp, TensorTensorOp, TensorScalarOp, ScalarTensorTensorOp)
NAMES = frozenset([cls.full_name() for cls in DIVIDING])


class MultiplyReciprocals(Pass, name="multiply-reciprocals", reads=Level.NKI):
    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            make = Attributes()
            for operation in operations_of(module, NAMES.__contains__):
                _replace(operation, make)


def _replace(operation: Operation, make: Attributes) -> None:
    """Replace an operation that divides, if its values are floats."""
    op = read_op(operation)
    if op.mask or op.limits or "divide" not in (getattr(op, name, "") for name in ("op", "op0", "op1")):
        return
    ip, allocations = ir.InsertionPoint(operation), list[Operation]()

    def new_tile(tile: Tile) -> Tile:
        allocation = ir.Operation.create(
            "memref.alloc", results=[make.memref(tile.shape, FLOAT32, SBUF)],
            attributes={"nki.name": ir.StringAttr.get("inverse"), "operandSegmentSizes": ir.DenseI32ArrayAttr.get(
                [0, 0])}, ip=ip, loc=operation.location)
        allocations.append(allocation)
        return full_tile(allocation.results[0], tile.shape, FLOAT32, SBUF)
    try:
        replacements = products(op, new_tile)
        for replacement in replacements:
            verify(replacement)
    except NkiMlirError:                # a form that no instruction has
        replacements = []
    if not replacements:
        for allocation in allocations:
            allocation.erase()
        return
    for replacement in replacements:
        write_op(replacement, make, operation.location, ip)
    operation.erase()


def products(op: Op, new_tile: NewTile) -> Sequence[Op]:
    """Return operations that compute the quotients of an operation as products; none if it has to stay."""
    match op:
        case BinaryOp(op="divide") | TensorTensorOp(op="divide") if _has_floats(op.lhs, op.rhs):
            inverse, computed = _inverse(op, op.rhs, new_tile)
            return [computed, changed(op, lambda tile: tile, op="multiply", rhs=inverse)]
        case BinaryScalarOp(op="divide", reverse=False) if _has_floats(op.src) and op.scalar:
            return [changed(op, lambda tile: tile, op="multiply", scalar=1.0 / op.scalar)]
        case BinaryScalarOp(op="divide", reverse=True, scalar=1.0) if _has_floats(op.src):
            return [_reciprocal(op, op.dst, op.src)]
        case BinaryScalarOp(op="divide", reverse=True) if _has_floats(op.src):
            inverse, computed = _inverse(op, op.src, new_tile)
            return [computed, changed(op, lambda tile: tile, op="multiply", src=inverse, reverse=False)]
        case TensorScalarOp() | ScalarTensorTensorOp() if not getattr(op, "exact", False) and _has_floats(
                *[tile for _, tile in op.sources()]):
            return _of_two_steps(op, new_tile)
    return []


def _of_two_steps(op: TensorScalarOp | ScalarTensorTensorOp, new_tile: NewTile) -> Sequence[Op]:
    """Return the operations for one that computes ``(src op0 operand0) op1 right``."""
    second = "rhs" if isinstance(op, ScalarTensorTensorOp) else "operand1"
    computed: list[Op] = []
    if op.op1 == "divide" and op.reverse1:          # right / (src op0 operand0)
        between = new_tile(op.dst)
        first = TensorScalarOp(dst=between, src=op.src, operand0=op.operand0, operand1=None, op0=op.op0, imm0=op.imm0,
                               reverse0=op.reverse0, engine=op.engine, symbols=op.symbols, ranges=op.ranges,
                               extra=op.extra)
        inverse, reciprocal = _inverse(op, between, new_tile)
        last = (TensorTensorOp(dst=op.dst, lhs=op.rhs, rhs=inverse, op="multiply", symbols=op.symbols, ranges=op.ranges,
                               extra=op.extra) if isinstance(op, ScalarTensorTensorOp) else
                TensorScalarOp(dst=op.dst, src=inverse, operand0=op.operand1, operand1=None, op0="multiply",
                               imm0=op.imm1, engine=op.engine, symbols=op.symbols, ranges=op.ranges, extra=op.extra))
        return [*(products(first, new_tile) or [first]), reciprocal, last]
    if op.op1 == "divide":
        divisor = getattr(op, second)
        if divisor is not None:
            inverse, reciprocal = _inverse(op, divisor, new_tile)
            computed.append(reciprocal)
            op = changed(op, lambda tile: tile, **{"op1": "multiply", second: inverse})
        elif op.imm1:                                                           # type: ignore[union-attr]
            op = changed(op, lambda tile: tile, op1="multiply", imm1=1.0 / op.imm1)      # type: ignore[union-attr]
    if op.op0 == "divide":
        divisor = op.src if op.reverse0 else op.operand0
        if divisor is not None:
            inverse, reciprocal = _inverse(op, divisor, new_tile)
            computed.append(reciprocal)
            op = changed(op, lambda tile: tile, **{"op0": "multiply", "reverse0": False,
                                                   "src" if op.reverse0 else "operand0": inverse})
        elif op.imm0:
            op = changed(op, lambda tile: tile, op0="multiply", imm0=1.0 / op.imm0)
        if computed and op.op0 == "multiply" and op.operand0 is None and op.imm0 == 1.0:
            return [*computed, _second_step(op)]
    return [*computed, op] if "divide" not in (op.op0, op.op1) else []


def _second_step(op: TensorScalarOp | ScalarTensorTensorOp) -> Op:
    """Return an operation whose first step multiplies by 1 without this step."""
    if isinstance(op, ScalarTensorTensorOp):
        left, right = (op.rhs, op.src) if op.reverse1 else (op.src, op.rhs)
        return TensorTensorOp(dst=op.dst, lhs=left, rhs=right, op=op.op1, engine="vector", symbols=op.symbols,
                              ranges=op.ranges, extra=op.extra)
    if op.op1 == "bypass":
        return op
    return changed(op, lambda tile: tile, op0=op.op1, imm0=op.imm1, operand0=op.operand1, reverse0=op.reverse1,
                   op1="bypass", imm1=0.0, operand1=None, reverse1=False)


def _has_floats(*tiles: Tile) -> bool:
    return all(tile.dtype.is_float and tile.on_chip for tile in tiles)


def _inverse(op: Op, divisor: Tile, new_tile: NewTile) -> tuple[Tile, Op]:
    """Return the reciprocals of a tile, and the operation that computes them: one for elements that repeat."""
    repeats = [k > 0 and step == 0 and count > 1 for k, (step, count) in enumerate(divisor.access.dims)]
    unrepeated = divisor.patterned(dims=tuple((1, 1) if repeated else dim
                                        for dim, repeated in zip(divisor.access.dims, repeats)))
    inverse = new_tile(unrepeated)
    repeated = inverse.patterned(dims=tuple((0, divisor.shape[k]) if repeats[k] else dim
                                            for k, dim in enumerate(inverse.access.dims)))
    return repeated, _reciprocal(op, inverse, unrepeated)


def _reciprocal(op: Op, dst: Tile, src: Tile) -> Op:
    if op.dialect == "nki":
        return UnaryOp(dst=dst, src=src, fn="reciprocal", symbols=op.symbols, ranges=op.ranges, extra=op.extra)
    return ReciprocalOp(dst=dst, src=src, symbols=op.symbols, ranges=op.ranges, extra=op.extra)
