# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instruction counts of random kernels, and of the text that they are printed as, with the causes of differences.

``python -m tests.printing.counts {beta,current} [PROGRAMS] [SEED] [--keep-placement]`` prints how many kernels are
within 2%, or with their placement equal, and of which instructions the others have more or fewer. Kernels with their
placement are counted as the device runs them, the others before the search for the fastest program.
"""

import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np

from nki_mlir.analysis.dead_code import erase_dead_code
from nki_mlir.analysis.index_values import SymbolValues
from nki_mlir.analysis.mask_boxes import box_of
from nki_mlir.bindings import Module, cloned, operations_of
from nki_mlir.dialects.isa.instruction import Control
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op
from nki_mlir.dialects.nisa.collectives import AllReduceOp
from nki_mlir.dialects.nisa.indirect import DataAddressed
from nki_mlir.dialects.nisa.movement import DmaCopyOp, DmaTransposeOp
from nki_mlir.dialects.nisa.random import Drawing
from nki_mlir.dialects.nki.movement import LoadOp, StoreOp
from nki_mlir.printing.errors import Unprintable
from nki_mlir.targets.neuron.codegen.code_writer import ADDRESS, ADDRESSES
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_cores
from nki_mlir.targets.neuron.codegen.forward_transfers import is_backwards
from nki_mlir.targets.neuron.codegen.lowered_kernel import LoweredKernel
from nki_mlir.transforms.loop_over_programs import reduces_programs
from nki_mlir.transforms.program_loops import CORES

from ..random_programs import beta_rules, current_rules  # noqa: F401
from ..random_programs.beta import BetaWriter
from ..random_programs.current import CurrentWriter
from ..random_programs.test_random_kernels import beta_kernel, current_kernel
from ..random_programs.writer import Program
from .reading import printed, reread

GENERATIONS: dict[str, tuple[Any, Callable[[Program], Any]]] = {
    "beta": (BetaWriter, beta_kernel), "current": (CurrentWriter, current_kernel)}
WITHIN = 0.02
TRANSFERS = LoadOp, StoreOp, DmaCopyOp
SUMS_IN_REGISTERS = "nisa.tensor_scalar_reduce", "nisa.tensor_scalar_cumulative"


def instructions(launched, arrays, searched: bool = True) -> Counter[str]:
    """How many of each instruction engines and queues run, for all programs of a launch.

    What only lets them wait for each other does not count, nor what checks that an output is written, which each
    capture of the current generation adds, nor what computes elements that nothing reads, which no text has. The code
    is the optimized one, also where the kernel as it is written would take less time: two texts differ in that.

    The device runs the program that the search finds to be the fastest. Where that is ``searched``, the counts of two
    kernels with the same instructions may differ: the search times orders of instructions, and by these times it
    merges equal instructions, merges loads, or loads again what a tile on chip still has. No text decides these
    choices unless it keeps the placement: one that is equal but for the engine or the order of two independent
    instructions has other ones, in either direction. Without ``searched`` the code is the one that the search begins
    with, after all passes that depend on the instructions alone, in the order of the kernel. It has each
    instruction that the text has too many or too few, also those that the search would merge.
    """
    captured = launched.lower(*arrays).specialization
    modules = {m: LoweredKernel(without_checks(m)) for m in captured.modules}
    variants = {fixed: modules[v.module] for fixed, v in captured.captured.variants.items()}
    cores = tuple(range(*CORES)) if has_cores(captured) else ()
    optimized = Emission(kernel_as_written=False, reorder=searched)
    return Counter(i.op.mnemonic for p in emit_cores(variants, captured.grid, optimized, cores)
                   for stream in p.streams.values() for i in stream if not isinstance(i.op, Control))


def has_cores(captured: Any) -> bool:
    """Whether each program of a captured launch has a core: those that reduce over each other share one."""
    return captured.grid == CORES and not any(map(reduces_programs, captured.modules))


def without_checks(module: Module) -> Module:
    """The module without what checks that an output is written, what notes that it is, and dead code."""
    copy = cloned(module)
    for op in operations_of(copy, lambda name: name.startswith(("nki.", "nisa."))):
        flag = op.operands[0].owner if op.operands else None
        names = getattr(flag, "attributes", {})         # a block, whose argument it is, has none
        if "nki.name" in names and names["nki.name"].value.startswith("written."):
            op.erase()
    with copy.context:
        for function in operations_of(copy, lambda name: name == "func.func"):
            erase_dead_code(function)
    return copy


def limits(launched, arrays) -> set[str]:
    """What a kernel has that the text needs more or fewer instructions for, as docs/limits.md says."""
    reasons: set[str] = set()
    captured = launched.lower(*arrays).specialization
    for module in captured.modules:
        if any(name in alloc.attributes for alloc in operations_of(module, lambda name: name == "memref.alloc")
               for name in (ADDRESS, ADDRESSES)):
            reasons.add("addresses that the kernel chose")
        for operation in operations_of(module, lambda name: name.startswith(("nki.", "nisa."))):
            if not is_tile_op(operation):
                continue
            op = read_op(operation)
            if isinstance(op, AllReduceOp):
                reasons.add("programs that reduce over each other")
            if isinstance(op, TRANSFERS) and any(is_backwards(tile) for _, tile in op.operands()):
                reasons.add("a transfer that steps backwards")
            if op.full_name() in SUMS_IN_REGISTERS:
                reasons.add("a sum in the registers of an engine")
            if isinstance(op, DmaTransposeOp) and op.dst.dtype is not op.src.dtype:
                reasons.add("a transpose by DMA that converts")
            if isinstance(op, DataAddressed):
                reasons.add("a run-time address")
            if isinstance(op, Drawing) and captured.grid and not has_cores(captured):
                reasons.add("random numbers of several programs")
            box = box_of(op.mask, op.iteration().extents, SymbolValues(operation, op.symbols).interval) if op.mask else None
            if box is not None and box.mask:
                reasons.add("a mask that does not select a box of elements")
    return reasons


def drawn(generation: str, programs: int, seed: int) -> Iterator[tuple[Program, Any]]:
    """Random programs of one rank, each with its launched kernel."""
    writer, kernel_of = GENERATIONS[generation]
    numbers = random.Random(seed)
    for _ in range(programs):
        program = writer(numbers.randrange).program()
        if program.ranks == 1:
            yield program, launch(kernel_of(program), program.grid)


def launch(kernel: Any, grid: tuple[int, ...]) -> Any:
    """Return a kernel that is launched on a grid; () is none."""
    return kernel[grid if len(grid) > 1 else grid[0]] if grid else kernel


def differing(before: Counter[str], after: Counter[str], within: float = WITHIN) -> str:
    """Whether the text has more or fewer instructions, and of which; empty where the counts are within bounds."""
    if abs(before.total() - after.total()) <= within * before.total():
        return ""
    sign = "more:" if after.total() > before.total() else "fewer:"
    return " ".join([sign, *(f"{name}{'+' if after[name] > before[name] else '-'}" for name in sorted(before | after)
                             if before[name] != after[name])])


def main(generation: str, programs: int, seed: int, placed: bool) -> None:
    causes: Counter[str] = Counter()
    for program, launched in drawn(generation, programs, seed):
        arrays = list(program.arrays.values())
        try:
            again = reread(printed(launched, arrays, keep_placement=placed), program.grid)
        except Unprintable as error:
            causes[error.headline] += 1
            continue
        counts = (instructions(kernel, arrays, searched=placed) for kernel in (launched, again))
        cause = differing(*counts, within=0.0 if placed else WITHIN)
        causes[f"{cause} {sorted(limits(launched, arrays)) or ''}" if cause else "equal" if placed else "within 2%"] += 1
    for cause, count in causes.most_common():
        print(f"{count:5} {cause}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE="trn3"), np.errstate(all="ignore"):
        generation, *numbers = (a for a in sys.argv[1:] if a != "--keep-placement")
        programs, seed = *map(int, numbers), *(100, 1)[len(numbers):]
        main(generation, programs, seed, placed="--keep-placement" in sys.argv)
