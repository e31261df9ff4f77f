# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints a module as a kernel of the current generation.

    @nki.jit
    def scale(x):
        out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        for i in range(2):
            # kernel.py:12
            rows = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=rows, src=x[nl.ds(i * 128, 128), :])

Loops of the module stay loops. Programs of a grid become loops, too, except those of a grid of two, which are the cores
of a launch: ``kernel[2](...)``.
"""

import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from textwrap import wrap

from nki_mlir.bindings import Module, ir
from nki_mlir.diagnostics import Location, shortened, warn_once
from nki_mlir.dialects.kernel_function import KernelFunction, the_kernel
from nki_mlir.language.functions import SIMULATED
from nki_mlir.language.signatures.older_releases import NEWEST
from nki_mlir.machine import machine_named
from nki_mlir.passes.pipelines import is_graph
from nki_mlir.printing import beta as beta_generation
from nki_mlir.printing import collectives
from nki_mlir.printing.allocation_lines import delay_allocations
from nki_mlir.printing.body import BodyPrinter, write_programs
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel_text import AUTOMATIC, KernelText, NamedTensor
from nki_mlir.printing.merged_programs import merged_programs
from nki_mlir.printing.placement import KeptPlacement, counted, emitted_module, end_of_buffers
from nki_mlir.printing.prepared import prepared
from nki_mlir.printing.program_numbers import numbered_programs
from nki_mlir.printing.releases import OLDEST, check_release
from nki_mlir.printing.rolled_transfers import roll_transfers
from nki_mlir.printing.shared_programs import programs_apart
from nki_mlir.printing.text_modules import modules_of_text
from nki_mlir.python_commands import format_command, module_command
from nki_mlir.targets.neuron import at_nisa
from nki_mlir.transforms.fold_over_programs import ProgramsApart
from nki_mlir.transforms.loop_over_programs import reduces_programs
from nki_mlir.transforms.multiply_reciprocals import MultiplyReciprocals
from nki_mlir.transforms.program_loops import CORES


class FormatWarning(UserWarning):
    """Warns that ruff refuses the settings of a printed text."""


IMPORTS = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n"
WIDTH = 88                              # columns of comments and docstrings, as in ruff's default format
SIMULATED_CALL = re.compile(rf"\bnl\.(?:{'|'.join(SIMULATED)})\b")


def kernel_text(modules: Sequence[Module], comments: bool = True, release: str = NEWEST, keep_placement: bool = False,
                generation: str = "current", file: Path | None = None, reciprocals: bool = False) -> str:
    """Return the text of a kernel, formatted by ``ruff`` where that is installed.

    Arguments:
        modules: the modules of a capture, which passes may have changed: one, or one for each program, in the order
            of the grid's points, if programs differ; or a graph
        comments: name the line of the source in a comment before the statements that come from it
        release: the release of the current generation whose names and parameters the text has
        generation: current or beta
        keep_placement: print the emitted instructions: fused, in their order, with engines and addresses
        reciprocals: compute quotients as products with reciprocals, which devices have; texts of graphs always do,
            unless they keep the placement
        file: where the text will be, whose settings ``ruff`` takes; without it, the text has its default format

    Errors: ``Unprintable``, at the line of the source, where the generation has no form of an operation.
    """
    check_release(release)
    beta = generation == "beta"
    if beta and (keep_placement or release != NEWEST):
        raise Unprintable(what="generation beta with a placement, or with a release of the current generation,",
                          fix="leave --generation out")
    merged = list(modules) if keep_placement else merged_programs(programs_apart(modules))
    reciprocals = reciprocals or (not (keep_placement or beta) and is_graph(merged[0]))
    options = _Options(comments, OLDEST if beta else release, keep_placement, beta, reciprocals, file)
    loops, in_python = len(merged) == 1 and not keep_placement, not (keep_placement or beta)
    if len(merged) == 1 and reduces_programs(merged[0]):
        with suppress(Unprintable, ProgramsApart):  # loops over programs may not express it
            return _text_of([prepared(merged[0], in_python=in_python)], options)
        merged = merged if keep_placement else numbered_programs(merged[0])
    copies = [prepared(module, loops and not reduces_programs(module), in_python) for module in merged]
    return _text_of(copies, options)


@dataclass(frozen=True)
class _Options:
    comments: bool
    release: str
    keep_placement: bool
    beta: bool
    reciprocals: bool
    file: Path | None


def _text_of(copies: list[Module], options: _Options) -> str:
    """Return the text of prepared modules. Programs that reduce over each other run on one core."""
    on_cores, placement = the_kernel(copies[0]).grid == CORES and not any(map(reduces_programs, copies)), None
    if options.keep_placement:
        copies, placement = _emitted(copies, on_cores, options.reciprocals)
    elif options.reciprocals:
        _multiply_reciprocals(copies)
    kernels = [the_kernel(copy) for copy in copies]
    first = kernels[0]
    if any([(a.kind, a.shape, a.dtype) for a in k.arguments if a.dtype is not None] != [
            (a.kind, a.shape, a.dtype) for a in first.arguments if a.dtype is not None] for k in kernels):
        raise Unprintable(what="programs with different results", fix="let all programs return the same tensors")
    out = KernelText(options.comments, machine_named(first.target), options.release, options.beta, placement=placement)
    name = first.name if first.name.isidentifier() and not iskeyword(first.name) else out.unique(first.name, "kernel")
    out.names.add(name)
    tensors = [NamedTensor(out.unique(a.name, "x") if a.kind == "input" else AUTOMATIC.sub("result", a.name),
                           a.shape if a.shape or a.kind == "input" else (1,), a.dtype, "nl.shared_hbm")
               for a in first.arguments if a.dtype is not None]                 # a scalar result has one element
    out.named.update((t.name, t) for t in tensors)
    printers = [_printer(kernel, out, tensors, len(kernels) > 1) for kernel in kernels]
    if on_cores:
        _write_cores(printers, out)
    elif len(kernels) > 1:
        write_programs(printers, out)
    else:
        with first.op.context, ir.Location.unknown():
            printers[0].block(printers[0].body)         # the body has the loops over programs
    for printer in printers:
        out.emit_allocations(*printer.results)
    if first.results:
        array_positions = [n for n, a in enumerate(first.arguments) if a.kind != "program_id"]
        out.write(f"return {', '.join(tensors[array_positions.index(n)].name for n in first.results)}")
    if placement is None:
        roll_transfers(out)
        out.lines = delay_allocations(out.lines)
    out.renumber()
    inputs = [t for t, a in zip(tensors, (a for a in first.arguments if a.dtype is not None)) if a.kind == "input"]
    text = _file_text(name, out, inputs, options.reciprocals)
    if placement is not None and (
            again := modules_of_text(text, name, first.target, inputs, on_cores, options.release)):
        copies = [prepared(module, loops=False) for module in again]
        placement.programs = _emitted(copies, on_cores, options.reciprocals)[1].programs
        text = _file_text(name, out, inputs, options.reciprocals)
    return formatted(text, options.file)


def _printer(kernel: KernelFunction, out: KernelText, tensors: Sequence[NamedTensor], has_others: bool) -> BodyPrinter:
    """Return the printer of one of a launch's modules. Results that several modules write are allocated once."""
    with kernel.op.context, ir.Location.unknown():
        printer = BodyPrinter(kernel, out, tensors)
        if has_others:
            out.flush()
        return printer


def _multiply_reciprocals(modules: Sequence[Module]) -> None:
    for module in modules:
        MultiplyReciprocals().run(module)


def _emitted(modules: Sequence[Module], on_cores: bool, reciprocals: bool) -> tuple[list[Module], KeptPlacement]:
    """Return the modules of a kernel as they are emitted: one, or one for each core of its launch."""
    if any(map(reduces_programs, modules)) or (len(modules) > 1 and not on_cores):
        raise Unprintable(what="the placement of programs that differ and run on one core",
                          fix="print without the placement, or launch one program")
    points = [(core,) for core in range(*CORES)] if on_cores else [None]
    lowered = [at_nisa(module) for module in modules]
    if reciprocals:
        _multiply_reciprocals(lowered)
    emitted = [emitted_module(lowered[n if len(lowered) > 1 else 0], point) for n, point in enumerate(points)]
    free = max(end_of_buffers(module) for module, _ in emitted)
    return [module for module, _ in emitted], KeptPlacement([program for _, program in emitted], free)


def _write_cores(printers: Sequence[BodyPrinter], out: KernelText) -> None:
    """Write the programs of the two cores of a launch: one text for both, or one for each."""
    name = out.unique("program_id", "program")
    out.write(f"{name} = nl.program_id(0)")
    for number, printer in enumerate(printers):
        out.started.clear()                 # each core has its registers
        with printer.kernel.op.context, ir.Location.unknown():
            if len(printers) == 1:
                printer.one_program(name, None)
                continue
            with out.block(f"if {name} == 0:" if number == 0 else "else:"):
                printer.one_program(name, number)


def _file_text(name: str, out: KernelText, inputs: Sequence[NamedTensor], reciprocals: bool) -> str:
    constants = any("shared_constant(np." in line for line in out.lines)
    written = {t.name for t in inputs if any(re.match(
        rf"\s*(nl\.store\({t.name}\b|nisa\.\w+\(dst={t.name}\b|{t.name}\[.*\] \+?= )", line) for line in out.lines)}
    notes = out.placement.notes if out.placement is not None else []
    simulated = sorted({name for line in out.lines for name in SIMULATED_CALL.findall(line)})
    if out.unordered:
        notes.append(f"{'Beta' if out.beta else f'Release {out.release}'} cannot express: "
                     f"{counted(out.unordered, 'order of a single instruction', 'orders of single instructions')}.")
    if simulated and not out.beta:
        notes.append(f"No device has {', '.join(simulated)}: the simulator alone runs this kernel.")
        if "nl.divide" in simulated and not reciprocals:
            notes.append("nki-translate --reciprocals prints quotients as products, whose last bit may differ.")
    parameters = [f"{t.name}: mutable_tensor" if out.beta and t.name in written else t.name for t in inputs]
    shown = "\n".join([*parameters, *out.lines])
    imports = beta_generation.imports_of(shown) if out.beta else imports_of(shown)
    imports += "import numpy as np\n" * constants
    comments = [line for note in notes for line in wrap(note, WIDTH, initial_indent="# ", subsequent_indent="# ")]
    head = [imports, "", *comments, "@nki.jit", f"def {name}({', '.join(parameters)}):", *_docstring(inputs)]
    return "\n".join([*head, *out.lines, ""])


def _docstring(inputs: Sequence[NamedTensor]) -> list[str]:
    """Return the lines of the docstring, which break between two tensors."""
    tensors = [f"{t.name} {list(t.shape)} {t.dtype}" for t in inputs] or ["Takes no tensors"]
    lines = ['    """' + ", ".join(tensors) + '."""']
    if len(lines[0]) <= WIDTH:
        return lines
    lines = ['    """' + tensors[0]]
    for tensor in tensors[1:]:
        if len(f"{lines[-1]}, {tensor},") <= WIDTH:
            lines[-1] += f", {tensor}"
        else:
            lines[-1] += ","
            lines.append(f"    {tensor}")
    return [*lines[:-1], f"{lines[-1]}.", '    """']


def imports_of(text: str) -> str:
    """Return the imports that a kernel's text needs."""
    return IMPORTS.replace("import nki.isa", f"{collectives.IMPORT}import nki.isa") if "nccl." in text else IMPORTS


def formatted(text: str, file: Path | None) -> str:
    """Return the text as ``ruff format`` writes it with the settings of a file, or with its defaults, also where ruff
    refuses the settings."""
    command = format_command(file) if file is not None else [*module_command("ruff"), "format", "--isolated", "-"]
    formatter = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", check=False)
    if not formatter.returncode:
        return formatter.stdout
    if file is None or "No module named" in formatter.stderr:
        return text
    reason = " ".join(formatter.stderr.split())
    warn_once(f"the text has ruff's default format: {shortened(reason)}", FormatWarning, Location(str(file), 1, 0))
    return formatted(text, None)
