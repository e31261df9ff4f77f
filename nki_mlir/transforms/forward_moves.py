# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""forward-moves: let operations read a copy's source, or write its target, directly, and erase the copy.

before:  linalg.generic ins(%x) outs(%transposed) { in }                       (maps (d1, d0) and (d0, d1))
         linalg.generic ins(%transposed, %y) outs(%r) { in * in + out }
after:   linalg.generic ins(%x, %y) outs(%r) { in * in + out }                 (the map of %x is transposed)

The pass forwards a copy if nothing else writes its buffer, all operations that read it are later loop nests on the view
that the copy wrote, and nothing writes the source before them. A copy of a buffer that is filled with one constant
writes the constant instead, so that a fold after it starts from a number. Products whose result is only copied write
the target of the copy, transposed or not:

before:  linalg.generic ins(%x, %y) outs(%sums) { in * in + out }
         linalg.generic ins(%sums) outs(%r) { in }                             (maps (d1, d0) and (d0, d1))
after:   linalg.generic ins(%x, %y) outs(%r) { in * in + out }                 (the map of %r is transposed)
"""

from nki_mlir.analysis.dead_code import ancestor_in
from nki_mlir.analysis.effects import defining, has_uses, local_effects, memory_of, users_through_views
from nki_mlir.analysis.view_starts import start_in_buffer
from nki_mlir.bindings import Block, Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.creation import structured_operation
from nki_mlir.dialects.kernel_function import KernelFunction, kernel_functions
from nki_mlir.dialects.mlir_ops import meetings_of
from nki_mlir.graph.views import complete_buffer, viewed_as
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.waist.fusion import Access, fusible, read_through
from nki_mlir.waist.generic import GenericOperation, axes_of, generic_of


class ForwardMoves(Pass, name="forward-moves"):
    targets: bool = True        # let products write the target of a copy of their result

    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            for kernel in kernel_functions(module):
                forward_moves(kernel, self.targets)


def forward_moves(kernel: KernelFunction, targets: bool) -> None:
    """Forward all copies in the blocks of a kernel that can be forwarded. ``targets``: or let products write their
    targets."""
    uses = BlockUses(kernel)
    aliases = any(a.kind == "input" and kernel.may_alias for a in kernel.arguments)
    for op in operations_of(kernel.op, lambda name: name == "linalg.generic"):
        copy = move(op)
        if copy is None:
            continue
        value = constant_in(copy, uses)
        if value is not None:
            write_constant(copy, value)
        elif not aliases and not forward(copy, uses) and targets:
            write_target(copy, uses)


def move(op: Operation) -> GenericOperation | None:
    """Return the operation if it is a copy between buffers that changes no element."""
    copy = fusible(op)
    if copy is None or not (copy.parallel and copy.writes_only and copy.writes_each_element_once) or (
            len(copy.inputs) != 1 or not isinstance(copy.inputs[0].type, ir.MemRefType)):
        return None
    (end, *other_operations) = copy.body
    unchanged = not other_operations and end.operands[0] == copy.block.arguments[0] and all(
        isinstance(e, (ir.AffineDimExpr, ir.AffineConstantExpr)) for e in copy.maps[0].results)
    return copy if unchanged and copy.inputs[0].type.element_type == copy.output.type.element_type else None


class BlockUses:
    """The operations of a block that use a buffer. They follow from the uses of its views, so that a pass over many
    operations looks at few of them for each copy."""

    def __init__(self, kernel: KernelFunction) -> None:
        self.meetings = meetings_of(kernel.op)          # at which other programs write what all of them share

    def touching(self, buffer: Value, block: Block, writes: bool = False) -> list[Operation]:
        """Return the operations that may read or write the buffer, or have one inside that may; ``writes``: or only
        those that may write it."""
        users = [op for op in users_through_views(buffer) if not writes or buffer in local_effects(op).writes]
        if defining(buffer) is None:
            users += self.meetings
        return [op for user in users if (op := ancestor_in(block, user)) is not None]


def last_of(operations: list[Operation]) -> Operation:
    """Return the last of some operations of a block."""
    last = operations[0]
    for op in operations[1:]:
        if last.is_before_in_block(op):
            last = op
    return last


# -- constants ---------------------------------------------------------------------------------------------------------
def constant_in(copy: GenericOperation, uses: BlockUses) -> Value | None:
    """Return the constant that fills the buffer that a copy reads, or None if it has other contents."""
    writers = uses.touching(memory_of(copy.inputs[0]), copy.op.block, writes=True)
    earlier = [op for op in writers if op.is_before_in_block(copy.op)]
    return filled_with(last_of(earlier)) if earlier else None


def filled_with(op: Operation) -> Value | None:
    """Return the constant that an operation writes to all of a buffer."""
    fill = fusible(op)
    if fill is None or len(fill.inputs) != 1 or isinstance(fill.inputs[0].type, ir.MemRefType) or not (
            fill.writes_each_element_once and fill.writes_only) or complete_buffer(fill.output) is None:
        return None
    end, *_ = fill.body
    origin = defining(fill.inputs[0])
    is_constant = end.operands[0] == fill.block.arguments[0] and origin is not None and origin.name == "arith.constant"
    return fill.inputs[0] if is_constant else None


def write_constant(copy: GenericOperation, value: Value) -> None:
    """Write the constant in place of the copy."""
    mapping = copy.maps[-1]
    with ir.InsertionPoint(copy.op), copy.op.location:
        structured_operation([value, copy.output], [ir.AffineMap.get(mapping.n_dims, 0, []), mapping],
                             copy.op.attributes["iterator_types"], lambda elements: elements[0])
    copy.op.erase()


# -- copies ------------------------------------------------------------------------------------------------------------
def forward(copy: GenericOperation, uses: BlockUses) -> bool:
    """Let all operations that read the copy read its source. Return whether all can."""
    buffer, source = memory_of(copy.output), memory_of(copy.inputs[0])
    origin = defining(buffer)
    if origin is None or origin.name != "memref.alloc" or complete_buffer(copy.output) is None or buffer == source or (
            start_in_buffer(copy.inputs[0]).terms):
        return False
    users = [op for op in users_through_views(buffer) if op != copy.op]
    block = copy.op.block
    readers = [reader_of(op, copy) for op in users]
    if not users or any(op.block != block or not copy.op.is_before_in_block(op) for op in users):
        return False
    last_user = last_of(users)
    if any(reader is None for reader in readers) or any(
            copy.op.is_before_in_block(op) and not last_user.is_before_in_block(op)
            for op in uses.touching(source, block, writes=True)):
        return False
    for reader, sources in filter(None, readers):
        reader.replace_inputs(sources)
    copy.op.erase()
    if not has_uses(buffer):
        origin.erase()
    return True


def write_target(copy: GenericOperation, uses: BlockUses) -> None:
    """Let the products that write the source of a copy write the target of the copy, if no other operation uses the
    source, and none uses the target in between. ``fuse-tiles`` does the same for operations without a fold."""
    source, target, start = copy.inputs[0], memory_of(copy.output), start_in_buffer(copy.output)
    buffer, block = memory_of(source), copy.op.block
    origin, target_origin = defining(buffer), defining(target)
    writers = [op for op in users_through_views(buffer) if op != copy.op]
    if origin is None or origin.name != "memref.alloc" or complete_buffer(source) is None or start.terms or (
            target_origin is not None and target_origin.name != "memref.alloc"):
        return
    nests = [nest for op in writers if op.block == block and (nest := writer_of(op, source)) is not None]
    from_axes, to_axes = axes_of(copy.maps[0]), axes_of(copy.maps[-1])
    if len(nests) < len(writers) or all(nest.parallel for nest in nests) or -1 in from_axes or (
            sorted(from_axes) != sorted(to_axes)) or any(copy.op.is_before_in_block(op) for op in writers):
        return
    first = next(op for op in writers if not any(other.is_before_in_block(op) for other in writers))
    if any(op.is_before_in_block(copy.op) and not op.is_before_in_block(first)
           for op in uses.touching(target, block)):
        return
    if target_origin is not None and target_origin.block == block and not target_origin.is_before_in_block(first):
        target_origin.move_before(first)                # an earlier one stays: others write it before
    for nest in nests:
        with ir.InsertionPoint(nest.op), nest.op.location:
            view = viewed_as(target, ir.MemRefType(copy.output.type), start)
        subscript_of = dict(zip(from_axes, nest.maps[-1].results))
        output_map = ir.AffineMap.get(nest.maps[-1].n_dims, 0, [subscript_of[axis] for axis in to_axes])
        nest.op.operands[len(nest.op.operands) - 1] = view
        nest.op.attributes["indexing_maps"] = ir.ArrayAttr.get(
            [ir.AffineMapAttr.get(m) for m in (*nest.maps[:-1], output_map)])
    copy.op.erase()
    if not has_uses(buffer):
        origin.erase()


def writer_of(op: Operation, source: Value) -> GenericOperation | None:
    """Return an operation that writes a buffer through a view like the one that a copy reads, and reads no other part
    of it."""
    nest = generic_of(op)
    if nest is None or len(nest.outputs) != 1 or "nki.mask" in op.attributes or (
            ir.MemRefType(nest.output.type).shape != ir.MemRefType(source.type).shape):
        return None
    buffer = memory_of(source)
    reads = any(memory_of(v) == buffer for v in nest.inputs if isinstance(v.type, ir.MemRefType))
    return nest if memory_of(nest.output) == buffer and not reads and complete_buffer(nest.output) is not None else None


def reader_of(op: Operation, copy: GenericOperation) -> tuple[GenericOperation, dict[int, Access]] | None:
    """Return an operation that reads the copy, and the accesses of its inputs to the source; None if it cannot read the
    source.

    Without the copy, the operands must still determine the extents of its axes.
    """
    reader = generic_of(op)
    if reader is None or len(reader.outputs) != 1 or "nki.mask" in op.attributes or copy.output not in reader.inputs:
        return None
    if memory_of(reader.output) in (memory_of(copy.output), memory_of(copy.inputs[0])):
        return None
    if any(v != copy.output and memory_of(v) == memory_of(copy.output) for v in reader.inputs
           if isinstance(v.type, ir.MemRefType)):
        return None
    sources = {k: read_through(copy, reader, k).sources[0] for k, v in enumerate(reader.inputs) if v == copy.output}
    accesses = [sources.get(k, access) for k, access in enumerate(zip(reader.operands, reader.maps))]
    walked = {a for v, m in accesses if isinstance(v.type, ir.MemRefType) for a in axes_of(m)}
    if not walked >= set(range(reader.maps[-1].n_dims)):
        return None
    return (reader, sources) if all(is_read_in_runs(reader, k, access) for k, access in sources.items()) else None


def is_read_in_runs(reader: GenericOperation, operand: int, access: Access) -> bool:
    """Return whether adjacent elements of the source are adjacent in the tiles that the reader loads.

    Tiles of a product may be transposed on chip; other tiles must have the layout of the result.
    """
    source, mapping = access
    strides, _ = ir.MemRefType(source.type).get_strides_and_offset()
    units = [a for step, a in zip(strides, axes_of(mapping)) if step == 1]
    if not units or units[-1] < 0:
        return False
    if reader.parallel:
        return units[-1] == axes_of(reader.maps[-1])[-1]
    extents, result = reader.extents, axes_of(reader.maps[-1])
    operand_axes = [a for a in axes_of(reader.maps[operand]) if a >= 0]
    other_axes = {a for k, m in enumerate(reader.maps[:-1]) if k != operand for a in axes_of(m)}
    summed, unshared = [a for a in operand_axes if a not in result], [a for a in operand_axes if a in result
                                                                   and a not in other_axes]
    return units[-1] in [max(group, key=lambda a: extents[a]) for group in (summed, unshared) if group]
