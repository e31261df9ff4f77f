# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites branches of a graph whose condition is a loaded number as loops that run at most once, because the language
has no branch at run time.

before:  %n = memref.load %t; %p = arith.cmpi eq, %n, 0; scf.if %p { ... } else { ... }
after:   nisa.tensor_scalar %a = %t {equal 0}; nisa.tensor_scalar %b = %t {not_equal 0}
         nisa.tensor_copy %once = %a; scf.while %once != 0 { ...; nisa.memset %once 0 }
         nisa.tensor_copy %other = %b; scf.while %other != 0 { ...; nisa.memset %other 0 }
"""

from typing import NamedTuple

from nki_mlir.analysis.effects import defining
from nki_mlir.analysis.index_values import constant_of
from nki_mlir.bindings import Block, Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.access import SBUF, Tile, full_tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.creation import compared, constant, value_of
from nki_mlir.dialects.mlir_ops import write_op
from nki_mlir.dialects.nisa.elementwise import TensorScalarOp
from nki_mlir.dialects.nisa.movement import MemsetOp, TensorCopyOp
from nki_mlir.dialects.op import NisaOp
from nki_mlir.printing.addresses import FLOAT_INTEGERS
from nki_mlir.printing.new_tiles import new_tile
from nki_mlir.printing.run_time_addresses import NUMBER, keeps_number, loaded_number
from nki_mlir.scalar.dtypes import BOOL, INT32
from nki_mlir.scalar.predicates import COMPARISONS

OPPOSITE = {"equal": "not_equal", "less": "greater_equal", "less_equal": "greater"}
OPPOSITE |= {opposite: comparison for comparison, opposite in OPPOSITE.items()}


class LoadedCondition(NamedTuple):
    """The comparison of a tile's only element with a number; ``comparison`` is the name that ALUs have for it."""

    tile: Tile
    comparison: str
    number: int


def run_branches_once(module: Module) -> None:
    """Rewrite the branches, in place. Those with other conditions stay."""
    make = Attributes()
    for branch in operations_of(module, lambda name: name == "scf.if"):
        condition = loaded_condition(branch.operands[0])
        if condition is None or branch.results:
            continue
        blocks = [(comparison, region.blocks[0])
                  for comparison, region in zip((condition.comparison, OPPOSITE[condition.comparison]), branch.regions)
                  if region.blocks]
        # Both before a branch changes the tile.
        tiles = [compared_tile(make, branch, condition, comparison) for comparison, _ in blocks]
        for tile, (_, block) in zip(tiles, blocks):
            _run_once(make, branch, tile, block)
        branch.erase()


def loaded_condition(value: Value) -> LoadedCondition | None:
    """Return the comparison that a condition is, or None for a condition that no loaded number decides, or that the
    engines would have to round to compare."""
    op = defining(value)
    if op is not None and op.name == "memref.load" and memref_parts(op.operands[0].type) == ((1, 1), BOOL, SBUF):
        if not keeps_number(op):
            return None
        return LoadedCondition(full_tile(op.operands[0], (1, 1), BOOL, SBUF), "not_equal", 0)
    if op is None or op.name != "arith.cmpi" or op.attributes["predicate"].value >= len(COMPARISONS):
        return None
    number, limit = loaded_number(op.operands[0]), constant_of(op.operands[1])
    if number is None or number.bounds or limit is None or abs(limit) >= FLOAT_INTEGERS:
        return None
    return LoadedCondition(full_tile(number.tile, *NUMBER), COMPARISONS[op.attributes["predicate"].value].alu, limit)


def compared_tile(make: Attributes, before: Operation, condition: LoadedCondition, comparison: str) -> Tile:
    """Emit the tile with 1 if a comparison holds, else 0, before an operation, and return it."""
    tile = new_tile(make, before, NUMBER[0], INT32)
    _write(make, before, TensorScalarOp(dst=tile, src=condition.tile, operand0=None, operand1=None, op0=comparison,
                                        imm0=float(condition.number)))
    return tile


def set_register(make: Attributes, before: Operation, register: Tile, number: Tile) -> None:
    """Copy a number to the tile of a register before an operation."""
    _write(make, before, TensorCopyOp(dst=register, src=number))


def _run_once(make: Attributes, branch: Operation, condition: Tile, block: Block) -> None:
    """Emit a loop that runs the operations of a block once if the condition is not 0, and move them into it."""
    register = new_tile(make, branch, NUMBER[0], INT32)
    set_register(make, branch, register, condition)
    with branch.location, ir.InsertionPoint(branch):
        loop = ir.Operation.create("scf.while", regions=2)
        test, body = (region.blocks.append() for region in loop.regions)
        write_test(test, register)
        with ir.InsertionPoint(body):
            end = ir.Operation.create("scf.yield")
    for operation in [inner.operation for inner in block.operations][:-1]:
        operation.move_before(end)
    _write(make, end, MemsetOp(dst=register, value=0.0))


def write_test(test: Block, register: Tile) -> None:
    """Emit the test of a loop that runs while a register is not 0 at the end of a block."""
    with ir.InsertionPoint(test):
        zero, kind = constant(0), ir.IntegerType.get_signless(INT32.bits)
        number = value_of("memref.load", kind, register.handle, zero, zero)
        ir.Operation.create("scf.condition", operands=[compared("ne", number, constant(0, kind))])


def _write(make: Attributes, before: Operation, op: NisaOp) -> None:
    write_op(op, make, before.location, ir.InsertionPoint(before))
