# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies between any two tensors: by an on-chip copy or by DMA. Elements are paired in iteration order."""

from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import Any

from nki_mlir.capture.builder import active
from nki_mlir.language import creation
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current import write_history
from nki_mlir.language.current.errors import older, require
from nki_mlir.language.current.memory import private_hbm, psum, sbuf
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.signatures.kinds import is_number


def assign(target: NkiTensor, value: Any) -> None:
    """Emit ``target = value``, where the value is a tensor or a number."""
    if not isinstance(value, NkiTensor):
        text = value if isinstance(value, str) else type(value).__name__
        require(is_number(value), f"expecting 'number' or 'tensor', got {text!r}",
                fix="give a number, or a tensor with the shape of the target")
        fill(target, float(value))
    elif not target.size and not value.size:
        return
    elif target.on_chip and value.on_chip:
        low.copy_on_chip(target, value)
    else:
        dma(target, value)


def fill(target: NkiTensor, value: float) -> None:
    """Fill ``target`` with a number. A DMA from a tile fills a tensor in HBM."""
    if not target.size:
        return
    if target.on_chip:
        with low.writing(target, "memset") as out:
            creation.memset(low.core_view(out), value)
        if value == 0 and not target.is_indirect():
            write_history.note_writer(low.core_view(target), write_history.ZERO)
        return
    # The source of the DMA reads the tile's one element with stride 0.
    tile = low.allocate((1, 1), target.dtype)
    creation.memset(low.core_view(tile), value)
    n = target.size
    repeated = NkiTensor(tile.storage, (1, n), (1, 0), 0, tile.dtype)
    dma(target, repeated)


@lru_cache(4096)
def is_regrouped(extents: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether one shape only splits dimensions of the other, or equals it, so that rows stay together."""
    starts, other_starts = ({1, *accumulate(shape, mul)} for shape in (extents, other))
    return starts <= other_starts or other_starts <= starts


def copied_at_once(dst: NkiTensor, src: NkiTensor, engine: str) -> bool:
    """Emit ``dst = src`` if that is one instruction of the engine, between a tensor with a run-time address and a tile
    of another storage. Return whether it is."""
    addressed, tile = (dst, src) if src.indirection is None else (src, dst)
    address = addressed.indirection
    if address is None or tile.indirection is not None or tile.buffer is not sbuf or low.repeated(tile):
        return False
    if engine != "unknown" and (address.kind != "scalar" or address.picks_rows or engine not in (
            "vector", "scalar", "gpsimd" if addressed.buffer is sbuf else "")):
        return False
    used = [t.storage for t in (addressed, address.source, address.index) if isinstance(t, NkiTensor)]
    if dst.dtype is not src.dtype or tuple(tile.shape) != low.moved_shape(addressed) or tile.storage in used:
        return False
    if addressed is src:
        low.read_into(low.core_view(dst), src, engine=engine)
        low.wrote(dst)
    else:
        low.write_from(dst, low.core_view(src), engine=engine)
    return True


def dma(dst: NkiTensor, src: NkiTensor, *, mode: str = "error", op: str = "dma_copy", engine: str = "unknown") -> None:
    """Emit DMAs from ``src`` to ``dst``, which are in HBM or SBUF and may have run-time addresses. ``engine`` triggers
    a DMA without run-time addresses."""
    low.check_dma(dst, src, op)
    src_shape, dst_shape = low.moved_shape(src), low.moved_shape(dst)
    if src_shape != dst_shape and not is_regrouped(src_shape, dst_shape):
        active().reshaping_copy(op, dst_shape, src_shape)
    if src.buffer is psum:
        older(f"{op} src is in PSUM, which DMA cannot access; copy it to SBUF first")
        src = low.copied(src, src.dtype, op=op)
    if src.indirection is not None:
        _gather(dst, src, mode, op)
    elif dst.indirection is not None:
        low.write_from(dst, low.core_view(_shaped(src, low.moved_shape(dst), op)), mode=mode)
    else:
        low.move_tensor(dst, src, engine)


def _gather(dst: NkiTensor, src: NkiTensor, mode: str, op: str) -> None:
    """Emit ``dst`` = the elements of ``src``, which has a run-time address. Rows that are skipped keep their values."""
    shape = low.moved_shape(src)
    if dst.indirection is None and tuple(dst.shape) == shape:
        low.read_into(low.core_view(dst), src, mode=mode)
        write_history.mark(dst.storage, low.core_view(dst))
        return
    temporary = low.allocate(shape, dst.dtype, private_hbm if shape[0] > low.PARTITIONS else dst.buffer)
    if mode == "skip" and dst.indirection is None:
        low.move(low.core_view(temporary), low.core_view(dst))
    low.read_into(low.core_view(temporary), src, mode=mode)
    dma(dst, temporary, mode=mode, op=op)


def _shaped(src: NkiTensor, shape: tuple[int, ...], op: str) -> NkiTensor:
    """Return ``src`` with another shape, copied to a temporary in HBM if the shapes differ."""
    if tuple(src.shape) == shape:
        return src
    result = low.allocate(shape, src.dtype, private_hbm)
    dma(result, src, op=op)
    return result
