# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of instructions: an entry for each function of ``nki.isa``, in a module for each page of the reference.

Both generations' functions, the checks of their arguments, ``help()``, the migration, the reference and
``docs/coverage.md`` read it. The class of an instruction in ``nki_mlir/dialects/nisa`` defines its result.
"""

from nki_mlir.language.entries import (
    copies,
    elementwise,
    random_numbers,
    reductions,
    registers,
    searches,
    tensor_engine,
    transfers,
)
from nki_mlir.language.entries.entry import InstructionEntry, Regular

GROUPS = tuple(module.GROUP for module in (tensor_engine, elementwise, reductions, copies, searches, transfers,
                                           random_numbers, registers))
INSTRUCTIONS: dict[str, InstructionEntry] = {name: entry for group in GROUPS for name, entry in group.entries.items()}
REGULAR: dict[str, Regular] = {name: entry.regular for name, entry in INSTRUCTIONS.items() if entry.regular is not None}
