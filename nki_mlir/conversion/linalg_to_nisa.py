# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""linalg-to-nisa: cover linalg operations with engine instructions.

before:  linalg.fill ins(%zero) outs(%sum)                    after:  "nisa.tensor_reduce"(%r, %x) {op = "add", ...}
         linalg.generic ins(%x) outs(%sum) { out + in }               "nisa.tensor_scalar"(%y, %r) {op0 = "multiply",
         linalg.generic ins(%sum) outs(%y) { in * 0.25 }                                            imm0 = 2.5e-01, ...}

``nisa`` operations stay unchanged, unless they have a mask, or have an operand in PSUM but run on the GpSimd engine,
which cannot read PSUM. Every operand is a buffer with an access pattern again. The pass selects instructions that the
target's engines can run. It copies operands that an engine cannot access: by an engine between SBUF and PSUM, by a DMA
between partitions. ``pieces`` is the largest number of transfers for a mask that does not select a box of elements.

Engines: functions of the activation table run on the Scalar engine, arithmetic on the Vector engine, powers, exact
32-bit integer arithmetic and index patterns on GpSimd, products and large transposes on the Tensor engine. If other
engines have an instruction with the same values, the engine stays open (``engine = "unknown"``):
``schedule-instructions`` chooses it, and the engine that triggers a transfer.
"""

from collections.abc import Hashable, Iterator
from dataclasses import replace

from nki_mlir.analysis.dead_code import erase_dead_code
from nki_mlir.analysis.effects import VIEWS, defining, users_through_views
from nki_mlir.analysis.index_values import SymbolValues
from nki_mlir.analysis.mask_boxes import box_of
from nki_mlir.bindings import Block, Module, Operation, Value, ir
from nki_mlir.conversion.arith_to_scalar import ArithToScalar
from nki_mlir.dialects.access import PSUM, Ranges
from nki_mlir.dialects.attributes import NO_MASK
from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.op import NisaOp
from nki_mlir.dialects.source_locations import errors_at
from nki_mlir.machine import Engine, machine_named
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.selection.emitter import Emitter
from nki_mlir.selection.folds import FoldStart, select, step_by_step_fold
from nki_mlir.selection.masks import MaskedInstruction
from nki_mlir.selection.selector import Selector
from nki_mlir.waist.buffer_views import TileReader
from nki_mlir.waist.builder import StructuredBuilder, Template
from nki_mlir.waist.expression import Constant, Convert, is_copy
from nki_mlir.waist.fusion import target_through
from nki_mlir.waist.nest_reader import structure_key
from nki_mlir.waist.overlap import may_overlap
from nki_mlir.waist.recognize import product_of
from nki_mlir.waist.tile_operand import TileNest, TileOperand

# Operations that may be between operations that are converted together.
BETWEEN = (*VIEWS, "arith.", "affine.apply", "memref.alloc")


class LinalgToNisa(Pass, name="linalg-to-nisa", reads=Level.WAIST, writes=Level.NISA):
    pieces: int = 512           # most transfers that an operation under a mask may become
    row_quotients: bool = True  # divide rows by one number each in an instruction for each row, where that is faster

    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            ArithToScalar().run(module)
            _open_masks(module)
            for kernel in kernel_functions(module):
                emitter = Emitter(machine_named(kernel.target), self.row_quotients)
                for block in _blocks(kernel.op):
                    _Block(block, emitter, self.pieces).convert()
                erase_dead_code(kernel.op)


def _open_masks(module: Module) -> None:
    """Rewrite instructions under masks that are not boxes as structured operations, which have forms for every mask."""
    builder = StructuredBuilder()
    for kernel in kernel_functions(module):
        for block in _blocks(kernel.op):
            for operation in [op.operation for op in block.operations]:
                if not is_masked(operation):
                    continue
                op = read_op(operation)
                box = box_of(op.mask, op.iteration().extents, SymbolValues(operation, op.symbols).interval)
                if op.is_loop_nest and not isinstance(op, DmaCopyOp) and box is not None and box.mask:
                    builder.convert(operation)


def is_masked(operation: Operation) -> bool:
    return operation.name.startswith("nisa.") and is_tile_op(operation) and str(operation.attributes["mask"]) != NO_MASK


def _blocks(op: Operation) -> Iterator[Block]:
    """Yield the blocks within an operation, except the bodies of structured operations."""
    for region in op.regions:
        for block in region.blocks:
            yield block
            for inner in list(block.operations):
                if not inner.operation.name.startswith("linalg."):
                    yield from _blocks(inner.operation)


class _Block:
    """The structured operations of one block, in order."""

    def __init__(self, block: Block, emitter: Emitter, pieces: int) -> None:
        self.emitter, self.pieces = emitter, pieces
        self.operations = [op.operation for op in block.operations]
        self.done: list[Operation] = []
        self.templates: dict[Hashable, Template] | None = {} if block.owner.operation.name == "func.func" else None

    def convert(self) -> None:
        self.structured()
        for op in self.operations:
            if op.name.startswith("nisa.") and is_tile_op(op):
                _take_bytes(op)
                if is_masked(op) or self.unseen(op):
                    self.instruction(op)
        for op in self.done:
            op.erase()

    def unseen(self, operation: Operation) -> bool:
        """Return whether an instruction has an operand in PSUM and runs on the GpSimd engine because no other can run
        it."""
        op = read_op(operation)
        return (op.engine == Engine.UNKNOWN.value and op.runs_on is Engine.GPSIMD
                and not self.emitter.machine.gpsimd_sees_psum and any(t.space == PSUM for _, t in op.operands()))

    def instruction(self, operation: Operation) -> None:
        """Rewrite an instruction of the kernel that cannot stay unchanged."""
        op = read_op(operation)
        assert isinstance(op, NisaOp)
        self.emitter.at(operation, op.symbols, op.ranges, op.extra)
        interval = SymbolValues(operation, op.symbols).interval
        with errors_at(operation):
            MaskedInstruction(self.emitter, interval, self.pieces).convert(op)
        self.done.append(operation)

    def structured(self) -> None:
        numbers = [number for number, op in enumerate(self.operations) if op.name in ("linalg.generic", "linalg.fill")]
        start = None               # the operation that wrote the start value of the fold that follows
        value = FoldStart.OLD          # what this fold starts from
        folded: set[int] = set()
        for number in numbers:
            if number in folded:
                continue
            op = self.operations[number]
            self.done.append(op)
            like = repetition_key(op) if self.templates is not None and start is None else None
            if like is not None and self.templates is not None and like[0] in self.templates:
                self.templates[like[0]].write(like[1], op.location, ir.InsertionPoint(op))
                continue
            with errors_at(op):
                reader = TileReader(op)
                nest = reader.read()
                following = self.next(number)
                if following is not None and self.starts(nest, op, self.operations[following]):
                    start, value = op, FoldStart.ACTIVE if nest.mask else FoldStart.ALL
                else:
                    symbols, extra = reader.symbols, reader.extra()
                    finish = self.finish(reader, nest, op, following, start) if start is not None else None
                    if finish is not None:
                        nest, reader = finish
                        symbols = reader.symbols
                    self.emitter.at(op, symbols, reader.ranges_of(symbols), extra)
                    if finish is not None and following is not None:
                        folded.add(following)        # its buffer may be allocated after the fold
                        self.emitter.insertion_point = ir.InsertionPoint(self.operations[following])
                    interval = SymbolValues(op, symbols).interval
                    select(Selector(self.emitter, interval, self.pieces), nest, value)
                    start, value = None, FoldStart.OLD
                    if like is not None and self.templates is not None and not isinstance(nest.body, Constant):
                        self.templates[like[0]] = Template(like[1], self.emitter.emitted)
        self.done += [self.operations[number] for number in sorted(folded)]

    def next(self, k: int) -> int | None:
        """Return the next structured operation, if nothing that touches memory comes before it."""
        for number in range(k + 1, len(self.operations)):
            name = self.operations[number].name
            if name == "linalg.generic":
                return number
            if not name.startswith(BETWEEN):
                return None
        return None

    def starts(self, nest: TileNest, op: ir.Operation, following: ir.Operation) -> bool:
        """Return whether an operation writes the identity of the following fold, which then needs no start value."""
        if not isinstance(nest.body, Constant) or op.operands[len(op.operands) - 1] != following.operands[
                len(following.operands) - 1]:
            return False
        after = TileReader(following).read()
        fold = step_by_step_fold(after)
        if fold is None or fold.identity is None or not after.reduced or (nest.mask and nest.mask != after.mask):
            return False
        if after.mask and not nest.mask and product_of(after) is not None:
            return False                # a product writes only its boxes
        return Constant(fold.dtype, type(nest.body.value)(fold.identity)) == nest.body

    def finish(self, reader: TileReader, nest: TileNest, op: Operation, following: int | None, start: Operation
               ) -> tuple[TileNest, TileReader] | None:
        """Return the fold with the result of the next operation as its target, if that operation converts all of the
        fold's result; else None.

        Nothing else may read the buffer of the fold's result, and the fold may not read elements that it then writes.
        """
        if following is None or nest.mask or nest.output.base_dtype is not nest.output.dtype:
            return None
        buffer = nest.output.handle
        if (origin := defining(buffer)) is None or origin.name != "memref.alloc":
            return None
        conversion = self.operations[following]
        users = users_through_views(buffer)
        if any(user not in (start, op, conversion) for user in users) or conversion not in users:
            return None
        last_reader = TileReader(conversion, reader.numbering)
        after = last_reader.read()
        if after.reduced or after.mask or after.limits or not (isinstance(after.body, Convert) and is_copy(after.body)):
            return None
        if after.output.space != nest.output.space:
            return None
        output = target_through(nest, after)
        if output is None or reads_target(nest, output, last_reader.ranges_of(last_reader.symbols)):
            return None
        return replace(nest, outputs=(output,)), last_reader


def reads_target(fold: TileNest, target: TileOperand, ranges: Ranges) -> bool:
    """Return whether a fold may read elements of a target: it may become several instructions, the first of which would
    change elements that the later ones read."""
    written = target.reached(fold.extents)
    return any(may_overlap(written, source.reached(fold.extents), ranges) for source in fold.inputs)


def repetition_key(op: Operation) -> tuple[Hashable, list[Value]] | None:
    """Return a key, and the buffers of the operands. Operations outside of loops with equal keys become the same
    instructions on different buffers. Return None if the instructions depend on numbers, or if an operand is not a
    view of a complete buffer."""
    operands = list(op.operands)
    if op.name != "linalg.generic":
        return None
    structure = structure_key(op, operands, list(op.regions[0].blocks[0].operations))
    if structure is None:
        return None
    views = [view for view in map(defining, operands) if view is not None and view.name == "nki.view"]
    if len(views) < len(operands) or any(len(view.operands) > 1 for view in views):
        return None
    buffers = [view.operands[0] for view in views]
    if any((definition := defining(buffer)) is not None and definition.name != "memref.alloc" for buffer in buffers):
        return None
    view_keys = [(*view.attributes.items(), buffer.type, buffers.index(buffer)) for view, buffer in zip(views, buffers)]
    return (structure, *view_keys), buffers


def _take_bytes(op: Operation) -> None:
    """Replace operands that are views of a buffer's bytes with another element type by the buffer itself.

    The instruction's patterns count elements of the tiles' types.
    """
    for k, value in enumerate(op.operands):
        while (source := defining(value)) is not None and source.name == "nki.reinterpret":
            op.operands[k] = value = source.operands[0]
