# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions between the two cores of a launch: barriers and exchanges."""

from math import prod
from typing import Any

import numpy as np

from nki_mlir.diagnostics import Unsupported
from nki_mlir.frontend.builder import active
from nki_mlir.frontend.locations import user_location
from nki_mlir.language.current import assignment
from nki_mlir.language.current import enums as e
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.errors import require
from nki_mlir.language.current.instruction import generation_from, instruction
from nki_mlir.language.current.regions import sbuf


class CoresMeet(Unsupported):
    """Captured programs run one after the other; the simulator's take turns."""


def several_cores(what: str) -> Any:
    """The builder of a launch of several cores, None for one; capture runs the cores one after the other."""
    builder: Any = active(what)
    if prod(builder.grid) < 2:
        return None
    generation_from(3, what)
    if builder.symbolic:
        raise CoresMeet(feature=f"{what} between captured programs", instead="run the kernel with nki.simulate"
                        ).located(user_location())
    return builder


@instruction
def core_barrier(data: Any, cores: Any, engine: Any = e.engine.gpsimd, name: str | None = None) -> None:
    """Wait for the other cores; what was written to ``data`` before is seen by all after."""
    e.engine_name(engine)
    builder = several_cores("nisa.core_barrier")
    numbers = [int(c) for c in (cores if isinstance(cores, (tuple, list)) else [cores])]
    if builder is None or len(numbers) < 2:
        return
    builder.mesh.barrier(builder.point[0], numbers, "nisa.core_barrier")


@instruction
def sendrecv(src: Any, dst: Any, send_to_rank: int, recv_from_rank: int, pipe_id: int,
             dma_engine: Any = e.dma_engine.dma, name: str | None = None, **older: Any) -> None:
    """Send src to a core and receive dst from one."""
    if set(older) - {"use_gpsimd_dma"}:
        raise TypeError(f"sendrecv() got an unexpected keyword argument '{sorted(older)[0]}'")
    chosen = e.member(dma_engine, e.dma_engine, "dma_engine")
    for label, t in (("src", src), ("dst", dst)):
        low.is_tensor(t, "sendrecv", label)
        require(t.buffer is sbuf, f"sendrecv {label} must be in SBUF, it is in {t.buffer.value}")
    require(src.dtype is dst.dtype and src.shape[0] == dst.shape[0] and src.size == dst.size,
            f"sendrecv src {list(src.shape)} {src.dtype} and dst {list(dst.shape)} {dst.dtype} must be equal")
    if chosen is e.dma_engine.gpsimd_dma:
        limit = {4: 1024, 2: 512, 1: 256}[src.itemsize]
        size = src.size // src.shape[0] * src.itemsize
        require(size <= limit, f"sendrecv by gpsimd_dma moves up to {limit} bytes per partition, got {size}")
    builder = several_cores("nisa.sendrecv")
    if builder is None:
        require(int(send_to_rank) == int(recv_from_rank) == 0, "sendrecv with another core needs a launch of 2 cores")
        assignment.copy_on_chip(dst, src, "sendrecv")
        return
    own, pair, mesh = builder.point[0], (0, 1), builder.mesh
    require(send_to_rank in pair and recv_from_rank in pair, "sendrecv ranks are 0 and 1")
    value = low.concrete_value(low.reading(src))
    sent = mesh.exchange(own, pair, ("sendrecv", pipe_id), (int(send_to_rank), value), "nisa.sendrecv")
    to, received = sent[int(recv_from_rank)]
    require(to == own, f"core {own} receives from core {recv_from_rank}, which sends to core {to}")
    with low.writing(dst, "sendrecv") as out:
        held = low.allocate(out.shape, out.dtype)
        held.storage.buffer.handle[...] = np.asarray(received).reshape(held.storage.buffer.physical_shape)
        assignment.copy_on_chip(out, held, "sendrecv")
