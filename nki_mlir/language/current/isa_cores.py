# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions between the two cores of a launch: barriers and exchanges."""

from collections.abc import Sequence
from math import prod
from typing import Any

from nki_mlir.dialects.nisa.meeting import CoreBarrierOp, SendrecvOp
from nki_mlir.frontend.builder import active
from nki_mlir.language.creation import emit
from nki_mlir.language.current import enums as e
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.errors import integer, require
from nki_mlir.language.current.instruction import instruction
from nki_mlir.language.current.regions import sbuf, shared_hbm
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.machine import Machine


def other_cores(what: str, numbers: Sequence[int]) -> bool:
    """Whether an instruction is between several cores, which the launch must have; on one core it is a no-op."""
    if len(numbers) < 2:
        return False
    cores = prod(active(what).grid)
    require(all(0 <= n < cores for n in numbers), f"{what} names the cores {list(numbers)}, the launch has {cores}",
            fix=f"launch the kernel on them, kernel[{max(numbers) + 1}](...), or leave {what} out in a launch of fewer")
    return True


@instruction
def core_barrier(data: NkiTensor, cores: object, engine: Any) -> None:
    """Wait for the other cores; what was written to ``data`` before is seen by all after.

    A tile, or a tensor in private HBM, is a core's own: with one, all that the cores share is meant.
    """
    engine = e.engine_name(engine, "core_barrier", "gpsimd", "tensor", "scalar", "vector", "sync")
    given = cores if isinstance(cores, (tuple, list, range)) else [cores]
    numbers = sorted({integer(c, "core_barrier cores") for c in given})
    if other_cores("core_barrier", numbers):
        low.is_tensor(data, "core_barrier", "data")
        shared = active("core_barrier").properties["shared_tensors"]
        ordered = [data] if data.buffer is shared_hbm else shared
        for tensor in ordered:
            emit(CoreBarrierOp, {"data": low.core_view(tensor)}, cores=tuple(numbers), engine=engine)


@instruction
def sendrecv(src: NkiTensor, dst: NkiTensor, send_to_rank: int, recv_from_rank: int, pipe_id: int,
             dma_engine: object) -> None:
    """Send src to a core and receive dst from one."""
    for label, t in (("src", src), ("dst", dst)):
        low.is_tensor(t, "sendrecv", label)
        require(t.buffer is sbuf, f"sendrecv {label} must be in SBUF, it is in {t.buffer.value}")
    require(src.dtype is dst.dtype and src.shape[0] == dst.shape[0] and src.size == dst.size,
            f"sendrecv src {list(src.shape)} {src.dtype} and dst {list(dst.shape)} {dst.dtype} must be equal")
    if dma_engine is e.dma_engine.gpsimd_dma:
        limit = Machine.gpsimd_send_max * src.itemsize
        size = src.size // src.shape[0] * src.itemsize
        require(size <= limit, f"sendrecv by gpsimd_dma moves up to {limit} bytes per partition, got {size}")
    to, frm = int(send_to_rank), int(recv_from_rank)
    if prod(active("sendrecv").grid) < 2:
        require(to == frm == 0, "sendrecv with another core needs a launch of 2 cores")
        low.copy_on_chip(dst, src, "sendrecv")
        return
    other_cores("sendrecv", (0, 1))
    require({to, frm} <= {0, 1}, "sendrecv ranks are 0 and 1")
    with low.writing(dst, "sendrecv") as out:
        views = low.paired("sendrecv", dst=out, src=src)
        emit(SendrecvOp, dict(zip(("dst", "src"), views)), send_to=to, receive_from=frm, pipe=int(pipe_id),
             engine="gpsimd" if dma_engine is e.dma_engine.gpsimd_dma else "unknown")
