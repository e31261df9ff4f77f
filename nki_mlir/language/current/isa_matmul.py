# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensor-engine instructions: matmuls that overwrite or accumulate, and transposes."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

from nki_mlir.capture.builder import active
from nki_mlir.capture.tensor import View
from nki_mlir.dialects.nisa import microscaling, movement
from nki_mlir.dialects.nisa.matmul import MatmulTransposeOp, NcMatmulDoubleRowOp, NcMatmulOp, NcTransposeOp
from nki_mlir.dialects.nki.matmul import SAME_CONTRACTION, contraction
from nki_mlir.dialects.verifier import BrokenRule, ShapeMismatch, TooLarge, WrongMemory
from nki_mlir.language.creation import emit
from nki_mlir.language.current import enums as e
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current import write_history
from nki_mlir.language.current.errors import core_rule, device, invalid, require, warn
from nki_mlir.language.current.instruction import instruction
from nki_mlir.language.current.memory import machine, psum, sbuf
from nki_mlir.language.current.pairing import aligned, box_of
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.product_rules import ArrayPart, check_double_row, joined_rows
from nki_mlir.scalar.dtypes import UINT8


def as_float(operand: NkiTensor, like: NkiTensor) -> NkiTensor:
    """Convert a uint8 operand (an identity matrix) to the dtype of the other operand, if that is a float."""
    return low.copied(operand, like.dtype) if operand.dtype is UINT8 and like.dtype.is_float else operand


@instruction
def nc_matmul(dst: object, stationary: object, moving: object, is_stationary_onezero: object, is_moving_onezero: object,
              is_transpose: bool, accumulate: bool | None,
              tile_position: tuple[int, ...], tile_size: tuple[int, ...], perf_mode: object) -> None:
    """Set dst = stationary.T @ moving in PSUM; ``accumulate`` says whether to add to dst or to overwrite it."""
    op = "nc_matmul"
    part = ArrayPart(op, tile_position or (), tile_size or ())
    stationary, moving = (low.reading(low.is_tensor(t, op, label), op)
                          for label, t in (("stationary", stationary), ("moving", moving)))
    low.in_sbuf(op, stationary=stationary, moving=moving)
    stationary, moving = as_float(stationary, moving), as_float(moving, stationary)
    check_array(op, 0, stationary.shape[0], stationary.shape)
    core_rule(stationary.shape[0] == moving.shape[0], BrokenRule, op=op, fix=SAME_CONTRACTION,
              what=contraction(stationary.shape, moving.shape))
    with low.writing(dst, op, reads=accumulate is not False, flat=is_transpose) as out:
        check_memory(op, out)
        pairs = [(stationary, moving)]
        if perf_mode is e.matmul_perf_mode.double_row:
            part.require(part.has_all_columns, "perf_mode double_row takes all columns")
            pairs = double_row(stationary, moving, is_transpose)
        width, length = prod(pairs[0][0].shape[1:]), prod(pairs[0][1].shape[1:])
        check_array(op, 1, width, pairs[0][0].shape)
        part.check((stationary.shape[0], width))
        if out.shape[0] != width or out.size != width * length:
            exchanged = "exchange stationary and moving, or " * (out.shape == (length, width))
            core_rule(False, ShapeMismatch, fix=f"{exchanged}create it with shape ({width}, {length})",
                      why="the product is stationary.T @ moving, of stationary [K, M] and moving [K, N]",
                      what=f"{op} dst has shape {list(out.shape)}, which must be {width} x {length}")
        check_result(out, length)
        accumulates = False
        if is_transpose:
            require(accumulate is not True, "nc_matmul in transpose mode overwrites dst", fix="leave accumulate out")
        else:
            accumulates = accumulation(low.core_view(out), accumulate)
        if is_transpose:
            emit_transpose(out, stationary, moving)
        else:
            emit_products(out, pairs, accumulates)
    note_product(dst)


def check_memory(op: str, out: NkiTensor) -> None:
    """Check that the destination is in PSUM, before its write history is read. The operation has the same rule."""
    core_rule(out.buffer is psum, WrongMemory, operand="dst", op=op, expected="psum", found=out.buffer.space)


def check_array(op: str, dim: int, extent: int, shape: Sequence[int]) -> None:
    """Check that dimension ``dim`` of stationary fits the array of the Tensor engine."""
    limit = (machine().partitions, machine().stationary_free_max)[dim]
    if extent > limit:
        core_rule(False, TooLarge, dim=dim, tile=f"stationary{list(shape)}", op=op, limit=limit)


def note_product(dst: object) -> None:
    """Note in the write history that a product has been written to a tensor."""
    if isinstance(dst, NkiTensor) and not dst.is_indirect():
        write_history.note_writer(low.core_view(dst), write_history.PRODUCT)


def double_row(stationary: NkiTensor, moving: NkiTensor, is_transpose: bool) -> list[tuple[NkiTensor, NkiTensor]]:
    """Return the (stationary, moving) operands of each half of a double-row contraction."""
    check_double_row("double_row", {"stationary": stationary, "moving": moving}, is_transpose)
    return [(stationary.slice(1, i, i + 1), moving.slice(1, i, i + 1)) for i in range(2)]


def check_result(out: NkiTensor, length: int) -> None:
    """Report a product with too many columns for the target, or whose result crosses a PSUM bank where it may not."""
    core, bank = machine(), machine().psum_bank_bytes
    limit = core.moving_free_max if core.product_banks == 1 else core.product_banks * bank // out.itemsize
    if length > limit:
        device(False, f"nc_matmul moving has {length} columns, more than {limit} on {core.name}",
               "" if core.product_banks > 1 else f"multiply {limit} columns at a time, or name a target that takes "
               "more: NEURON_PLATFORM_TARGET_OVERRIDE=trn3",
               code="err_size_of_dimension_exceed_arch_limit")
    if core.product_banks == 1:
        start = out.offset % out.storage.row(out.dtype) * out.itemsize % bank
        if start + length * out.itemsize > bank and out.is_contiguous():
            device(False, f"nc_matmul dst of {length * out.itemsize} bytes crosses a PSUM bank of {bank} bytes",
                   fix="split moving into parts whose results fit a bank each", code="NKI-PSUM-BANK")


def accumulation(out: View, accumulate: bool | None) -> bool:
    """Return whether a product accumulates. Zero unwritten elements if others have been written."""
    if accumulate is False:
        return False
    state = write_history.state(out)
    check_pattern(out, state, accumulate)
    if accumulate is True:
        return True
    if write_history.was_read(out):
        warn("nc_matmul adds to PSUM that was read after its last product; a new sum begins with accumulate=False, or "
             "in its own tile")
    builder = active()
    loops = builder.properties.get("dynamic_loops", ())
    if loops and state != "all" and builder.symbolic and out.buffer.scope is not builder.scopes[-1]:  # type: ignore[attr-defined]
        invalid("nc_matmul in a dynamic loop on PSUM created outside of it needs accumulate=: which iteration writes "
                "first is not known when the kernel is captured", fix="give accumulate=True or False")
    if state == "some":
        for part in write_history.unwritten(out):
            emit(movement.MemsetOp, {"dst": part}, value=0.0)
    return state != "none"


def check_pattern(out: View, state: str, accumulate: bool | None) -> None:
    """Warn of a sum that the hardware computes wrongly: without a first product, or of regions that overlap in part."""
    begins = "; the first product of a sum has accumulate=False"
    if state == "some":
        warn(f"nc_matmul accumulates onto {write_history.count_written(out)} of the {prod(out.shape)} elements of its "
             "destination, and nothing has written the others: the hardware computes wrong sums for regions that "
             "overlap in part; give all products of a sum the same region")
    elif accumulate is True and state == "none":
        warn(f"nc_matmul accumulates onto PSUM that nothing has written{begins}")
    elif accumulate is True and not write_history.all_of(out, write_history.PRODUCT):
        warn(f"nc_matmul accumulates onto PSUM that an instruction other than a product has written{begins}")
    elif state == "all" and machine().generation <= 3 and not write_history.all_of(
            out, write_history.PRODUCT, write_history.ZERO):
        warn("nc_matmul adds to PSUM that an instruction other than a product has written, which "
             f"{machine().name} does not define{begins}")


def emit_transpose(out: NkiTensor, left: NkiTensor, right: NkiTensor) -> None:
    """Emit a product with an identity matrix, which moves bits."""
    stationary = low.flat_tile("nc_matmul", "stationary", left)
    target, moving = aligned_operands(out, right)
    if moving.ndim != 2:
        target, moving = low.flat_view(out), low.flat_tile("nc_matmul", "moving", right)
    emit(MatmulTransposeOp, {"dst": target, "stationary": stationary, "moving": moving})


def emit_products(out: NkiTensor, pairs: Sequence[tuple[NkiTensor, NkiTensor]], accumulates: bool) -> None:
    """Emit the sum of the products of (stationary, moving) pairs: of one, or of both rows of ``double_row``."""
    for parts in zip(*[list(products(out, left, right)) for left, right in pairs]):
        if (operands := joined_rows(parts)) is not None:
            emit(NcMatmulDoubleRowOp, {"dst": parts[0]["dst"], **operands}, accumulate=accumulates)
            continue
        for number, views in enumerate(parts):
            emit(NcMatmulOp, views, accumulate=accumulates or number > 0)


def products(out: NkiTensor, left: NkiTensor, right: NkiTensor) -> Iterator[dict[str, View]]:
    """Yield the operands of a product, which is split where its destination crosses a PSUM bank."""
    stationary = low.flat_tile("nc_matmul", "stationary", left)
    target, moving = aligned_operands(out, right)
    spans = bank_spans(target)
    if len(spans) == 1:
        yield {"dst": target, "stationary": stationary, "moving": moving}
        return
    for start, end in spans:
        for part in boxes(target.shape[1:], start, end):
            dst, columns = (box_of(v, [(0, v.shape[0]), *part]) for v in (target, moving))
            yield {"dst": dst, "stationary": stationary, "moving": columns}


def aligned_operands(out: NkiTensor, moving: NkiTensor) -> Sequence[View]:
    """Return views of the destination and of moving whose free axes have the same extents."""
    views = aligned([low.core_view(out), low.core_view(moving)])
    if views is None:
        moving = low._dense(moving)
        views = aligned([low.core_view(out), low.core_view(moving)])
    if views is None:
        invalid(f"nc_matmul: dst {list(out.shape)} and moving {list(moving.shape)} have sizes neither of which is "
                "a multiple of the other", fix="make dst as wide as moving, or moving a multiple of it")
    return views


def bank_spans(target: View) -> list[tuple[int, int]]:
    """Split the free elements of a result into runs that one product may write: in one bank, of limited length."""
    core, length, at, spans = machine(), prod(target.shape[1:]), 0, []
    most, bank, start = core.moving_free_max, core.psum_bank_bytes // target.dtype.itemsize, target.free.const
    dense = target.dims[-1].free == 1 and all(a.free == b.free * b.count for a, b in pairwise(target.dims[1:]))
    while at < length:
        n = min(most, length - at, bank - (start + at) % bank if dense else most)
        spans.append((at, at + n))
        at += n
    return spans


def boxes(counts: Sequence[int], start: int, end: int) -> Iterator[list[tuple[int, int]]]:
    """Yield boxes, as (start, count) per dimension, that cover the row-major run of elements ``start`` to ``end``."""
    if len(counts) == 1:
        yield [(start, end - start)]
        return
    inner = prod(counts[1:])
    (outer_start, before), (outer_end, after) = divmod(start, inner), divmod(end, inner)
    if before:
        for box in boxes(counts[1:], before, inner if outer_end > outer_start else after):
            yield [(outer_start, 1), *box]
        if outer_end == outer_start:
            return
        outer_start += 1
    if outer_end > outer_start:
        yield [(outer_start, outer_end - outer_start), *((0, n) for n in counts[1:])]
    if after:
        for box in boxes(counts[1:], 0, after):
            yield [(outer_end, 1), *box]


@instruction
def nc_matmul_mx(dst: NkiTensor, stationary: NkiTensor, moving: NkiTensor, stationary_scale: NkiTensor,
                 moving_scale: NkiTensor, tile_position: Sequence[int] | None,
                 tile_size: Sequence[int] | None, accumulate: bool | None) -> None:
    """Set dst = stationary.T @ moving of two microscaled matrices, in PSUM."""
    op = "nc_matmul_mx"
    part = ArrayPart(op, tile_position or (), tile_size or ())
    part.require(part.has_all_columns, "it takes all columns")
    elements = [element_of(op, label, t) for label, t in (("stationary", stationary), ("moving", moving))]
    with low.writing(dst, op, reads=accumulate is not False, flat=True) as out:
        check_memory(op, out)
        accumulates = accumulation(low.core_view(out if dst.is_indirect() else dst), accumulate)
        views = {label: low.flat_tile(op, label, t) for label, t in (
            ("stationary", stationary), ("moving", moving), ("stationary_scale", stationary_scale),
            ("moving_scale", moving_scale))}
        check_array(op, 0, views["stationary"].shape[0], views["stationary"].shape)
        part.require(views["stationary"].shape[0] <= part.rows, f"stationary is {list(stationary.shape)}")
        emit(microscaling.NcMatmulMxOp, {"dst": low.flat_view(out), **views}, accumulate=accumulates,
                 stationary_element=elements[0], moving_element=elements[1])
    note_product(dst)


def element_of(op: str, label: str, tensor: NkiTensor) -> str:
    """Return the name of the float type whose elements a packed dtype (``..._x4``) holds."""
    low.is_tensor(tensor, op, label)
    element: str = tensor.dtype.name.removesuffix("_x4")
    require(tensor.dtype.name.endswith("_x4"), f"{op} {label} must be a packed type (..._x4), it is {tensor.dtype}",
            fix="use what nisa.quantize_mx writes, of dtype nl.float8_e4m3fn_x4 for example")
    return element


@instruction
def quantize_mx(dst: NkiTensor, src: NkiTensor, dst_scale: NkiTensor) -> None:
    """Set dst = src as packed 8-bit floats, with the groups' scales in dst_scale."""
    op = "quantize_mx"
    element = element_of(op, "dst", dst)
    with (low.writing(dst, op, flat=True) as out,
          low.writing(dst_scale, op, "dst_scale", reads=True, flat=True) as scales):
        emit(microscaling.QuantizeMxOp,
                 {"dst": low.flat_view(out), "dst_scale": low.flat_view(scales),
                  "src": low.flat_tile(op, "src", src)}, element=element)


def check_block(op: str, data: NkiTensor, out: NkiTensor) -> None:
    """Check that the Vector engine can transpose a tile, where the destination and not the kernel chooses it."""
    most = machine().transpose_vector_max
    if out.buffer is sbuf and data.buffer is sbuf and (size := max(data.shape[0], prod(data.shape[1:]))) > most:
        limit = machine().partitions
        fix = (f"create dst with buffer=nl.psum: the Tensor engine transposes up to {limit} x {limit} to PSUM; to SBUF "
               f"the Vector engine transposes up to {most} x {most}")
        core_rule(False, TooLarge, dim=0 if data.shape[0] == size else 1, tile=f"data{list(data.shape)}", op=op,
                  limit=most, fix=fix)


@instruction
def nc_transpose(dst: NkiTensor, data: NkiTensor, engine: e.engine) -> None:
    """Transpose data, dst[f, p] = data[p, f]: by the Tensor engine to PSUM, or by the Vector engine up to 32 x 32."""
    op = "nc_transpose"
    low.one_dtype(op, "data", dst=dst, data=data)
    source = low.flat_tile(op, "data", data)
    chosen = e.engine_name(engine)
    with low.writing(dst, op, flat=True) as out:
        target = low.flat_view(out)
        if chosen == "unknown":
            if out.buffer is not psum or data.buffer is not sbuf:       # else the tensor engine, or DMA engines
                chosen = "vector"
            check_block(op, data, out)
        emit(NcTransposeOp, {"dst": target, "src": source}, engine=chosen)
