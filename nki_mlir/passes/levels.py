# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Defines the contract of levels: the operations that a module may contain at each, checked between passes."""

from enum import Enum
from functools import lru_cache

from nki_mlir.bindings import Module, operations_of
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.source_locations import location_of

STRUCTURE = ("builtin.module", "func.func", "func.return", "func.call", "scf.", "arith.", "affine.apply",
             "memref.alloc", "memref.dealloc", "memref.global", "memref.get_global", "memref.load")
VIEWS = ("memref.reinterpret_cast", "memref.subview", "memref.cast", "memref.store", "nki.reinterpret", "nki.view",
         "affine.", "scalar.")


class Level(Enum):
    """The operation names that a level allows; a name that ends in a dot is a prefix."""

    NKI = ("nki", ("nki.", "nisa.", *STRUCTURE))
    WAIST = ("waist", ("linalg.", "nisa.", "native.", "nki.device_print", *STRUCTURE, *VIEWS))
    NISA = ("nisa", ("nisa.", "nki.device_print", *STRUCTURE))
    ISA = ("isa", ("isa.", "builtin.module"))

    @property
    def title(self) -> str:
        return str(self.value[0])

    @lru_cache(1 << 12)                 # a module has each name many times
    def allows(self, name: str) -> bool:
        return any(name == legal or (legal.endswith(".") and name.startswith(legal)) for legal in self.value[1])


class IllegalAtLevel(NkiMlirError):
    code = "NKI-LEVEL"
    message = "'{op}' is not legal at the {level} level ({when})"
    fix = "lower the module to this level first, or use a pass for the module's level"


def check_level(module: Module, level: Level, stage: str) -> None:
    """Check that every operation is legal at the level; raise ``IllegalAtLevel`` at the first that is not."""
    for op in operations_of(module, lambda name: not level.allows(name)):
        raise IllegalAtLevel(op=op.name, level=level.title, when=stage).located(location_of(op))
