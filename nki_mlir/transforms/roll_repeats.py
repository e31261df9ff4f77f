# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""roll-repeats: turn operations that repeat into a loop, so that later passes process each of them once.

before:  %t0 = memref.alloc()                after:  scf.for %i = 0 to 1000 {
         "nki.load"(%t0, %x) rows 0                    %t = memref.alloc()
         "nki.store"(%y, %t0) rows 0                   "nki.load"(%t, %x, %i) rows 128 i
         %t1 = memref.alloc()                          "nki.store"(%y, %t, %i) rows 128 i
         "nki.load"(%t1, %x) rows 128                }
         ...

A kernel whose Python runs its loops has the same few operations thousands of times. Operations of one source location
form a loop, inner loops first, as ``analysis.repeats`` finds them; with ``lines``, locations may differ. They are
marked as sequential, since only the order of their iterations is known. With ``starts``, operations on rows where an
engine can start form no loop with operations on others, which need more instructions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from nki_mlir.analysis.repeats import Item, Repetition, Steps, with_loops
from nki_mlir.bindings import Block, Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.access import ZERO, Linear, Tile
from nki_mlir.dialects.attributes import Attributes, MalformedAttribute
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import RecognizedOperation, is_tile_op, read_op, recognize, write_op
from nki_mlir.dialects.op import Op, affine_attributes, changed
from nki_mlir.dialects.target_rules import starts_legally
from nki_mlir.machine import Machine, machine_named
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass

Moves = Sequence[tuple[Value, Steps]]       # for each loop around an item, outermost first: its variable and the steps


class RollRepeats(Pass, name="roll-repeats", reads=Level.NKI):
    least: int = 512            # least operations that a loop must save
    pairs: bool = False         # accept two repetitions; else, require a third one
    lines: bool = False         # let operations repeat whose source locations differ, as in MLIR text
    starts: bool = False        # keep operations apart whose rows start where engines can, and where they cannot

    def run(self, module: Module) -> None:
        machine = machine_named(the_kernel(module).target) if self.starts else None
        holders = operations_of(module, lambda name: name == "func.func" or name.startswith("scf."))
        with module.context, ir.Location.unknown():
            for block in (block for op in reversed(holders) for region in op.regions for block in region.blocks):
                if len(block.operations) > self.least:
                    for item in with_loops(OperationItems(self.lines, machine).of_block(block), self.least, self.pairs):
                        if item.loop is not None:
                            LoopWriter(item.loop).write()


class OperationItems:
    """The operations of a block as items. Equal kinds of operations are described once. ``machine``: where its engines
    can start is a part of the form."""

    def __init__(self, lines: bool = False, machine: Machine | None = None) -> None:
        self.lines, self.machine, self.kinds = lines, machine, dict[object, tuple[object, Steps]]()

    def of_block(self, block: Block) -> list[Item[Operation]]:
        items: list[Item[Operation]] = []
        definitions: dict[Value, Item[Operation]] = {}
        for at, op in enumerate([op.operation for op in block.operations]):
            form, starts, operands = self.with_regions(op) if len(op.regions) else self.described(op)
            size = len(operations_of(op, lambda name: True)) if len(op.regions) else 1
            item = Item(form, starts, [definitions.get(value, value) for value in operands], op, at=at, size=size)
            items.append(item)
            definitions |= dict.fromkeys(op.results, item)
        return items

    def with_regions(self, op: Operation) -> tuple[object, Steps, list[Value]]:
        """Return what ``described`` does of a loop or a branch with the operations in it. Its operands are the values
        that it uses from outside."""
        numbers: dict[Value, int] = {}          # of the values that are defined inside
        outside, starts = list[Value](), list[int]()

        def form_of(inner: Operation) -> object:
            form, of_tiles, operands = self.described(inner)
            starts.extend(of_tiles)
            outside.extend(value for value in operands if value not in numbers)
            blocks = []
            for region in inner.regions:
                for block in region.blocks:
                    number(block.arguments)
                    blocks.append((*[a.type for a in block.arguments],
                                   *[form_of(o.operation) for o in block.operations]))
            number(inner.results)
            return form, *[numbers.get(value) for value in operands], *blocks

        def number(values: Iterable[Value]) -> None:
            for value in values:
                numbers[value] = len(numbers)
        return form_of(op), tuple(starts), outside

    def described(self, op: Operation) -> tuple[object, Steps, list[Value]]:
        """Return the form that an operation shares with equal ones, the starts of its tiles, and its operands."""
        try:
            if is_tile_op(op):
                kind, operands = recognize(op)
                form, starts = self.kinds.get(kind) or self.kinds.setdefault(kind, self.form_and_starts(kind))
            else:
                named = [item for item in op.attributes.items() if item[0] != "nki.name"]     # of one buffer only
                form, starts, operands = (op.name, *[r.type for r in op.results], *named), (), list(op.operands)
            return (form, None if self.lines else op.location.attr), starts, operands
        except (MalformedAttribute, TypeError):         # the bindings do not give locations: it equals no other
            return object(), (), list(op.operands)

    def form_and_starts(self, kind: RecognizedOperation) -> tuple[object, Steps]:
        form, starts = form_and_starts(kind)
        return (form, self.machine is not None and starts_on_engines(kind.op, self.machine)), starts


def starts_on_engines(op: Op, machine: Machine) -> bool:
    """Return whether an engine can start at the rows of all tiles of an operation, or none has to."""
    return op.queued or any(not tile.on_chip for _, tile in op.operands()) or all(
        starts_legally(machine, tile, op.offsets.get(field.name, (0,))) for field, tile in op.operands())


def form_and_starts(kind: RecognizedOperation) -> tuple[object, Steps]:
    """Return an operation apart from its buffers and starts, and the starts.

    Each tile has two starts. Each affine attribute has one, its constant, at which an index or a condition on indices
    begins.
    """
    op, forms = kind.op, affine_attributes(kind.op)
    accesses = [tile.access for _, tile in op.operands()]
    without_starts = changed(op, lambda tile: tile, **{name: replace(form, const=0) for name, form in forms.items()})
    symbols = [(access.partition and access.partition.symbols, access.free.symbols) for access in accesses]
    of_tiles = [start for access in accesses
                for start in (access.partition.const if access.partition else 0, access.free.const)]
    return ((op.form_of(without_starts.outline()), op.mask, op.limits, *op.extra.items(), *symbols),
            (*of_tiles, *[form.const for form in forms.values()]))


class LoopWriter:
    """Writes one loop, with those in it, before its first operation."""

    def __init__(self, loop: Repetition[Operation]) -> None:
        self.loop, self.make, self.numbers = loop, Attributes(), dict[int, Value]()
        self.outermost: Operation = next(loop.body[0].operations())        # the loop, once it is there
        self.location = self.outermost.location

    def write(self) -> None:
        self.write_loop(self.loop, self.outermost, ())

    def write_loop(self, loop: Repetition[Operation], end: Operation, moves: Moves) -> None:
        """Write the loop before an operation. The steps of ``moves`` are for all tiles of its body."""
        at, bounds = self.location, [self.number(n) for n in (0, loop.count, 1)]
        created = ir.Operation.create("scf.for", operands=bounds, regions=1, loc=at, ip=ir.InsertionPoint(end),
                                      attributes={"nki.loop": self.make.value("sequential")})
        if not moves:
            self.outermost = created
        body = created.regions[0].blocks.append(ir.IndexType.get(), arg_locs=[at])
        terminator = ir.Operation.create("scf.yield", loc=at, ip=ir.InsertionPoint(body))
        for item in reversed(loop.later):
            for op in reversed(list(item.operations())):
                op.erase()
        ranges = pairwise(accumulate([len(item.starts) for item in loop.body], initial=0))
        for item, steps, (start, stop) in zip(loop.body, loop.steps, ranges):
            inside = [*[(variable, outer[start:stop]) for variable, outer in moves], (body.arguments[0], steps)]
            if item.loop is not None:
                self.write_loop(item.loop, terminator, inside)
                continue
            assert item.operation is not None
            item.operation.move_before(terminator)
            if any(map(any, (steps for _, steps in inside))):
                move_starts(item.operation, inside, self.make)

    def number(self, n: int) -> Value:
        """Write a constant before the outermost loop."""
        if n not in self.numbers:
            index = ir.IndexType.get()
            self.numbers[n] = ir.Operation.create(
                "arith.constant", results=[index], attributes={"value": ir.IntegerAttr.get(index, n)},
                loc=self.location, ip=ir.InsertionPoint(self.outermost)).result
        return self.numbers[n]


def operations_in_order(operation: Operation) -> list[Operation]:
    """Return the tile operations in an operation, in the order of its text."""
    blocks = [block for region in operation.regions for block in region.blocks]
    inside = [op.operation for block in blocks for op in block.operations]
    return [tile for op in inside for tile in ([op] if is_tile_op(op) else operations_in_order(op))]


def move_starts(operation: Operation, moves: Moves, make: Attributes) -> None:
    """Add the steps of each iteration of the loops to the start of each tile and affine attribute, also of those in a
    loop or a branch."""
    if len(operation.regions):
        begin = 0
        for inner in operations_in_order(operation):
            end = begin + len(form_and_starts(recognize(inner)[0])[1])
            of_inner = [(variable, steps[begin:end]) for variable, steps in moves]
            if any(map(any, (steps for _, steps in of_inner))):
                move_starts(inner, of_inner, make)
            begin = end
        return
    op = read_op(operation)
    moves = [(variable, steps) for variable, steps in moves if any(steps)]
    symbols, by = range(len(op.symbols), len(op.symbols) + len(moves)), zip(*[steps for _, steps in moves])

    def moved(form: Linear) -> Linear:
        return form.plus(Linear(0, tuple([(k, step) for k, step in zip(symbols, next(by)) if step])))

    def moved_tile(tile: Tile) -> Tile:
        access = tile.access
        partition = moved(access.partition or ZERO)
        return tile.patterned(partition=access.partition and partition, free=moved(access.free))
    op = changed(op, moved_tile, symbols=(*op.symbols, *[variable for variable, _ in moves]))
    op = changed(op, lambda tile: tile, **{name: moved(form) for name, form in affine_attributes(op).items()})
    write_op(op, make, operation.location, ir.InsertionPoint(operation))
    operation.erase()


__all__ = ["RollRepeats"]
