# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.collectives`` (``ncc``): collective operations between the ranks of a group.

``simulate_ranks`` runs ranks in one process. A kernel that runs without it is the only rank of its group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nki_mlir.dialects.nisa import collectives
from nki_mlir.dialects.op import Op
from nki_mlir.language.creation import emit
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.calls import reported
from nki_mlir.language.current.errors import NkiTypeError, integers, invalid, one_of, require
from nki_mlir.language.current.instruction import alu, instruction
from nki_mlir.language.current.isa_movement import check_priority
from nki_mlir.language.current.memory import VirtualRegister, is_hbm
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.kernel_object import NKIObject
from nki_mlir.language.signatures.binding import Contents
from nki_mlir.language.signatures.kinds import is_shape
from nki_mlir.language.signatures.table import CURRENT, listing


@dataclass(eq=False, init=False)
class ReplicaGroup(NKIObject):
    """Disjoint groups of ranks: the ranks of a group exchange data with each other."""

    groups: list[list[int]] | None = None

    def __init__(self, groups: Any = None) -> None:
        self.groups, lists = groups, () if groups is None else groups
        if not isinstance(lists, (tuple, list)) or not all(is_shape(g) for g in lists):
            raise NkiTypeError(f"ReplicaGroup groups: expecting lists of ranks, got {groups!r}",
                               fix="write for example ReplicaGroup([[0, 1], [2, 3]])").here()
        flat = [int(r) for g in lists for r in g]
        if len(flat) != len(set(flat)):
            invalid(f"the groups {groups} overlap", fix="name each rank in one group only")

    @property
    def text(self) -> str:
        """The groups as JSON."""
        return collectives.text_of([[int(r) for r in group] for group in self.groups or ()])


def check(op: str, srcs: list[NkiTensor], dsts: list[NkiTensor], priority: object, single: bool = False,
          hbm: bool = False) -> None:
    """Check the tensors and priority of a collective, which may require one (``single``), or HBM (``hbm``)."""
    for label, tensors in (("srcs", srcs), ("dsts", dsts)):
        require(isinstance(tensors, (list, tuple)) and tensors and all(isinstance(t, NkiTensor) for t in tensors),
                f"{op} {label}: expecting 'sequence' of tensors", fix="give a list of tensors, for example srcs=[t]")
    require(len(srcs) == len(dsts), f"{op} has {len(srcs)} srcs and {len(dsts)} dsts", fix="give one src for each dst")
    spaces = {is_hbm(t.buffer) for t in (*srcs, *dsts)}
    for src, dst in zip(srcs, dsts):
        low.one_dtype(op, "src", dst=dst, src=src)
    require(spaces == {True} or (len(srcs) == 1 and not hbm), f"{op} takes " + (
        "tensors in HBM" if hbm else "one tensor in SBUF, or several in HBM"),
            fix="move the tensors with nisa.dma_copy first, or call it once for each")
    require(not single or len(srcs) == 1, f"{op} takes one tensor", fix="call it once for each tensor")
    check_priority(priority)


def text_of(op: str, replica_group: object) -> str:
    """Return the groups of a ``replica_group`` argument as JSON, or raise an error."""
    if not isinstance(replica_group, ReplicaGroup):
        kind = type(replica_group).__name__
        invalid(f"{op} replica_group: expecting 'ReplicaGroup', got '{kind}'",
                fix="write for example ReplicaGroup([[0, 1], [2, 3]])")
    return replica_group.text


def transfer(operation: str, cls: type[Op], dst: NkiTensor, src: NkiTensor,
             other_operands: dict[str, NkiTensor] | None = None, **attributes: object) -> None:
    """Emit a collective operation ``cls`` from ``src``, and ``other_operands`` by name, to ``dst``."""
    if "op" in attributes:
        attributes["op"] = alu(attributes["op"], f"{operation} op")
    attributes |= {"groups": text_of(operation, attributes["groups"])} if "groups" in attributes else {}
    with low.writing(dst, operation) as out:
        views = {label: low.core_view(low.reading(t)) for label, t in ({"src": src} | (other_operands or {})).items()}
        emit(cls, {"dst": low.core_view(out), **views}, **attributes)


@instruction
def all_reduce(srcs: list[NkiTensor], dsts: list[NkiTensor], replica_group: "ReplicaGroup", op: object,
               priority: object) -> None:
    """Reduce each src over all ranks of the group into its dst on every rank."""
    check("all_reduce", srcs, dsts, priority)
    for src, dst in zip(srcs, dsts):
        transfer("all_reduce", collectives.AllReduceOp, dst, src, op=op, groups=replica_group)


def check_dim(op: str, srcs: list[NkiTensor], dim: int, *sbuf_dims: int) -> None:
    allowed = (0,) if is_hbm(srcs[0].buffer) else sbuf_dims or (0,)
    one_of(dim, allowed, f"{op} collective_dim")


@instruction
def all_gather(srcs: list[NkiTensor], dsts: list[NkiTensor], replica_group: object, collective_dim: int,
               priority: object) -> None:
    """Concatenate the src of all ranks of the group into its dst on every rank."""
    check("all_gather", srcs, dsts, priority)
    check_dim("all_gather", srcs, collective_dim, 0, 1)
    for src, dst in zip(srcs, dsts):
        transfer("all_gather", collectives.AllGatherOp, dst, src, dim=collective_dim, groups=replica_group)


@instruction
def reduce_scatter(srcs: list[NkiTensor], dsts: list[NkiTensor], replica_group: "ReplicaGroup", collective_dim: int,
                   op: object, priority: object) -> None:
    """Reduce each src over all ranks of the group, and write this rank's part of the result to its dst."""
    check("reduce_scatter", srcs, dsts, priority)
    check_dim("reduce_scatter", srcs, collective_dim)
    for src, dst in zip(srcs, dsts):
        transfer("reduce_scatter", collectives.ReduceScatterOp, dst, src, op=op, groups=replica_group)


@instruction
def all_to_all(srcs: list[NkiTensor], dsts: list[NkiTensor], replica_group: "ReplicaGroup", collective_dim: int,
               priority: object) -> None:
    """Concatenate this rank's part of the src of every rank into its dst."""
    check("all_to_all", srcs, dsts, priority, hbm=True)
    check_dim("all_to_all", srcs, collective_dim)
    for src, dst in zip(srcs, dsts):
        transfer("all_to_all", collectives.AllToAllOp, dst, src, groups=replica_group)


# -- permutations ------------------------------------------------------------------------------------------------------
@instruction
def collective_permute(srcs: list[NkiTensor], dsts: list[NkiTensor], source_target_pairs: Sequence[tuple[int, int]],
                       priority: object) -> None:
    """Send the src of rank a to the dst of rank b for each pair (a, b). A rank that is not a target keeps its dst."""
    op = "collective_permute"
    check(op, srcs, dsts, priority, single=True, hbm=True)
    require(isinstance(source_target_pairs, (tuple, list)) and all(is_shape(p) and len(p) == 2
                                                                   for p in source_target_pairs),
            f"{op} source_target_pairs: expecting pairs of ranks, got {source_target_pairs!r}",
            fix="write for example [(0, 1), (1, 0)]")
    pairs = tuple(int(r) for pair in source_target_pairs for r in pair)
    transfer(op, collectives.PermuteOp, dsts[0], srcs[0], pairs=pairs)


def channels(op: str, lists: Sequence[Sequence[object]], channel_ids: Sequence[int]) -> None:
    integers(channel_ids, f"{op} channel_ids", fix="write for example [0, 1]")
    require(list(channel_ids) == list(range(len(channel_ids))) and len(channel_ids) <= 4,
            f"{op} channel_ids {list(channel_ids)} are not 0, 1, ... up to 3",
            fix="number the channels from 0, and use 4 at most")
    require(all(len(items) == len(channel_ids) for items in lists), f"{op} takes one tensor for each channel",
            fix="give lists as long as channel_ids")


def plain(by_channel: list[NkiTensor]) -> list[NkiTensor]:
    require(isinstance(by_channel, (list, tuple)), "a collective of channels takes a 'sequence' of tensors",
            fix="give a list with a tensor for each channel")
    return [t[0] if isinstance(t, (list, tuple)) else t for t in by_channel]


@instruction
def collective_permute_implicit(srcs_by_channel: list[NkiTensor], dsts_by_channel: list[NkiTensor],
                                replica_group: "ReplicaGroup", channel_ids: list[int], priority: object) -> None:
    """Set dst to the src of the ring's previous rank, for each channel."""
    op = "collective_permute_implicit"
    srcs, dsts = plain(srcs_by_channel), plain(dsts_by_channel)
    channels(op, (srcs, dsts), channel_ids)
    check(op, srcs, dsts, priority)
    for src, dst in zip(srcs, dsts):
        transfer(op, collectives.RingPermuteOp, dst, src, groups=replica_group)


@instruction
def collective_permute_implicit_reduce(srcs0_by_channel: list[NkiTensor], srcs1_by_channel: list[NkiTensor],
                                       dsts_by_channel: list[NkiTensor], replica_group: "ReplicaGroup", op: object,
                                       channel_ids: list[int], priority: object) -> None:
    """Set dst to op(src0, src1) of the ring's previous rank, for each channel."""
    kind = "collective_permute_implicit_reduce"
    left, right, dsts = plain(srcs0_by_channel), plain(srcs1_by_channel), plain(dsts_by_channel)
    channels(kind, (left, right, dsts), channel_ids)
    check(kind, left, dsts, priority)
    for first, second, dst in zip(left, right, dsts):
        transfer(kind, collectives.RingPermuteOp, dst, first, {"other": second}, op=op, groups=replica_group)


@reported
def collective_permute_implicit_current_processing_rank_id(iteration_id: object, replica_group: "ReplicaGroup",
                                                           channel_id: object, name: object) -> VirtualRegister:
    """Return a register with the rank whose data has reached this rank after ``iteration_id`` steps of the ring."""
    op = "collective_permute_implicit_current_processing_rank_id"
    one_of(channel_id, range(4), f"{op} channel_id")
    register = VirtualRegister()
    emit(collectives.RankIdOp, {"dst": register.state}, groups=text_of(op, replica_group), steps=iteration_id)
    return register


@reported
def rank_id(name: object) -> VirtualRegister:
    """Return a register with the number of this rank."""
    register = VirtualRegister()
    emit(collectives.RankIdOp, {"dst": register.state})
    return register


# -- parts of different sizes ------------------------------------------------------------------------------------------
def varying(op: str, src: NkiTensor, dst: NkiTensor, metadata: NkiTensor, groups: object, **attributes: object) -> None:
    low.any_tensor(metadata, op, "metadata_tensor")
    transfer(op, collectives.VaryingOp, dst, src, {"metadata": metadata}, groups=groups, **attributes)


@instruction
def all_gather_v(srcs: list[NkiTensor], dsts: list[NkiTensor], replica_group: "ReplicaGroup",
                 metadata_tensor: NkiTensor, recv_counts_known: object, has_rdispls: object, priority: object) -> None:
    """Gather parts of varying size from all ranks on every rank. Rank s's part begins at s * (size of dst / ranks)."""
    check("all_gather_v", srcs, dsts, priority, single=True, hbm=True)
    require(not has_rdispls, "all_gather_v does not take has_rdispls=True", fix="leave it out, or give False")
    varying("all_gather_v", srcs[0], dsts[0], metadata_tensor, groups=replica_group, to_all=True,
            counts_known=bool(recv_counts_known))


@instruction
def all_to_all_v(srcs: list[NkiTensor], dsts: list[NkiTensor], replica_group: "ReplicaGroup",
                 metadata_tensor: NkiTensor, recv_counts_known: object, has_rdispls: object, priority: object) -> None:
    """Send a part of src, of varying size, to each rank. In dst, parts have slots of equal size, or given starts."""
    check("all_to_all_v", srcs, dsts, priority, single=True, hbm=True)
    varying("all_to_all_v", srcs[0], dsts[0], metadata_tensor, groups=replica_group, to_all=False,
            counts_known=bool(recv_counts_known), displaced=bool(has_rdispls))


__doc__ = Contents(__doc__ or "", "nki.collectives", CURRENT)
__dir__ = listing(globals(), "nki.collectives", CURRENT)
