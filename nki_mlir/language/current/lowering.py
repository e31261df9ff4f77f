# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowers ``NkiTensor`` to operands of the core: views, temporaries for run-time addresses, operands of one shape."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import Any

from nki_mlir.capture.builder import active
from nki_mlir.capture.index import Index
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.part_forms import complete_tile, constant_access, strided_part
from nki_mlir.capture.strides import ONE_MORE, ZERO, Dim
from nki_mlir.capture.tensor import View
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects import verifier
from nki_mlir.dialects.access import HBM, dense
from nki_mlir.dialects.nisa import dynamic_access, indirect, movement
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.target_rules import DtypeOfOperand
from nki_mlir.language import instructions as core
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import EmptyDimension, emit
from nki_mlir.language.current import memory as memories
from nki_mlir.language.current import write_history
from nki_mlir.language.current.addressed_parts import (
    every_partition,
    partition_attributes,
    pattern_attributes,
    table_rows,
)
from nki_mlir.language.current.errors import core_rule, integer, invalid, not_a_tensor, of_core, require, unequal_sizes
from nki_mlir.language.current.pairing import aligned, dma_views, how_to_fill
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.machine import Machine
from nki_mlir.scalar.dtypes import FLOAT32, INT32, MICROSCALING, UINT16, UINT32, DType

PARTITIONS = Machine.partitions


# -- allocating --------------------------------------------------------------------------------------------------------
def carrier(dtype: DType) -> DType:
    """Return the element type of memory that stores a dtype: packed small floats are stored as integers."""
    if dtype.is_integer and dtype in MICROSCALING:
        return UINT16 if dtype.itemsize == 2 else UINT32
    return dtype


def allocate(shape: Sequence[int], dtype: DType, region: memories.MemoryRegion = memories.sbuf, *, name: str = "",
             address: tuple[int, int] | None = None, identity: bool = False) -> NkiTensor:
    """Allocate memory in ``region`` and return a tensor of it."""
    builder = active("a function that creates a tensor")
    if region.space != "hbm" and not prod(shape):
        core_rule(False, EmptyDimension, what=f"a tile of shape {list(shape)} has an empty dimension")
    attributes = None if address is None else {"nki.address": tuple(address)}
    is_shared = region is memories.MemoryRegion.shared_hbm
    buffer = builder.allocate(tuple(shape), carrier(dtype), region.space, shared=is_shared, name=name,
                              attributes=attributes)
    if is_shared:
        buffer.created_at = user_location()
    storage = memories.Storage(buffer, region, dtype, address, identity)
    if builder.recorder is not None:
        builder.recorder.stored(storage)
    tensor = NkiTensor.full(storage)
    if region is memories.MemoryRegion.shared_hbm:
        builder.properties.setdefault("shared_tensors", []).append(tensor)
    return tensor


def adopt(view: View, verdict: bool = False) -> NkiTensor:
    """Wrap a view that a function of the core returned in a tensor, and note its elements as written."""
    region = {"sbuf": memories.sbuf, "psum": memories.psum, "hbm": memories.private_hbm}[view.buffer.space]
    write_history.record_write(view)
    tensor = NkiTensor.of_view(view, region, verdict)
    if (recorder := active().recorder) is not None:
        recorder.stored(tensor.storage)
    write_history.mark(tensor.storage, view)
    return tensor


# -- views -------------------------------------------------------------------------------------------------------------
def core_view(tensor: NkiTensor) -> View:
    """Return (and memoize) the core view of a tensor, without its run-time address. Check that it is in its storage."""
    view = tensor.core
    if view is None:
        views, key = tensor.storage.views, (tensor.offset, tensor.strides, tensor.shape, tensor.dtype.name)
        view = views.get(key)
        if view is None:
            view = views[key] = _plain_view(tensor) or _checked_view(tensor)
        object.__setattr__(tensor, "core", view)
    return view


def _plain_view(tensor: NkiTensor) -> View | None:
    """Return the core view of a part of HBM, or of a complete tile; None for other tensors, and for those that reach
    out of their storage."""
    shape, offset, dtype, buffer = tensor.shape, tensor.offset, tensor.dtype, tensor.storage.buffer
    if 0 in shape:
        return None
    if buffer.space != HBM:
        if offset or dtype is not buffer.dtype or not _is_complete_tile(buffer.shape, shape, tensor.strides):
            return None
        part, access = complete_tile(shape, dtype.name, buffer.space)
        return View.of_form(buffer, ZERO, ZERO, dtype, part, access)
    part, first, last = strided_part(shape, tensor.strides)
    if offset + first < 0 or offset + last >= tensor.storage.row(dtype):
        return None
    start = None if part.pattern is None else constant_access(dtype.name, None, offset, part.pattern)
    return View.of_form(buffer, ZERO, Index(offset), dtype, part, start)


def _checked_view(tensor: NkiTensor) -> View:
    tensor.check_reach()
    return _core_view(tensor)


def _core_view(tensor: NkiTensor) -> View:
    buffer, dtype = tensor.storage.buffer, tensor.dtype
    if not tensor.on_chip:
        dims = tuple(Dim(0, s, n) for s, n in zip(tensor.strides, tensor.shape))
        return View(buffer, Index(), Index(tensor.offset), dims, dtype)
    row = tensor.storage.row(dtype)
    partition, free = divmod(tensor.offset, row)
    step, count = tensor.strides[0], tensor.shape[0]
    if count > 1 and step % row:
        invalid(f"partition stride {step} of {tensor.name}; it must be {row}, the elements of a partition",
                fix="copy the part to a separate tile first, with nisa.dma_copy")
    partition_dim = Dim(1 if count == 1 else step // row, 0, count)
    free_dims = tuple(Dim(0, 0 if n == 1 else s, n) for s, n in zip(tensor.strides[1:], tensor.shape[1:]))
    return View(buffer, Index(partition), Index(free), (partition_dim, *(free_dims or (ONE_MORE,))), dtype)


@lru_cache(4096)
def _is_complete_tile(of_buffer: tuple[int, ...], shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether a view of an on-chip buffer, from its first element on, is all of it in its shape."""
    return tuple(shape) == of_buffer and 1 < len(shape) and strides == dense(shape) and (
        shape[0] <= PARTITIONS or 1 not in shape[1:])


def table_of(tensor: NkiTensor) -> View:
    """Return a view of all elements of a tensor's storage: [1, N] in HBM, on chip [P, N] in the tensor's partitions."""
    table = _core_view(tensor)
    rows = table.dims[0] if tensor.on_chip else ONE_MORE
    return table.like(free=Index(), dims=(rows, Dim(0, 1, tensor.storage.row(tensor.dtype))))


def any_tensor(value: object, op: str, operand: str) -> NkiTensor:
    """Check that an operand is a tensor, in any memory and of any extent, and return it."""
    if isinstance(value, View):
        invalid(f"{op} {operand}: expecting 'tensor', got a tile of a beta-1 API (neuronxcc)",
                why="APIs from neuronxcc may not be used in Beta-2 kernels, nor the other way round",
                fix="use the functions of nki.isa and nki.language alone in one kernel")
    if not isinstance(value, NkiTensor):
        not_a_tensor(value, f"{op} {operand}")
    return value


def check_partitions(rows: int, op: str, operand: str) -> None:
    """Check that a tile has at most 128 partitions. The error has the code and fix that both generations share."""
    if rows > PARTITIONS:
        error = verifier.TooManyPartitions(count=rows, limit=PARTITIONS)
        invalid(f"{op} {operand} partition dimension {rows} exceeds maximum {PARTITIONS}", *error.advice, error.code)


def is_tensor(value: object, op: str, operand: str) -> NkiTensor:
    tensor = any_tensor(value, op, operand)
    if tensor.on_chip:
        check_partitions(tensor.shape[0], op, operand)
    return tensor


def one_element(value: object, op: str, operand: str) -> NkiTensor:
    tensor = any_tensor(value, op, operand)
    require(tensor.size == 1 and tensor.itemsize <= 4, f"{op} {operand} must be one element of up to 32 bits",
            fix="give a tile of shape (1, 1) with dtype=nl.int32")
    return tensor


# -- run-time addresses ------------------------------------------------------------------------------------------------
def index_view(indirection: memories.Indirection) -> View:
    """Return the index of a run-time address as a [1, 1] or [N, 1] tile of int32 or uint32, copied if needed."""
    if isinstance(indirection.index, memories.VirtualRegister):
        return indirection.index.state
    index = reading(indirection.index)
    if not index.on_chip or index.dtype not in (INT32, UINT32):
        tile = allocate((index.shape[0], index.size // index.shape[0]), INT32)
        if index.on_chip:
            copy_on_chip(tile, index)
        else:
            check_dma(tile, index)
            move_tensor(tile, index)
        index = tile
    view = core_view(index)
    return view.like(dims=(view.dims[0], Dim(0, view.dims[-1].free, prod(index.shape[1:]))))


def group_size(op: str) -> int:
    return Machine.quadrant if op.startswith("nc_matmul") else Machine.gpsimd_group


# Pairs of operations that read and that write elements with run-time addresses.
COLUMNS = dynamic_access.GatherColumnsOp, dynamic_access.ScatterColumnsOp
ROWS = dynamic_access.DmaDynamicReadOp, dynamic_access.DmaDynamicWriteOp
ELEMENTS = dynamic_access.DynamicReadOp, dynamic_access.DynamicWriteOp
TABLE_ROWS = indirect.DmaGatherOp, indirect.DmaScatterOp


def run_time_access(tensor: NkiTensor, group: int, **modes: str
                    ) -> tuple[tuple[type[Op], type[Op]], View, dict[str, View], dict[str, Any]]:
    """Return how to access a tensor with a run-time address: the (read, write) operations, the view of its memory, the
    index operand and the attributes."""
    if tensor.ndim == 1:                        # temporaries have two dimensions at least
        tensor = tensor.like(shape=(*tensor.shape, 1), strides=(*tensor.strides, 1))
    indirection = tensor.indirection
    assert indirection is not None
    if indirection.kind == "columns":
        return (COLUMNS, core_view(indirection.source), {"index": core_view(reading(indirection.index))},
                {"group": group})
    if tensor.on_chip and indirection.picks_rows:
        return (ROWS, every_partition(tensor), {"offset": index_view(indirection)},
                modes | partition_attributes(tensor, indirection))
    if (rows := table_rows(tensor, indirection)) is not None:
        return TABLE_ROWS, rows, {"index": index_view(indirection)}, modes
    return (ELEMENTS, table_of(tensor), {"index": index_view(indirection)},
            modes | pattern_attributes(tensor, indirection))


def read_into(dst: View, tensor: NkiTensor, *, mode: str = "error", group: int = Machine.gpsimd_group,
              engine: str = "unknown") -> None:
    """Emit ``dst`` = the elements of a tensor with a run-time address. ``dst`` has the tensor's shape."""
    (reads, _), memory, index, attributes = run_time_access(tensor, group, mode=mode)
    emit(reads, {"dst": dst, "src": memory, **index}, engine=engine, **attributes)


def write_from(tensor: NkiTensor, src: View, *, mode: str = "error", rmw: str = "bypass",
               group: int = Machine.gpsimd_group, engine: str = "unknown") -> None:
    """Emit the write of ``src`` to the elements of a tensor with a run-time address."""
    (_, writes), memory, index, attributes = run_time_access(tensor, group, mode=mode, rmw=rmw)
    if writes is not dynamic_access.ScatterColumnsOp:
        write_history.mark(tensor.storage, View.full(tensor.storage.buffer))
    emit(writes, {"dst": memory, "src": src, **index}, engine=engine, **attributes)


def moved_shape(tensor: NkiTensor) -> tuple[int, ...]:
    """Return the shape of a temporary for a tensor's elements: the tensor's, with at least two dimensions."""
    return tuple(tensor.shape) if len(tensor.shape) > 1 else (*tensor.shape, 1)


def reading(tensor: NkiTensor, op: str = "") -> NkiTensor:
    """Return the tensor, or if it has a run-time address a new tile with its elements."""
    if tensor.indirection is None:
        return tensor
    tile = allocate(moved_shape(tensor), tensor.dtype)
    read_into(core_view(tile), tensor, group=group_size(op))
    return tile


@contextmanager
def writing(dst: object, op: str, operand: str = "dst", *, reads: bool = False, flat: bool = False,
            scratch: bool = False) -> Iterator[NkiTensor]:
    """Yield the tensor that an instruction writes. With ``flat`` the tensor is one that ``flat_view`` accepts.

    A tensor with a run-time address, or that is not flat, is replaced by a temporary, which is copied to the tensor
    when the block ends. With ``scratch`` (the instruction has another result) a tensor that repeats elements is
    replaced, too: each element gets its last value. With ``reads`` the temporary first gets the elements of the tensor.
    """
    tensor = is_tensor(dst, op, operand)
    if tensor.indirection is None:
        if scratch and repeated(tensor):
            temporary = allocate(tensor.shape, tensor.dtype)
            yield temporary
            shape = tuple(1 if k in repeated(tensor) else n for k, n in enumerate(tensor.shape))
            last_offset = temporary.offset + sum((temporary.shape[k] - 1) * temporary.strides[k]
                                                 for k in repeated(tensor))
            emit(movement.TensorCopyOp, {"dst": core_view(tensor.like(shape=shape)),
                                         "src": core_view(temporary.like(shape=shape, offset=last_offset))})
        elif flat and len(_rows(tensor).dims) != 2:
            temporary = allocate((tensor.shape[0], tensor.size // tensor.shape[0]), tensor.dtype, tensor.buffer)
            outside, inside = paired(op, dst=tensor, temporary=temporary)
            if reads:
                emit(movement.TensorCopyOp, {"dst": inside, "src": outside})
            yield temporary
            emit(movement.TensorCopyOp, {"dst": outside, "src": inside})
        else:
            yield tensor
        wrote(tensor)
        return
    temporary = allocate(moved_shape(tensor), tensor.dtype, tensor.buffer if tensor.on_chip else memories.sbuf)
    if reads:
        read_into(core_view(temporary), tensor, group=group_size(op))
    yield temporary
    write_from(tensor, core_view(temporary), group=group_size(op))


def wrote(tensor: NkiTensor) -> None:
    """Record that an instruction has written a tensor without a run-time address."""
    view = core_view(tensor)
    write_history.record_write(view)
    write_history.mark(tensor.storage, view)


def repeated(tensor: NkiTensor) -> list[int]:
    """Return the free dimensions along which a tile repeats its elements (stride 0)."""
    return [k for k in range(1, tensor.ndim) if tensor.strides[k] == 0 and tensor.shape[k] > 1]


# -- moving ------------------------------------------------------------------------------------------------------------
def copy_on_chip(dst: NkiTensor, src: NkiTensor, op: str = "tensor_copy", engine: str = "unknown") -> None:
    with operands(op, dst, src=src) as (target, source):
        if engine == "scalar" and target.dtype is source.dtype and target.dtype.itemsize == 4:
            target, source = target.like(dtype=FLOAT32), source.like(dtype=FLOAT32)     # copies all bits
        emit(movement.TensorCopyOp, {"dst": target, "src": source}, engine=engine)


def copied(src: NkiTensor, dtype: DType, region: memories.MemoryRegion = memories.sbuf, op: str = "tensor_copy"
           ) -> NkiTensor:
    """Copy a tensor to a new on-chip tile of ``dtype`` in ``region``."""
    copy = allocate(src.shape if src.indirection is None else moved_shape(src), dtype, region)
    copy_on_chip(copy, src, op)
    return copy


def check_dma(dst: NkiTensor, src: NkiTensor, op: str = "dma_copy") -> None:
    for label, t in (("dst", dst), ("src", src)):
        any_tensor(t, op, label)
        if t.buffer is memories.psum and label == "dst":
            invalid(f"{op} {label} is in PSUM, which DMA cannot access; copy it to SBUF first",
                    fix="copy it to SBUF first, with nisa.tensor_copy", code="err_unsupported_memory")
        if min(t.strides, default=0) < 0:
            invalid(f"{op} {label} steps backwards: {t.get_pattern()}",
                    fix="copy it on chip first, with nisa.tensor_copy")
        if t.on_chip:
            check_partitions(t.storage.buffer.shape[0], op, label)
    if dst.size != src.size:
        invalid(f"{op} moves {src.size} elements of shape {list(src.shape)} to {dst.size} of shape {list(dst.shape)}",
                fix=how_to_fill(dst.shape, src.shape, src.on_chip), code="NKI-SHAPE")


def move_tensor(dst: NkiTensor, src: NkiTensor, engine: str = "unknown") -> None:
    """Emit a DMA from ``src`` to ``dst``, which have no run-time addresses."""
    move(core_view(dst), core_view(src), engine)
    write_history.mark(dst.storage, core_view(dst))


def move(dst: View, src: View, engine: str = "unknown") -> None:
    """Emit a DMA between two views, or two DMAs through a dense HBM temporary if no pair of patterns expresses it."""
    pair = dma_views(dst, src)
    if pair is not None:
        emit(movement.DmaCopyOp, {"dst": pair[0], "src": pair[1]}, engine=engine)
        return
    scratch = allocate((prod(src.shape),), src.dtype, memories.private_hbm)
    for target, source in ((core_view(scratch), src), (dst, core_view(scratch))):
        pair = dma_views(target, source)
        require(pair is not None, f"a DMA between shapes {list(source.shape)} and {list(target.shape)}",
                fix="reshape one of them to the other's shape")
        assert pair is not None
        emit(movement.DmaCopyOp, {"dst": pair[0], "src": pair[1]}, engine=engine)


# -- operands of an instruction ----------------------------------------------------------------------------------------
def paired(op: str, **operands: object) -> list[View]:
    """Return views of the operands with one common shape, elements paired in iteration order. The first is the
    destination."""
    tensors = {label: reading(is_tensor(t, op, label), op) for label, t in operands.items()}
    (first_label, head), *remaining = tensors.items()
    for label, t in remaining:
        core_rule(t.shape[0] == head.shape[0] or not t.on_chip or not head.on_chip, verifier.ShapeMismatch,
                  what=f"{op} {label} has {t.shape[0]} partitions, {first_label} has {head.shape[0]}",
                  fix=verifier.PartitionMismatch.fix)
        if t.size != head.size:
            raise unequal_sizes(f"{op} {label}", t.shape, t.on_chip, first_label, head.shape)
        if t.buffer is memories.psum:
            write_history.note_read(core_view(t))
    views = aligned([core_view(t) for t in tensors.values()])
    if views is None:               # extents that do not nest: dense copies of the sources can be split anywhere
        dense = [head, *(_dense(t) for _, t in remaining)]
        views = aligned([core_view(t) for t in dense])
    if views is None:
        invalid(f"{op}: the shape {list(head.shape)} of {first_label} does not divide into those of the other operands",
                fix="give all operands the same shape")
    return views


@contextmanager
def operands(op: str, dst: object, *, reads: bool = False, scratch: bool = False, **sources: object
             ) -> Iterator[list[View]]:
    """Yield the views of ``paired`` for the destination, which is open for ``writing``, and the other operands."""
    if isinstance(dst, NkiTensor) and dst.indirection is None and not scratch:
        yield paired(op, dst=dst, **sources)
        wrote(dst)
    else:
        with writing(dst, op, reads=reads, scratch=scratch) as out:
            yield paired(op, dst=out, **sources)


def _dense(tensor: NkiTensor) -> NkiTensor:
    """Return the tensor as [P, N], copied to a new tile if it is not contiguous."""
    if not tensor.is_contiguous():
        copy = allocate(tensor.shape, tensor.dtype)
        emit(movement.TensorCopyOp, {"dst": core_view(copy), "src": core_view(tensor)})
        tensor = copy
    return tensor.reshape((tensor.shape[0], tensor.size // tensor.shape[0]))


def scalar(op: str, label: str, value: object, data: View, shape_error: type[KernelError] = verifier.NotOneARow
           ) -> Any:
    """Return a scalar operand: a number, or the view of a [P, 1] tile with the rank of the operand ``data``. Raise
    ``shape_error`` for a tile of another shape."""
    if isinstance(value, memories.VirtualRegister):
        invalid(f"{op} {label}: a register is not an operand; store it to a tile with nisa.register_store",
                fix="store it to a tile with nisa.register_store first")
    if not isinstance(value, NkiTensor):
        return value
    tensor = reading(is_tensor(value, op, label), op)
    core_rule(tensor.size == tensor.shape[0], shape_error, operand=label, op=op, found=list(tensor.shape),
              count=prod(tensor.shape[1:]), rows=data.shape[0])
    return core.rows_like(core_view(tensor), data)


def number_and_tile(op: str, label: str, value: object, data: View) -> tuple[Any, float]:
    """Return a scalar operand as (tile or None, number)."""
    return core.operand(scalar(op, label, value, data), op)


def tile(op: str, label: str, value: object) -> View:
    """Return the view of an operand in its shape, not paired with others."""
    return core_view(reading(is_tensor(value, op, label), op))


def _rows(tensor: NkiTensor) -> View:
    """Return the view with dimensions merged as far as the strides allow."""
    views = aligned([core_view(tensor)])
    assert views is not None                                    # one view nests with itself
    return views[0]


def flat_tile(op: str, label: str, value: object) -> View:
    """Return an operand as a [P, N] view, of a copy if its strides do not merge."""
    tensor = reading(is_tensor(value, op, label), op)
    view = _rows(tensor)
    return view if view.ndim == 2 else core_view(_dense(tensor))


def flat_view(out: NkiTensor) -> View:
    """Return the [P, N] view of a tile that ``writing(flat=True)`` yielded."""
    view = _rows(out)
    assert view.ndim == 2
    return view


def one_dtype(op: str, like: str, **tensors: Any) -> None:
    """Check that tensors have the dtype of the operand ``like``, for instructions that do not convert."""
    expected = is_tensor(tensors[like], op, like).dtype
    for label, tensor in tensors.items():
        kind = any_tensor(tensor, op, label).dtype
        core_rule(kind is expected, DtypeOfOperand, op=op, operand=label, found=kind, expected=expected)


def in_sbuf(op: str, **tensors: object) -> None:
    """Check that operands are in SBUF, for engines that access only SBUF."""
    for label, t in tensors.items():
        if isinstance(t, (NkiTensor, View)):
            memory = is_tensor(t, op, label).buffer
            if memory is not memories.sbuf:
                space = memory.value.rpartition("_")[2]
                active().report(of_core(verifier.WrongMemory(operand=label, op=op, expected="sbuf", found=space)),
                                uncertain=False)


def free_axes(op: str, tensor: NkiTensor, axis: object) -> tuple[int, ...]:
    """Return the axes of a reduction, which must be the last free axes of the tensor, in ascending order."""
    axis_list = [integer(a, f"{op} axis") for a in (axis if isinstance(axis, (list, tuple)) else [axis])]
    core_rule(axis_list, ops.BadAxis, axis=axis, rank=tensor.ndim, last=tensor.ndim - 1)
    axes = ops.free_axes(tensor.ndim, axis_list)
    require(axes == tuple(range(axes[0], tensor.ndim)),
            f"{op} axis {axis} of a tensor of {tensor.ndim} dimensions: the last contiguous free axes are reduced",
            fix="rearrange the tile so that the axes are the last", code="NKI-AXIS")
    return axes
