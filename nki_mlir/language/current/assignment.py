# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moving data between any two tensors: on chip by a copy, else by DMA. Elements are paired in iteration order."""

from math import prod
from typing import Any

from nki_mlir.dialects.nisa import movement
from nki_mlir.frontend.strides import Dim
from nki_mlir.frontend.tensor import View
from nki_mlir.language import creation
from nki_mlir.language.creation import emit
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current import write_history
from nki_mlir.language.current.calls import is_number
from nki_mlir.language.current.errors import older, require
from nki_mlir.language.current.pairing import aligned
from nki_mlir.language.current.regions import private_hbm, psum
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.dtypes import FLOAT32

LEADING = Dim(1, 0, 1)


def assign(target: NkiTensor, value: Any) -> None:
    """target = value, a tensor or a number."""
    if not isinstance(value, NkiTensor):
        require(is_number(value), f"expecting 'number' or 'tensor', got {value!r}")
        fill(target, float(value))
    elif not target.size and not value.size:
        return
    elif target.on_chip and value.on_chip:
        copy_on_chip(target, value)
    else:
        dma(target, value)


def fill(target: NkiTensor, value: float) -> None:
    """target = a number; HBM is filled from a tile."""
    if not target.size:
        return
    if target.on_chip:
        with low.writing(target, "memset") as out:
            creation.memset(low.core_view(out), value)
        return
    # One row of the tensor at a time repeats: the source reads one element with step 0.
    tile = low.allocate((1, 1), target.dtype)
    creation.memset(low.core_view(tile), value)
    n = target.size
    repeated = NkiTensor(tile.storage, (1, n), (1, 0), 0, tile.dtype)
    dma(target, repeated)


def copy_on_chip(dst: NkiTensor, src: NkiTensor, op: str = "tensor_copy", engine: str = "unknown") -> None:
    with low.writing(dst, op) as out:
        target, source = low.paired(op, dst=out, src=src)
        if engine == "scalar" and target.dtype is source.dtype and target.dtype.itemsize == 4:
            target, source = target.like(dtype=FLOAT32), source.like(dtype=FLOAT32)     # bits, through its float32
        emit(movement.TensorCopyOp, {"dst": target, "src": source}, engine=engine)


def dma(dst: NkiTensor, src: NkiTensor, *, mode: str = "error", op: str = "dma_copy") -> None:
    """dst = src, either of them in HBM or SBUF, either addressed at run time."""
    for label, t in (("dst", dst), ("src", src)):
        require(isinstance(t, NkiTensor), f"{op} {label}: expecting 'tensor', got '{type(t).__name__}'")
        require(t.buffer is not psum or label == "src",
                f"{op} {label} is in PSUM, which DMA cannot access; copy it to SBUF first")
        require(all(s >= 0 for s in t.strides), f"{op} {label} steps backwards: {t.get_pattern()}")
        rows = t.storage.buffer.shape[0]
        require(not t.on_chip or rows <= low.PARTITIONS,
                f"{op} {label} partition dimension {rows} exceeds maximum {low.PARTITIONS}")
    require(dst.size == src.size, f"{op} moves {src.size} elements of shape {list(src.shape)} to {dst.size} of shape "
                                  f"{list(dst.shape)}")
    if src.buffer is psum:
        older(f"{op} src is in PSUM, which DMA cannot access; copy it to SBUF first")
        made = low.allocate(low.moved_shape(src), src.dtype)
        copy_on_chip(made, src, op)
        src = made
    if src.indirection is not None:
        _gather(dst, src, mode, op)
    elif dst.indirection is not None:
        low.write_from(low.addressed(dst), low.core_view(_shaped(src, low.moved_shape(dst), op)), mode=mode)
    else:
        move(low.core_view(dst), low.core_view(src))
        write_history.mark(dst.storage, low.core_view(dst))


def _gather(dst: NkiTensor, src: NkiTensor, mode: str, op: str) -> None:
    """Rows that are skipped keep what was in dst."""
    shape = low.moved_shape(src)
    if dst.indirection is None and tuple(dst.shape) == shape:
        low.read_into(low.core_view(dst), low.addressed(src), mode=mode)
        write_history.mark(dst.storage, low.core_view(dst))
        return
    temporary = low.allocate(shape, dst.dtype, private_hbm if shape[0] > low.PARTITIONS else dst.buffer)
    if mode == "skip" and dst.indirection is None:
        move(low.core_view(temporary), low.core_view(dst))
    low.read_into(low.core_view(temporary), low.addressed(src), mode=mode)
    dma(dst, temporary, mode=mode, op=op)


def _shaped(src: NkiTensor, shape: tuple[int, ...], op: str) -> NkiTensor:
    """src with that shape, through a temporary where no view has it."""
    if tuple(src.shape) == shape:
        return src
    made = low.allocate(shape, src.dtype, private_hbm)
    dma(made, src, op=op)
    return made


def move(dst: View, src: View) -> None:
    """A DMA between two views; where no pair of patterns describes it, through a dense copy in HBM."""
    pair = dma_views(dst, src)
    if pair is not None:
        emit(movement.DmaCopyOp, {"dst": pair[0], "src": pair[1]})
        return
    scratch = low.allocate((prod(src.shape),), src.dtype, private_hbm)
    for target, source in ((low.core_view(scratch), src), (dst, low.core_view(scratch))):
        pair = dma_views(target, source)
        require(pair is not None, f"a DMA between shapes {list(source.shape)} and {list(target.shape)}")
        assert pair is not None
        emit(movement.DmaCopyOp, {"dst": pair[0], "src": pair[1]})


def dma_views(*views: View) -> list[View] | None:
    """Views of any memories with one shape, whose dimension 0 is the partition of all that are on chip."""
    made = aligned(views, first=0)
    if made is None:
        return None
    on_chip = [v for v in made if v.buffer.on_chip]
    if any(not v.dims[0].partition and _is_spread(v) for v in on_chip):
        made = [v.like(dims=(LEADING if v.buffer.on_chip else Dim(0, 0, 1), *v.dims)) for v in made]
        on_chip = [v for v in made if v.buffer.on_chip]
    for v in on_chip:
        first, *rest = v.dims
        if any(d.partition and d.count > 1 for d in rest) or (first.free and first.count > 1):
            return None
        if first.count > low.PARTITIONS:
            return None
    return [v if v.ndim > 1 else v.like(dims=(*v.dims, Dim(0, 0, 1))) for v in made]


def _is_spread(view: View) -> bool:
    """Whether dimension 0 of an on-chip view is no partition: it steps through one partition's elements."""
    return view.dims[0].free != 0 or view.dims[0].count > 1
