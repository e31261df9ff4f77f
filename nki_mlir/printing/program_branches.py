# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes what only one of two programs does as branches in the module of both.

before:  "nki.load"(%t, %x)  "nki.unary"(%t, %t)  "nki.store"(%y, %t)           the first program
         "nki.load"(%t, %x)  "nki.store"(%y, %t)                                the second

after:   "nki.load"(%t, %x)
         scf.if %program_id == 0 { "nki.unary"(%t, %t) }
         "nki.store"(%y, %t)

The current generation runs a kernel's Python once for each program, so that its ``if program_id == 0:`` leaves two
modules. Operations of one line of the source are alike if they differ only in the starts of their tiles. Loops that
differ inside become one loop with the branches.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import reduce

from nki_mlir.analysis.dead_code import ancestor_in
from nki_mlir.analysis.repeats import Item, Steps
from nki_mlir.bindings import Block, Operation, Value, ir
from nki_mlir.dialects.creation import compared, constant
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op
from nki_mlir.dialects.nisa.meeting import SendrecvOp
from nki_mlir.dialects.op import REGISTERS

Program = list[Item[Operation]]
Partners = dict[Item[Operation], Item[Operation]]                   # operations of the first program -> of the second
LOOPS = ("scf.for", "scf.while")
ALLOCATIONS = ("memref.alloc", "memref.get_global", "arith.constant")     # may precede a branch
MOST_COMPARISONS = 4_000_000        # of operations; aligning two programs then takes about a second


@dataclass
class ProgramBranch:
    """What each program does between two operations of both."""

    before: Operation                   # the operation of both that follows
    programs: tuple[Program, Program] = field(default_factory=lambda: ([], []))


@dataclass
class ProgramAlignment:
    """Two programs: the operations of both in pairs, branches in between, and the allocations of the second program
    that several branches use, each with the operation of the first program before which it moves."""

    pairs: list[tuple[Item[Operation], Item[Operation]]]
    branches: list[ProgramBranch]
    allocations: list[tuple[Item[Operation], Operation]]
    regions: "dict[Item[Operation], list[ProgramAlignment]]"    # of loops that differ inside

    @property
    def differs(self) -> bool:
        """Whether one of the programs does what the other does not."""
        return bool(self.allocations or self.regions) or any(any(branch.programs) for branch in self.branches)


def aligned(first: Block, second: Block, items_of: Callable[[Block], Program],
            same: dict[Value, Value] | None = None) -> ProgramAlignment | None:
    """Return the alignment of two blocks; None if they have no operation in common, if they are too long, or if a
    branch computes a value that is used after it. ``same`` has the values of the second program that blocks around
    define, with those of the first."""
    same = {**(same or {}), **dict(zip(second.arguments, first.arguments))}
    programs = items_of(first), items_of(second)
    partners = _partners(*programs, same)
    if partners is None or not any(_is_step(a) for a in list(partners)[:-1]):
        return None
    regions = _align_loops(*programs, partners, items_of, same)
    return _with_branches(*programs, dict(sorted(partners.items(), key=lambda pair: pair[0].at)), regions)


def _with_branches(first: Program, second: Program, partners: Partners,
                   regions: dict[Item[Operation], list[ProgramAlignment]]) -> ProgramAlignment | None:
    """Return the alignment in which operations between partners are branches."""
    alignment = ProgramAlignment([*partners.items()], [], [], regions)
    unmatched = list[tuple[int, int, Item[Operation]]]()
    begin = [0, 0]
    for a, b in partners.items():
        for program, items, end in ((0, first, a.at), (1, second, b.at)):
            unmatched += [(len(alignment.branches), program, item) for item in items[begin[program]:end]]
            begin[program] = end + 1
        if _is_step(a):
            assert a.operation is not None
            alignment.branches.append(ProgramBranch(a.operation))
    number_of = {item: number for number, _, item in unmatched}
    users = _users(first) | _users(second)
    for number, program, item in unmatched:
        numbers = {number_of.get(user) for user in users.get(item, ())}
        if _is_step(item):
            if not numbers <= {number}:
                return None
        elif len(numbers) == 1 and (only := next(iter(numbers))) is not None:
            number = only
        elif numbers:
            if program == 1:
                alignment.allocations.append((item, alignment.branches[number].before))
            continue
        alignment.branches[number].programs[program].append(item)
    for branch in alignment.branches:
        for items in branch.programs:
            items.sort(key=lambda item: item.at)
    has_exchange = any(item.operation is not None and item.operation.name == SendrecvOp.full_name()
                       for _, _, item in unmatched)
    return None if has_exchange else alignment


def _align_loops(first: Program, second: Program, partners: Partners, items_of: Callable[[Block], Program],
                 same: dict[Value, Value]) -> dict[Item[Operation], list[ProgramAlignment]]:
    """Add the loops between two partners to these if both programs have as many and they differ only in their bodies,
    and return the alignments of their regions."""
    regions: dict[Item[Operation], list[ProgramAlignment]] = {}
    values = same | _values(partners.items())
    begin = [0, 0]
    for a, b in list(partners.items()):
        loops = [[item for item in program[start:end.at] if item.operation is not None and item.operation.name in LOOPS]
                 for program, start, end in zip((first, second), begin, (a, b))]
        begin = [a.at + 1, b.at + 1]
        if len(loops[0]) != len(loops[1]):
            continue
        for item, partner in zip(*loops):
            if (inner := _aligned_regions(item.operation, partner.operation, items_of, values)) is not None:
                partners[item], regions[item] = partner, inner
    return regions


def _aligned_regions(first: Operation | None, second: Operation | None, items_of: Callable[[Block], Program],
                     values: dict[Value, Value]) -> list[ProgramAlignment] | None:
    """Return the alignments of the regions of two loops; None if the loops differ elsewhere than in their bodies."""
    assert first is not None and second is not None
    operands, types = [values.get(v, v) for v in second.operands], [result.type for result in second.results]
    if first.name != second.name or [*first.operands] != operands or [r.type for r in first.results] != types or (
            {**first.attributes} != {**second.attributes}):
        return None
    inner = [aligned(a.blocks[0], b.blocks[0], items_of, values) for a, b in zip(first.regions, second.regions)]
    alignments = [alignment for alignment in inner if alignment is not None]
    return alignments if len(alignments) == len(inner) and not any(a.differs for a in alignments[:-1]) else None


def _values(pairs: Iterable[tuple[Item[Operation], Item[Operation]]]) -> dict[Value, Value]:
    """Return the values of the second program's block, and those of the first that they are."""
    values: dict[Value, Value] = {}
    for a, b in pairs:
        assert a.operation is not None and b.operation is not None
        values.update(zip(b.operation.block.arguments, a.operation.block.arguments))
        values.update(zip(b.operation.results, a.operation.results))
    return values


def _partners(first: Program, second: Program, same: dict[Value, Value]) -> Partners | None:
    """Return the operations of the first program that the second one has, too, with its operations, in their order."""
    ends = 0
    while ends < min(len(first), len(second)) and first[ends].form == second[ends].form:
        ends += 1
    forms = [[(item.form, len(item.sources)) for item in program[ends:]] for program in (first, second)]
    if len(forms[0]) * len(forms[1]) > MOST_COMPARISONS:
        return None
    blocks = [(0, 0, ends), *[(a + ends, b + ends, size) for a, b, size in SequenceMatcher(
        None, forms[0], forms[1], autojunk=False).get_matching_blocks()]]
    partners: Partners = {}
    for a, b, size in blocks:
        for item, partner in zip(first[a:a + size], second[b:b + size]):
            if [partners.get(source, source) if isinstance(source, Item) else source for source in item.sources] == [
                    source if isinstance(source, Item) else same.get(source, source)    # type: ignore[call-overload]
                    for source in partner.sources]:
                partners[item] = partner
    return partners if first[-1] in partners else None


def _is_step(item: Item[Operation]) -> bool:
    """Return whether an operation does more than allocate."""
    return item.operation is None or item.operation.name not in ALLOCATIONS


def _users(program: Program) -> dict[Item[Operation], list[Item[Operation]]]:
    users: dict[Item[Operation], list[Item[Operation]]] = {}
    for item in program:
        for source in item.sources:
            if isinstance(source, Item):
                users.setdefault(source, []).append(item)
    return users


def write_branches(alignment: ProgramAlignment, program_id: Value, around: dict[Value, Value] | None = None) -> None:
    """Write the operations of the second program into the module of the first one, as branches on the program id.
    ``around`` has the values of the second program that blocks around define, with those of the module."""
    values = (around or {}) | _values(alignment.pairs)
    for item, before in alignment.allocations:
        assert item.operation is not None
        values.update(zip(item.operation.results, item.operation.clone(ir.InsertionPoint(before)).results))
    for branch in alignment.branches:
        if any(branch.programs):
            _write_branch(branch, program_id, values)
    for regions in alignment.regions.values():
        for inner in regions:
            write_branches(inner, program_id, values)
    last = alignment.branches[-1].before
    for allocation in [op.operation for op in last.block.operations if op.operation.name == "memref.alloc"]:
        if not _has_registers(allocation.results[0]):
            _allocate_at_use(allocation)


def _has_registers(buffer: Value) -> bool:
    """Return whether a buffer stands for registers of an engine, which all iterations of a loop share."""
    users = [read_op(use.owner.operation) for use in buffer.uses if is_tile_op(use.owner.operation)]
    return any(tile.handle == buffer for op in users for field, tile in op.operands() if field.name in REGISTERS)


def _allocate_at_use(allocation: Operation) -> None:
    """Move an allocation before the first operation of its block that uses it, so that branches are at the same
    position among the operations of each iteration."""
    users = [ancestor for use in allocation.results[0].uses
             if (ancestor := ancestor_in(allocation.block, use.owner.operation)) is not None]
    if users:
        allocation.move_before(reduce(_earlier, users))


def _earlier(first: Operation, second: Operation) -> Operation:
    return first if first.is_before_in_block(second) else second


def _write_branch(branch: ProgramBranch, program_id: Value, values: dict[Value, Value]) -> None:
    numbers = [number for number, items in enumerate(branch.programs) if items]
    first = branch.programs[numbers[0]][0].operation
    assert first is not None
    with first.location, ir.InsertionPoint(branch.before):      # equal iterations have equal branches
        condition = compared("eq", program_id, constant(numbers[0]))
        created = ir.Operation.create("scf.if", operands=[condition], regions=2)
    for region, number in zip(created.regions, numbers):
        block: Block = region.blocks.append()
        with first.location, ir.InsertionPoint(block):
            end = ir.Operation.create("scf.yield")
        for item in branch.programs[number]:
            assert item.operation is not None
            if number == 0:
                item.operation.move_before(end)
            else:
                _copy(item.operation, end, values)


def _copy(operation: Operation, end: Operation, values: dict[Value, Value]) -> None:
    """Copy an operation of the second program, also one with regions, before another one."""
    copy = operation.clone(ir.InsertionPoint(end))
    values.update(zip(operation.results, copy.results))

    def replace(inner: Operation) -> None:
        for at, operand in enumerate(inner.operands):
            if operand in values:
                inner.operands[at] = values[operand]
        for region in inner.regions:
            for block in region.blocks:
                for op in block.operations:
                    replace(op.operation)
    replace(copy)


def steps_of(alignment: ProgramAlignment) -> list[tuple[Item[Operation], Steps]]:
    """Return the operations of both programs with the distances by which their starts move to the second program."""
    steps = [(a, tuple([later - start for start, later in zip(a.starts, b.starts)])) for a, b in alignment.pairs
             if a not in alignment.regions]
    return [*steps, *[step for regions in alignment.regions.values() for inner in regions for step in steps_of(inner)]]
