# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collective instructions: transfers and reductions between the ranks of a group, or the programs of a launch.

``groups`` are lists of members' numbers as JSON: a member exchanges data with those in the same list.
"""

from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import HBM, SBUF
from nki_mlir.dialects.launch_members import MEMBERS, PROGRAMS, RANKS
from nki_mlir.dialects.nisa.meeting import ANY, Meeting
from nki_mlir.dialects.nisa.opaque import Opaque
from nki_mlir.dialects.op import In, InOut, Integers, Out, Results
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, INT32, UINT32, DType

FOLDS = ("add", "minimum", "maximum")


class NotInGroup(KernelError):
    code = "NKI-GROUP"
    message = "{kind} {number} is in none of the groups {groups}"
    fix = "let the groups contain every rank that runs the instruction"


class BadCounts(KernelError, IndexError):
    code = "NKI-COUNTS"
    message = "{what}"
    fix = "choose counts and displacements within the tensors"


def parsed(groups: str) -> list[list[int]]:
    """Return the lists of members; none if the text is malformed."""
    import json  # start-up: only collectives of groups need it
    try:
        lists = json.loads(groups)
    except (ValueError, RecursionError):
        return []
    valid = isinstance(lists, list) and all(isinstance(g, list) and all(type(r) is int for r in g) for g in lists)
    return lists if valid else []


def text_of(groups: Sequence[Sequence[int]]) -> str:
    """Return the lists of members as an operation has them."""
    import json  # start-up: only collectives of groups need it
    return json.dumps(groups)


def group_of(groups: str, member: int, kind: str) -> list[int]:
    for group in parsed(groups):
        if member in group:
            return group
    raise NotInGroup(kind=kind.removesuffix("s"), number=member, groups=groups)


def check_groups(check: Check, groups: str) -> None:
    flat = [r for g in parsed(groups) for r in g]
    check.rule(len(flat) > 0 and min(flat) >= 0 and len(flat) == len(set(flat)),
               f"groups must be lists of different ranks as JSON, got {groups}",
               "name each rank once, as in [[0, 1], [2, 3]]")


class Collective(Meeting):
    """Family: operands are all in HBM or all in SBUF. A transfer in a queue that the cores for collectives execute."""

    destinations = (SBUF,)
    queued = True
    dst: Out
    src: In

    def verify(self, check: Check) -> None:
        check.all_in((HBM, SBUF), *(f.name for f, _ in self.operands()))
        spaces = {t.space for f, t in self.operands() if f.name != "metadata"}
        check.rule(len(spaces) == 1, "operands must be all in HBM or all in SBUF",
                   "copy the operands in SBUF to HBM, or the others to SBUF")
        check.unmasked()

    def hops(self, members: int) -> int:
        """Return the number of steps from member to member, one after the other."""
        return members - 1

    def largest_group(self) -> int:
        return 2

    def transfer_ns(self, machine: Machine) -> float:
        """Return the time of the transfer in ns, in which the engines continue."""
        sent_bytes = max(t.partitions * t.free_elements * t.dtype.itemsize for _, t in self.operands())
        costs = machine.costs
        return self.hops(self.largest_group()) * costs.control.hop_ns + sent_bytes / costs.dma.hbm_bytes_per_ns


class Grouped(Collective):
    """Family: between the members of a group. ``over``: ranks, or programs of a launch."""

    groups: str
    over: str = RANKS

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.one_of("over", (PROGRAMS, RANKS))
        check_groups(check, self.groups)

    @property
    def between(self) -> str:
        return self.over

    def members(self, member: int) -> Sequence[int]:
        return group_of(self.groups, member, self.over)

    def largest_group(self) -> int:
        return max(map(len, parsed(self.groups)))

    def elements(self, check: Check, larger: str = "") -> None:
        """Check that dst and src have the same size, or that ``larger`` has the size of the other, times the number of
        members."""
        for n in map(len, parsed(self.groups)):
            sizes = {label: prod(getattr(self, label).shape) * (n if larger and label != larger else 1)
                     for label in ("dst", "src")}
            check.rule(sizes["dst"] == sizes["src"],
                       f"dst{list(self.dst.shape)} does not fit src{list(self.src.shape)} between {n} members",
                       f"give {larger} {n} times the elements of the other" if larger else
                       "give both the same number of elements")

    def divides(self, check: Check) -> None:
        """Check that axis 0 of src has a part for each member."""
        for n in map(len, parsed(self.groups)):
            check.rule(self.src.shape[0] % n == 0, f"src{list(self.src.shape)} has no {n} equal parts along axis 0",
                       f"give it a multiple of {n} rows")


class Folding:
    """Mixin: members' values are folded in float32, integers of 32 bits and bits of any integers in their own dtype."""

    @property
    def compute(self) -> DType | None:
        dtype: DType = self.src.dtype                               # type: ignore[attr-defined]
        exact = dtype.bits >= 32 or ALU[self.op].on_bits            # type: ignore[attr-defined]
        return dtype if dtype.is_integer and exact else FLOAT32

    def folded(self, values: Sequence[np.ndarray]) -> np.ndarray:
        return reduce(ALU[self.op].numpy, values)                   # type: ignore[attr-defined]


SYNC = (Engine.SYNC, Engine.GPSIMD)


class AllReduceOp(Folding, Grouped, name="all_reduce", engines=SYNC, mnemonic="CC_ALL_REDUCE", opcode=0x82):
    """dst = the fold of all members' src."""

    op: str

    def verify(self, check: Check) -> None:
        super().verify(check)
        if self.over == RANKS:
            check.one_of("op", FOLDS)
        else:
            check.alu("op", 2)
            check.bits(["op"], "src")
        self.elements(check)

    def hops(self, members: int) -> int:
        return 2 * (members - 1)                # parts are folded around the ring, then sent around it

    def combined(self, member: int, members: Sequence[int], values: Sequence[list[np.ndarray]]) -> Results:
        return self.folded([v for v, in values]).reshape(self.dst.shape)


class AllGatherOp(Grouped, name="all_gather", engines=SYNC, mnemonic="CC_ALL_GATHER", opcode=0x83):
    """dst = all members' src, concatenated along ``dim``."""

    dim: int = 0

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.rule(0 <= self.dim < len(self.src.shape),
                   f"dim must be an axis of src{list(self.src.shape)}, got {self.dim}",
                   f"name one of its {len(self.src.shape)} axes")
        self.elements(check, larger="dst")

    def combined(self, member: int, members: Sequence[int], values: Sequence[list[np.ndarray]]) -> Results:
        return np.concatenate([v for v, in values], self.dim).reshape(self.dst.shape)


class ReduceScatterOp(Folding, Grouped, name="reduce_scatter", engines=SYNC, mnemonic="CC_REDUCE_SCATTER",
                      opcode=0x84):
    """dst = this member's part, along axis 0, of the fold of all members' src."""

    op: str

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.one_of("op", FOLDS)
        self.elements(check, larger="src")
        self.divides(check)

    def combined(self, member: int, members: Sequence[int], values: Sequence[list[np.ndarray]]) -> Results:
        parts = np.split(self.folded([v for v, in values]), len(members))
        return parts[members.index(member)].reshape(self.dst.shape)


class AllToAllOp(Grouped, name="all_to_all", engines=SYNC, mnemonic="CC_ALL_TO_ALL", opcode=0x85):
    """dst = this member's part of each member's src, concatenated along axis 0."""

    def verify(self, check: Check) -> None:
        super().verify(check)
        self.elements(check)
        self.divides(check)

    def combined(self, member: int, members: Sequence[int], values: Sequence[list[np.ndarray]]) -> Results:
        parts = [np.split(v, len(members))[members.index(member)] for v, in values]
        return np.concatenate(parts).reshape(self.dst.shape)


class RingPermuteOp(Folding, Grouped, name="ring_permute", engines=SYNC, mnemonic="CC_RING_PERMUTE", opcode=0x86):
    """dst = src of the member before this one in the group, or src folded with ``other`` there."""

    other: In | None
    op: str = "add"

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.one_of("op", FOLDS)
        self.elements(check)
        check.same_shape("src", "other")

    @property
    def compute(self) -> DType | None:
        return None if self.other is None else super().compute

    def hops(self, members: int) -> int:
        return 1

    def contribution(self, *sources: np.ndarray) -> list[np.ndarray]:
        return super().contribution(self.folded(sources))

    def combined(self, member: int, members: Sequence[int], values: Sequence[list[np.ndarray]]) -> Results:
        value, = values[members.index(member) - 1]
        return value.reshape(self.dst.shape)


class PermuteOp(Collective, name="permute", engines=SYNC, mnemonic="CC_PERMUTE", opcode=0x87):
    """dst of b = src of a for each pair (a, b) of ranks; a rank that is not a target keeps its dst."""

    dst: InOut
    pairs: Integers            # a, b, a, b, ...

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.same_shape("dst", "src")
        check.rule(len(self.pairs) % 2 == 0 and len(set(self.pairs[1::2])) == len(self.pairs) // 2
                   and min(self.pairs, default=0) >= 0, f"pairs must be two ranks each, with different targets, "
                                                        f"got {self.pairs}", "name each target once")

    @property
    def between(self) -> str:
        return RANKS

    def members(self, member: int) -> Sequence[int]:
        return sorted(set(self.pairs))

    def unread_tiles(self) -> Sequence[str]:
        return ("dst",)

    def unchanged_tiles(self) -> Sequence[str]:
        return () if MEMBERS[RANKS].get().number in self.pairs[1::2] else ("dst",)

    def hops(self, members: int) -> int:
        return 1

    def combined(self, member: int, members: Sequence[int], values: Sequence[list[np.ndarray]]) -> Results:
        if member not in self.pairs[1::2]:
            return None
        source = self.pairs[2 * self.pairs[1::2].index(member)]
        return values[members.index(source)][1]


class VaryingOp(Grouped, name="varying_exchange", engines=SYNC, mnemonic="CC_VARYING", opcode=0x88):
    """Sends one part of src to all members (``to_all``), or a separate part to each member; ``metadata`` has the sizes.

    Rows of the metadata: counts that are sent, their starts in src, counts that are received (written unless
    ``counts_known``), and with ``displaced`` their starts in dst. Without it, dst has a slot of equal size for each
    sender.
    """

    dst: InOut
    metadata: InOut
    to_all: bool
    counts_known: bool = False
    displaced: bool = False

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.dtype("metadata", UINT32)
        check.dtype("dst", self.src.dtype)
        rows = 4 if self.displaced else 3
        for group in parsed(self.groups):
            check.rule(prod(self.metadata.shape) == rows * len(group),
                       f"metadata{list(self.metadata.shape)} is not {rows} x {len(group)}",
                       f"give it the shape [{rows}, {len(group)}]")

    def unread_tiles(self) -> Sequence[str]:
        return ("dst",)

    def contribution(self, *sources: np.ndarray) -> list[np.ndarray]:
        return super().contribution(*sources[1:]) + [sources[0].copy()]

    def combined(self, member: int, members: Sequence[int], values: Sequence[list[np.ndarray]]) -> Results:
        position, n = members.index(member), len(members)
        tables = [table.reshape(-1, n).astype(np.int64) for _, table, _ in values]
        received = values[position][2].copy()
        flat, table = received.reshape(-1), tables[position].copy()
        for s, ((data, *_), their_table) in enumerate(zip(values, tables)):
            column = 0 if self.to_all else position
            count, start = int(their_table[0, column]), int(their_table[1, column])
            start_in_dst = int(table[3, s]) if self.displaced else s * (flat.size // n)
            if start + count > data.size or start_in_dst + count > flat.size:
                raise BadCounts(what=f"member {members[s]} sends {count} elements from {start} of {data.size} "
                                     f"to {start_in_dst} of {flat.size}")
            flat[start_in_dst:start_in_dst + count] = data.reshape(-1)[start:start + count]
            table[2, s] = count
        return received, None if self.counts_known else table.reshape(self.metadata.shape).astype(np.uint32)


class RankIdOp(Opaque, name="rank_id", engines=ANY, mnemonic="RANK_ID", opcode=0x89):
    """dst = this rank's number, or the number of the rank ``steps`` before it in the ring of its group."""

    dst: Out
    groups: str = "[]"
    steps: int = 0

    def verify(self, check: Check) -> None:
        check.on_chip("dst")
        check.dtype("dst", INT32)
        check.rule(prod(self.dst.shape) == 1, f"dst must have one element, got {list(self.dst.shape)}",
                   "give it the shape [1, 1]")
        check.unmasked()
        if self.steps:
            check_groups(check, self.groups)

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        rank = MEMBERS[RANKS].get().number
        if self.steps:
            group = group_of(self.groups, rank, RANKS)
            rank = group[(group.index(rank) - self.steps) % len(group)]
        return np.full(self.dst.shape, rank, np.int32)

    def work(self) -> Work:
        """The engine takes the fixed part of the law ``register``, whatever the number of elements."""
        return Work("register", 0)
