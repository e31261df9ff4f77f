# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Capture of loops that end by a run-time value: an ``scf.while`` that reads a [1, 1] tile of int32."""

from collections.abc import Iterator
from contextlib import contextmanager

from nki_mlir.bindings import Value, ir
from nki_mlir.frontend.attempt import Scope
from nki_mlir.frontend.mlir_builder import MlirBuilder
from nki_mlir.frontend.tensor import View

PREDICATES = {"ne": 1, "slt": 2}            # of arith.cmpi


@contextmanager
def open_while(builder: MlirBuilder, register: View, comparison: str, limit: View | int, may_skip: bool = True
               ) -> Iterator[None]:
    """Operations emitted inside are the loop's body; it runs while ``register (comparison) limit`` holds.

    ``may_skip`` says whether that may be never.
    """
    loop = builder._op("scf.while", regions=2)
    before, after = (region.blocks.append() for region in loop.regions)
    builder.scopes.append(Scope(before, loop))
    left = _loaded(builder, register)
    right = _loaded(builder, limit) if isinstance(limit, View) else _number(builder, limit)
    holds = builder._op("arith.cmpi", [left, right], results=[builder.make.i1], attributes={
        "predicate": ir.IntegerAttr.get(builder.make.i64, PREDICATES[comparison])}).results[0]
    builder._op("scf.condition", [holds])
    builder.scopes.pop()
    builder.scopes.append(Scope(after, loop, may_skip=may_skip, began=builder.memory.begin()))
    builder.last = None
    yield
    builder._terminate()


def _loaded(builder: MlirBuilder, register: View) -> Value:
    zero = builder._constant(0)
    return builder._op("memref.load", [register.buffer.handle, zero, zero],
                       results=[ir.IntegerType.get_signless(32)]).results[0]


def _number(builder: MlirBuilder, value: int) -> Value:
    kind = ir.IntegerType.get_signless(32)
    return builder._op("arith.constant", results=[kind], attributes={"value": ir.IntegerAttr.get(kind,
                                                                                                 value)}).results[0]
