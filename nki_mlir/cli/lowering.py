# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The work of ``nki-opt``: read modules, run passes, lower, write. ``nki_mlir.opt`` does the same from Python.

It prints the output of ``--mlir-print-ir-...``, ``--mlir-timing`` and ``--mlir-pass-statistics`` on standard error.
"""

import argparse
import io
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nki_mlir.alone import alone
from nki_mlir.bindings import Module, Region, ir
from nki_mlir.cli import source
from nki_mlir.cli.arguments import parse_arguments, parse_grid
from nki_mlir.cli.command import fail, is_kernel
from nki_mlir.cli.expected_diagnostics import check_expected
from nki_mlir.cli.named_values import with_values
from nki_mlir.cli.runnable import set_target, specialized
from nki_mlir.custom_form.printer import custom_text
from nki_mlir.diagnostics import NkiMlirError, Unsupported
from nki_mlir.input_limits import TEXT_BYTES
from nki_mlir.language.specialization import Specialization
from nki_mlir.passes.pass_manager import PassObserver, pass_named, passes_named, run_passes
from nki_mlir.passes.pipeline_text import MalformedPipeline, split_pipeline
from nki_mlir.passes.pipelines import GRAPH_ON_CPU, is_graph, passes_to, passes_to_records
from nki_mlir.passes.safety import dialects
from nki_mlir.targets.cpu.pipeline import NAMES as CPU_PASSES


def run(options: argparse.Namespace) -> int:
    """Read the module, run the passes and lowerings that the options select, and write the result."""
    if options.show_dialects:
        source.write_output("-", "Available Dialects: " + ", ".join(dialects()) + "\n")
        return 0
    source.load_libraries(options.load_library)
    if is_kernel(options.file):
        return write(options, [process(m, options) for m in captured(options).modules])
    text = source.read_text(options.file)
    name = source.display_name(options.file)
    parts = split_input(text, name) if options.split_input_file else [text]
    if options.verify_diagnostics:
        return check_expected(parts, name,
                              lambda part, report: process(source.read_module(part, name, report), options))
    status, outputs = 0, []
    for part in parts:
        try:
            outputs.append(process(source.read_module(part, name), options))
        except NkiMlirError as error:
            if len(parts) == 1:
                raise
            status = fail(source.renamed(error, name))
    return max(status, write(options, outputs))


def split_input(text: str, name: str) -> list[str]:
    """Split a text at ``// -----`` lines. Blank lines before each part keep its line numbers, so the parts of a text
    may together take the square of its lines: the limit of texts is theirs."""
    parts: list[str] = []
    lines = size = 0
    for part in re.split(r"^// -----.*\n", text, flags=re.MULTILINE):
        size += lines + len(part)
        if parts:
            TEXT_BYTES.check(size, "the text of all parts, each after as many blank lines as precede it,", name)
        parts.append("\n" * lines + part)
        lines += part.count("\n") + 1
    return parts


def captured(options: argparse.Namespace) -> Specialization:
    """Capture the kernel for the arguments of the options."""
    kernel = source.load_kernel(options.file, options.target, parse_grid(options.grid))
    return specialized(kernel, *with_values(kernel, *parse_arguments(options.arg)))[0]


def process(module: Module, options: argparse.Namespace) -> str | bytes:
    """Run the passes and the lowering that the options select on a module; return the text or bytes to write."""
    with module.context, ir.Location.unknown():
        if options.target is not None:
            set_target(module, options.target)
        report = PassReport(options)
        try:
            return lowered(module, options, report)
        finally:
            report.finish()


def lowered(module: Module, options: argparse.Namespace, report: "PassReport") -> str | bytes:
    """Run the passes and the lowering; return the output. ``report`` observes the passes."""
    run_named(module, options.passes, report)
    match options.goal:
        case "isa" if options.emit_bytecode:
            return bytecode_of_streams(module, report, options.level)
        case "isa":
            return lower_to_isa(module, options.emit, report, options.level, lambda program: text_of(program, options))
        case "vector" | "llvm":
            return lower_to_cpu(options.goal, module, report, options.cpu_passes)
        case "linalg" | "nisa":
            run_passes(module, passes_to(options.goal, module), report)
    source.verify_result(module)
    return bytecode_of(module) if options.emit_bytecode else text_of(module, options) + "\n"


def run_named(module: Module, named: Sequence[tuple[str, str]], observer: PassObserver | None = None) -> None:
    """Run passes by names and options. Before the first pass of the CPU the module is lowered to the waist."""
    first = next((k for k, (name, _) in enumerate(named) if name in CPU_PASSES), len(named))
    before, after = ([item for name, text in part for item in passes_named(name, text)]
                     for part in (named[:first], named[first:]))
    run_passes(module, before, observer)
    # A module that this package did not write may have operations that the waist excludes.
    for item in passes_to_records(module) if after else ():
        (observer or PassObserver()).observe_module(item.name, module, item.run)
    run_passes(module, after, observer)


def lower_to_isa(module: Module, form: str, observer: PassObserver, level: int = 1,
                 printed: Callable[[Module], str] = str) -> str | bytes:
    """Lower to instruction streams, in the form of ``--emit``: assembly text, isa module or binary container. Write a
    module at the isa level unchanged. ``printed`` is the text of an isa module."""
    from nki_mlir.targets import neuron  # start-up: imported on first use
    if any(op.operation.name == "isa.program" for op in module.body.operations):
        return neuron.write([neuron.program_of_module(module)], form, printed)
    run_passes(module, passes_to("nisa", module), observer)
    return neuron.emit(module, form, observer, level, printed)


def lower_to_cpu(level: str, module: Module, observer: PassObserver, passes: str | None) -> str:
    """Return the program to which the JIT compiles a module, with its routines at the level ``vector`` or ``llvm``."""
    from nki_mlir.targets import cpu  # start-up: imported on first use
    if is_graph(module):
        run_passes(module, [pass_named(name) for name in GRAPH_ON_CPU], observer)
    return cpu.lower_to(level, module, observer, passes)


def write(options: argparse.Namespace, outputs: Sequence[str | bytes]) -> int:
    """Write all outputs. A file is replaced atomically."""
    binary = [o for o in outputs if isinstance(o, bytes)]
    source.write_output(options.output, b"".join(binary) if binary else "// -----\n".join(map(str, outputs)))
    return 0


# -- printing around passes --------------------------------------------------------------------------------------------
def text_of(module: Module, options: argparse.Namespace) -> str:
    """Print a module in the form that the options select."""
    if prints_custom_form(options):
        return custom_text(module, options.mlir_print_debuginfo, not options.mlir_print_local_scope)
    text: str = module.operation.get_asm(enable_debug_info=options.mlir_print_debuginfo,
                                         print_generic_op_form=options.mlir_print_op_generic,
                                         use_local_scope=options.mlir_print_local_scope)
    return text


def bytecode_of_streams(module: Module, observer: PassObserver, level: int) -> bytes:
    """Lower a module to the isa module of its one program, and return this in MLIR's binary form."""
    written: list[bytes] = []

    def printed(program: Module) -> str:
        written.append(bytecode_of(program))
        return ""
    lower_to_isa(module, "mlir", observer, level, printed)
    if len(written) > 1:
        raise Unsupported(feature="bytecode of the programs of several cores",
                          instead="leave --emit-bytecode out: the text separates programs by // -----")
    return written[0]


def bytecode_of(module: Module) -> bytes:
    """Return the module in MLIR's binary form."""
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()


def prints_custom_form(options: argparse.Namespace) -> bool:
    """Return whether to print operations in their custom form: as ``--print`` selects, by default if the output is a
    terminal."""
    if options.mlir_print_op_generic:
        return False
    return options.print == "pretty" or (options.print is None and options.output == "-" and sys.stdout.isatty())


def count(module: Module) -> int:
    """Count the operations of a module, without the module itself."""
    return sum(1 + sum(map(_inside, op.operation.regions)) for op in module.operation.regions[0].blocks[0].operations)


def _inside(region: Region) -> int:
    return sum(1 + sum(map(_inside, op.operation.regions)) for block in region.blocks for op in block.operations)


class PassReport(PassObserver):
    """An observer that prints the selected functions around each pass, or writes them to files."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.times: list[tuple[str, float]] = []
        self.counts: list[tuple[str, int, int]] = []
        self.text, self.count_before, self.start = "", 0, 0.0
        self.dumps = 0
        self.named = {moment: {name for names in getattr(options, f"mlir_print_ir_{moment}")
                               for name in names.split(",")}
                      for moment in ("before", "after")}
        for name in set().union(*self.named.values()):
            pass_named(name)                    # an error where there is none

    def before(self, name: str, module: Callable[[], Module]) -> None:
        options = self.options
        if options.mlir_print_ir_before_all or self.is_selected("before", name):
            self.dump("Before", name, text_of(module(), options))
        if options.mlir_print_ir_after_change:
            self.text = text_of(module(), options)
        if options.mlir_pass_statistics:
            self.count_before = count(module())
        self.start = time.perf_counter()

    def after(self, name: str, module: Callable[[], Module]) -> None:
        options = self.options
        self.times.append((name, time.perf_counter() - self.start))
        if options.mlir_pass_statistics:
            self.counts.append((name, self.count_before, count(module())))
        if self.is_selected("after", name) or options.mlir_print_ir_after_all or options.mlir_print_ir_after_change:
            text = text_of(module(), options)
            if not options.mlir_print_ir_after_change or text != self.text:
                self.dump("After", name, text)

    def is_selected(self, moment: str, name: str) -> bool:
        """Return whether the options name the pass, or in a nest of MLIR's passes, ``func.func(cse)``, one of them."""
        return not self.named[moment].isdisjoint(re.findall(r"[\w-]+", name))

    def dump(self, moment: str, name: str, text: str) -> None:
        directory = self.options.mlir_print_ir_tree_dir
        if directory:
            label = re.sub(r"[^\w-]+", "_", name).strip("_")
            file = Path(directory) / f"{self.dumps}_{moment.lower()}_{label}.mlir"
            self.dumps += 1
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise source.SourceError(f"cannot write {file}: {error.strerror}") from None
            source.write_output(str(file), f"{text}\n")
            return
        print(f"// -----// IR Dump {moment} {name} //----- //\n{text}", file=sys.stderr)

    def finish(self) -> None:
        """Print the pipeline and the tables that the options select."""
        if self.options.dump_pass_pipeline:
            options_of = dict(self.options.passes)
            names = [f"{name}{{{options_of[name]}}}" if options_of.get(name) else name for name, _ in self.times]
            print(f"Pass Manager with {len(names)} passes:\nbuiltin.module({','.join(names)})", file=sys.stderr)
        if self.options.mlir_timing:
            for name, seconds in [*self.times, ("total", sum(seconds for _, seconds in self.times))]:
                print(f"{name:32s} {seconds * 1e3:9.2f} ms", file=sys.stderr)
        if self.options.mlir_pass_statistics:
            for name, before, after in self.counts:
                print(f"{name:32s} {before:9d} -> {after} operations", file=sys.stderr)


# -- from Python -------------------------------------------------------------------------------------------------------
LEVELS = ("linalg", "nisa")


class NoModule(source.MalformedInput):
    """The error of a text that ``nki_mlir.opt`` cannot read, with its diagnostics."""

    code = "NKI-OPT-MODULE"
    message = "nki_mlir.opt gets a text that is not a valid module: {first}"
    fix = "{instead}"

    @classmethod
    def of(cls, error: source.MalformedInput, text: str) -> "NoModule":
        """Return the error for a text that a parser refuses; it may be the name of a file instead."""
        wrong = cls(error.diagnostics)
        is_file = "\n" not in text and (text.endswith(".mlir") or os.path.isfile(text))
        wrong.values = {"first": error.diagnostics[0], "instead": (
            f"pass the text of the file: Path({text!r}).read_text()" if is_file else
            "pass the text of a module, such as kernel.lower(x).as_text('nki')")}
        return wrong

    __str__ = NkiMlirError.__str__


@alone
def optimized(module: Module | str, passes: str | Sequence[str], to: str, target: str) -> Module:
    """Implement ``nki_mlir.opt``."""
    from nki_mlir import display  # start-up: the command does without
    from nki_mlir.capture.locations import user_location
    names = [passes] if isinstance(passes, str) else passes
    pass_names = names if isinstance(names, (list, tuple)) else ()
    values: list[tuple[str, object, tuple[type, ...], str]] = [
        ("a module or its text", module, (ir.Module, str), "kernel.lower(x).as_text('nki')"),
        ("a level as text", to, (str,), f"to={LEVELS[0]!r}"), ("a target as text", target, (str,), "target='trn2'"),
        ("names of passes", names, (list, tuple), "passes=['canonicalize']"),
        *[("names of passes", name, (str,), "passes=['canonicalize']") for name in pass_names]]
    for expected, value, kinds, example in values:
        if not isinstance(value, kinds):
            text = f"nki_mlir.opt takes {expected}, got a value of type {type(value).__name__}"
            if callable(value) and hasattr(value, "lower"):
                text += ": lower it for arguments first, kernel.lower(x).as_text('nki')"
            raise source.SourceError(text, fix=f"pass {example}").located(user_location())
    text = module if isinstance(module, str) else module.operation.get_asm(enable_debug_info=True)
    try:
        parsed = source.read_module(text, "<module>")
    except source.MalformedInput as error:
        raise NoModule.of(error, text).located(user_location()) from None
    try:
        named = [name for part in names if part for name in split_pipeline(part)]
    except MalformedPipeline as error:
        raise error.located(user_location()) from None
    if to and to not in LEVELS:
        raise source.SourceError(f"nki_mlir.opt lowers to {' or '.join(LEVELS)}, not to {to!r}",
                                 fix="print streams with kernel.lower(...).as_text('isa')").located(user_location())
    with parsed.context, ir.Location.unknown():
        if target:
            set_target(parsed, target)
        try:
            run_named(parsed, named)
        except NkiMlirError as error:       # a name or an option has no line of the module
            raise error.located(user_location()) from None
        run_passes(parsed, passes_to(to, parsed) if to else [])
        source.verify_result(parsed)
    display.register()
    return parsed
