# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives rolled loops the iterations of the ``for`` statements that they come from.

source:  for i in range(2):                  before:  scf.for %k = 0 to 6         columns 4 k + 4
             for j in range(1, 4):           after:   scf.for %i = 0 to 2
                 ... x[12 * i + 4 * j]                    scf.for %j = 1 to 4     columns 12 i + 4 j

A capture of the current generation has the operations of all iterations, and ``roll-repeats`` joins nested loops whose
tiles move by the same distance. The source has the numbers of the iterations if these are written as literals; of
``range(0, rows, 128)`` it has the first one and the step.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.creation import applied, constant
from nki_mlir.dialects.mlir_ops import is_tile_op, loop_span, read_op, write_op
from nki_mlir.dialects.op import Op, with_forms
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.files import is_known_source
from nki_mlir.printing.loop_names import begins_at, statements_around
from nki_mlir.transforms.program_loops import PROGRAM_AXIS


def follow_source(module: Module) -> None:
    """Split each rolled loop of a module into the loops that the kernel's source has there, and give these the bounds
    of their ``for`` statements."""
    for function in operations_of(module, lambda name: name == "func.func"):
        used: dict[Operation, set[ast.For]] = {}
        for loop in reversed(operations_of(function, lambda name: name == "scf.for")):      # inner loops first
            inside = operations_of(loop, lambda name: name == "scf.for")
            inner = set[ast.For]().union(*(used.get(op, set()) for op in inside))
            statements, span = _statements_of(loop, inner), loop_span(loop)
            ranges = _ranges_of(statements, len(span)) if span is not None and span == range(len(span)) else []
            if ranges not in ([], [span]):
                loop = _replace(loop, ranges[::-1])
            used[loop] = inner.union(statements[:max(1, len(ranges))])


def _statements_of(loop: Operation, inner: set[ast.For]) -> list[ast.For]:
    """Return the statements that contain all operations of a rolled loop, innermost first, without those of the loops
    in it; none for a loop that the capture or a grid has."""
    at = location_of(loop)
    if PROGRAM_AXIS in loop.attributes or (at is not None and is_known_source(at.file) and begins_at(at) is not None):
        return []
    locations = {at for op in operations_of(loop, lambda name: True) if is_tile_op(op)
                 and (at := location_of(op)) is not None and is_known_source(at.file)}
    chains = [chain for at in locations if (chain := set(statements_around(at)))]
    return sorted(set.intersection(*chains or [set()]) - inner, key=lambda statement: -statement.lineno)


def _ranges_of(statements: Sequence[ast.For], count: int) -> list[range]:
    """Return the ranges of the first statements that together have so many iterations; none if no number of them has.
    """
    ranges: list[range] = []
    for statement in statements:
        span = _literal_range(statement.iter) or _stepped_range(statement.iter, count // max(1, prod(map(len, ranges))))
        if span is None:
            return []
        ranges.append(span)
        if prod(map(len, ranges)) >= count:
            break
    return ranges if prod(map(len, ranges)) == count else []


def _literal_range(node: ast.expr) -> range | None:
    """Return the ``range`` that an expression calls with numbers."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "range":
        return None
    bounds = [a.value for a in node.args if isinstance(a, ast.Constant) and type(a.value) is int]
    if not 0 < len(bounds) == len(node.args) < 4 or 0 in bounds[2:]:
        return None
    return range(*bounds)


def _stepped_range(node: ast.expr, count: int) -> range | None:
    """Return the ``range`` of so many numbers that an expression calls with a number to begin with and one as step."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "range":
        return None
    match node.args:
        case [ast.Constant(value=int(first)), _, ast.Constant(value=int(step))] if step > 1:
            return range(first, first + count * step, step)
    return None


@dataclass(frozen=True)
class _Term:
    """A part of a rolled loop's variable: ``weight (variable - start) / step``."""

    weight: int
    span: range
    variable: Value


def _replace(loop: Operation, ranges: list[range]) -> Operation:
    """Replace a loop by nested loops over ranges, outermost first. A range keeps its start and its step if they divide
    how far the loop's variable moves each tile. Return the outermost loop."""
    variable = loop.regions[0].blocks[0].arguments[0]
    users = list(dict.fromkeys(use.owner.operation for use in variable.uses))
    steps = [abs(c) for user in users for c in (_steps(read_op(user), variable) if is_tile_op(user) else [1])]
    weights = [prod(map(len, ranges[k + 1:])) for k in range(len(ranges))]
    ranges = [span if all(c * weight % span.step == 0 for c in steps) else range(len(span))
              for span, weight in zip(ranges, weights)]
    outermost, terms, end = _write_loops(loop, ranges, weights)
    for op in [op.operation for op in loop.regions[0].blocks[0].operations][:-1]:
        op.move_before(end)
    make = Attributes()
    for user in users:
        if is_tile_op(user):
            write_op(_over_loops(read_op(user), variable, terms), make, user.location, ir.InsertionPoint(user))
            user.erase()
    if list(variable.uses):
        first = end.block.operations[0].operation
        with ir.InsertionPoint(first), first.location:
            parts = [(ir.AffineExpr.get_symbol(k) - t.span.start) * t.weight for k, t in enumerate(terms)]
            variable.replace_all_uses_with(applied(sum(parts[1:], parts[0]), [t.variable for t in terms]))
    loop.erase()
    return outermost


def _write_loops(before: Operation, ranges: list[range], weights: list[int]
                 ) -> tuple[Operation, list[_Term], Operation]:
    """Write nested loops before an operation. Return the outermost, what each adds to the variable that they replace,
    and the operation before which the body comes."""
    loops, terms, at, end = list[Operation](), list[_Term](), before.location, before
    for span, weight in zip(ranges, weights):
        with at, ir.InsertionPoint(before):
            bounds = [constant(n) for n in (span.start, span.stop, span.step)]
        loop = ir.Operation.create("scf.for", operands=bounds, regions=1, loc=at, ip=ir.InsertionPoint(end),
                                   attributes={"nki.loop": before.attributes["nki.loop"]})
        body = loop.regions[0].blocks.append(ir.IndexType.get(), arg_locs=[at])
        end = ir.Operation.create("scf.yield", loc=at, ip=ir.InsertionPoint(body))
        loops.append(loop)
        terms.append(_Term(weight, span, body.arguments[0]))
    return loops[0], terms, end


def _steps(op: Op, variable: Value) -> list[int]:
    """Return how far a loop's variable moves each form of an operation."""
    position, steps = op.symbols.index(variable), list[int]()

    def add_steps(form: Linear) -> Linear:
        steps.extend(c for k, c in form.symbols if k == position)
        return form
    with_forms(op, add_steps)
    return steps


def _over_loops(op: Op, variable: Value, terms: Sequence[_Term]) -> Op:
    """Return the operation with the variables of other loops in the place of one."""
    position, added = op.symbols.index(variable), len(op.symbols)
    positions = [position, *range(added, added + len(terms) - 1)]

    def substituted(form: Linear) -> Linear:
        factor = dict(form.symbols).get(position, 0)
        if not factor:
            return form
        factors = [factor * t.weight // t.span.step for t in terms]
        start = sum(-c * t.span.start for c, t in zip(factors, terms))
        return form.substitute(position, 0).plus(Linear(start, tuple(zip(positions, factors))))
    symbols = [terms[0].variable if k == position else s for k, s in enumerate(op.symbols)]
    return with_forms(op, substituted, symbols=(*symbols, *[t.variable for t in terms[1:]]))
