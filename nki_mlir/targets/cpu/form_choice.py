# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Base of passes that choose a form of code for nests."""

from typing import ClassVar

from nki_mlir.targets.cpu.addressed_nest import AddressedNest, with_memory
from nki_mlir.targets.cpu.code_forms import can_have, with_form
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.native_nodes import Spread, calls_in
from nki_mlir.targets.cpu.routines import Routine
from nki_mlir.waist.nest import Nest


class FormChoice:
    """Gives a form of code to each nest that can have it, if the form is worth it."""

    form: ClassVar[str]

    def rewrite(self, function: NativeFunction) -> None:
        chosen: dict[Routine, Routine] = {}
        for call in calls_in(*function.body.nodes):
            routine = call.part if isinstance(call, Spread) else call.function
            if not isinstance(routine, Nest | AddressedNest):
                continue
            if routine not in chosen:
                takes = can_have(routine, self.form) and self.is_worth_it(with_memory(routine).nest)
                chosen[routine] = with_form(routine, self.form) if takes else routine
            if isinstance(call, Spread):
                call.part = chosen[routine]
            else:
                call.function = chosen[routine]

    def is_worth_it(self, nest: Nest) -> bool:
        """Return whether the form takes less time for a nest whose code can have it."""
        return True
