# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""forward-moves: let operations read a copy's source directly, and erase copies that nothing reads.

before:  linalg.generic ins(%x) outs(%turned) { in }                           (maps (d1, d0) and (d0, d1))
         linalg.generic ins(%turned, %y) outs(%r) { in * in + out }
after:   linalg.generic ins(%x, %y) outs(%r) { in * in + out }                 (the operand's map is turned)

That is so where the copy is all that writes its buffer, all who read it are loop nests behind it that walk it as it
was written, and what was moved does not change before them. A copy of a buffer whose elements all are one constant
writes the constant instead, so that a fold behind it starts from a number.
"""

from nki_mlir.analysis.effects import defining, has_uses, memory_of, own_effects, users_through_views
from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.creation import structured_operation
from nki_mlir.dialects.kernel_function import KernelFunction, kernel_functions
from nki_mlir.graph.views import start_in_buffer, whole_buffer
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.waist.fusion import GenericOperation, axes_of, source_map, structured


class ForwardMoves(Pass, name="forward-moves"):
    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            for kernel in kernel_functions(module):
                forward_moves(kernel)


def forward_moves(kernel: KernelFunction) -> None:
    """Forward what can be forwarded in the blocks of a kernel."""
    aliases = any(a.kind == "input" and kernel.may_alias for a in kernel.arguments)
    for op in operations_of(kernel.op, lambda name: name == "linalg.generic"):
        copy = move(op)
        if copy is None:
            continue
        value = constant_in(copy)
        if value is not None:
            write_constant(copy, value)
        elif not aliases:
            forward(copy)


def move(op: Operation) -> GenericOperation | None:
    """The operation as a copy between buffers that changes no element, if it is one."""
    copy = structured(op)
    if copy is None or not (copy.parallel and copy.writes_only and copy.one_place_a_value) or len(copy.inputs) != 1 or (
            not isinstance(copy.inputs[0].type, ir.MemRefType)):
        return None
    (end, *others) = copy.body
    moved = not others and end.operands[0] == copy.block.arguments[0] and all(
        isinstance(e, (ir.AffineDimExpr, ir.AffineConstantExpr)) for e in copy.maps[0].results)
    return copy if moved and copy.inputs[0].type.element_type == copy.output.type.element_type else None


def writes(op: Operation, buffer: Value) -> bool:
    """Whether an operation, or one inside it, may write a buffer."""
    return any(buffer in own_effects(inner).writes for inner in operations_of(op, lambda name: True))


# -- constants ---------------------------------------------------------------------------------------------------------
def constant_in(copy: GenericOperation) -> Value | None:
    """The constant that fills the buffer of which a copy reads; None where no constant does."""
    buffer, before = memory_of(copy.inputs[0]), operations_before(copy.op)
    writers = [op for op in before if writes(op, buffer)]
    return filled_with(writers[-1]) if writers else None


def operations_before(op: Operation) -> list[Operation]:
    """The operations of its block that precede it."""
    block = [one.operation for one in op.block.operations]
    return block[:block.index(op)]


def filled_with(op: Operation) -> Value | None:
    """The constant that an operation writes to all of a buffer."""
    fill = structured(op)
    if fill is None or len(fill.inputs) != 1 or isinstance(fill.inputs[0].type, ir.MemRefType) or not (
            fill.one_place_a_value and fill.writes_only) or whole_buffer(fill.output) is None:
        return None
    end, *_ = fill.body
    origin = defining(fill.inputs[0])
    same = end.operands[0] == fill.block.arguments[0] and origin is not None and origin.name == "arith.constant"
    return fill.inputs[0] if same else None


def write_constant(copy: GenericOperation, value: Value) -> None:
    """The constant in place of the copy."""
    mapping = copy.maps[-1]
    with ir.InsertionPoint(copy.op), copy.op.location:
        structured_operation([value, copy.output], [ir.AffineMap.get(mapping.n_dims, 0, []), mapping],
                             copy.op.attributes["iterator_types"], lambda elements: elements[0])
    copy.op.erase()


# -- copies ------------------------------------------------------------------------------------------------------------
def forward(copy: GenericOperation) -> None:
    """Let all who read the copy read what it copied, if all can."""
    buffer, source = memory_of(copy.output), memory_of(copy.inputs[0])
    origin = defining(buffer)
    if origin is None or origin.name != "memref.alloc" or whole_buffer(copy.output) is None or buffer == source or (
            start_in_buffer(copy.inputs[0]).terms):
        return
    users = [op for op in users_through_views(buffer) if op != copy.op]
    order = [one.operation for one in copy.op.block.operations]
    readers = [reader_of(op, copy) for op in users]
    if not users or any(op not in order or order.index(op) < order.index(copy.op) for op in users):
        return
    last = max(map(order.index, users))
    if any(reader is None for reader in readers) or any(
            writes(op, source) for op in order[order.index(copy.op) + 1:last + 1]):
        return
    for reader in readers:
        assert reader is not None
        read_from_source(reader, copy)
    copy.op.erase()
    if not has_uses(buffer):
        origin.erase()


def reader_of(op: Operation, copy: GenericOperation) -> GenericOperation | None:
    """An operation as a nest that reads the copy and, without it, has operands that say the extents of its axes."""
    reader = structured_reader(op)
    if reader is None or copy.output not in reader.inputs or memory_of(reader.output) in (
            memory_of(copy.output), memory_of(copy.inputs[0])):
        return None
    if any(v != copy.output and memory_of(v) == memory_of(copy.output) for v in reader.inputs
           if isinstance(v.type, ir.MemRefType)):
        return None
    maps = [source_map(copy, m) if v == copy.output else m for v, m in zip(reader.inputs, reader.maps)]
    walked = {a for v, m in zip((*reader.inputs, reader.output), (*maps, reader.maps[-1]))
              if isinstance(v.type, ir.MemRefType) for a in axes_of(m)}
    return reader if walked >= set(range(reader.maps[-1].n_dims)) and all(
        is_read_in_runs(reader, copy, k) for k, v in enumerate(reader.inputs) if v == copy.output) else None


def is_read_in_runs(reader: GenericOperation, copy: GenericOperation, operand: int) -> bool:
    """Whether tiles of what was copied have its neighbours beside each other: those of a product may be transposed on
    chip, others have to lie as the result does."""
    strides, _ = ir.MemRefType(copy.inputs[0].type).get_strides_and_offset()
    units = [a for step, a in zip(strides, axes_of(source_map(copy, reader.maps[operand]))) if step == 1]
    if not units or units[-1] < 0:
        return False
    if reader.parallel:
        return units[-1] == axes_of(reader.maps[-1])[-1]
    extents, result = reader.extents, axes_of(reader.maps[-1])
    mine = [a for a in axes_of(reader.maps[operand]) if a >= 0]
    others = {a for k, m in enumerate(reader.maps[:-1]) if k != operand for a in axes_of(m)}
    summed, alone = [a for a in mine if a not in result], [a for a in mine if a in result and a not in others]
    return units[-1] in [max(group, key=lambda a: extents[a]) for group in (summed, alone) if group]


def structured_reader(op: Operation) -> GenericOperation | None:
    """A ``linalg.generic`` with one output and no mask, with any body; None for other operations."""
    if op.name != "linalg.generic" or "nki.mask" in op.attributes:
        return None
    inputs, outputs = list(op.attributes["operandSegmentSizes"])
    if outputs != 1:
        return None
    operands = list(op.operands)
    return GenericOperation(op, tuple(operands[:inputs]), operands[inputs],
                            tuple(m.value for m in op.attributes["indexing_maps"]))


def read_from_source(reader: GenericOperation, copy: GenericOperation) -> None:
    maps = list(reader.maps)
    for k, value in enumerate(reader.inputs):
        if value == copy.output:
            reader.op.operands[k] = copy.inputs[0]
            maps[k] = source_map(copy, maps[k])
    reader.op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
