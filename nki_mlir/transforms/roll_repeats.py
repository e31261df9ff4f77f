# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""roll-repeats: make a loop of operations that repeat, so that later passes work on each of them once.

before:  %t0 = memref.alloc()                after:  scf.for %i = 0 to 1000 {
         "nki.load"(%t0, %x) rows 0                    %t = memref.alloc()
         "nki.store"(%y, %t0) rows 0                   "nki.load"(%t, %x, %i) rows 128 i
         %t1 = memref.alloc()                          "nki.store"(%y, %t, %i) rows 128 i
         "nki.load"(%t1, %x) rows 128                }
         ...

A kernel whose Python runs its loops has the same few operations thousands of times. Equal are those of one place in the
source that differ in where their tiles start, by the same step from one repetition to the next, and in buffers that
each repetition makes and that nobody else uses. Their order stays. The loop is marked as sequential: nothing is known
of its iterations but that they follow each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nki_mlir.bindings import Block, Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.attributes import Attributes, MalformedAttribute
from nki_mlir.dialects.mlir_ops import Known, is_tile_op, read_op, recognize, write_op
from nki_mlir.dialects.op import changed
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass

Steps = tuple[int, ...]         # for each tile of an operation: an offset, or how far it moves


class RollRepeats(Pass, name="roll-repeats", reads=Level.NKI):
    least: int = 512            # operations that a loop has to save

    def run(self, module: Module) -> None:
        holders = operations_of(module, lambda name: name == "func.func" or name.startswith("scf."))
        with module.context, ir.Location.unknown():
            for block in (block for op in holders for region in op.regions for block in region.blocks):
                operations = [op.operation for op in block.operations]
                if len(operations) > self.least:
                    _BlockRepeats(block, operations).roll(self.least)


@dataclass(frozen=True)
class Repetition:
    """Operations that repeat: the first, how many are in one repetition, how many repetitions, the steps of each."""

    first: int
    period: int
    count: int
    steps: list[Steps]

    @property
    def end(self) -> int:
        return self.first + self.period * self.count


class _BlockRepeats:
    """One block. Its operations are numbers, and so is what they make; other operands are values."""

    def __init__(self, block: Block, operations: list[Operation]) -> None:
        self.block, self.operations = block, operations
        self.kinds: dict[object, tuple[object, Steps]] = {}
        self.forms: list[object] = []           # equal for operations that differ in buffers and in where tiles start
        self.starts: list[Steps] = []
        self.sources: list[list[int | Value]] = []
        self.last_use: dict[int, int] = {}
        numbers: dict[Value, int] = {}
        for at, op in enumerate(operations):
            inside = operations_of(op, lambda name: True) if len(op.regions) else ()
            form, starts, operands = (object(), (), list(op.operands)) if inside else self.described(op)
            sources = [numbers.get(value, value) for value in operands]
            for source in (*sources, *(numbers.get(value) for inner in inside for value in inner.operands)):
                if type(source) is int:
                    self.last_use[source] = at
            self.forms.append(form)
            self.starts.append(starts)
            self.sources.append(sources)
            numbers |= dict.fromkeys(op.results, at)

    def described(self, op: Operation) -> tuple[object, Steps, list[Value]]:
        """What it has in common with its like, the free offsets of its tiles, its operands."""
        try:
            if is_tile_op(op):
                kind, operands = recognize(op)
                form, starts = self.kinds.get(kind) or self.kinds.setdefault(kind, form_and_starts(kind))
            else:
                named = [item for item in op.attributes.items() if item[0] != "nki.name"]     # of one buffer only
                form, starts, operands = (op.name, *[r.type for r in op.results], *named), (), list(op.operands)
            return (form, op.location.attr), starts, operands
        except (MalformedAttribute, TypeError):         # the bindings do not give locations: it is like no other
            return object(), (), list(op.operands)

    # -- finding -------------------------------------------------------------------------------------------------------
    def roll(self, least: int) -> None:
        for run in self.runs(least):
            self.write(run)

    def runs(self, least: int) -> list[Repetition]:
        """From front to back, each as long as it goes. The last equal, and the last alike operation give periods."""
        repetitions: list[Repetition] = []
        latest: dict[object, int] = {}
        compared: dict[int, int] = {}           # by period, how far
        at = begin = 0
        while at < len(self.operations):
            keys = (self.forms[at], self.starts[at]), self.forms[at]
            for first in [latest[key] for key in keys if latest.get(key, -1) >= begin]:
                if compared.get(at - first, 0) > at or not self.goes_on(first, at):
                    continue
                steps, end = self.compare(first, at - first)
                compared[at - first] = end
                if end - at < least:
                    continue
                run = self.repetition(first, at - first, steps, end)
                if (run.count - 1) * run.period >= least:
                    repetitions.append(run)
                    at = begin = run.end
                    break
            else:
                latest |= dict.fromkeys(keys, at)
                at += 1
        return repetitions

    def goes_on(self, first: int, at: int) -> bool:
        """Whether a third operation follows the two as the second does the first: most that are alike do not repeat."""
        third = 2 * at - first
        return third < len(self.operations) and self.forms[third] == self.forms[at] and (
            self.step(third, at) == self.step(at, first))

    def step(self, at: int, before: int) -> Steps:
        """How far the tiles are moved from one operation to another."""
        return tuple([a - b for a, b in zip(self.starts[at], self.starts[before])])

    def compare(self, first: int, period: int) -> tuple[list[Steps], int]:
        """How far each operation from there on moves in a period, and up to where operations are alike."""
        steps: list[Steps] = []
        at = first + period
        while at < len(self.operations) and self.forms[at] == self.forms[at - period] and self.fits(at, first, period):
            step = self.step(at, at - period)
            if len(steps) < period:
                steps.append(step)
            elif steps[(at - first) % period] != step:
                break
            at += 1
        return steps, at

    def repetition(self, first: int, period: int, steps: list[Steps], end: int) -> Repetition:
        """The repetitions up to there that are whole, and of which nothing is used in later ones or behind."""
        count = (end - first) // period
        for number in range(first, first + count * period):
            before = (number - first) // period
            if self.last_use.get(number, -1) >= first + (before + 1) * period:
                count = before
                break
        return Repetition(first, period, count, steps)

    def fits(self, at: int, first: int, period: int) -> bool:
        """Whether the operands are what they were a period before: from in front of the run, or as far back in it."""
        for new, old in zip(self.sources[at], self.sources[at - period]):
            if type(new) is int and new >= first:
                if type(old) is not int or new - old != period:
                    return False
            elif new != old:
                return False
        return True

    # -- writing -------------------------------------------------------------------------------------------------------
    def write(self, run: Repetition) -> None:
        first, make, index = self.operations[run.first], Attributes(), ir.IndexType.get()
        ip, at = ir.InsertionPoint(first), first.location
        bounds = [ir.Operation.create("arith.constant", results=[index], loc=at, ip=ip,
                                      attributes={"value": ir.IntegerAttr.get(index, n)}).result
                  for n in (0, run.count, 1)]
        loop = ir.Operation.create("scf.for", operands=bounds, regions=1, loc=at, ip=ip,
                                   attributes={"nki.loop": make.value("sequential")})
        body = loop.regions[0].blocks.append(index, arg_locs=[at])
        end = ir.Operation.create("scf.yield", loc=at, ip=ir.InsertionPoint(body))
        for op in reversed(self.operations[run.first + run.period:run.end]):
            op.erase()
        for op, steps in zip(self.operations[run.first:], run.steps):
            op.move_before(end)
            if any(steps):
                move_tiles(op, steps, body.arguments[0], make)


def form_and_starts(kind: Known) -> tuple[object, Steps]:
    """What an operation is apart from its buffers and from the free offsets of its tiles; those."""
    op = kind.op
    accesses = [tile.access for _, tile in op.operands()]
    form = (op.form_of(op.outline()), op.mask, op.limits, *op.extra.items(),
            *[(access.partition, access.free.symbols) for access in accesses])
    return form, tuple([access.free.const for access in accesses])


def move_tiles(operation: Operation, steps: Sequence[int], variable: Value, make: Attributes) -> None:
    """Let each tile start its step further on in each iteration."""
    op, by = read_op(operation), iter(steps)
    symbol = len(op.symbols)
    moved = changed(op, lambda tile: tile.patterned(free=tile.access.free.plus(Linear(0, ((symbol, next(by)),)))),
                    symbols=(*op.symbols, variable))
    write_op(moved, make, operation.location, ir.InsertionPoint(operation))
    operation.erase()


__all__ = ["RollRepeats"]
