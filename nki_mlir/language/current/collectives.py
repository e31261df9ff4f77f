# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.collectives`` (``ncc``): exchanges between the ranks of a group.

Ranks run in one process with ``simulate_ranks``; a kernel that runs by itself is the only rank of its group.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from nki_mlir.diagnostics import Unsupported
from nki_mlir.frontend.builder import active
from nki_mlir.frontend.locations import user_location
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.errors import NkiValidationError, invalid, reported, require
from nki_mlir.language.current.instruction import alu, generation_from
from nki_mlir.language.current.isa_register import register_alloc
from nki_mlir.language.current.objects import NKIObject
from nki_mlir.language.current.regions import is_hbm
from nki_mlir.language.current.register import VirtualRegister
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.conversion import convert
from nki_mlir.scalar.dtypes import FLOAT32, UINT32

Values = list[list[np.ndarray]]         # of each rank, in the order of the group, the values of its tensors


@dataclass(eq=False)
class ReplicaGroup(NKIObject):
    """Lists of ranks that exchange with each other; no rank is in two of them."""

    groups: Any = None

    def __post_init__(self) -> None:
        flat = [int(r) for g in self.groups or () for r in g]
        if len(flat) != len(set(flat)):
            raise NkiValidationError(f"the groups {self.groups} overlap")

    def of(self, rank: int) -> list[int]:
        """The ranks of the group that a rank is in."""
        for group in self.groups:
            if rank in list(group):
                return [int(r) for r in group]
        return invalid(f"rank {rank} is in none of the groups {self.groups}")


def own_rank() -> int:
    return int(active("a collective").properties.get("rank", 0))


def exchange(op: str, members: Sequence[int], values: Any) -> list[Any]:
    """The values of all members, in their order."""
    builder: Any = active(f"ncc.{op}")
    if len(members) == 1:
        return [values]
    world = builder.properties.get("world")
    if world is None:
        raise Unsupported(feature=f"ncc.{op} between {len(members)} ranks in a kernel that runs by itself",
                          instead="run the ranks together with nki_mlir.language.current.simulator.simulate_ranks"
                          ).located(user_location())
    return world.exchange(own_rank(), members, op, values, f"ncc.{op}")


def contents(op: str, srcs: Any) -> list[np.ndarray]:
    """The elements of tensors, which are known in simulation only."""
    made = []
    for source in srcs:
        value = low.concrete_value(low.reading(source))
        if value is None:
            raise Unsupported(feature=f"ncc.{op} in a captured kernel", instead="run the kernel with nki.simulate"
                              ).located(user_location())
        made.append(value)
    return made


def check(op: str, srcs: Any, dsts: Any, priority: Any, single: bool = False, hbm: bool = False) -> None:
    for label, tensors in (("srcs", srcs), ("dsts", dsts)):
        require(isinstance(tensors, (list, tuple)) and tensors and all(isinstance(t, NkiTensor) for t in tensors),
                f"{op} {label}: expecting 'sequence' of tensors")
    require(len(srcs) == len(dsts), f"{op} has {len(srcs)} srcs and {len(dsts)} dsts")
    spaces = {is_hbm(t.buffer) for t in (*srcs, *dsts)}
    require(len(spaces) == 1, f"{op} takes tensors that are all in HBM or all in SBUF")
    require(spaces == {True} or (len(srcs) == 1 and not hbm), f"{op} takes " + (
        "tensors in HBM" if hbm else "one tensor in SBUF, or several in HBM"))
    require(not single or len(srcs) == 1, f"{op} takes one tensor")
    if priority is not None:
        generation_from(4, "a priority")
        require(priority in range(4), f"priority {priority} is none of 0, 1, 2, 3")


def write(dst: NkiTensor, value: np.ndarray) -> None:
    """dst = the elements of an array."""
    held = low.core_view(dst)
    flat = np.ndarray(tuple(dst.shape), dst.dtype.numpy, dst.storage.buffer.handle, dst.offset * dst.itemsize,
                      tuple(s * dst.itemsize for s in dst.strides))
    require(value.size == dst.size,
            f"a collective gives {value.size} elements to {dst.name} of shape {list(dst.shape)}")
    flat[...] = convert(np.ascontiguousarray(value).reshape(dst.shape), dst.dtype)
    active().written.setdefault(held.buffer, user_location())


def folded(op: str, name: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
    require(name in ("add", "minimum", "maximum"), f"{op} op is nl.add, nl.minimum or nl.maximum")
    total = arrays[0].astype(FLOAT32.numpy)
    for a in arrays[1:]:
        total = ALU[name].numpy(total, a.astype(FLOAT32.numpy))
    return total


def run(op: str, srcs: Any, dsts: Any, group: Any, result: Callable[[int, Values, int], np.ndarray]) -> None:
    """dsts[k] = result(place of this rank, everyone's values, k)."""
    members = group.of(own_rank())
    values = exchange(op, members, contents(op, srcs))
    place = members.index(own_rank())
    for k, dst in enumerate(dsts):
        write(dst, result(place, values, k))


@reported
def all_reduce(srcs: Any, dsts: Any, replica_group: Any, op: Any, priority: int | None = None,
               name: str | None = None) -> None:
    """Each dst = the reduction of everyone's src."""
    check("all_reduce", srcs, dsts, priority)
    fold = alu(op, "all_reduce op")
    run("all_reduce", srcs, dsts, replica_group, lambda place, v, k: folded("all_reduce", fold, [r[k] for r in v]))


def check_dim(op: str, srcs: Any, dim: int, *sbuf_dims: int) -> None:
    allowed = (0,) if is_hbm(srcs[0].buffer) else sbuf_dims or (0,)
    require(dim in allowed, f"{op} collective_dim {dim} is none of {allowed}")


@reported
def all_gather(srcs: Any, dsts: Any, replica_group: Any, collective_dim: int, priority: int | None = None,
               name: str | None = None) -> None:
    """Each dst = everyone's src, one after the other."""
    check("all_gather", srcs, dsts, priority)
    check_dim("all_gather", srcs, collective_dim, 0, 1)
    run("all_gather", srcs, dsts, replica_group, lambda place, v, k: np.concatenate([r[k] for r in v], collective_dim))


@reported
def reduce_scatter(srcs: Any, dsts: Any, replica_group: Any, collective_dim: int, op: Any, priority: int | None = None,
                   name: str | None = None) -> None:
    """Each dst = this rank's part of the reduction of everyone's src."""
    check("reduce_scatter", srcs, dsts, priority)
    check_dim("reduce_scatter", srcs, collective_dim)
    fold = alu(op, "reduce_scatter op")
    run("reduce_scatter", srcs, dsts, replica_group, lambda place, v, k: np.split(
        folded("reduce_scatter", fold, [r[k] for r in v]), len(v), collective_dim)[place])


@reported
def all_to_all(srcs: Any, dsts: Any, replica_group: Any, collective_dim: int, priority: int | None = None,
               name: str | None = None) -> None:
    """Each dst = this rank's part of everyone's src, one after the other."""
    check("all_to_all", srcs, dsts, priority, hbm=True)
    check_dim("all_to_all", srcs, collective_dim)
    run("all_to_all", srcs, dsts, replica_group,
        lambda place, v, k: np.concatenate([np.split(r[k], len(v), 0)[place] for r in v], 0))


# -- permutations ------------------------------------------------------------------------------------------------------
@reported
def collective_permute(srcs: Any, dsts: Any, source_target_pairs: Any, priority: int | None = None,
                       name: str | None = None) -> None:
    """dst of b = src of a for each pair (a, b); a rank that is no target keeps its dst."""
    op = "collective_permute"
    check(op, srcs, dsts, priority, single=True, hbm=True)
    pairs = [(int(a), int(b)) for a, b in source_target_pairs]
    members = sorted({r for pair in pairs for r in pair} | {own_rank()})
    values = exchange(op, members, contents(op, srcs))
    for a, b in pairs:
        if b == own_rank():
            write(dsts[0], values[members.index(a)][0])


def ring(replica_group: Any, back: int) -> tuple[list[int], int]:
    """(the ring, the place that many steps before this rank)."""
    members = replica_group.of(own_rank())
    return members, (members.index(own_rank()) - back) % len(members)


def channels(op: str, lists: Sequence[Any], channel_ids: Sequence[int]) -> None:
    require(list(channel_ids) == list(range(len(channel_ids))) and len(channel_ids) <= 4,
            f"{op} channel_ids {list(channel_ids)} are not 0, 1, ... up to 3")
    require(all(len(items) == len(channel_ids) for items in lists), f"{op} takes one tensor for each channel")


def plain(by_channel: Any) -> list[Any]:
    return [t[0] if isinstance(t, (list, tuple)) else t for t in by_channel]


@reported
def collective_permute_implicit(srcs_by_channel: Any, dsts_by_channel: Any, replica_group: Any,
                                channel_ids: Any = (0,), priority: int | None = None, name: str | None = None) -> None:
    """Around a ring: dst = src of the predecessor, for each channel."""
    op = "collective_permute_implicit"
    srcs, dsts = plain(srcs_by_channel), plain(dsts_by_channel)
    channels(op, (srcs, dsts), channel_ids)
    check(op, srcs, dsts, priority)
    members, before = ring(replica_group, 1)
    values = exchange(op, members, contents(op, srcs))
    for k, dst in enumerate(dsts):
        write(dst, values[before][k])


@reported
def collective_permute_implicit_reduce(srcs0_by_channel: Any, srcs1_by_channel: Any, dsts_by_channel: Any,
                                       replica_group: Any, op: Any, channel_ids: Any = (0,),
                                       priority: int | None = None, name: str | None = None) -> None:
    """Around a ring: dst = op(src0, src1) of the predecessor, for each channel."""
    kind = "collective_permute_implicit_reduce"
    left, right, dsts = plain(srcs0_by_channel), plain(srcs1_by_channel), plain(dsts_by_channel)
    channels(kind, (left, right, dsts), channel_ids)
    check(kind, left, dsts, priority)
    members, before = ring(replica_group, 1)
    fold = alu(op, f"{kind} op")
    sums = [folded(kind, fold, pair) for pair in zip(contents(kind, left), contents(kind, right))]
    values = exchange(kind, members, sums)
    for k, dst in enumerate(dsts):
        write(dst, values[before][k])


@reported
def collective_permute_implicit_current_processing_rank_id(iteration_id: int, replica_group: Any, channel_id: int = 0,
                                                           name: str | None = None) -> VirtualRegister:
    """The rank whose data a ring has brought here after that many steps, in a register."""
    members, place = ring(replica_group, int(iteration_id))
    return register_alloc(members[place])


def rank_id(name: str | None = None) -> VirtualRegister:
    """This rank's number in a register."""
    return register_alloc(own_rank())


# -- parts of different sizes ------------------------------------------------------------------------------------------
def counts_of(op: str, metadata: Any, ranks: int, has_rdispls: bool) -> np.ndarray:
    """(rows, ranks) of the metadata: send counts, send displacements, receive counts, receive displacements."""
    require(isinstance(metadata, NkiTensor) and metadata.dtype is UINT32, f"{op} metadata_tensor must be uint32")
    rows = 4 if has_rdispls else 3
    value, = contents(op, [metadata])
    require(value.size == rows * ranks, f"{op} metadata_tensor has shape {list(metadata.shape)}, which must be "
                                        f"{rows} x {ranks}")
    return value.reshape(rows, ranks).astype(np.int64)


def varying(op: str, srcs: Any, dsts: Any, group: Any, metadata: Any, counts_known: bool, has_rdispls: bool,
            to_all: bool) -> None:
    members = group.of(own_rank())
    place, ranks = members.index(own_rank()), len(members)
    table = counts_of(op, metadata, ranks, has_rdispls)
    values = exchange(op, members, (contents(op, srcs)[0].reshape(-1), table))
    made, = contents(op, dsts)
    flat = made.reshape(-1).copy()
    slot = prod(dsts[0].shape) // ranks
    received = np.zeros(ranks, np.int64)
    for s, (data, theirs) in enumerate(values):
        column = 0 if to_all else place
        count, start = int(theirs[0, column]), int(theirs[1, column])
        at = int(table[3, s]) if has_rdispls else s * slot
        flat[at:at + count] = data[start:start + count]
        received[s] = count
    write(dsts[0], flat)
    if not counts_known:
        table[2] = received
        write(metadata, table.reshape(metadata.shape).astype(np.uint32))


@reported
def all_gather_v(srcs: Any, dsts: Any, replica_group: Any, metadata_tensor: Any, recv_counts_known: bool = False,
                 has_rdispls: bool = False, priority: int | None = None, name: str | None = None) -> None:
    """Each rank's part of src, to all; sender s lands at s * (size of dst / ranks)."""
    check("all_gather_v", srcs, dsts, priority, single=True, hbm=True)
    require(not has_rdispls, "all_gather_v does not take has_rdispls=True")
    varying("all_gather_v", srcs, dsts, replica_group, metadata_tensor, recv_counts_known, False, True)


@reported
def all_to_all_v(srcs: Any, dsts: Any, replica_group: Any, metadata_tensor: Any, recv_counts_known: bool = False,
                 has_rdispls: bool = False, priority: int | None = None, name: str | None = None) -> None:
    """To each rank its own part of src; parts are placed by displacement, or in slots of equal size."""
    check("all_to_all_v", srcs, dsts, priority, single=True, hbm=True)
    varying("all_to_all_v", srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, False)
