# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites views of buffers in a bufferized graph as ``memref.reinterpret_cast`` of these buffers, all in HBM."""

from collections.abc import Sequence
from math import prod

from nki_mlir.analysis.view_starts import Start, start_in_buffer
from nki_mlir.bindings import Module, Operation, Type, Value, ir, operations_of
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM, Linear, dense
from nki_mlir.dialects.attributes import expression
from nki_mlir.dialects.creation import applied, value_of
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.graph.upstream import run_pipeline

DYNAMIC = ir.ShapedType.get_dynamic_stride_or_offset()
FLAT = "builtin.module(expand-strided-metadata,canonicalize,cse)"


def in_hbm(kind: Type) -> Type:
    """Return the memref type, in HBM if it names no memory."""
    if kind.memory_space is not None:
        return kind
    space = ir.StringAttr.get(HBM)
    strides, offset = kind.get_strides_and_offset()
    layout = None if tuple(strides) == dense(kind.shape) and offset == 0 else ir.StridedLayoutAttr.get(offset, strides)
    return ir.MemRefType.get(kind.shape, kind.element_type, layout, space)


def put_in_hbm(module: Module | Operation) -> None:
    """Put every buffer and view of a module in HBM, including arguments and globals. The types of functions stay."""
    for op in operations_of(module, lambda name: True):
        values = [*op.results, *(a for region in op.regions for block in region.blocks for a in block.arguments)]
        for value in values:
            if isinstance(value.type, ir.MemRefType):
                value.set_type(in_hbm(ir.MemRefType(value.type)))
        if op.name == "memref.global":
            op.attributes["type"] = ir.TypeAttr.get(in_hbm(ir.MemRefType(op.attributes["type"].value)))
    for op in operations_of(module, lambda name: name == "memref.memory_space_cast"):
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


def flatten_views(module: Module) -> None:
    """Rewrite every chain of views as one ``memref.reinterpret_cast``."""
    run_pipeline(module, FLAT)
    for op in operations_of(module, lambda name: name == "memref.extract_strided_metadata"):
        with op.context, ir.InsertionPoint(op), op.location:        # upstream leaves these views without dimensions
            op.results[0].replace_all_uses_with(reinterpreted(op.operands[0], [], [], 0))
        op.erase()
    for op in operations_of(module, lambda name: name == "memref.reinterpret_cast"):
        kind = ir.MemRefType(op.results[0].type)
        if not kind.has_static_shape or DYNAMIC in kind.get_strides_and_offset()[0]:
            raise Unsupported(feature=f"the view {kind}",
                              instead="use static sizes and strides").located(location_of(op))


def reinterpreted(buffer: Value, sizes: Sequence[int], strides: Sequence[int], offset: Value | int) -> Value:
    """Write a strided view of a buffer; the offset is a number or an index value."""
    array, base = ir.DenseI64ArrayAttr.get, ir.MemRefType(buffer.type)
    start, starts = (offset, []) if isinstance(offset, int) else (DYNAMIC, [offset])
    kind = ir.MemRefType.get(sizes, base.element_type, ir.StridedLayoutAttr.get(start, strides), base.memory_space)
    return value_of("memref.reinterpret_cast", kind, buffer, *starts, static_offsets=array([start]),
                    static_sizes=array(sizes), static_strides=array(strides),
                    operandSegmentSizes=ir.DenseI32ArrayAttr.get([1, len(starts), 0, 0]))


def viewed_as(buffer: Value, kind: ir.MemRefType, start: Start) -> ir.Value:
    """Write the view of another buffer with this type and start, whose elements have the same layout."""
    strides, _ = kind.get_strides_and_offset()
    return reinterpreted(buffer, kind.shape, strides, offset_of(start))


def offset_of(start: Start) -> Value | int:
    """Return an offset as a number, or as an index value that is computed at the insertion point."""
    if not start.terms and start.offset >= 0:               # MLIR takes no negative constants
        return start.offset
    if start.offset == 0 and [c for _, c in start.terms] == [1]:
        return start.terms[0][0]
    form = Linear(start.offset, tuple((k, c) for k, (_, c) in enumerate(start.terms)))
    return applied(expression(form), [v for v, _ in start.terms])


def complete_buffer(value: Value) -> Value | None:
    """Return the buffer if a value has all of the buffer's elements in their order; else None."""
    start, kind = start_in_buffer(value), ir.MemRefType(value.type)
    strides, _ = kind.get_strides_and_offset()
    base = ir.MemRefType(start.buffer.type)
    if start.offset or start.terms or tuple(strides) != dense(kind.shape) or prod(kind.shape) != prod(base.shape):
        return None
    return start.buffer
