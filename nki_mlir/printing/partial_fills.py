# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Unrolls the loops around memsets that nothing reads in some iterations, so that dead code can be erased in these.

before:  scf.for %i = 0 to 3                 after:  copy columns 0
             memset columns 8 i                      memset columns 8, copy columns 8
             copy columns 8 i                        memset columns 16, copy columns 16
         (something overwrites columns 0)

Python runs the loops of the printed text, so its capture sees which of these memsets are dead. ``roll-repeats`` then
joins the iterations that are equal.
"""

from nki_mlir.analysis.dead_code import fold_constants, partly_dead_memsets
from nki_mlir.bindings import Operation, enclosing, ir
from nki_mlir.dialects.creation import constant
from nki_mlir.dialects.mlir_ops import loop_span
from nki_mlir.transforms.split_masked_loops import below, contents


def unroll_partly_dead(function: Operation) -> bool:
    """Unroll the outermost loops around the partly dead memsets of a function; return whether there were any."""
    memsets = partly_dead_memsets(function)
    loops = dict.fromkeys(outer[-1] for memset in memsets
                          if (outer := [op for op in enclosing(memset) if op.name == "scf.for"]))
    for loop in loops:
        unroll(loop)
    return bool(loops)


def unroll(loop: Operation) -> None:
    """Replace a loop, and those in it, by the operations of its iterations."""
    span = loop_span(loop)
    if span is None or loop.results:
        return
    for number in span:
        copy = loop.clone(ip=ir.InsertionPoint(loop))
        body = copy.regions[0].blocks[0]
        with ir.InsertionPoint(copy), loop.location:
            body.arguments[0].replace_all_uses_with(constant(number))
        operations = contents(body)
        for op in operations:
            op.move_before(copy)
        copy.erase()
        with ir.InsertionPoint(loop), loop.location:
            fold_constants(below(operations), constant)
        for inner in [op for op in operations if op.name == "scf.for"]:
            unroll(inner)
    loop.erase()
