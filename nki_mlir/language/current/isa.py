# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.isa`` (``nisa``): one function per engine instruction, which writes its first argument."""

import os
from typing import NoReturn

from nki_mlir.language import generated_functions
from nki_mlir.language.current import (
    enums,
    errors,
    instruction,
    isa_compute,
    isa_gpsimd,
    isa_matmul,
    isa_movement,
    memory,
)
from nki_mlir.language.current.calls import CURRENT, reported
from nki_mlir.language.current.enums import nc_version
from nki_mlir.language.current.isa_compute import tensor_copy_dynamic_dst, tensor_copy_dynamic_src
from nki_mlir.language.current.memory import machine
from nki_mlir.language.signatures.binding import Contents
from nki_mlir.language.signatures.table import language_functions, listing, names_of, published


@reported
def get_nc_version() -> nc_version:
    """Return the core generation of the kernel's target."""
    return nc_version(machine().generation)


@reported
def get_nc_sub_version() -> int:
    """Return the revision of the kernel's target: ``NKI_NC_SUB_VERSION``, by default 0."""
    return int(os.environ.get("NKI_NC_SUB_VERSION", "0"))


globals().update(published("nki.isa", CURRENT.name, enums, errors, instruction, isa_compute, isa_gpsimd, isa_matmul,
                           isa_movement, memory))
globals().update({name: instruction.instruction(function) for name, function in generated_functions.functions(
    CURRENT, isa_compute.TEXTS, isa_compute.writing, globals(), not_given="name").items()})
__doc__ = Contents(__doc__ or "", "nki.isa", CURRENT.name)
__all__ = [*names_of("nki.isa"), "tensor_copy_dynamic_dst", "tensor_copy_dynamic_src"]
__dir__ = listing(globals(), "nki.isa", CURRENT.name, *__all__)


def __getattr__(name: str) -> NoReturn:
    raise errors.unknown_name("module 'nki.isa'", name, __all__, language_functions())
