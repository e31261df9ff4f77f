# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The two cores of a launch, and ranks: meetings, exchanges, collectives (instructions 4.5; language 5 and 7)."""

from typing import Any

import numpy as np

from ..memory import HBM
from ..program import current
from .enums import dma_engine, engine
from .operands import Instruction, require
from .registers import VirtualRegister
from .tensor import NkiTensor


def cores() -> int:
    return int(np.prod(current().run.grid, dtype=int))


def core_number(core: int) -> int:
    """Return the number of the program that runs on this core of the same rank."""
    return rank() * cores() + core


def rank() -> int:
    return current().state.get("rank", 0)


def core_barrier(data: NkiTensor, cores: Any, engine: Any = engine.gpsimd, name: str | None = None) -> Instruction:
    """Wait until all cores have arrived: afterwards each sees what the others wrote to ``data`` (4.5)."""
    members = [core_number(core) for core in cores]
    if len(members) > 1:
        current().meet(("barrier", data.name), members, None)
        data.storage.writer[:], data.storage.reader[:] = 0, 0
    return Instruction()


def sendrecv(src: NkiTensor, dst: NkiTensor, send_to_rank: int, recv_from_rank: int, pipe_id: int = 0,
             dma_engine: Any = dma_engine.dma, name: str | None = None) -> Instruction:
    """Write the src of core ``recv_from_rank`` to dst; a core that names itself copies its src (4.5, open 30)."""
    require(src.dtype == dst.dtype and src.shape == dst.shape, "sendrecv copies tiles of one shape and dtype")
    me = current().number - core_number(0)
    values = src.read()
    if send_to_rank == me == recv_from_rank:
        dst.write(values)
        return Instruction()
    brought = current().meet(("sendrecv", pipe_id), [core_number(c) for c in range(cores())], (values, send_to_rank))
    shapes = [list(passed.shape) for _, (passed, _) in sorted(brought.items())]
    require(shapes.count(shapes[0]) == len(shapes), f"sendrecv: cores pass tiles of the shapes {shapes}")
    values, to = brought[core_number(recv_from_rank)]
    require(to == me, f"core {me} waits for core {recv_from_rank}, which sends to core {to}")
    dst.write(values)
    return Instruction()


# -- ranks (language, section 7) -------------------------------------------------------------------------------------------
class ReplicaGroup:
    """Ranks that work together, in the order in which their parts are laid out."""

    def __init__(self, groups: Any) -> None:
        self.groups = [list(group) for group in groups]

    def of(self, number: int) -> list[int]:
        return next(group for group in self.groups if number in group)


def brought(kind: Any, group: list[int], value: Any) -> list[Any]:
    """Return what each rank of the group brings, in the group's order. The ranks must call the same collective."""
    core = current().number - core_number(0)
    numbers = [r * cores() + core for r in group]
    values = current().meet((kind, tuple(group)), sorted(numbers), value)
    return [values[n] for n in numbers]


def folded(op: Any, parts: list[np.ndarray]) -> np.ndarray:
    """Combine the parts with op, first to last, in float32 (instructions 1.4). Integers stay exact, and an extreme of 0
    is +0."""
    function = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}[op.__name__.replace("max", "maximum")
                                                                          if op.__name__ in ("max",) else op.__name__]
    kind = np.int64 if parts[0].dtype.kind in "iu" else np.float32
    total = parts[0].astype(kind)
    for part in parts[1:]:
        total = function(total, part.astype(kind))
        total = total if function is np.add else total + 0
    return total


def pairs(srcs: Any, dsts: Any) -> list[tuple[NkiTensor, NkiTensor]]:
    require(len(srcs) == len(dsts), "as many sources as destinations")
    return list(zip(srcs, dsts))


def all_reduce(srcs: Any, dsts: Any, replica_group: ReplicaGroup, op: Any, priority: Any = None,
               name: str | None = None) -> None:
    """Combine the src of all ranks with op and write the result to dst (7)."""
    group = replica_group.of(rank())
    for src, dst in pairs(srcs, dsts):
        dst.write(folded(op, brought("all_reduce", group, src.read())).reshape(dst.shape))


def all_gather(srcs: Any, dsts: Any, replica_group: ReplicaGroup, collective_dim: int, priority: Any = None,
               name: str | None = None) -> None:
    """Write the src of all ranks to dst, side by side (7)."""
    group = replica_group.of(rank())
    for src, dst in pairs(srcs, dsts):
        dst.write(np.concatenate(brought("all_gather", group, src.read()), axis=collective_dim))


def reduce_scatter(srcs: Any, dsts: Any, replica_group: ReplicaGroup, collective_dim: int, op: Any, priority: Any = None,
                   name: str | None = None) -> None:
    """Combine the src of all ranks with op and write this rank's chunk of the result (7)."""
    group = replica_group.of(rank())
    for src, dst in pairs(srcs, dsts):
        total = folded(op, brought("reduce_scatter", group, src.read()))
        dst.write(np.split(total, len(group), axis=collective_dim)[group.index(rank())])


def all_to_all(srcs: Any, dsts: Any, replica_group: ReplicaGroup, collective_dim: int, priority: Any = None,
               name: str | None = None) -> None:
    """Write the chunks that all ranks have for this one to dst, side by side (7)."""
    group = replica_group.of(rank())
    mine = group.index(rank())
    for src, dst in pairs(srcs, dsts):
        parts = brought("all_to_all", group, src.read())
        chunks = [np.split(part, len(group), axis=collective_dim)[mine] for part in parts]
        dst.write(np.concatenate(chunks, axis=collective_dim))


def collective_permute(srcs: Any, dsts: Any, source_target_pairs: Any, priority: Any = None,
                       name: str | None = None) -> None:
    """Write the src of a to the dst of b for each pair (a, b); the other ranks keep their dst (7)."""
    ranks = sorted({r for pair in source_target_pairs for r in pair})
    if rank() not in ranks:
        return
    parts = dict(zip(ranks, brought("collective_permute", ranks, srcs[0].read())))
    for source, target in source_target_pairs:
        if target == rank():
            dsts[0].write(parts[source])


def ring(group: list[int], steps: int = 1) -> int:
    """Return the index of the rank whose part arrives after this many steps."""
    return (group.index(rank()) - steps) % len(group)


def collective_permute_implicit(srcs_by_channel: Any, dsts_by_channel: Any, replica_group: ReplicaGroup,
                                channel_ids: Any = (0,), priority: Any = None, name: str | None = None) -> None:
    """Write the src of the rank before this one in a ring to dst, for each channel (7)."""
    group = replica_group.of(rank())
    for channel, (src, dst) in enumerate(zip(of_channels(srcs_by_channel), of_channels(dsts_by_channel))):
        dst.write(brought(("permute", channel), group, src.read())[ring(group)])


def collective_permute_implicit_reduce(srcs0_by_channel: Any, srcs1_by_channel: Any, dsts_by_channel: Any,
                                       replica_group: ReplicaGroup, op: Any, channel_ids: Any = (0,), priority: Any = None,
                                       name: str | None = None) -> None:
    """Combine the two sources of the rank before this one with op and write the result to dst (7)."""
    group = replica_group.of(rank())
    channels = zip(of_channels(srcs0_by_channel), of_channels(srcs1_by_channel), of_channels(dsts_by_channel))
    for channel, (first, second, dst) in enumerate(channels):
        value = folded(op, [first.read(), second.read()])
        dst.write(brought(("permute reduce", channel), group, value)[ring(group)])


def of_channels(tensors: Any) -> list[NkiTensor]:
    return [t for entry in tensors for t in (entry if isinstance(entry, (list, tuple)) else [entry])]


def collective_permute_implicit_current_processing_rank_id(iteration_id: Any, replica_group: ReplicaGroup,
                                                           channel_id: int = 0, name: str | None = None) -> VirtualRegister:
    """Return the rank whose part this rank has after some steps around the ring (7)."""
    group = replica_group.of(rank())
    return VirtualRegister(group[ring(group, int(iteration_id))])


def rank_id(name: str | None = None) -> VirtualRegister:
    """Return the rank of this program (7)."""
    return VirtualRegister(rank())


def exchange_of_parts(kind: str, srcs: Any, dsts: Any, replica_group: ReplicaGroup, metadata: NkiTensor, known: bool,
                      places: bool, to_all: bool) -> None:
    """Exchange parts as the rows of the metadata say: counts and positions of what a rank sends, counts and positions
    of what it receives (7)."""
    require(len(srcs) == len(dsts) == 1, "one source and one destination")
    group = replica_group.of(rank())
    me, n, table = group.index(rank()), len(group), metadata.read().reshape(-1, len(group)).astype(np.int64)
    parts = brought(kind, group, (srcs[0].read().reshape(-1), table))
    flat, dst = dsts[0].reshape((dsts[0].size,)), dsts[0]
    received = np.zeros(n, np.int64)
    for s, (values, sent) in enumerate(parts):
        column = 0 if to_all else me
        count, first = int(sent[0, column]), int(sent[1, column])
        at = int(table[3, s]) if places else s * (dst.size // n)
        received[s] = count
        if count:
            flat[at:at + count].write(values[first:first + count])
    if not known:
        rows = metadata.reshape((metadata.size,))[2 * n:3 * n] if metadata.space == HBM else metadata[:, 2]
        rows.write(received.reshape(rows.shape))


def all_to_all_v(srcs: Any, dsts: Any, replica_group: ReplicaGroup, metadata_tensor: NkiTensor,
                 recv_counts_known: bool = False, has_rdispls: bool = False, priority: Any = None,
                 name: str | None = None) -> None:
    """Send every other rank a part of another length (7)."""
    exchange_of_parts("all_to_all_v", srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, False)


def all_gather_v(srcs: Any, dsts: Any, replica_group: ReplicaGroup, metadata_tensor: NkiTensor,
                 recv_counts_known: bool = False, has_rdispls: bool = False, priority: Any = None,
                 name: str | None = None) -> None:
    """Send the same part to all ranks (7)."""
    require(not has_rdispls, "all_gather_v takes no places of what is received")
    exchange_of_parts("all_gather_v", srcs, dsts, replica_group, metadata_tensor, recv_counts_known, False, True)
