# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The enumerations of ``nki.isa``. Parameters take their members, not numbers."""

import enum
import functools

from nki_mlir.dialects.verifier import WrongAttribute
from nki_mlir.language.beta.enums import NamesMembers
from nki_mlir.language.beta.enums import oob_mode as oob_mode
from nki_mlir.language.beta.enums import reduce_cmd as reduce_cmd
from nki_mlir.language.current.errors import core_rule


class engine(enum.Enum, metaclass=NamesMembers):
    """Engines of a core; ``unknown`` leaves the choice to the compiler."""

    unknown, tensor, scalar, gpsimd, dma, vector, sync = 0, 1, 2, 3, 4, 5, 6


class dge_mode(enum.Enum, metaclass=NamesMembers):
    """The generator of a DMA's descriptors: software (``swdge``), hardware (``hwdge``), or neither (``none``)."""

    unknown, swdge, hwdge, none = 0, 1, 2, 3


class matmul_perf_mode(enum.Enum, metaclass=NamesMembers):
    """Throughput modes of a matmul; ``double_row`` multiplies two rows of 8-bit floats in the time of one."""

    none, double_row = "none", "double_row"


@functools.total_ordering
class nc_version(enum.Enum, metaclass=NamesMembers):
    """Generations of the core, in order: trn1, trn2 and trn3 have gen2, gen3 and gen4."""

    gen2, gen3, gen4 = 2, 3, 4

    def __lt__(self, other: object) -> bool:
        return self.value < other.value if isinstance(other, nc_version) else NotImplemented


class dma_engine(enum.Enum, metaclass=NamesMembers):
    """The engine that transfers the data of ``sendrecv``."""

    dma, gpsimd_dma = 1, 2


tensor_engine, vector_engine, scalar_engine = engine.tensor, engine.vector, engine.scalar
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown


def engine_name(value: "engine", op: str = "", *has: str) -> str:
    """Return the name of an engine argument. ``unknown`` becomes the first of ``has``, the instruction's engines."""
    name = "unknown" if value is None else value.name
    core_rule(not has or name in ("unknown", *has), WrongAttribute, attribute="engine", op=op, found=repr(name),
              expected=f"one of {', '.join(('unknown', *has))}")
    return has[0] if has and name == "unknown" else name
