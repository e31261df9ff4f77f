# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Neuron core: instruction streams as assembly text and binary, and their simulation.

``load`` runs a captured kernel on the simulator; ``emit`` is the last step of ``nki-opt --lower-to-isa``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.isa.program import Program, instruction_counts

SEPARATOR = "// -----\n"

__all__ = ["assemble", "compile_captured", "disassemble", "emit", "instruction_counts", "load", "lowered"]


def load(captured: Any, grid: tuple[int, ...]) -> Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]:
    """A captured kernel as ``run(inputs, shared)``, simulated from its binary.

    One program for the whole grid; where its programs meet, each has one, for a core of its own.
    """
    from nki_mlir.targets.neuron.container import decode_program, encode_program
    from nki_mlir.targets.neuron.emission import emit_cores
    from nki_mlir.targets.neuron.simulator import simulate_cores
    programs = [decode_program(encode_program(p)) for p in emit_cores(lowered(captured), grid)]

    def run(inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        simulate_cores(programs, inputs, shared)
    return run


def compile_captured(captured: Any, grid: tuple[int, ...]) -> Program:
    """The program of a captured kernel, all programs of the grid one after the other."""
    from nki_mlir.targets.neuron.emission import emit_variants
    return emit_variants(lowered(captured), grid)


def lowered(captured: Any) -> dict[tuple, Any]:
    """Its modules at the nisa level, by the program ids they are for; the captured ones are left as they are."""
    from nki_mlir.bindings import ir
    from nki_mlir.transforms.passes import run_passes
    from nki_mlir.transforms.pipelines import passes_to
    made: dict[int, Any] = {}
    for variant in captured.variants.values():
        module = variant.module
        if id(module) in made:
            continue
        with module.context, ir.Location.unknown():
            copy = ir.Module.parse(module.operation.get_asm(enable_debug_info=True))
            run_passes(copy, passes_to("nisa", copy))
            made[id(module)] = copy
    return {fixed: made[id(v.module)] for fixed, v in captured.variants.items()}


def emit(module: Any, form: str = "asm") -> str | bytes:
    """A nisa-level module as assembly text (``asm``), binary container (``bin``) or isa-level MLIR (``mlir``).

    Programs of several cores are texts one after the other.
    """
    from nki_mlir.targets.neuron.emission import emit_each
    programs = emit_each(module)
    if form == "bin":
        from nki_mlir.targets.neuron.container import encode_program
        if len(programs) > 1:
            raise Unsupported(feature="a binary of several cores", instead="write assembly, and assemble each program")
        return encode_program(programs[0])
    if form == "mlir":
        from nki_mlir.dialects.isa.module import program_text
        return SEPARATOR.join(map(program_text, programs))
    from nki_mlir.targets.neuron.assembly import print_program
    return SEPARATOR.join(map(print_program, programs))


def assemble(text: str, file: str = "<assembly>") -> bytes:
    """Assembly text as a binary container; errors name the file, line and column."""
    from nki_mlir.targets.neuron.container import encode_program
    from nki_mlir.targets.neuron.parser import parse_program
    return encode_program(parse_program(text, file))


def disassemble(data: bytes) -> str:
    """A binary container as the text that assembles to it."""
    from nki_mlir.targets.neuron.assembly import print_program
    from nki_mlir.targets.neuron.container import decode_program
    return print_program(decode_program(data))
