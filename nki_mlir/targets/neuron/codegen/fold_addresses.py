# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fold-addresses: fold the addition that computes a run-time index into the address of the copy that uses the index.

before:  j = i + 11;  t = copy s[:, j]                      after:  t = copy s[:, i + 11]
         r[p] = iota p;  j = i * 192 + r;  t[p] = x[j[p]]           t[p] = x[i[p] * 192 + p]

On chip, a copy whose pattern an index moves becomes the copy at a run-time index, which more engines have. The
instruction adds an integer to an int32 index, or multiplies the index of each row and adds a number that an iota
counts from row to row. It writes the complete tile of indices, which only such copies read, in the same run. In
between, nothing changes the index, or another tile at an address that the kernel chose for both. The copy must accept
the same indices, because it checks their bounds; sums that are in bounds are exact as float32. The pass drops the
instruction, and the iota if nothing else reads it, also where the kernel fixes the order, since no other instruction
moves.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from nki_mlir.dialects.access import SBUF, Linear, Tile, dense
from nki_mlir.dialects.nisa.dynamic_access import (
    DmaDynamicReadOp,
    DmaDynamicWriteOp,
    DynamicReadOp,
    DynamicWriteOp,
    PatternAddressed,
    RunTimeIndexed,
    TensorCopyDynamicDstOp,
    TensorCopyDynamicSrcOp,
)
from nki_mlir.dialects.nisa.elementwise import ScalarTensorTensorOp, TensorScalarOp
from nki_mlir.dialects.nisa.indirect import DataAddressed, DmaGatherOp, DmaScatterOp, RowAddressed
from nki_mlir.dialects.nisa.movement import IotaOp
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.target_findings import may_replace
from nki_mlir.machine import Machine
from nki_mlir.passes.levels import Level
from nki_mlir.scalar.dtypes import INT32
from nki_mlir.targets.neuron.codegen.fuse_instructions import Uses, record_uses, uses_of
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code, DeviceBuffer, InstructionStep, blocks
from nki_mlir.targets.neuron.codegen.reuse_loads import bounds_of
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of
from nki_mlir.waist.overlap import boxes_overlap

COPIES = (DynamicReadOp, DynamicWriteOp, TensorCopyDynamicSrcOp, TensorCopyDynamicDstOp, DmaDynamicReadOp,
          DmaDynamicWriteOp, DmaGatherOp, DmaScatterOp)
PATTERNS = DynamicReadOp, DynamicWriteOp
BY_DMA = DmaDynamicReadOp, DmaDynamicWriteOp, DmaGatherOp, DmaScatterOp
SUMS = (TensorScalarOp, ScalarTensorTensorOp)
EXACT = 1 << 23                 # float32 represents all integers up to twice this number


class FoldAddresses(RecordsPass, name="fold-addresses", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        fold_addresses(code)


def fold_addresses(code: Code) -> int:
    """Fold index arithmetic into copies in place, and return the number of dropped instructions."""
    dropped = 0
    uses: Uses | None = None
    for block in blocks(code.body):
        for node in block.nodes:
            if type(node) is InstructionStep and type(node.op) in PATTERNS:
                node.op, node.work = _by_index(node.op, code.machine), None
        for run in list(runs_of(block.nodes)):
            if any(type(step.op) in COPIES for step in run) and any(type(step.op) in SUMS for step in run):
                uses = uses or uses_of(code)
                removed = _fold_in(run, uses, code.machine)
                block.nodes = [node for node in block.nodes if node not in removed]
                dropped += len(removed)
    return dropped


def _fold_in(run: Sequence[InstructionStep], uses: Uses, machine: Machine
             ) -> set[InstructionStep]:
    """Fold sums of a run, from the last to the first; return the instructions that are not needed any more."""
    removed: set[InstructionStep] = set()
    position = {step: at for at, step in enumerate(run)}
    for at in range(len(run) - 1, -1, -1):
        step = run[at]
        if type(step.op) not in SUMS or (indices := _indices(step, uses)) is None:
            continue
        readers = list(uses[indices.handle].readers)
        folded = [_folded(reader.op, step, uses, machine) if position.get(reader, -1) > at else None
                  for reader in readers]
        if not readers or None in folded or _is_changed(step, readers, run[at + 1:]):
            continue
        iota = _iota_of(step, uses)
        for reader, op in zip(readers, folded):
            assert op is not None
            _replace(reader, op, uses)
        for unneeded in (step, iota):
            if unneeded is not None and not any(uses[t.handle].readers for _, t in unneeded.op.targets()):
                removed.add(unneeded)
                for _, tile in unneeded.op.operands():
                    uses[tile.handle].readers.pop(unneeded, None)
                    uses[tile.handle].writers.pop(unneeded, None)
    return removed


def _indices(step: InstructionStep, uses: Uses) -> Tile | None:
    """Return the complete tile of indices that only this instruction writes; None if it is another instruction."""
    (_, tile), *more_targets = step.op.targets()
    buffer_uses = uses[tile.handle]
    free = buffer_uses.free and not buffer_uses.controls and [*buffer_uses.writers] == [step]
    return tile if free and not more_targets and _is_column(step.op, tile) else None


def _is_column(op: Op, tile: Tile) -> bool:
    """Return whether a tile is a complete buffer of one int32 in each partition, which an operation without a mask and
    symbols reads or writes."""
    access, buffer = tile.access, tile.handle
    if tile.space != SBUF or tile.dtype is not INT32 or buffer.dtype is not INT32 or (
            op.mask or op.limits or access.symbols_used() or access.partition is None):
        return False
    starts = access.partition.const, access.free.const
    return tile.shape == buffer.shape == (tile.shape[0], 1) and starts == (0, 0) and (
        tile.shape[0] == 1 or access.dims[0][0] == 1)


def _is_changed(step: InstructionStep, readers: Sequence[InstructionStep], following: Sequence[InstructionStep]
                ) -> bool:
    """Return whether something writes the index or its bytes between the sum and the last copy that reads the sum."""
    index = step.op.src.handle                                                          # type: ignore[attr-defined]
    last = max(following.index(reader) for reader in readers)
    return any(may_overwrite(tile.handle, index) for other in following[:last] for _, tile in other.op.targets())


def may_overwrite(buffer: DeviceBuffer, index: DeviceBuffer) -> bool:
    """Return whether a write of a buffer may change an index: they are the same, or at addresses that the kernel chose
    and that overlap."""
    if buffer is index:
        return True
    if buffer.space != index.space or not (index.fixed or index.addresses) or not (buffer.fixed or buffer.addresses):
        return False
    return bool(index.addresses or buffer.addresses) or boxes_overlap(bounds_of(index), bounds_of(buffer))


def _replace(step: InstructionStep, op: Op, uses: Uses) -> None:
    for _, tile in step.op.operands():
        uses[tile.handle].readers.pop(step, None)
    writers = {tile.handle: dict(uses[tile.handle].writers) for _, tile in step.op.targets()}
    step.op, step.work = op, None
    record_uses(uses, step)
    for handle, before in writers.items():      # writers stay in their order
        uses[handle].writers = before


# -- addresses ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CopyAddress:
    """The address of a copy: element e of the piece is at ``position(e) + scale * index`` of the table, counted row by
    row, and ``first(e) + index`` must be below ``extent``."""

    table: Tile
    position: Linear
    first: Linear
    scale: int
    extent: int
    index: Tile


def _address_of(op: Op) -> CopyAddress | None:
    """Return the address of a copy with one index that is not masked, or None for another operation."""
    if type(op) not in COPIES or op.mask or op.limits:
        return None
    if isinstance(op, PatternAddressed):
        axes = tuple((axis, step) for axis, step in enumerate(op.steps) if step)
        table = op.reachable() if op.table.on_chip else op.table        # the part of a row that the index reaches
        start = op.start - (table.access.free.const - op.table.access.free.const)
        return CopyAddress(table, Linear(start, (), axes), Linear(), op.scale, op.extent, op.index)
    if isinstance(op, RowAddressed):
        scale, *steps = dense(op.table.shape)
        rows, position = op.table.shape[0], Linear(0, (), tuple(enumerate(steps, 1)))
        return CopyAddress(op.table, position, Linear(), scale, rows, op.index)
    assert isinstance(op, RunTimeIndexed)
    if len(op.scales) != 1:
        return None
    return CopyAddress(op.table, op.position, op.first, op.scales[0], op.extents[0], op.offset)


def _with_address(op: Op, address: CopyAddress) -> Op | None:
    """Return the copy with another address; None if no instruction has it."""
    assert isinstance(op, DataAddressed)
    is_write = op.addressed_by_data == "dst"
    fields: dict[str, object] = {
        "position": address.position, "first": address.first, "scales": (address.scale,), "extents": (address.extent,),
        "offset": address.index, "dst": op.dst, "src": op.src, op.addressed_by_data: address.table,
        "engine": op.engine, "symbols": op.symbols, "ranges": op.ranges, "extra": op.extra}
    if op.table.on_chip and type(op) not in BY_DMA:
        if op.mode != "error" or op.rmw != "bypass" or op.table.shape[0] != op.piece.shape[0] or (
                prod(address.index.shape) != 1):
            return None
        return (TensorCopyDynamicDstOp if is_write else TensorCopyDynamicSrcOp)(**fields)    # type: ignore[arg-type]
    fields["mode"] = op.mode
    if is_write:
        return DmaDynamicWriteOp(rmw=op.rmw, **fields)                                      # type: ignore[arg-type]
    return DmaDynamicReadOp(**fields)                                                       # type: ignore[arg-type]


def _by_index(op: Op, machine: Machine) -> Op:
    """Return the instruction that adds to an index in place of a copy on chip at one index, since more engines have it.
    Return another copy unchanged."""
    address = _address_of(op)
    if address is None or not address.table.on_chip:
        return op
    copy = _with_address(op, address)
    return copy if copy is not None and may_replace(copy, [op], machine) else op


def _folded(copy: Op, step: InstructionStep, uses: Uses, machine: Machine) -> Op | None:
    """Return the copy that reads the index from which a sum computes the copy's index; None if none accepts the same
    indices, or if it takes longer than both, one after the other."""
    address, written = _address_of(copy), step.op.targets()[0][1]
    if address is None or not _is_column(copy, address.index) or address.index.handle is not written.handle or (
            address.index.shape[0] != written.shape[0]):
        return None
    source: Tile = step.op.src                                                          # type: ignore[attr-defined]
    if source.dtype is not INT32 or source.space != SBUF or source.shape != (source.shape[0], 1) or (
            source.access.symbols_used()):
        return None
    moved = _moved(address, step, uses)
    folded = None if moved is None else _with_address(copy, replace(moved, index=source))
    if folded is None or not may_replace(folded, [copy, step.op], machine):
        return None
    summed = machine.cost(step.op.runs_on, step.op.work())
    return folded if folded.busy_ns(machine) <= copy.busy_ns(machine) + summed.busy + summed.result else None


def _moved(address: CopyAddress, step: InstructionStep, uses: Uses) -> CopyAddress | None:
    """Return the address as a form of the index that the sum ``step`` reads instead of the index that it computes; the
    field ``index`` of the result is still the latter. None if the sum cannot be part of an address."""
    op = step.op
    if isinstance(op, TensorScalarOp):
        if (op.op0, op.op1) != ("add", "bypass") or op.operand0 is not None or not float(op.imm0).is_integer():
            return None
        added = int(op.imm0)
        if abs(added) + address.extent + abs(address.first.const) >= EXACT:
            return None
        return replace(address, position=address.position.plus(Linear(added * address.scale)),
                       first=address.first.plus(Linear(added)))
    iota = _iota_of(step, uses)
    assert isinstance(op, ScalarTensorTensorOp)
    if iota is None or address.first != Linear() or (op.op0, op.op1) != ("multiply", "add") or (
            op.operand0 is not None or not float(op.imm0).is_integer() or op.imm0 < 1):
        return None
    scale = int(op.imm0)
    form: Linear = iota.op.expression                                                   # type: ignore[attr-defined]
    row = dict(form.axes).get(0, 0)
    added_to_rows = [form.const + row * number for number in range(op.dst.shape[0])]
    if max(map(abs, added_to_rows)) >= EXACT - address.extent - scale:
        return None
    bounds = {(-(number // scale), (address.extent - 1 - number) // scale) for number in added_to_rows}
    if len(bounds) > 1:
        return None                             # the rows accept different indices
    (low, high), = bounds
    by_row = Linear(form.const, (), ((0, row),) if row else ())
    return replace(address, position=address.position.plus(by_row, address.scale), first=Linear(-low),
                   scale=scale * address.scale, extent=high - low + 1)


def _iota_of(step: InstructionStep, uses: Uses) -> InstructionStep | None:
    """Return the iota whose numbers a sum adds to the index of each row."""
    if not isinstance(step.op, ScalarTensorTensorOp):
        return None
    added = step.op.rhs
    buffer_uses = uses[added.handle]
    if not _is_column(step.op, added) or not buffer_uses.free or len(buffer_uses.writers) != 1:
        return None
    iota, = buffer_uses.writers
    is_counted = type(iota.op) is IotaOp and _is_column(iota.op, iota.op.dst) and not iota.op.symbols and (
        iota.op.dst.shape[0] == added.shape[0])
    return iota if is_counted else None
