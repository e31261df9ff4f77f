# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""split-masked-loops: split loops and ranges of program ids so that masks become static boxes.

before:  for i = 0 to 3                          after:  for i = 0 to 2
           load rows 128 i + p, mask 128 i + p < 300        load rows 128 i + p        (no mask)
                                                         load rows 256 + p, p < 44     (i = 2: 44 rows)

Values of a loop variable at which a constraint of a mask always holds become a loop without the constraint; values at
which it never holds become a loop without the operation. Other values are peeled: the variable becomes a number, and
the remaining mask is a box, which shrinks the access patterns. A program id is cut by ``scf.if``, around the operations
that need it. Masks that are not boxes (``p >= f``) stay. A loop is cut into at most ``copies`` parts; conditions that
would take more stay masks. Bounds that were left to run time (``nki.limits``) are removed if they are proved; a bound
that every iteration breaks is an error. With ``branches``, a loop is also split where its variable decides an
``scf.if``, as Python runs it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from nki_mlir.analysis.index_values import SymbolValues, constant_of, roots, span_of, truth_of
from nki_mlir.analysis.mask_boxes import Box, box_of, extremes, resolved, verdict, verified_on_box
from nki_mlir.bindings import Attribute, Block, Module, Operation, Value, ir, operations_of
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import Linear, Mask
from nki_mlir.dialects.attributes import NO_MASK, Attributes, memoized
from nki_mlir.dialects.creation import compared, constant
from nki_mlir.dialects.kernel_function import KernelFunction, kernel_functions
from nki_mlir.dialects.mlir_ops import is_tile_op, loop_span, read_op, write_op
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.dialects.source_locations import errors_at
from nki_mlir.dialects.target_rules import starts_legally
from nki_mlir.machine import Machine, machine_named
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass


def is_accepted(op: Op, machine: Machine) -> bool:
    """Return whether an engine can run an instruction of the kernel. Other operations count as accepted: they are
    no instructions yet."""
    try:
        verified_on_box(op)
    except KernelError:             # the operation reports it where it runs
        return False
    return op.dialect != "nisa" or op.queued or all(
        starts_legally(machine, tile, op.offsets.get(field.name, (0,)))
        for field, tile in op.operands() if tile.on_chip)


class SplitMaskedLoops(Pass, name="split-masked-loops", reads=Level.NKI):
    copies: int = 8             # most copies of a loop's body, or of the operations that depend on a program id
    branches: bool = False      # split loops at the conditions of branches, too

    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            for kernel in kernel_functions(module):
                if self.branches or any(map(is_masked, operations_of(kernel.op, REGISTRY.__contains__))):
                    _FunctionSplit(kernel, self.copies, self.branches).run()


class _FunctionSplit:
    """The rewriter of one function."""

    def __init__(self, kernel: KernelFunction, copies: int, at_branches: bool) -> None:
        self.kernel, self.copies, self.at_branches = kernel, copies, at_branches
        self.block = kernel.op.regions[0].blocks[0]
        self.make, self.machine = Attributes(), machine_named(kernel.target)
        self.constants: dict[int, Value] = {}
        self.outer: list[Value] = []          # variables of the loops, and program ids, that enclose the operation

    def run(self) -> None:
        from nki_mlir.analysis.dead_code import erase_dead_code  # start-up: only masked kernels need it
        ids = [a for a, spec in zip(self.block.arguments, self.kernel.arguments) if spec.kind == "program_id"]
        self.programs(ids, contents(self.block))
        erase_dead_code(self.kernel.op)

    # -- program ids ---------------------------------------------------------------------------------------------------
    def programs(self, ids: Sequence[Value], operations: list[Operation]) -> None:
        """Split the operations by the first of ``ids``, each part by the other ids, and then the loops in the parts."""
        if not ids:
            return self.operations(operations, True)
        value, later = ids[0], ids[1:]
        low, high = span_of(value)
        parts = parts_of(range(low, high + 1), self.conditions(value, operations), self.copies)
        self.outer.append(value)
        if len(parts) == 1 or any(op.name.startswith("scf.") and op.results for op in operations):
            self.programs(later, operations)
        else:
            affected = [k for k, op in enumerate(operations) if any(True for _ in self.conditions(value, [op]))]
            begin, end = affected[0], affected[-1] + 1
            self.programs(later, operations[:begin])
            for inside in self.branches(value, parts, operations[begin:end]):
                self.programs(later, inside)
            self.programs(later, operations[end:])
        self.outer.pop()

    def branches(self, value: Value, parts: list[range], operations: list[Operation]) -> list[list[Operation]]:
        """Write a chain of ``if`` over the value, with a copy of the operations for each part, and return the
        copies."""
        hoist_results(operations)
        choice = self.choice(value, parts[0], operations[0])
        for op in operations:
            op.move_before(_end(choice, 0))
        copies = [choice.clone(ip=ir.InsertionPoint(choice)) for _ in parts[1:]]
        self.pin(value, parts[0], operations)
        inside = [operations]
        for part, copy in zip(parts[1:], copies):
            target = _end(choice, 1)
            if part is not parts[-1]:
                choice = self.choice(value, part, target)
                target = _end(choice, 0)
            inside.append(contents(copy.regions[0].blocks[0]))
            for op in inside[-1]:
                op.move_before(target)
            copy.erase()
            self.pin(value, part, inside[-1])
        return inside

    def choice(self, value: Value, part: range, before: Operation) -> Operation:
        """Write an empty ``scf.if`` with the condition that the value is at most the last value of the part."""
        with before.location:
            with ir.InsertionPoint(before):
                inside = compared("sge", self.constant(part[-1]), value)
                branch = ir.Operation.create("scf.if", operands=[inside], regions=2)
            for region in branch.regions:
                ir.Operation.create("scf.yield", ip=ir.InsertionPoint(region.blocks.append()))
        return branch

    def pin(self, value: Value, part: range, operations: list[Operation]) -> None:
        """Replace the variable by a number in a part that has only one value."""
        if len(part) == 1:
            from nki_mlir.analysis.dead_code import fold_constants  # start-up: only masked kernels need it
            for op in below(operations):
                op.replace_uses_of_with(value, self.constant(part[0]))
            fold_constants(below(operations), self.constant)

    # -- loops ---------------------------------------------------------------------------------------------------------
    def operations(self, operations: list[Operation], executes: bool) -> None:
        """Split the loops among some operations; ``executes``: the operations run in every execution."""
        for op in operations:
            if is_tile_op(op):
                self.tile_operation(op, executes)
            elif op.name == "scf.for":
                self.loop(op, executes)
            elif op.name == "scf.if":
                self.branch(op, executes)
            elif op.name == "scf.while":        # its condition is computed once at least, its body perhaps never
                for region, surely in zip(op.regions, (executes, False)):
                    self.operations(contents(region.blocks[0]), surely)

    def loop(self, op: Operation, executes: bool) -> None:
        span, block = loop_span(op), op.regions[0].blocks[0]
        if span is not None and not span and not op.results:
            return op.erase()
        if span is None or op.results:
            return self.body(block, executes and bool(span))
        conditions = self.conditions(block.arguments[0], contents(block))
        if self.at_branches:
            conditions += branch_conditions(block.arguments[0], contents(block))
        parts = parts_of(span, conditions, self.copies)
        if len(parts) == 1:
            return self.body(block, executes)
        for part, copy in [(part, op.clone(ip=ir.InsertionPoint(op))) for part in parts]:
            if len(part) > 1:
                copy.operands[0], copy.operands[1] = self.constant(part[0]), self.constant(part[-1] + 1)
                self.body(copy.regions[0].blocks[0], executes)
            else:
                self.peel(copy, part[0], executes)
        return op.erase()

    def body(self, block: Block, executes: bool) -> None:
        self.outer.append(block.arguments[0])
        self.operations(contents(block), executes)
        self.outer.pop()

    def peel(self, loop: Operation, value: int, executes: bool) -> None:
        """Replace a loop whose variable has one value by its body."""
        from nki_mlir.analysis.dead_code import fold_constants  # start-up: only masked kernels need it
        block = loop.regions[0].blocks[0]
        block.arguments[0].replace_all_uses_with(self.constant(value))
        operations = contents(block)
        for op in operations:
            op.move_before(loop)
        loop.erase()
        fold_constants(below(operations), self.constant)
        self.operations(operations, executes)

    def branch(self, op: Operation, executes: bool) -> None:
        """Go through an ``if`` of the kernel. Replace it by one branch if its condition is known."""
        truth = truth_of(op.operands[0])
        blocks = [b for r in op.regions for b in r.blocks]
        if truth is None or op.results:
            for block in blocks:
                self.operations(contents(block), False)
            return
        operations = contents(blocks[0 if truth else 1]) if truth or len(blocks) > 1 else []
        for inner in operations:
            inner.move_before(op)
        op.erase()
        self.operations(operations, executes)

    # -- tile operations -----------------------------------------------------------------------------------------------
    def tile_operation(self, op: Operation, executes: bool) -> None:
        if not is_masked(op) and all(constant_of(v) is None for v in op.operands if isinstance(v.type, ir.IndexType)):
            return
        read = read_op(op)
        with errors_at(op):
            accepts = partial(is_accepted, machine=self.machine)
            new = resolved(read, SymbolValues(op, read.symbols).interval, executes, accepts)
        if new is not read:
            if new is not None:
                write_op(new, self.make, op.location, ir.InsertionPoint(op))
            op.erase()

    def conditions(self, variable: Value, operations: list[Operation]) -> "list[Condition]":
        """Return the distinct conditions in these operations that depend on the variable."""
        by_key: dict[tuple[object, ...], Condition] = {}
        for op in below(operations):
            if is_tile_op(op) and is_masked(op):
                read = read_op(op)
                if any(variable in roots(s) for s in read.symbols):
                    by_key |= self.conditions_of(op, read, variable)
        return list(by_key.values())

    def conditions_of(self, operation: Operation, op: Op, variable: Value) -> "dict[tuple[object, ...], Condition]":
        values, extents, by_key = SymbolValues(operation, op.symbols), op.iteration().extents, {}
        for constraint, mask, must in (*((c, (), False) for c in op.mask), *((c, op.mask, True) for c in op.limits)):
            form, forms = constraint.form, [constraint.form, *(c.form for c in mask)]
            symbols = [op.symbols[s] for s in sorted({s for f in forms for s, _ in f.symbols})]
            other_roots = [r for s in symbols for r in roots(s) if r != variable]
            if not any(variable in roots(s) for s in symbols):
                continue
            fixed = all(span_of(r)[0] == span_of(r)[1] for r in other_roots if r in self.outer)
            single = sum(extents[axis] > 1 for axis, _ in form.axes) <= 1
            monotone = not mask and all(s == variable or variable not in roots(s) for s in symbols)

            def bounds(low: int, high: int, form: Linear = form, mask: Mask = mask) -> tuple[int, int]:
                def interval(part: Linear) -> tuple[int, int]:
                    return values.interval(part, {variable: (low, high)})
                box = box_of(mask, extents, interval) if mask else Box((0,) * len(extents), extents, ())
                return (0, 0) if box is None else extremes(form.counted_from(box.starts), box.counts, interval)
            peel = fixed and (single or must or any(r not in self.outer for r in other_roots))
            key = (form, mask, constraint.equal, must, extents if form.axes else (), *values.values, *values.facts)
            by_key[key] = Condition(bounds, constraint.equal, monotone, peel, must)
        return by_key

    def constant(self, value: int) -> Value:
        if value not in self.constants:         # at the function's head, so that every block sees it
            with ir.InsertionPoint.at_block_begin(self.block), self.kernel.op.location:
                self.constants[value] = constant(value)
        return self.constants[value]


def contents(block: Block) -> list[Operation]:
    """Return the operations of a block without its terminator."""
    return [op.operation for op in block.operations][:-1]


def below(operations: Iterable[Operation]) -> list[Operation]:
    """Return the operations and all inside of them."""
    return [inner for op in operations for inner in operations_of(op, lambda name: True)]


def is_masked(op: Operation) -> bool:
    return "nki.limits" in op.attributes or _masks(op.attributes["mask"])


@memoized
def _masks(mask: Attribute) -> bool:
    return str(mask) != NO_MASK


def hoist_results(operations: list[Operation]) -> None:
    """Move allocations and numbers to the front of ``operations`` if operations outside use them."""
    from nki_mlir.analysis.dead_code import ancestor_in  # start-up: only masked kernels need it
    block, staying = operations[0].block, set(operations)
    for op in reversed(operations):
        if any(ancestor_in(block, use.owner.operation) not in staying for r in op.results for use in r.uses):
            staying.remove(op)
    hoisted = [op for op in operations if op not in staying]
    operations[:] = [op for op in operations if op in staying]
    for op in hoisted:
        op.move_before(operations[0])


def _end(choice: Operation, branch: int) -> Operation:
    """Return the terminator of a branch."""
    return choice.regions[branch].blocks[0].operations[-1].operation


# The values of a loop variable at which to split it, so that in each part conditions always hold or never do. A
# condition computes the interval of its form while the variable runs from one value to another.

SCANNED = 4096              # values of a variable that are tried one by one


class Condition(NamedTuple):
    """A constraint as seen from one loop variable.

    ``bounds(first, last)`` are the extremes of its form while the variable runs from ``first`` to ``last``.
    ``monotone``: they rise or fall with the variable. ``peel``: a constant variable resolves a constraint that a range
    does not resolve. ``must``: a bound, whose violations are searched value by value.
    """

    bounds: Callable[[int, int], tuple[int, int]]
    equal: bool = False
    monotone: bool = True
    peel: bool = True
    must: bool = False

    def verdict(self, low: int, high: int) -> bool | None:
        holds = verdict(self.equal, *self.bounds(low, high))
        return None if self.must and not holds else holds


def branch_conditions(variable: Value, operations: list[Operation]) -> list[Condition]:
    """Return the conditions of the branches in these operations that the variable alone decides."""
    return [Condition(partial(_truth_bounds, op.operands[0], variable), monotone=False, peel=False)
            for op in below(operations) if op.name == "scf.if" and {*roots(op.operands[0])} == {variable}]


def _truth_bounds(condition: Value, variable: Value, low: int, high: int) -> tuple[int, int]:
    """Return bounds that are at least 0 if a condition holds for these values of a variable, below 0 if it never
    does."""
    truth = truth_of(condition, {variable: (low, high)})
    return (-1 if truth is not True else 0), (-1 if truth is False else 0)


def parts_of(values: range, conditions: Iterable[Condition], limit: int) -> list[range]:
    """Return consecutive parts of ``values``, at most ``limit``; the caller peels a part of one value.

    Conditions that would cost more parts are left out, later ones first; a condition may still fit without peeling.
    """
    parts = [values]
    for condition in conditions:
        for peel in ((True, False) if condition.peel else (False,)):
            finer = [piece for part in parts for piece in _pieces(part, condition, peel, limit)]
            if len(finer) <= limit:
                parts = finer
                break
    return parts


def _pieces(values: range, condition: Condition, peel: bool, limit: int) -> Iterator[range]:
    runs = _runs(values, condition)
    for run in runs if len(runs) <= limit else [values]:
        if peel and len(runs) <= limit and condition.verdict(run[0], run[-1]) is None:
            yield from (run[k:k + 1] for k in range(min(len(run), limit + 1)))      # more than the limit is refused
        else:
            yield run


def _runs(values: range, condition: Condition) -> list[range]:
    """Return maximal runs of values with equal verdicts of the condition."""
    if condition.monotone:
        cuts = sorted({0, len(values), *_crossings(values, condition)})
    elif len(values) <= SCANNED:
        cuts = list(range(len(values) + 1))
    else:
        return [values]
    return _joined([values[a:b] for a, b in pairwise(cuts)], condition)


def _crossings(values: range, condition: Condition) -> Iterator[int]:
    """Return the positions at which an extreme of the form passes zero."""
    for extreme in (0, 1):
        for least in (0, 1):
            def above(value: int, extreme: int = extreme, least: int = least) -> bool:
                return condition.bounds(value, value)[extreme] >= least
            falls = above(values[0])
            yield bisect_left(values, True, key=lambda v: above(v) != falls)


def _joined(runs: Sequence[range], condition: Condition) -> list[range]:
    """Join neighboring runs of equal verdict if the verdict holds for both together."""
    joined: list[range] = []
    for run in runs:
        verdict_here = condition.verdict(run[0], run[0])
        if joined and verdict_here is condition.verdict(joined[-1][0], joined[-1][0]) and (
                verdict_here is None or condition.verdict(joined[-1][0], run[-1]) is verdict_here):
            joined[-1] = range(joined[-1].start, run.stop, run.step)
        else:
            joined.append(run)
    return joined
