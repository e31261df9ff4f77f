# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Control flow that carries buffers, as control flow that leaves what it makes in buffers of its own.

before:  %r = scf.while (%x = %init) ... scf.yield %new         after:  %x = memref.alloc(); copy %init to %x
                                                                        scf.while ... copy %new to %x
A loop's buffer is written when an iteration ends, through another one where values change places. ``scf.index_switch``
becomes a chain of ``scf.if``.
"""

from collections.abc import Sequence

from nki_mlir.analysis.effects import memory_of
from nki_mlir.bindings import Block, Operation, Region, Type, Value, ir, operations_of
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import dense
from nki_mlir.dialects.creation import EQUAL, compared, constant, terminator
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.graph.functions import allocated, copy
from nki_mlir.graph.upstream import exchange

CARRYING = ("scf.for", "scf.while", "scf.if", "scf.index_switch")


def keep_in_buffers(function: Operation) -> None:
    """Rewrite all that carries values, the outer ones first."""
    for op in operations_of(function, lambda name: name in CARRYING):
        if len(op.results) or op.name == "scf.index_switch":
            with op.context, ir.InsertionPoint(op), op.location:
                {"scf.for": _for, "scf.while": _while, "scf.if": _if, "scf.index_switch": _switch}[op.name](op)


def buffers(op: ir.Operation) -> list[Value]:
    """A new buffer for each result."""
    made = []
    for result in op.results:
        kind = ir.MemRefType(result.type) if isinstance(result.type, ir.MemRefType) else None
        if kind is None or kind.get_strides_and_offset() != (list(dense(kind.shape)), 0):
            raise Unsupported(feature=f"'{op.name}' that carries a {result.type}", instead="keep it in a whole buffer"
                              ).located(location_of(op))
        made.append(allocated(kind))
    return made


def put(values: Sequence[Value], targets: Sequence[Value]) -> None:
    """Copy values to buffers, all of them as they were before."""
    moved = [(v, t) for v, t in zip(values, targets) if v != t]
    if any(memory_of(v) in targets for v, _ in moved):
        held = []
        for value, target in moved:
            between = allocated(target.type)
            copy(value, between)
            held.append((between, target))
        moved = held
    for value, target in moved:
        copy(value, target)


def ended(block: Block, targets: Sequence[Value], name: str = "scf.yield", first: Sequence[Value] = ()) -> None:
    """Exchange the terminator of a block for one that carries nothing."""
    end = terminator(block)
    values = list(end.operands)[len(first):]
    with ir.InsertionPoint(end), end.location:
        put(values, targets)
        ir.Operation.create(name, operands=list(first))
    end.erase()


def moved(block: Block, region: Region, arguments: Sequence[Type]) -> Block:
    """A new block in a region with the operations of another."""
    new = region.blocks.append(*arguments, arg_locs=[block.owner.operation.location] * len(arguments))
    with ir.InsertionPoint(new):
        mark = ir.Operation.create("scf.yield")
    for inner in [one.operation for one in block.operations]:
        inner.move_before(mark)
    mark.erase()
    return new


def _for(op: Operation) -> None:
    targets = buffers(op)
    put(list(op.operands)[3:], targets)
    block = op.regions[0].blocks[0]
    for argument, target in zip(list(block.arguments)[1:], targets):
        argument.replace_all_uses_with(target)
    made = ir.Operation.create("scf.for", operands=list(op.operands)[:3], regions=1)
    new = moved(block, made.regions[0], [ir.IndexType.get()])
    block.arguments[0].replace_all_uses_with(new.arguments[0])
    ended(new, targets)
    exchange(op, targets)


def _while(op: Operation) -> None:
    targets = buffers(op)
    before, after = (region.blocks[0] for region in op.regions)
    if len(op.operands) != len(targets):
        raise Unsupported(feature="'scf.while' whose results are not what it carries", instead="return what is carried"
                          ).located(location_of(op))
    put(list(op.operands), targets)
    for block in (before, after):
        for argument, target in zip(block.arguments, targets):
            argument.replace_all_uses_with(target)
    made = ir.Operation.create("scf.while", regions=2)
    for block, region in zip((before, after), made.regions):
        moved(block, region, [])
    condition = made.regions[0].blocks[0]
    ended(condition, targets, "scf.condition", [terminator(condition).operands[0]])
    ended(made.regions[1].blocks[0], targets)
    exchange(op, targets)


def _if(op: Operation) -> None:
    targets = buffers(op)
    made = ir.Operation.create("scf.if", operands=[op.operands[0]], regions=2)
    for source, region in zip(op.regions, made.regions):
        ended(moved(source.blocks[0], region, []), targets)
    exchange(op, targets)


def _switch(op: Operation) -> None:
    targets = buffers(op)
    _choice(op, targets, list(enumerate(op.attributes["cases"], 1)))
    exchange(op, targets)


def _choice(op: Operation, targets: Sequence[Value], cases: Sequence[tuple[int, int]]) -> None:
    """The first case or one of the others, at the insertion point."""
    (number, case), *others = cases
    same = compared(EQUAL, op.operands[0], constant(case))
    made = ir.Operation.create("scf.if", operands=[same], regions=2)
    ended(moved(op.regions[number].blocks[0], made.regions[0], []), targets)
    if not others:
        ended(moved(op.regions[0].blocks[0], made.regions[1], []), targets)
        return
    with ir.InsertionPoint(made.regions[1].blocks.append()):
        _choice(op, targets, others)
        ir.Operation.create("scf.yield")
