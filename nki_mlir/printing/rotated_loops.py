# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rotates a graph's loops whose condition instructions compute: the language tests a register before each iteration.

before:  scf.while { nisa.tensor_reduce %s = %x; %p = memref.load %s < 100; scf.condition(%p) } do { ... }
after:   nisa.tensor_reduce %s = %x; nisa.tensor_copy %go = %s < 100
         scf.while %go != 0 { ...; nisa.tensor_reduce %t = %x; nisa.tensor_copy %go = %t < 100 }
"""

from collections.abc import Mapping

from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.creation import terminator
from nki_mlir.dialects.mlir_ops import is_tile_op
from nki_mlir.printing.new_tiles import new_tile
from nki_mlir.printing.run_time_addresses import NUMBER
from nki_mlir.printing.run_time_branches import compared_tile, loaded_condition, set_register, write_test
from nki_mlir.scalar.dtypes import INT32


def rotate_loops(module: Module) -> None:
    """Rotate the loops, in place. A loop with carried values, or with another condition, stays."""
    make = Attributes()
    for loop in reversed(operations_of(module, lambda name: name == "scf.while")):
        test, body = (region.blocks[0] for region in loop.regions)
        operations = [op.operation for op in test.operations]
        condition = loaded_condition(operations[-1].operands[0])
        if loop.results or condition is None or not any(map(is_tile_op, operations)):
            continue
        copies = cloned_before(loop, operations[:-1])
        register, first = new_tile(make, loop, NUMBER[0], INT32), loaded_condition(copies[operations[-1].operands[0]])
        assert first is not None
        set_register(make, loop, register, compared_tile(make, loop, first, first.comparison))
        end = terminator(body)
        for operation in operations[:-1]:
            operation.move_before(end)
        set_register(make, end, register, compared_tile(make, end, condition, condition.comparison))
        operations[-1].erase()
        with loop.location:
            write_test(test, register)


def cloned_before(loop: Operation, operations: list[Operation]) -> Mapping[Value, Value]:
    """Clone operations before a loop. Return the results of the clones by those of the operations."""
    copies: dict[Value, Value] = {}
    for operation in operations:
        clone = operation.clone(ir.InsertionPoint(loop))
        for inner in (clone, *operations_of(clone, lambda name: True)):
            for number, operand in enumerate(inner.operands):
                if operand in copies:
                    inner.operands[number] = copies[operand]
        copies.update(zip(operation.results, clone.results))
    return copies
