# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a target machine is: geometry, limits and clocks. The numbers are in one data file a target."""

import importlib
from dataclasses import dataclass
from enum import Enum

from nki_mlir.diagnostics import NkiMlirError


class Engine(Enum):
    """Instruction streams of a core. ``value`` is the name in IR, ``asm`` the one in assembly."""

    TENSOR = "tensor"
    VECTOR = "vector"
    SCALAR = "scalar"
    GPSIMD = "gpsimd"
    SYNC = "sync"
    UNKNOWN = "unknown"         # left to the compiler; resolved before emission

    @property
    def asm(self) -> str:
        return _ASM[self]


_ASM = {Engine.TENSOR: "pe", Engine.VECTOR: "dve", Engine.SCALAR: "act", Engine.GPSIMD: "pool", Engine.SYNC: "sp",
        Engine.UNKNOWN: "any"}
ENGINES = (Engine.TENSOR, Engine.SCALAR, Engine.VECTOR, Engine.GPSIMD, Engine.SYNC)


class UnknownTarget(NkiMlirError):
    code = "NKI-TARGET"
    message = "there is no target named '{name}'"
    fix = "use one of trn1, trn2, trn3 (or inf2, gen2, gen3, gen4)"


@dataclass(frozen=True)
class Machine:
    """One NeuronCore generation. Sizes are in bytes, clocks in GHz."""

    name: str
    generation: int
    partitions: int                         # rows of SBUF and PSUM
    sbuf_bytes_per_partition: int           # what kernels may use
    sbuf_physical_bytes_per_partition: int
    psum_banks: int
    psum_bank_bytes: int                    # per partition; one matmul result lies in one bank
    address_alignment: int
    stationary_free_max: int
    moving_free_max: int
    psum_free_max: int                      # float32 elements of a bank
    transpose_vector_max: int               # a vector-engine transpose is at most this square
    free_dims_max: int                      # (step, size) pairs of an on-chip access pattern
    sbuf_elements_max: int                  # per partition and instruction
    psum_elements_max: int
    quadrant: int                           # partitions in groups; start partitions are multiples
    semaphores: int
    dma_engines: int
    clocks: dict[Engine, float]
    vector_elements_per_cycle: float        # per lane, float32 from SBUF
    minimum_interval_cycles: int            # between instructions of one engine
    access_cycles: int                      # fixed cost of an operand access
    gpsimd_start_cycles: int
    hbm_bytes_per_ns: float                 # one core's share
    dma_fixed_ns: float
    dma_issue_ns: float

    @property
    def psum_bytes_per_partition(self) -> int:
        return self.psum_banks * self.psum_bank_bytes

    def legal_start_partition(self, start: int, count: int) -> bool:
        """Whether an engine may access ``count`` partitions from ``start`` (hardware: quadrants)."""
        if count > 2 * self.quadrant:
            return start == 0
        return start % (2 * self.quadrant if count > self.quadrant else self.quadrant) == 0


_FILES = {"trn1": "trn1", "inf2": "trn1", "gen2": "trn1", "trn2": "trn2", "gen3": "trn2", "trn3": "trn3",
          "gen4": "trn3"}


def machine_named(name: str) -> Machine:
    """The machine for a target name or alias; raises ``UnknownTarget``."""
    if name not in _FILES:
        raise UnknownTarget(name=name)
    return importlib.import_module(f"nki_mlir.machine.{_FILES[name]}").MACHINE
