# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DMA (instructions, section 4.5)."""

from typing import Any

import numpy as np

from ..memory import PSUM
from .enums import dge_mode, engine, oob_mode
from .operands import Instruction, on_the_way, require
from .tensor import NkiTensor


def transfer(dst: NkiTensor, src: NkiTensor, skip: bool, axes: tuple[int, ...] | None = None) -> Instruction:
    """Copy element by element in the order of both views; elements at indices out of bounds are skipped, or errors."""
    require(PSUM not in (dst.space, src.space), "DMA cannot access PSUM")
    order = (lambda a: a) if axes is None else (lambda a: a.transpose(axes))
    into, out_of = dst.places(), order(src.places())
    require(into.size == out_of.size, f"{out_of.size} elements are copied to {into.size}")
    if not skip:
        values = order(src.read())
        dst.write(on_the_way(values, src, dst).reshape(dst.shape))
        return Instruction()
    there = (into >= 0) & (out_of.reshape(into.shape) >= 0)
    values = order(src.resolved().read(there.reshape(out_of.shape) if axes is None else source_mask(there, out_of, axes)))
    dst.resolved().write(on_the_way(values, src, dst).reshape(dst.shape), there)
    return Instruction()


def source_mask(there: np.ndarray, ordered: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return there.reshape(ordered.shape).transpose(np.argsort(axes))


def dma_copy(dst: NkiTensor, src: NkiTensor, priority: int | None = None, oob_mode: Any = oob_mode.error,
             dge_mode: Any = dge_mode.unknown, engine: Any = engine.unknown, name: str | None = None) -> Instruction:
    """Copy src to dst, through float32 if the dtypes differ; numbers of rows gather and scatter (4.5)."""
    require(dge_mode.name != "hwdge" or dst.dtype == src.dtype, "hardware descriptors do not convert")
    return transfer(dst, src, oob_mode.name == "skip")


AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def dma_transpose(dst: NkiTensor, src: NkiTensor, axes: Any = None, priority: int | None = None,
                  dge_mode: Any = dge_mode.unknown, oob_mode: Any = oob_mode.error, name: str | None = None) -> Instruction:
    """Write src to dst with its axes in the only order that documents give for their number (4.5)."""
    order = AXES[src.ndim]
    require(axes is None or tuple(axes) == order, f"dma_transpose of {src.ndim} axes has the order {order}")
    require(dst.shape == tuple(src.shape[a] for a in order), "the destination has the shape of the transposed source")
    require(dst.dtype == src.dtype, "dma_transpose does not change the dtype")
    return transfer(dst, src, oob_mode.name == "skip", order)


def dma_compute(dst: NkiTensor, srcs: Any, reduce_op: Any, scales: Any = None, unique_indices: bool = True,
                oob_mode: Any = oob_mode.error, name: str | None = None) -> Instruction:
    """Write the sum of the sources to dst; a single source is added to dst where dst was written (4.5, open 29)."""
    require(getattr(reduce_op, "__name__", "") == "add" and 1 <= len(srcs) <= 16, "dma_compute adds up to 16 sources")
    require(scales is None or all(s == 1.0 for s in scales), "the scales are 1.0")
    there = dst.places() >= 0
    for source in srcs:
        there = there & (source.places().reshape(there.shape) >= 0)
    skip = oob_mode.name == "skip"
    parts = [source.resolved().read(there.reshape(source.shape)) if skip else source.read() for source in srcs]
    if len(srcs) == 1:
        if not dst.resolved().written().all():
            return transfer(dst, srcs[0], skip)
        parts.insert(0, dst.resolved().read(there if skip else None))
    total = sum(part.reshape(dst.shape).astype(np.float32) for part in parts)
    dst.resolved().write(total, there if skip else None)
    return Instruction()


def tensor_copy_dynamic_src(dst: NkiTensor, src: NkiTensor, engine: Any = engine.unknown,
                            name: str | None = None) -> Instruction:
    """Copy a view whose address the run computes, as in releases 0.2 and 0.3."""
    from .elementwise import tensor_copy
    return tensor_copy(dst, src)


tensor_copy_dynamic_dst = tensor_copy_dynamic_src
