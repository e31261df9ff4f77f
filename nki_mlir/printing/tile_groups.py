# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups the instructions of a graph by the tile of the result that they compute, so that equal groups become a loop.

before:  load a tile 0    after:  load b
         load a tile 1            load a tile 0
         load b                   add tile 0
         add tile 0               store tile 0
         add tile 1               load a tile 1
         store tile 0             add tile 1
         store tile 1             store tile 1

A graph becomes instructions operation by operation. Instructions that several tiles of a result need come first, then
one group of instructions for each transfer into the result, or into a buffer in HBM between operations.
"""

from collections import defaultdict
from dataclasses import dataclass

from nki_mlir.analysis.effects import local_effects
from nki_mlir.bindings import Operation, Value, ir
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op

WITHOUT_ORDER = ("memref.alloc", "arith.constant", "affine.apply")


def group_by_result(function: Operation) -> None:
    """Order the instructions of a function's body by tile, if all of them are instructions on buffers."""
    block, = function.regions[0].blocks
    *operations, end = [op.operation for op in block.operations]
    if not all(op.name in WITHOUT_ORDER or (is_tile_op(op) and not read_op(op).acts_outside) for op in operations):
        return
    earlier = _earlier(operations)
    order = _order(earlier)
    at = {k: position for position, k in enumerate(order)}
    if any(at[before] > at[k] for k, edges in enumerate(earlier) for before in edges.all):
        return
    for k in order:
        operations[k].move_before(end)


@dataclass
class EarlierOperations:
    """The operations that must precede another one, the ones among them that depend only on tiles on chip, and the
    buffers in HBM that the operation writes."""

    all: set[int]
    on_chip: set[int]
    targets: set[Value]


def _earlier(operations: list[Operation]) -> list[EarlierOperations]:
    """Return for each operation the earlier operations on which it depends: those that define its operands, write
    memory that it touches, or read memory that it writes. Transfers into one buffer in HBM stay in their order."""
    readers, writers = defaultdict[Value, set[int]](set), defaultdict[Value, set[int]](set)
    last_transfer: dict[Value, int] = {}
    index = {op: k for k, op in enumerate(operations)}
    earlier: list[EarlierOperations] = []
    for k, op in enumerate(operations):
        effects = local_effects(op)
        on_chip = {index[value.owner.operation] for value in op.operands if not isinstance(value.owner, ir.Block)}
        in_hbm: set[int] = set()
        targets = {buffer for buffer in effects.writes if _is_in_hbm(buffer)}
        for buffer in effects.reads:
            (in_hbm if _is_in_hbm(buffer) else on_chip).update(writers[buffer])
            readers[buffer].add(k)
        for buffer in effects.writes:
            (in_hbm if buffer in targets else on_chip).update(readers[buffer])
            if buffer in targets:
                in_hbm |= {last_transfer[buffer]} if buffer in last_transfer else set()
                last_transfer[buffer] = k
            else:
                on_chip |= writers[buffer]
            writers[buffer].add(k)
        on_chip.discard(k)
        in_hbm.discard(k)
        earlier.append(EarlierOperations(on_chip | in_hbm, on_chip, targets))
    return earlier


def _is_in_hbm(buffer: Value) -> bool:
    return str(getattr(buffer.type, "memory_space", None)) == '"hbm"'


def _order(earlier: list[EarlierOperations]) -> list[int]:
    """Return the operations by group. A group computes one tile, for transfers into one or more buffers; what several
    transfers into a buffer need stands before their first group."""
    group = {k: k for k, edges in enumerate(earlier) if edges.targets}
    transfers_of = defaultdict[int, list[int]](list)
    for transfer in group:
        for k in _closure(transfer, earlier):
            transfers_of[k].append(transfer)
    stages: list[int] = []              # number of buffers in HBM that are written and read before each operation
    for edges in earlier:
        stages.append(max((stages[before] + (before not in edges.on_chip and not edges.targets)
                           for before in edges.all), default=0))
    shared: set[int] = set()
    for k, transfers in transfers_of.items():
        first_stage = min(stages[t] for t in transfers)
        transfers[:] = [t for t in transfers if stages[t] == first_stage]
        targets = [buffer for transfer in transfers for buffer in earlier[transfer].targets]
        if len(set(targets)) < len(targets):
            shared.add(k)
            continue
        merged = {group[t] for t in transfers}
        if len(merged) > 1:
            group = {t: min(merged) if g in merged else g for t, g in group.items()}

    def key(k: int) -> tuple[int, bool, int]:
        first = min((group[t] for t in transfers_of[k]), default=-1)
        return first, k not in shared, k
    return sorted(range(len(earlier)), key=key)


def _closure(last: int, earlier: list[EarlierOperations]) -> set[int]:
    """Return an operation and all that must precede it on chip."""
    reached, pending = {last}, [last]
    while pending:
        new = earlier[pending.pop()].on_chip - reached
        reached |= new
        pending += new
    return reached
