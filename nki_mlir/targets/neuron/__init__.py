# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Neuron core: instruction streams as assembly text and binary, and their simulation.

``load`` compiles a captured kernel for the simulator; ``emit`` is the last step of ``nki-opt --lower-to-isa``. The
functions ``program_of_...`` read the output of ``emit`` in each of its forms, and ``simulate`` executes it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nki_mlir.alone import alone
from nki_mlir.diagnostics import Unsupported
from nki_mlir.progress import phase
from nki_mlir.targets import CapturedKernel

if TYPE_CHECKING:
    import numpy as np

    from nki_mlir.bindings import Module
    from nki_mlir.dialects.isa.program import Program
    from nki_mlir.passes.pass_manager import PassObserver
    from nki_mlir.targets.neuron.checker import StreamReport
    from nki_mlir.targets.neuron.codegen.emission import Emission, Variants
    from nki_mlir.targets.neuron.order import Step
    from nki_mlir.targets.neuron.timing import Timing

SEPARATOR = "// -----\n"                # separates the programs of several cores

__all__ = ["SEPARATOR", "assemble", "checked", "disassemble", "emission", "emit", "instruction_counts", "is_artifact",
           "is_assembly", "is_binary", "load", "lowered", "mode", "program_of_binary", "program_of_module",
           "programs_of_artifact", "programs_of_assembly", "simulate", "streams", "streams_of_module", "timed", "write"]


@alone
def load(captured: CapturedKernel, grid: tuple[int, ...]
         ) -> "Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]":
    """Compile a captured kernel and return ``run(inputs, shared)``, which simulates it. Raise an error if a binary
    cannot represent it.

    There is one program for the complete grid, or one for each core if programs of the grid exchange data.
    """
    from nki_mlir.targets.neuron.codegen.emission import emit_cores, emit_for_values  # start-up: loads MLIR
    from nki_mlir.targets.neuron.execution import Executors
    from nki_mlir.targets.neuron.format.container import encode_program
    from nki_mlir.targets.neuron.simulator import simulate_cores
    from nki_mlir.targets.neuron.validate import check_program
    modules = lowered(captured)
    programs = emit_for_values(lambda options: emit_cores(modules, grid, options))
    for program in programs:
        encode_program(check_program(program))
    executors = [Executors() for _ in programs]

    def run(inputs: "Sequence[np.ndarray]", shared: "Sequence[np.ndarray]") -> None:
        for core in simulate_cores(programs, inputs, shared, executors=executors):
            core.release_memory()
    return run


@alone
def streams(captured: CapturedKernel, grid: tuple[int, ...], options: "Emission | None" = None,
            cores: Sequence[int] = ()) -> "list[Program]":
    """Emit the programs of a captured kernel, one for each core that it uses. ``cores`` has the core of each program of
    the grid; without it, a single core runs all programs, unless they exchange data."""
    from nki_mlir.targets.neuron.codegen.emission import Emission, emit_cores  # start-up: imported on first use
    return emit_cores(lowered(captured), grid, options or Emission(), cores)


def emission(as_written: bool = False, level: int = 1, static: bool = False) -> "Emission":
    """Return the options of the emission. ``as_written`` treats a kernel as the vendor's compiler does; ``level`` sets
    how long to search for a fast order (0: program order; 1; 3); ``static`` makes the compiler write all descriptors of
    transfers, as its option ``--disable-dge`` does."""
    from nki_mlir.targets.neuron.codegen.emission import Emission  # start-up: imported on first use
    return Emission.as_written(level, static) if as_written else Emission(level=level, static=static)


def streams_of_module(module: "Module", options: "Emission") -> "list[Program]":
    """Emit the programs of a module above the isa level, without changing the module."""
    from nki_mlir.targets.neuron.codegen.emission import emit_lowered  # start-up: loads MLIR
    from nki_mlir.targets.neuron.codegen.lowered_kernel import LoweredKernel
    return emit_lowered(LoweredKernel(module), options)


@alone
def timed(programs: "Sequence[Program]", as_written: bool = False) -> "Timing":
    """Run programs together on the timed machine, one on each core, and return the times. It computes no values."""
    from nki_mlir.targets.neuron.timing import time_programs  # start-up: imported on first use
    return time_programs(programs, mode=mode(as_written))


def mode(as_written: bool) -> str:
    """Return the name of the mode in which streams were emitted."""
    return "as-written" if as_written else "optimized"


@alone
def lowered(captured: CapturedKernel) -> "Variants":
    """Return the kernels at the nisa level, by the program ids for which they are captured."""
    from nki_mlir.targets.neuron.codegen.captured_code import lowered_variant  # start-up: loads MLIR
    from nki_mlir.targets.neuron.codegen.lowered_kernel import LoweredKernel
    if len(captured.variants) == 1:
        (fixed, variant), = captured.variants.items()
        return {fixed: lowered_variant(variant)}
    modules = {v.module: None for v in captured.variants.values()}
    kernels = {module: LoweredKernel(module) for module in modules}
    return {fixed: kernels[v.module] for fixed, v in captured.variants.items()}


def at_nisa(module: "Module") -> "Module":
    """Return a copy of a module, lowered to the nisa level."""
    from nki_mlir.targets.neuron.codegen.lowered_kernel import at_nisa  # start-up: loads MLIR
    return at_nisa(module)


@alone
def emit(module: "Module", form: str = "asm", observer: "PassObserver | None" = None, level: int = 1,
         text_of: "Callable[[Module], str]" = str) -> str | bytes:
    """Emit a nisa-level module as assembly text (``asm``), binary container (``bin``) or isa-level MLIR (``mlir``),
    which ``text_of`` prints.

    ``level`` is the level of ``emission``.
    """
    from nki_mlir.targets.neuron.codegen.emission import (  # start-up: imported on first use
        Emission,
        Observation,
        emit_each,
    )
    return write(emit_each(module, Emission(level=level, observation=Observation(observer, module))), form, text_of)


@alone
def write(programs: "Sequence[Program]", form: str, text_of: "Callable[[Module], str]" = str) -> str | bytes:
    """Write programs in one of the forms of ``emit``. Texts of several cores are concatenated."""
    if form == "bin":
        from nki_mlir.targets.neuron.format.container import encode_program  # start-up: imported on first use
        if len(programs) > 1:
            raise Unsupported(feature="a binary of several cores", instead="write assembly, and assemble each program")
        return encode_program(programs[0])
    if form == "mlir":
        from nki_mlir.dialects.isa.module import program_text  # start-up: loads MLIR
        return SEPARATOR.join(program_text(program, text_of) for program in programs)
    from nki_mlir.targets.neuron.format.assembly import print_program  # start-up: imported on first use
    return SEPARATOR.join(map(print_program, programs))


@alone
def program_of_module(module: "Module") -> "Program":
    """Return the program of an isa-level module, checked like a program from a file. Raise ``NotAProgram`` or
    ``BadProgram``."""
    from nki_mlir.dialects.attributes import MalformedAttribute  # start-up: imported on first use
    from nki_mlir.dialects.isa.module import NotAProgram, read_program
    from nki_mlir.targets.neuron.validate import check_program
    try:
        return check_program(read_program(module))
    except (MalformedAttribute, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # The dialect verifies the type of each attribute, not the elements of arrays and dictionaries.
        raise NotAProgram(what=f"an attribute is not of the documented form: {error}") from None


def instruction_counts(program: "Program") -> dict[str, int]:
    """Return the length of each engine's stream, by the engine's name."""
    from nki_mlir.dialects.isa.program import instruction_counts  # start-up: loads MLIR
    return instruction_counts(program)


def is_binary(data: bytes) -> bool:
    """Return whether a file's content is a binary container."""
    from nki_mlir.targets.neuron.format.container import MAGIC  # start-up: imported on first use
    return data.startswith(MAGIC)


def program_of_binary(data: bytes) -> "Program":
    """Decode the program of a binary container."""
    from nki_mlir.targets.neuron.format.container import decode_program  # start-up: imported on first use
    return decode_program(data)


def is_artifact(data: bytes) -> bool:
    """Return whether a file's content is a compiled kernel, as ``nki.baremetal`` writes it, or a trace of one."""
    from nki_mlir.targets.neuron.format.artifacts import is_artifact  # start-up: imported on first use
    return is_artifact(data)


def programs_of_artifact(data: bytes, name: str) -> "list[Program]":
    """Return the program of each core of a compiled kernel. Errors name the file."""
    from nki_mlir.targets.neuron.format.artifacts import unpack_kernel  # start-up: imported on first use
    return unpack_kernel(data, name).programs


def is_assembly(data: bytes) -> bool:
    """Return whether a file's content is assembly: its first line that is not a comment names the version."""
    first_line = next((line for line in data.splitlines() if line.strip() and not line.lstrip().startswith(b"//")), b"")
    return first_line.lstrip().startswith(b".nki_isa")


@alone
def programs_of_assembly(text: str, file: str = "<assembly>") -> "list[Program]":
    """Parse the program of each core. Errors name the file, line and column."""
    from nki_mlir.targets.neuron.format.assembly import parse_programs  # start-up: imported on first use
    return parse_programs(text, SEPARATOR, file)


def checked(programs: "Sequence[Program]") -> "StreamReport":
    """Check streams for accesses without an order, reads of unwritten memory, and broken rules of instructions."""
    from nki_mlir.targets.neuron.checker import check_streams  # start-up: imported on first use
    with phase("checking streams"):
        return check_streams(programs)


def simulate(programs: "Sequence[Program]", inputs: "Sequence[np.ndarray]", outputs: "Sequence[np.ndarray]",
             order: "Sequence[Step]" = ()) -> None:
    """Run a program on each core. The run writes updated inputs and all outputs in place. ``order`` has the first
    steps.
    """
    from nki_mlir.targets.neuron.simulator import simulate_cores  # start-up: imported on first use
    simulate_cores(programs, inputs, outputs, order=order)


@alone
def assemble(text: str, file: str = "<assembly>") -> bytes:
    """Assemble a text to a binary container. Errors name the file, line and column."""
    from nki_mlir.targets.neuron.format.assembly import parse_program  # start-up: imported on first use
    from nki_mlir.targets.neuron.format.container import encode_program
    from nki_mlir.targets.neuron.format.encoding import check_type
    check_type("assemble", text, str)
    return encode_program(parse_program(text, file))


@alone
def disassemble(data: bytes) -> str:
    """Return the assembly text of a binary container."""
    from nki_mlir.targets.neuron.format.assembly import print_program  # start-up: imported on first use
    from nki_mlir.targets.neuron.format.container import decode_program
    from nki_mlir.targets.neuron.format.encoding import check_type
    check_type("disassemble", data, bytes, bytearray, memoryview)
    return print_program(decode_program(data))
