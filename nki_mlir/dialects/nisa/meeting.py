# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Base of instructions at which several programs meet, and those between the cores of one launch: barrier, exchange.

Each member passes values and gets the values of all members. These instructions keep their order in a program; only the
meeting itself orders them with instructions of other programs.
"""

from abc import abstractmethod
from collections.abc import Hashable, Sequence

import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import SBUF, Tile
from nki_mlir.dialects.launch_members import MEMBERS, PROGRAMS
from nki_mlir.dialects.nisa.opaque import Opaque
from nki_mlir.dialects.op import In, Integers, Out, Results
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import ENGINES, Engine, Work
from nki_mlir.machine.costs import CORE_SIGNAL

ANY = (Engine.GPSIMD, *(e for e in ENGINES if e is not Engine.GPSIMD))


class WrongPartner(KernelError):
    code = "NKI-PARTNER"
    message = "core {own} receives from core {partner}, which sends to core {to}"
    fix = "set send_to_rank of each core to the core that receives from it"


class UnlikeOperands(KernelError):
    code = "NKI-MEETING"
    message = "{op}: {kind} {first} passes {operands}, but {kind} {second} passes {second_operands}"
    why = "each {kind} receives the operands of all"
    fix = "give the operands the same shapes and dtypes in each {kind}"


def operands_text(contribution: object) -> str:
    """Return the dtypes and shapes of the tensors that a member passes, as ``float32[128, 4]``."""
    passed = contribution if isinstance(contribution, (list, tuple)) else ()
    return ", ".join(f"{v.dtype}{list(v.shape)}" for v in passed if isinstance(v, np.ndarray))


class Meeting(Opaque):
    """Base of meetings. A subclass defines the ``members`` of a meeting, and computes the result from all members'
    values (``combined``)."""

    acts_outside = True

    @property
    def between(self) -> str:
        """The kind of members: programs of a launch, or ranks."""
        return PROGRAMS

    @abstractmethod
    def members(self, member: int) -> Sequence[int]:
        """Return the numbers of the members that ``member`` meets, including its own."""

    def exchange_key(self) -> Hashable:
        """Return a key that distinguishes exchanges between the same members."""
        return self.full_name()

    def contribution(self, *sources: np.ndarray) -> list[np.ndarray]:
        """Return this member's values, copied, because the memory may be overwritten before the others have
        read them."""
        return [s.copy() for s in sources]

    @abstractmethod
    def combined(self, member: int, members: Sequence[int], values: Sequence[list[np.ndarray]]) -> Results:
        """Return the results, None for a tile that stays unchanged."""

    def reference(self, *sources: np.ndarray) -> Results:
        current = MEMBERS[self.between].get()
        members = tuple(self.members(current.number))
        if current.number not in members:
            return None
        key = (self.exchange_key(), 0 if self.between == PROGRAMS else MEMBERS[PROGRAMS].get().number)
        values = current.exchange(members, key, self.contribution(*sources), self.full_name())
        texts = [operands_text(value) for value in values]
        for member, text in zip(members, texts):
            if text != texts[0]:
                raise UnlikeOperands(op=self.full_name(), kind=self.between.removesuffix("s"), first=members[0],
                                     operands=texts[0], second=member, second_operands=text)
        return self.combined(current.number, members, values)


class CoreBarrierOp(Meeting, name="core_barrier", engines=ANY, mnemonic="CORE_BARRIER", opcode=0x80,
                    since=3):
    """Wait for the other cores. Writes to ``data`` before the barrier are visible to all after it.

    An engine signals the other cores', and continues when they have signaled. To instructions around it the
    barrier reads and writes ``data``.
    """

    data: In
    cores: Integers

    def verify(self, check: Check) -> None:
        check.in_hbm("data")
        check.rule(len(self.cores) == len(set(self.cores)) and min(self.cores, default=-1) >= 0,
                   f"cores must be different numbers of 0 or more, got {self.cores}", "name each core once")
        check.unmasked()

    def targets(self) -> list[tuple[str, Tile]]:
        return [("data", self.data)]

    def members(self, member: int) -> Sequence[int]:
        return sorted(self.cores)

    def contribution(self, *sources: np.ndarray) -> None:
        return None

    def combined(self, member: int, members: Sequence[int], values: Sequence[None]) -> None:
        return None

    def work(self) -> Work:
        """The engine takes time for one signal to the other cores."""
        return CORE_SIGNAL


class SendrecvOp(Meeting, name="sendrecv", engines=(Engine.SYNC, Engine.GPSIMD), mnemonic="DMA_SENDRECV", opcode=0x81,
                 since=3):
    """Send src to the core ``send_to``, and receive dst from the core ``receive_from``.

    A transfer to the other core's SBUF: it begins when both cores have reached it, and is complete when dst is written.
    Exchanges of one ``pipe`` match by their order.
    """

    dst: Out
    src: In
    send_to: int
    receive_from: int
    pipe: int = 0
    destinations = (SBUF,)
    queued = True

    def verify(self, check: Check) -> None:
        check.all_in((SBUF,), "dst", "src")
        check.same_shape("dst", "src")
        check.dtype("dst", self.src.dtype)
        check.rule(min(self.send_to, self.receive_from) >= 0,
                   f"cores must be numbers of 0 or more, got {min(self.send_to, self.receive_from)}",
                   "name cores of the launch")
        check.unmasked()

    def members(self, member: int) -> Sequence[int]:
        return sorted({member, self.send_to, self.receive_from})

    def exchange_key(self) -> Hashable:
        return self.full_name(), self.pipe

    def contribution(self, *sources: np.ndarray) -> tuple[int, np.ndarray]:
        return self.send_to, sources[0].copy()

    def combined(self, member: int, members: Sequence[int], values: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
        to, value = values[members.index(self.receive_from)]
        if to != member:
            raise WrongPartner(own=member, partner=self.receive_from, to=to)
        return value
