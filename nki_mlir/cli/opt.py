# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-opt``: read MLIR or a kernel, run passes, write MLIR or assembly."""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nki_mlir import extensions
from nki_mlir.alone import alone
from nki_mlir.cli.completion import add_common
from nki_mlir.cli.loading import add_plugins, load_plugins, of_plugins
from nki_mlir.cli.passes import UPSTREAM, PassSummary, pass_summaries
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.passes.pipeline_text import split_pipeline

if TYPE_CHECKING:
    from nki_mlir.bindings import Module
    from nki_mlir.cli.observer import PassReport

GOALS = {"linalg": "to the waist: linalg on tiles, nisa instructions", "nisa": "to engine instructions",
         "isa": "to per-engine streams with addresses and semaphores; writes assembly",
         "vector": "to the programs of the CPU, in comments, and the vector code of their routines",
         "llvm": "the same with the routines in the LLVM dialect"}


class _AddPasses(argparse.Action):
    """Appends (pass, options) pairs, so that passes keep the order of the command line."""

    def __call__(self, parser: argparse.ArgumentParser, options: argparse.Namespace, value: Any,
                 option_string: str | None = None) -> None:
        try:
            added = split_pipeline(value) if self.dest == "pipeline" else [(self.dest, value.strip("{}"))]
        except ValueError as error:
            parser.error(str(error))
        options.passes = [*options.passes, *added]


def build_parser(passes: Sequence[PassSummary]) -> argparse.ArgumentParser:
    """The command line, with an option for each pass."""
    p = argparse.ArgumentParser(
        prog="nki-opt", usage="nki-opt [OPTIONS] [PASSES] FILE", allow_abbrev=False, argument_default=None,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=120),
        description="Read MLIR from FILE, or a kernel from FILE.py:FUNCTION with --arg, run the passes in the order "
                    "given, and write the result.")
    p.set_defaults(passes=[])
    p.add_argument("file", metavar="FILE", nargs="?", default="-", help="the input; - is standard input, the default")
    add_common(p)
    lowering = p.add_argument_group("lowering")
    goals = lowering.add_mutually_exclusive_group()
    for goal, text in GOALS.items():
        goals.add_argument(f"--lower-to-{goal}", dest="goal", action="store_const", const=goal, help=text)
    lowering.add_argument("--target", metavar="NAME",
                          help="trn1, trn2, trn3 (inf2, gen2, gen3, gen4 are accepted)" + of_plugins("targets"))
    lowering.add_argument("--emit", choices=("asm", "mlir", "bin"), default="asm", help="what --lower-to-isa writes")
    group = p.add_argument_group("passes", 'Options of a pass are given as --PASS="name=value other=value".')
    for one in passes:
        options = "".join(f" [{name}={default}: {text}]" for name, default, text in one.options)
        group.add_argument(f"--{one.name}", dest=one.name, action=_AddPasses, metavar="", default=argparse.SUPPRESS,
                           help=(one.text + options).replace("%", "%%"))
    for name, pipeline in extensions.of("pipelines").items():
        group.add_argument(f"--{name}", dest=name, action=_AddPasses, metavar="", default=argparse.SUPPRESS,
                           help=f"the passes of this pipeline, of plugin {pipeline.origin}")
    for name, text in UPSTREAM.items():
        group.add_argument(f"--{name}", dest=name, action=_AddPasses, metavar="", default=argparse.SUPPRESS,
                           help=f"{text} (MLIR's)")
    group.add_argument("--pass-pipeline", dest="pipeline", action=_AddPasses, metavar="A,B{x=1}",
                       default=argparse.SUPPRESS,
                       help="passes by name, all that MLIR has among them: canonicalize,func.func(cse)")
    files = p.add_argument_group("input and output")
    files.add_argument("--arg", action="append", default=[], metavar="VALUE",
                       help="an argument of the kernel, repeated: 128x512xf32=random, 2, name=value")
    files.add_argument("--grid", metavar="N,M", default="", help="launch grid of the kernel, for example 2,4")
    files.add_argument("--load-library", action="append", default=[], metavar="FILE.so",
                       help="load a library of custom C++ operators that the input calls, repeated")
    add_plugins(files)
    files.add_argument("-o", dest="output", default="-", metavar="FILE",
                       help="write there and not to standard output")
    for name, text in (("split-input-file", "treat parts separated by // ----- as files of their own"),
                       ("verify-diagnostics", "check expected-error comments against the errors that come"),
                       ("mlir-print-ir-before-all", "print the module before every pass, on standard error"),
                       ("mlir-print-ir-after-all", "the same after every pass"),
                       ("mlir-print-ir-after-change", "print after passes only where they changed something"),
                       ("mlir-print-op-generic", "print operations in their generic form"),
                       ("mlir-print-debuginfo", "print locations"),
                       ("mlir-timing", "print the time of every pass, on standard error"),
                       ("mlir-pass-statistics", "print how many operations each pass found and left")):
        files.add_argument(f"--{name}", action="store_true", help=text)
    for when in ("before", "after"):
        files.add_argument(f"--mlir-print-ir-{when}", action="append", default=[], metavar="PASS,PASS",
                           help=f"print the module {when} these passes")
    return p


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; a mistake in them ends the process with status 2, as in any command."""
    load_plugins(arguments)
    passes = pass_summaries()
    # Without "=" the next word would be taken for their options.
    alone = {f"--{name}" for name in (*UPSTREAM, *extensions.of("pipelines"), *(one.name for one in passes))}
    return build_parser(passes).parse_args([f"{text}=" if text in alone else text for text in arguments])


@alone
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    from nki_mlir.cli.status import exit_status  # start-up: needed where it is asked for
    return exit_status(lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Read, run what is asked for, write."""
    from nki_mlir.cli import source  # start-up: needed where it is asked for
    from nki_mlir.cli.status import fail
    from nki_mlir.cli.verify import check_expected
    source.load_libraries(options.load_library)
    if source.is_kernel(options.file):
        return write(options, [process(m, options) for m in captured_modules(options)])
    text = source.read_text(options.file)
    parts = split_input(text) if options.split_input_file else [text]
    name = source.display_name(options.file)
    if options.verify_diagnostics:
        return check_expected(parts, name, lambda part: process(source.read_module(part, name), options))
    status, made = 0, []
    for part in parts:
        try:
            made.append(process(source.read_module(part, name), options))
        except NkiMlirError as error:
            if len(parts) == 1:
                raise
            status = fail(source.renamed(error, name))
    return max(status, write(options, made))


def split_input(text: str) -> list[str]:
    """The parts between ``// -----`` lines, each at the lines it has in the file."""
    parts, lines = [], 0
    for part in re.split(r"^// -----.*\n", text, flags=re.MULTILINE):
        parts.append("\n" * lines + part)
        lines += part.count("\n") + 1
    return parts


def captured_modules(options: argparse.Namespace) -> "list[Module]":
    """The distinct modules of a kernel for the arguments given."""
    from nki_mlir.cli.arguments import parse_arguments, parse_grid  # start-up: needed where it is asked for
    from nki_mlir.cli.runnable import captured
    from nki_mlir.cli.source import load_kernel
    kernel = load_kernel(options.file, options.target, parse_grid(options.grid))
    return captured(kernel, *parse_arguments(options.arg))[0]


def process(module: "Module", options: argparse.Namespace) -> str | bytes:
    """Run what the command line asks for on one module; text or bytes to write."""
    from nki_mlir.bindings import ir  # start-up: loads MLIR
    from nki_mlir.cli.observer import PassReport
    from nki_mlir.cli.runnable import set_target
    with module.context, ir.Location.unknown():
        if options.target:
            set_target(module, options.target)
        report = PassReport(options)
        try:
            return lowered(module, options, report)
        finally:
            report.finish()


def lowered(module: "Module", options: argparse.Namespace, report: "PassReport") -> str | bytes:
    """The module after the passes and the lowering that are asked for, as it is written."""
    from nki_mlir.cli.emission import lower_to_cpu, lower_to_isa  # start-up: loads MLIR
    from nki_mlir.cli.observer import text_of
    from nki_mlir.passes.pass_manager import passes_named, run_passes
    from nki_mlir.passes.pipelines import passes_to
    run_passes(module, [one for name, text in options.passes for one in passes_named(name, text)], report)
    match options.goal:
        case "isa":
            return lower_to_isa(module, options.emit, report)
        case "vector" | "llvm":
            return lower_to_cpu(options.goal, module, report)
        case "linalg" | "nisa":
            run_passes(module, passes_to(options.goal, module), report)
    module.operation.verify()
    return text_of(module, options) + "\n"


def write(options: argparse.Namespace, outputs: Sequence[str | bytes]) -> int:
    """Write all outputs; a file appears whole or not at all."""
    from nki_mlir.cli.output import write_output  # start-up: needed where it is asked for
    binary = [o for o in outputs if isinstance(o, bytes)]
    write_output(options.output, b"".join(binary) if binary else "// -----\n".join(map(str, outputs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
