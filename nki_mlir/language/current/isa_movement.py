# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions that move data: DMA between HBM and SBUF, register moves, exchanges between cores of a launch."""

from collections.abc import Sequence
from math import prod
from typing import Any

from nki_mlir.capture.builder import active, require_generation
from nki_mlir.capture.tensor import View
from nki_mlir.dialects.nisa import elementwise, movement
from nki_mlir.dialects.nisa.meeting import CoreBarrierOp, SendrecvOp
from nki_mlir.dialects.target_rules import DtypeOfOperand
from nki_mlir.dialects.verifier import ShapeMismatch, WrongDtype
from nki_mlir.language import instructions as core
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import emit
from nki_mlir.language.current import assignment, write_history
from nki_mlir.language.current import enums as e
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.calls import reported
from nki_mlir.language.current.errors import core_rule, integer, invalid, older, one_of, require, warn
from nki_mlir.language.current.instruction import alu, instruction
from nki_mlir.language.current.memory import Storage, VirtualRegister, check_register, private_hbm, sbuf, shared_hbm
from nki_mlir.language.current.pairing import dma_views
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.machine import Machine
from nki_mlir.scalar.dtypes import FLOAT32, INT32, UINT32


def check_modes(op: str, dst: NkiTensor, src: NkiTensor, oob_mode: e.oob_mode, dge_mode: e.dge_mode) -> str:
    """Check the rules of a descriptor mode, and return the name of the out-of-bounds mode."""
    if dge_mode is e.dge_mode.hwdge:
        require(dst.dtype is src.dtype, f"{op} with dge_mode hwdge moves bytes: dst is {dst.dtype}, src {src.dtype}",
                fix="give both the same dtype, or another dge_mode", code=DtypeOfOperand.code)
    for t in (dst, src):
        if t.indirection is not None:
            require(dge_mode is not e.dge_mode.none, f"{op} with dge_mode none has no run-time addresses",
                    fix="use another dge_mode")
            require(t.indirection.kind != "vector" or dge_mode is not e.dge_mode.hwdge,
                    f"{op} with vector_offset needs dge_mode swdge or unknown",
                    fix="use nisa.dge_mode.swdge, or leave dge_mode out")
    return oob_mode.name


def check_skip(op: str, oob_mode: object, *tensors: NkiTensor) -> None:
    if oob_mode is e.oob_mode.skip and all(t.indirection is None for t in tensors):
        invalid(f"{op} with oob_mode skip needs an address that is known at run time only",
                fix="leave oob_mode out, or index by .ap(vector_offset=...)")


def check_priority(priority: object) -> None:
    if priority is not None:
        one_of(priority, range(4), "priority")


def combine(dst: NkiTensor, src: NkiTensor, op: str, mode: str) -> None:
    """Emit dst = op(dst, src), computed in SBUF temporaries."""
    require(dst.indirection is None and src.indirection is None,
            f"dma_copy with dst_rmw_op {op} has no run-time addresses; nl.add has",
            fix="use nl.add, or compute the address first")
    target, operand = (low.allocate(t.shape, t.dtype) for t in (dst, src))
    assignment.dma(target, dst, mode=mode)
    assignment.dma(operand, src, mode=mode)
    result, left, right = low.paired("dma_copy", dst=target, data1=target, data2=operand)
    emit(elementwise.TensorTensorOp, {"dst": result, **ops.of_one_kind(op, left, right)}, op=op)
    assignment.dma(dst, target, mode=mode)


@instruction
def dma_copy(dst: NkiTensor, src: NkiTensor, priority: object, oob_mode: e.oob_mode, dge_mode: e.dge_mode,
             engine: e.engine, *,
             dst_rmw_op: object = None) -> None:
    """Set dst = src by DMA between HBM and SBUF, converted to the dtype of dst. Both may have run-time addresses.

    With dge_mode swdge the gpsimd engine writes the descriptors and starts the transfer.
    With ``dst_rmw_op`` (of release 0.2) dst = dst_rmw_op(dst, src).
    """
    for label, t in (("dst", dst), ("src", src)):
        low.any_tensor(t, "dma_copy", label)
    check_priority(priority)
    mode = check_modes("dma_copy", dst, src, oob_mode, dge_mode)
    require(engine is e.engine.unknown or dge_mode is e.dge_mode.hwdge,
            "dma_copy engine is chosen only with dge_mode hwdge",
            fix="give dge_mode=nisa.dge_mode.hwdge as well, or leave engine out")
    if engine not in (e.engine.unknown, e.engine.sync, e.engine.scalar):
        invalid(f"dma_copy is started by engine sync or scalar, not {engine.name}",
                fix="use nisa.engine.sync or nisa.engine.scalar")
    if dst_rmw_op is None:
        assignment.dma(dst, src, mode=mode, engine="gpsimd" if dge_mode is e.dge_mode.swdge else engine.name)
    elif alu(dst_rmw_op, "dma_copy dst_rmw_op") == "add":
        dma_compute(dst, [dst, src], dst_rmw_op, oob_mode=oob_mode)
    else:
        combine(dst, src, alu(dst_rmw_op, "dma_copy dst_rmw_op"), mode)


@instruction
def dma_transpose(dst: NkiTensor, src: NkiTensor, axes: object, priority: object, dge_mode: e.dge_mode,
                  oob_mode: e.oob_mode) -> None:
    """Set dst = src with its axes permuted: (1, 0), (2, 1, 0) or (3, 1, 2, 0)."""
    op = "dma_transpose"
    low.one_dtype(op, "src", dst=dst, src=src)
    low.in_sbuf(op, dst=dst)
    check_skip(op, oob_mode, dst, src)
    check_priority(priority)
    mode = check_modes(op, dst, src, oob_mode, dge_mode)
    permutation = core.DMA_AXES.get(src.ndim, ())
    core_rule(permutation and (axes is None or (isinstance(axes, (tuple, list)) and tuple(axes) == permutation)),
              core.TransposedAxes, axes=axes, rank=src.ndim)
    expected = tuple(src.shape[k] for k in permutation)
    dst = padded(dst, expected)
    if src.indirection is not None:
        before = low.allocate(src.shape, src.dtype, private_hbm)
        if mode == "skip":                                  # skipped rows keep their values in dst
            assignment.dma(before.permute(permutation), dst)
        src = fetched(op, before, src, mode)
    with low.writing(dst, op) as out:
        source = low.reading(src)
        emit(movement.DmaTransposeOp, {"dst": low.core_view(out), "src": low.core_view(source)},
                 permutation=permutation)


def padded(dst: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
    """Return a destination of too few dimensions with dimensions of size 1 inserted where ``shape`` has them."""
    for k, n in enumerate(shape):
        if dst.ndim < len(shape) and n == 1 and k > 0 and (k >= dst.ndim or dst.shape[k] != 1):
            older("dma_transpose dst has fewer dimensions than the transposed src")
            dst = dst.expand_dim(k)
    return dst


def fetched(op: str, tile: NkiTensor, src: NkiTensor, mode: str) -> NkiTensor:
    """Read the elements of ``src``, which has a run-time address, into a tile and return it. An index tensor of
    several columns is read column by column."""
    indirection = src.indirection
    assert indirection is not None
    if indirection.kind != "vector":
        low.read_into(low.core_view(tile), src, mode=mode)
        return tile
    require_generation(3, f"{op} of gathered rows", "gather them with nisa.dma_copy first")
    rows, columns = indirection.index.shape[0], indirection.index.size // indirection.index.shape[0]
    core_rule(columns == 1 or indirection.index.dtype is UINT32, WrongDtype, op=op, operand="vector_offset",
              found=indirection.index.dtype, expected=UINT32)
    require(rows * columns >= src.shape[0], f"{op} of {src.shape[0]} rows has {rows * columns} indices",
            fix=f"give {src.shape[0]} indices, one for each row")
    for k in range(-(-src.shape[0] // rows)):
        part = tile.slice(0, k * rows, min((k + 1) * rows, src.shape[0]))
        index = indirection.index[0:part.shape[0], k:k + 1]
        row_index = type(indirection)("vector", index, indirection.scale, indirection.extent)
        row = src.like(shape=part.shape, indirection=row_index)
        low.read_into(low.core_view(part), row, mode=mode)
    return tile


@instruction
def dma_compute(dst: NkiTensor, srcs: list[NkiTensor], reduce_op: object, scales: object, unique_indices: object,
                oob_mode: e.oob_mode) -> None:
    """Set dst = the sum of srcs by DMA. If dst has run-time addresses, srcs are dst and one other tensor."""
    op = "dma_compute"
    require(isinstance(srcs, (list, tuple)) and 1 <= len(srcs) <= Machine.dma_sources_max,
            f"{op} takes 1 to {Machine.dma_sources_max} sources", fix="add the sources in several calls")
    require(alu(reduce_op, f"{op} reduce_op") == "add", f"{op} reduce_op must be nl.add", fix="use nl.add")
    require(scales is None or (isinstance(scales, (list, tuple)) and list(scales) == [1.0] * len(srcs)),
            f"{op} scales must be 1.0 for each of the {len(srcs)} sources, got {scales!r}",
            fix="leave scales out, and multiply on chip")
    require(unique_indices, f"{op} unique_indices must be True",
            fix="leave it out, and combine rows with equal indices first")
    mode = oob_mode.name
    for label, t in (("dst", dst), *((f"srcs[{k}]", s) for k, s in enumerate(srcs))):
        low.any_tensor(t, op, label)
        core_rule(t.size == dst.size, ShapeMismatch, what=f"{op} {label} has {t.size} elements, dst {dst.size}",
                  fix="give all operands the same shape")
    check_skip(op, oob_mode, dst, *srcs)
    if dst.indirection is not None:
        distinct = [s for s in srcs if not same_addresses(s, dst)]
        require(len(srcs) == 2 and len(distinct) == 1, f"{op} to run-time addresses takes dst and one other source",
                fix="add one source in each call")
        add_to(dst, distinct[0], mode)
    elif len(srcs) == 1:
        if write_history.touched(dst.storage, low.core_view(dst)):
            warn("dma_compute with one source adds it to dst, which has been written; list dst among the sources")
            add_to(dst, srcs[0], mode)
        else:
            assignment.dma(dst, srcs[0], mode=mode)
    else:
        total(dst, [s if s.indirection is None else spread(s, mode) for s in srcs])


def same_addresses(a: NkiTensor, b: NkiTensor) -> bool:
    """Return whether both tensors address the same elements at the same run-time index."""
    if a.indirection is None or b.indirection is None:
        return False
    x, y = a.indirection.index, b.indirection.index
    one_index = x is y or (isinstance(x, NkiTensor) and isinstance(y, NkiTensor) and x.shape == y.shape and (
        (x.storage.buffer, x.offset, x.strides) == (y.storage.buffer, y.offset, y.strides)))
    return one_index and a.storage is b.storage and (a.offset, a.strides) == (b.offset, b.strides)


def spread(src: NkiTensor, mode: str) -> NkiTensor:
    """Return an HBM copy of a tensor with a run-time address. Skipped elements are -0.0, which adds nothing."""
    copy = low.allocate(src.shape, src.dtype, private_hbm)
    if mode == "skip":
        assignment.fill(copy, -0.0)
    assignment.dma(copy, src, mode=mode)
    return copy


def add_to(dst: NkiTensor, src: NkiTensor, mode: str = "error") -> None:
    """Emit dst = dst + src."""
    if src.indirection is not None:
        src = spread(src, mode)
    if dst.indirection is None:
        total(dst, [dst, src])
        return
    value = assignment._shaped(src, low.moved_shape(dst), "dma_compute")
    low.write_from(dst, low.core_view(value), mode=mode, rmw="add")


def total(dst: NkiTensor, srcs: list[NkiTensor]) -> None:
    """Emit dst = the sum of srcs, rounded once: intermediate sums are float32."""
    partial = srcs[0]
    for k, source in enumerate(srcs[1:]):
        is_last = k == len(srcs) - 2
        result = dst if is_last else low.allocate((dst.size,), FLOAT32, private_hbm)
        emit_sum(low.core_view(result), low.core_view(partial), low.core_view(source))
        partial = result


def emit_sum(dst: View, lhs: View, rhs: View) -> None:
    """Emit dst = lhs + rhs as one DMA. Operands without a common pattern are copied to dense temporaries first."""
    views = dma_views(dst, lhs, rhs)
    if views is None:
        flat = []
        for view in (lhs, rhs):
            scratch = low.core_view(low.allocate((prod(view.shape),), view.dtype, private_hbm))
            low.move(scratch, view)
            flat.append(scratch)
        views = dma_views(dst, *flat)
    if views is None:
        shapes = [list(tensor.shape) for tensor in (dst, lhs, rhs)]
        invalid("dma_compute takes operands of one shape, got {}, {} and {}".format(*shapes),
                fix="give all operands the same shape")
    emit(movement.DmaComputeOp, dict(zip(("dst", "lhs", "rhs"), views)))


# -- values of registers -----------------------------------------------------------------------------------------------
def writable(register: VirtualRegister, subject: str) -> View:
    """Return the tile of a register for an instruction that writes it. The counter or bound of an open loop is an
    error."""
    check_register(register, subject)
    require(not register.frozen, f"{subject}: the counter and the bound of a loop cannot be written in its body",
            fix="copy it with nisa.register_move to a register from nisa.register_alloc")
    return register.state


def as_tensor(state: View) -> NkiTensor:
    """Return the [1, 1] tile of a register as a tensor."""
    return NkiTensor.full(Storage(state.buffer, sbuf, INT32))


def as_int32(tensor: NkiTensor) -> NkiTensor:
    """Return a 32-bit integer tensor reinterpreted as int32, and any other tensor unchanged, which a copy converts."""
    if tensor.dtype.is_integer and tensor.itemsize == 4:
        return tensor.like(dtype=INT32)
    return tensor


def put(state: View, value: object, subject: str) -> None:
    wrapped = (integer(value, subject) + (1 << 31)) % (1 << 32) - (1 << 31)
    emit(movement.MemsetOp, {"dst": state}, value=float(wrapped))


@reported
def register_alloc(x: object) -> VirtualRegister:
    """Return a new register with the value of a number, a register or a tensor of one element, or without a value."""
    register = VirtualRegister()
    if isinstance(x, NkiTensor):
        register_load(register, x)
    elif isinstance(x, VirtualRegister):
        register_move(register, x)
    elif x is not None:
        put(register.state, x, "register_alloc x")
    return register


@instruction
def register_move(dst: VirtualRegister, src: int | VirtualRegister) -> None:
    """Set dst = a number or another register."""
    state = writable(dst, "register_move")
    if isinstance(src, VirtualRegister):
        emit(movement.TensorCopyOp, {"dst": state, "src": src.state})
    else:
        put(state, src, "register_move src")


@instruction
def register_load(dst: VirtualRegister, src: NkiTensor) -> None:
    """Set dst = the element of the one-element tensor src."""
    state = writable(dst, "register_load")
    tensor = low.one_element(src, "register_load", "src")
    if tensor.dtype.is_float:
        warn("register_load of a float converts it to an integer")
    assignment.assign(as_tensor(state), as_int32(low.reading(tensor)))


@instruction
def register_store(dst: NkiTensor, src: VirtualRegister) -> None:
    """Store a register to the one-element tensor dst."""
    tensor = low.one_element(dst, "register_store", "dst")
    check_register(src, "register_store src")
    assignment.assign(as_int32(tensor), as_tensor(src.state))


# -- between the cores of a launch -------------------------------------------------------------------------------------
def other_cores(instruction: str, numbers: Sequence[int]) -> bool:
    """Return whether an instruction involves several cores; raise an error if the launch lacks one of them. On one core
    the instruction is a no-op."""
    if len(numbers) < 2:
        return False
    cores = prod(active(instruction).grid)
    require(all(0 <= n < cores for n in numbers), f"{instruction} names the cores {list(numbers)}, the launch has "
                                                  f"{cores}",
            fix=f"launch the kernel on them, kernel[{max(numbers) + 1}](...), or leave {instruction} out in a launch "
                f"of fewer")
    return True


@instruction
def core_barrier(data: NkiTensor, cores: object, engine: Any) -> None:
    """Wait for the other cores. Writes to ``data`` before the barrier are visible to all cores after it.

    With a tile or a tensor in private HBM as ``data``, which other cores cannot access, the barrier orders all tensors
    that the cores share.
    """
    engine = e.engine_name(engine, "core_barrier", "gpsimd", "tensor", "scalar", "vector", "sync")
    core_list = cores if isinstance(cores, (tuple, list, range)) else [cores]
    numbers = sorted({integer(c, "core_barrier cores") for c in core_list})
    if other_cores("core_barrier", numbers):
        low.is_tensor(data, "core_barrier", "data")
        shared = active("core_barrier").properties["shared_tensors"]
        ordered = [data] if data.buffer is shared_hbm else shared
        for tensor in ordered:
            emit(CoreBarrierOp, {"data": low.core_view(tensor)}, cores=tuple(numbers), engine=engine)


@instruction
def sendrecv(src: NkiTensor, dst: NkiTensor, send_to_rank: int, recv_from_rank: int, pipe_id: int,
             dma_engine: object) -> None:
    """Send ``src`` to core ``send_to_rank`` and receive ``dst`` from core ``recv_from_rank``."""
    low.in_sbuf("sendrecv", src=src, dst=dst)
    low.one_dtype("sendrecv", "src", dst=dst, src=src)
    if dma_engine is e.dma_engine.gpsimd_dma:
        limit = Machine.gpsimd_send_max * src.itemsize
        size = src.size // src.shape[0] * src.itemsize
        require(size <= limit, f"sendrecv by gpsimd_dma moves up to {limit} bytes per partition, got {size}",
                fix="send it in parts, or leave dma_engine out")
    if prod(active("sendrecv").grid) < 2:
        require(send_to_rank == recv_from_rank == 0, "sendrecv with another core needs a launch of 2 cores",
                fix="launch it as kernel[2](...)")
        low.copy_on_chip(dst, src, "sendrecv")
        return
    other_cores("sendrecv", (0, 1))
    for label, rank in (("send_to_rank", send_to_rank), ("recv_from_rank", recv_from_rank)):
        one_of(rank, (0, 1), f"sendrecv {label}")
    with low.operands("sendrecv", dst, src=src) as views:
        emit(SendrecvOp, dict(zip(("dst", "src"), views)), send_to=send_to_rank, receive_from=recv_from_rank,
             pipe=pipe_id, engine="gpsimd" if dma_engine is e.dma_engine.gpsimd_dma else "unknown")
