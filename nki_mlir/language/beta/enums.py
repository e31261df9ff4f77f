# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The enumerations of ``neuronxcc.nki.isa``."""

import enum
from typing import Any

from nki_mlir.capture.errors import unknown


class NamesMembers(enum.EnumMeta):
    """The class of enumerations. Its error for an unknown member suggests one."""

    def __getattr__(cls, name: str) -> Any:
        members = cls.__dict__.get("_member_map_", {})         # Python 3.10 and 3.11 look members up here
        if name in members:
            return members[name]
        raise unknown(f"nisa.{cls.__name__}", name, members, {})


class engine(enum.Enum, metaclass=NamesMembers):
    """Engines of a core; ``unknown`` leaves the choice to the compiler."""

    unknown, tensor, scalar, gpsimd, vector, sync = 0, 1, 2, 3, 5, 6


unknown_engine, tensor_engine, scalar_engine = engine.unknown, engine.tensor, engine.scalar
gpsimd_engine, vector_engine, dma_engine = engine.gpsimd, engine.vector, engine.sync


class reduce_cmd(enum.Enum, metaclass=NamesMembers):
    """The effect of an instruction on the accumulation registers.

    ``idle`` leaves them unchanged, ``reset`` empties them, and ``reduce`` folds the instruction's result into them.
    ``reset_reduce`` empties them first, ``load_reduce`` loads a value first; both then fold the result.
    """

    idle, reset, reduce, reset_reduce, load_reduce = 0, 1, 2, 3, 4


class dge_mode(enum.Enum, metaclass=NamesMembers):
    """The generator of a DMA's descriptors: software (``swdge``), hardware (``hwdge``), or neither (``none``)."""

    none, swdge, hwdge, unknown = 0, 1, 2, 3


class oob_mode(enum.Enum, metaclass=NamesMembers):
    """The reaction of an indirect DMA to an index out of bounds: ``error`` raises one, ``skip`` skips the element."""

    error, skip = 0, 1


class nc_version(enum.IntEnum, metaclass=NamesMembers):
    """Generations of the core: trn1, trn2 and trn3 have gen2, gen3 and gen4."""

    gen2, gen3, gen4 = 2, 3, 4
