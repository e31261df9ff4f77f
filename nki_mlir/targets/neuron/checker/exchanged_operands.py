# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check that the operands of cores that exchange data fit each other, by an exchange of zeros."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa.instruction import Instruction
from nki_mlir.dialects.launch_members import MEMBERS, PROGRAMS
from nki_mlir.dialects.nisa.meeting import Meeting


class ExchangingCore:
    """A core that exchanges data with others, each of which passes a known value."""

    def __init__(self, number: int, values: dict[int, object]) -> None:
        self.number, self.values = number, values

    def exchange(self, members: tuple[int, ...], key: Hashable, value: Any, operation: str) -> list[Any]:
        return [self.values[core] for core in members]


def check_exchange(instructions: Mapping[int, Instruction]) -> None:
    """Raise the error of an instruction, by the number of its core, that does not accept the operands of the other
    cores."""
    sources, passed = dict[int, Sequence[np.ndarray]](), dict[int, object]()
    for core, instruction in instructions.items():
        op = meeting_of(instruction)
        sources[core] = zeros_of(op)
        passed[core] = op.contribution(*sources[core])
    for core, instruction in instructions.items():
        token = MEMBERS[PROGRAMS].set(ExchangingCore(core, passed))
        try:
            meeting_of(instruction).reference(*sources[core])
        except NkiMlirError as error:
            raise error.located(instruction.location) from None
        finally:
            MEMBERS[PROGRAMS].reset(token)


def meeting_of(instruction: Instruction) -> Meeting:
    assert isinstance(instruction.op, Meeting)
    return instruction.op


def zeros_of(op: Meeting) -> Sequence[np.ndarray]:
    """Return zeros in place of the operation's sources, in the dtype in which it computes."""
    return [np.zeros(tile.shape, (op.compute or tile.dtype).numpy) for _, tile in op.sources()]
