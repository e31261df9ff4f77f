# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The constants of nki.isa (section 3 of the instructions)."""

from enum import Enum


class engine(Enum):
    unknown, tensor, scalar, gpsimd, dma, vector, sync = range(7)


class reduce_cmd(Enum):
    idle, reset, reduce, reset_reduce, load_reduce = range(5)


class dge_mode(Enum):
    unknown, swdge, hwdge, none = range(4)


class oob_mode(Enum):
    error, skip = range(2)


class matmul_perf_mode(Enum):
    none = "none"
    double_row = "double_row"


class dma_engine(Enum):
    dma, gpsimd_dma = 1, 2


class nc_version(Enum):
    gen2, gen3, gen4 = 2, 3, 4

    def __lt__(self, other: "nc_version") -> bool:
        return self.value < other.value

    def __le__(self, other: "nc_version") -> bool:
        return self.value <= other.value

    def __gt__(self, other: "nc_version") -> bool:
        return self.value > other.value

    def __ge__(self, other: "nc_version") -> bool:
        return self.value >= other.value


tensor_engine, vector_engine, scalar_engine = engine.tensor, engine.vector, engine.scalar
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown
