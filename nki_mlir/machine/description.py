# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The description of a target machine: geometry, limits and clocks. Each target has a data file with its numbers."""

import importlib
from dataclasses import dataclass, replace
from functools import cache, cached_property

from nki_mlir import extensions
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.machine.costs import Cost, Costs, Work
from nki_mlir.machine.engine import Engine

# the default target of every executor and generation, if neither the environment nor the kernel names one
DEFAULT_TARGET = "trn2"


class UnknownTarget(NkiMlirError):
    code = "NKI-TARGET"
    message = "there is no target named '{name}'"
    fix = "use one of trn1, trn2, trn3 (or inf2, gen2, gen3, gen4){more}"


@dataclass(frozen=True, eq=False)
class Machine:
    """One NeuronCore generation. Sizes are in bytes, clocks in GHz.

    Sources: the architecture guides (one for each generation, which its file names), the reference of ``nl.tile_size``
    (limits of tiles). Comments tell which numbers are measured or assumed; each number of ``costs`` has a source.
    """

    # Fields that differ between generations.
    name: str
    generation: int
    sbuf_bytes_per_partition: int           # what kernels may use: the compiler keeps 16 KiB (measured)
    sbuf_physical_bytes_per_partition: int
    clocks: dict[Engine, float]             # architecture guides, "Compute Engines"
    costs: Costs
    # Fields that all generations share.
    partitions: int = 128                   # rows of SBUF and PSUM; nl.tile_size.pmax
    psum_banks: int = 8                     # architecture guides, "PSUM"
    psum_bank_bytes: int = 2048             # per partition; one matmul result lies in one bank
    address_alignment: int = 4
    stationary_free_max: int = 128          # nl.tile_size.gemm_stationary_fmax
    moving_free_max: int = 512              # nl.tile_size.gemm_moving_fmax
    psum_free_max: int = 512                # float32 elements of a bank; nl.tile_size.psum_fmax
    bn_stats_max: int = 512                 # elements of a partition that bn_stats takes
    search_max: int = 16384                 # elements of a partition that searches take
    topk_list_max: int = 65535              # elements of a list of the greatest k
    topk_results_max: int = 32767
    product_banks: int = 1                  # PSUM banks that the result of one nisa.nc_matmul may be in
    array_parts: tuple[int, ...] = (32, 64, 128)        # rows and columns of a part of the tensor engine's array
    transpose_vector_max: int = 32          # a vector-engine transpose is at most this square
    free_dims_max: int = 4                  # (step, size) pairs of an on-chip access pattern
    step_max: int = 32767                   # elements, of an on-chip pattern: 16 bits, signed (architecture guides)
    sbuf_elements_max: int = 65535          # per partition and instruction: 16 bits (architecture guides)
    psum_elements_max: int = 4096
    sector_bytes: int = 16                  # bytes that an engine's interface moves at once (architecture guides)
    quadrant: int = 32                      # partitions in groups; start partitions are multiples (architecture guides)
    gpsimd_group: int = 16                  # partitions that one core of the GpSimd engine serves
    gpsimd_indices_max: int = 4096          # indices of a gather for one core of the GpSimd engine
    gpsimd_send_max: int = 256              # elements of a partition that the engine sends to another core of the chip
    gpsimd_sees_psum: bool = False
    # whether an engine generates descriptors when it triggers a transfer (guide to DGE); otherwise they are in HBM
    # before
    generates_descriptors: bool = True
    static_descriptors: bool = False        # whether the compiler's option --disable-dge has turned that off
    launch_cores: int = 2                   # most cores of one launch: the cores of a logical core
    semaphores: int = 256                   # an assumption: no document has the number
    semaphore_max: int = 65535              # a semaphore's value has 16 bits
    registers: int = 32                     # scalar registers of an engine, 32 bits each
    dma_engines: int = 16
    dma_sources_max: int = 16               # operands of a sum

    @property
    def psum_bytes_per_partition(self) -> int:
        return self.psum_banks * self.psum_bank_bytes

    @cached_property
    def with_static_descriptors(self) -> "Machine":
        """Return the machine with the compiler's option ``--disable-dge``: the compiler writes all descriptors to HBM,
        so that an engine that triggers a transfer generates none."""
        dma = self.costs.dma._replace(issue_ns=self.costs.dma.static_issue_ns)
        return replace(self, generates_descriptors=False, static_descriptors=True, costs=self.costs._replace(dma=dma))

    def cost(self, engine: Engine, work: Work) -> Cost:
        """Return the cost of work on the engine, in ns."""
        return self.costs.of(engine, work, self.clocks[engine])

    def hbm_bytes_per_ns(self, cores: int) -> float:
        """Return the most bandwidth of HBM that this number of cores of a launch gets, from the stacks that they share,
        through their DMA engines."""
        dma = self.costs.dma
        stacks = max(float(dma.hbm_stack_bytes_per_ns), dma.hbm_bytes_per_ns * cores)
        return min(stacks, float(dma.bytes_per_ns) * self.dma_engines * cores)

    @classmethod
    def legal_start_partition(cls, start: int, count: int) -> bool:
        """Return whether an engine may access ``count`` partitions from ``start`` (hardware: quadrants)."""
        if count > 2 * cls.quadrant:
            return start == 0
        return start % (2 * cls.quadrant if count > cls.quadrant else cls.quadrant) == 0


_FILES = {"trn1": "trn1", "inf2": "trn1", "gen2": "trn1", "trn2": "trn2", "gen3": "trn2", "trn3": "trn3",
          "gen4": "trn3"}


def machine_named(name: str) -> Machine:
    """Return the machine of a target name or alias; raise ``UnknownTarget`` without one."""
    if not isinstance(name, str):
        raise UnknownTarget(name=f"a value of type {type(name).__name__}", more="").here()
    return _of_file(_FILES[name]) if name in _FILES else _of_plugin(name)


@cache
def _of_file(name: str) -> Machine:
    machine: Machine = importlib.import_module(f"nki_mlir.machine.{name}").MACHINE
    return machine


def _of_plugin(name: str) -> Machine:
    variants = extensions.of("targets")
    if name not in variants:
        raise UnknownTarget(name=name, more="".join(f", or {other} of a plugin" for other in variants)).here()
    machine = extensions.load(variants[name])
    if not isinstance(machine, Machine) or machine.name != name:
        raise extensions.BrokenPlugin(what=f"target '{name}'", origin=variants[name].origin,
                                      text="it must be a Machine of that name, "
                                           f"got {getattr(machine, 'name', machine)!r}")
    return machine
