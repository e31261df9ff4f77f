# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The enumerations of ``neuronxcc.nki.isa``."""

import enum


class engine(enum.Enum):
    """Engines of a core; ``unknown`` leaves the choice to the compiler."""

    unknown, tensor, scalar, gpsimd, vector, sync = 0, 1, 2, 3, 5, 6


unknown_engine, tensor_engine, scalar_engine = engine.unknown, engine.tensor, engine.scalar
gpsimd_engine, vector_engine, dma_engine = engine.gpsimd, engine.vector, engine.sync


class reduce_cmd(enum.Enum):
    """What an instruction does with the accumulation registers."""

    idle, reset, reduce, reset_reduce, load_reduce = 0, 1, 2, 3, 4


class dge_mode(enum.Enum):
    """The writer of a DMA's descriptors."""

    none, swdge, hwdge, unknown = 0, 1, 2, 3


class oob_mode(enum.Enum):
    """What an indirect DMA does with an index out of bounds."""

    error, skip = 0, 1


class nc_version(enum.IntEnum):
    """Generations of the core."""

    gen2, gen3, gen4 = 2, 3, 4
