# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-opt``: read MLIR or a kernel, run passes, write MLIR or assembly.

This module defines its options; ``lowering`` does the work. Each pass is an option: ``--help`` reads the passes from
their files, without importing MLIR.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nki_mlir import extensions
from nki_mlir.alone import alone
from nki_mlir.cli import command
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.passes import packages
from nki_mlir.passes.pipeline_text import MLIR_PASSES, MalformedPipeline, split_pipeline
from nki_mlir.targets.cpu.pipeline import NAMES as CPU_PASSES

GOALS = {"linalg": "lower to the waist: linalg on tiles, nisa instructions", "nisa": "lower to engine instructions",
         "isa": "lower to a stream for each engine, with addresses and semaphores, and write assembly",
         "vector": "lower to the CPU's program, in comments, and the vector code of its routines",
         "llvm": "lower to the CPU's program, with its routines in the LLVM dialect"}
NESTED_PASSES = 100
QUOTES = '"""'              # end of a docstring of one line
OPTION = re.compile(r"    (\w+): (?:bool|int|float|str) = (\S+) +# (.*)")


class PassSummary(NamedTuple):
    """A pass for ``--help``: its name, the first sentence of its docstring, and (name, default, meaning) of its
    options."""

    name: str
    text: str
    options: list[tuple[str, str, str]]


def pass_summaries() -> list[PassSummary]:
    """Return all passes in alphabetical order, read from their files."""
    return sorted(pass_summary for _, file in packages.files() if (pass_summary := summary(file)) is not None)


def summary(file: Path) -> PassSummary | None:
    """Read the pass that a file defines: its docstring starts with the pass's name. Return None if there is none."""
    name, text = file.stem.replace("_", "-"), file.read_text(encoding="utf-8")
    start = re.search(rf'^"""{name}: (.*?)\n\n', text, re.MULTILINE | re.DOTALL)
    declared = text.find(f'Pass, name="{name}"')             # any base class whose name ends with "Pass"
    if start is None or declared < 0:
        return None
    options = []
    for line in text[declared:].splitlines()[1:]:
        option = OPTION.fullmatch(line)
        if option:
            constant = re.search(rf"^{option[2]} = (\w+)", text, re.MULTILINE)
            options.append((option[1].replace("_", "-"), constant[1] if constant else option[2], option[3]))
        elif line.startswith("    def "):
            break
    return PassSummary(name, start[1].removesuffix(QUOTES).replace("\n", " "), options)


class _AddPasses(argparse.Action):
    """An action that appends (pass, options) pairs, so that passes keep the order of the command line."""

    def __call__(self, parser: argparse.ArgumentParser, options: argparse.Namespace, value: Any,
                 option_string: str | None = None) -> None:
        try:
            if value.count("(") > NESTED_PASSES:
                raise ValueError(f"a pipeline has at most {NESTED_PASSES} nests, this has {value.count('(')}")
            added = split_pipeline(value) if self.dest == "pipeline" else [(self.dest, value.strip("{}"))]
        except MalformedPipeline as error:
            parser.error(f"{option_string}: {error.headline}")
        except ValueError as error:
            parser.error(str(error))
        options.passes = [*options.passes, *added]


def build_parser(passes: Sequence[PassSummary], upstream_names: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Build the command line, with an option for each pass and for the passes ``upstream_names`` of MLIR."""
    p = command.CommandParser(
        prog="nki-opt", usage="nki-opt [OPTIONS] [PASSES] FILE", argument_default=None,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=120),
        description="Read MLIR from FILE, or a kernel from FILE.py:FUNCTION with --arg, run the passes in the order "
                    "given, and write the result.")
    p.set_defaults(passes=[])
    p.add_argument("file", metavar="FILE", nargs="?", default="-",
                   help="read this file; - is standard input, the default")
    command.add_common(p)
    add_lowering(p.add_argument_group("lowering"))
    add_passes(p.add_argument_group("passes", 'Write the options of a pass as --PASS="name=value other=value".'),
               passes, upstream_names)
    add_files(p.add_argument_group("input and output"))
    return p


FORMS = {"asm": "assembly", "bin": "a binary container"}            # forms of --emit that are not modules


def add_lowering(lowering: argparse._ArgumentGroup) -> None:
    """Add the options that lower a module."""
    goals = lowering.add_mutually_exclusive_group()
    for goal, text in GOALS.items():
        goals.add_argument(f"--lower-to-{goal}", dest="goal", action="store_const", const=goal, help=text)
    lowering.add_argument("--target", metavar="NAME",
                          help="compile for trn1, trn2 or trn3 (or by the names inf2, gen2, gen3, gen4)"
                               + command.targets_of_plugins())
    lowering.add_argument("-O", dest="level", type=int, choices=command.LEVELS, default=1,
                          help="choose how long --lower-to-isa searches for a fast order; 0 keeps program order "
                               "(default: 1)")
    lowering.add_argument("--emit", choices=("asm", "mlir", "bin"), default="asm",
                          help="choose the form in which --lower-to-isa writes the program (default: asm)")
    lowering.add_argument("--cpu-passes", metavar="A,B{x=1}",
                          help="run these passes of the CPU in --lower-to-vector and --lower-to-llvm (default: "
                               f"{', '.join(CPU_PASSES)})")


def add_passes(group: argparse._ArgumentGroup, passes: Sequence[PassSummary], upstream_names: Sequence[str]) -> None:
    """Add an option for each pass, including passes of plugins and of MLIR, and ``--pass-pipeline``."""
    for summary in passes:
        options = "".join(f" [{name}={default}: {text}]" for name, default, text in summary.options)
        group.add_argument(f"--{summary.name}", dest=summary.name, action=_AddPasses, metavar="",
                           default=argparse.SUPPRESS,
                           help=(summary.text + options).replace("%", "%%"))
    for name, pipeline in extensions.of("pipelines").items():
        group.add_argument(f"--{name}", dest=name, action=_AddPasses, metavar="", default=argparse.SUPPRESS,
                           help=f"run the passes of this pipeline of plugin {pipeline.origin}")
    for name, text in (MLIR_PASSES | dict.fromkeys(upstream_names, "run this pass of MLIR")).items():
        group.add_argument(f"--{name}", dest=name, action=_AddPasses, metavar="", default=argparse.SUPPRESS,
                           help=f"{text} (MLIR's)")
    group.add_argument("--pass-pipeline", dest="pipeline", action=_AddPasses, metavar="A,B{x=1}",
                       default=argparse.SUPPRESS,
                       help="run passes by name, also any pass of MLIR: canonicalize,func.func(cse)")


def add_files(files: argparse._ArgumentGroup) -> None:
    """Add the options for the input, for the output, and for the output's form."""
    files.add_argument("--arg", action="append", default=[], metavar="VALUE",
                       help="pass an argument to the kernel, for example 128x512xf32=random, 2, name=value; may "
                            "be repeated")
    files.add_argument("--grid", metavar="N,M", default="", help="set the launch grid of the kernel, for example 2,4")
    files.add_argument("--load-library", action="append", default=[], metavar="FILE.so",
                       help="load a library of custom C++ operators that the input calls; may be repeated")
    command.add_plugins(files)
    files.add_argument("-o", dest="output", default="-", metavar="FILE",
                       help="write to FILE, not to standard output")
    files.add_argument("--print", choices=("pretty", "mlir"), default=None,
                       help="choose the printed form: pretty is the custom form of operations, the default on a "
                            "terminal; mlir prints our dialects in the generic form, the default elsewhere")
    for name, text in (("split-input-file", "treat parts separated by // ----- as separate files"),
                       ("verify-diagnostics", "compare expected-error comments with the actual errors"),
                       ("mlir-print-ir-before-all", "print the module before every pass, on standard error"),
                       ("mlir-print-ir-after-all", "print the module after every pass, on standard error"),
                       ("mlir-print-ir-after-change", "print after a pass only if it changed the module"),
                       ("mlir-print-op-generic", "print operations in their generic form"),
                       ("mlir-print-local-scope", "print attributes and types without aliases"),
                       ("mlir-print-debuginfo", "print locations"),
                       ("dump-pass-pipeline", "print the passes as --pass-pipeline takes them, on standard error"),
                       ("emit-bytecode", "write the module in MLIR's binary form"),
                       ("show-dialects", "print the dialects that a file may use, and exit"),
                       ("mlir-timing", "print the time of every pass, on standard error"),
                       ("mlir-pass-statistics", "print the number of operations before and after each pass")):
        files.add_argument(f"--{name}", action="store_true", help=text)
    files.add_argument("--mlir-print-ir-tree-dir", default="", metavar="DIR",
                       help="write the modules of --mlir-print-ir-... to files in this directory")
    files.add_argument("--reduce", action="store_true",
                       help="write the smallest part of FILE that --test still accepts: a module, kernel or assembly")
    files.add_argument("--test", metavar="COMMAND",
                       help="run this command for --reduce, with the file in place of {} or at the end; status "
                            "0 accepts the file")
    for moment in ("before", "after"):
        files.add_argument(f"--mlir-print-ir-{moment}", action="append", default=[], metavar="PASS,PASS",
                           help=f"print the module {moment} these passes")


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. A mistake in them ends the process with status 2, as in any command."""
    command.load_plugins(arguments)
    passes = pass_summaries()
    # Without "=" argparse would parse the next word as the pass's options.
    upstream_names = other_passes(arguments, build_parser(passes))
    pass_options = {f"--{name}" for name in (*MLIR_PASSES, *upstream_names, *extensions.of("pipelines"),
                                             *(summary.name for summary in passes))}
    parser = build_parser(passes, upstream_names)
    options = parser.parse_args([f"{text}=" if text in pass_options else text for text in arguments])
    if options.cpu_passes is not None:
        if options.goal not in (None, "vector", "llvm"):
            parser.error(f"--cpu-passes works on a program of the CPU: leave --lower-to-{options.goal} out")
        options.goal = options.goal or "vector"
    if options.emit_bytecode and (options.goal in ("vector", "llvm") or (
            options.goal == "isa" and options.emit != "mlir")):
        parser.error(f"--emit-bytecode writes one module, and --lower-to-{options.goal} writes "
                     + ("a text of several" if options.goal != "isa" else f"{FORMS[options.emit]}: add --emit=mlir"))
    return options


def other_passes(arguments: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Return the arguments that are passes of MLIR and no option of this command, since every pass of the bindings is
    an option.

    A plugin's pass in a file of another name is not an option: the command ends with that error.
    """
    options = [option for action in parser._actions for option in action.option_strings]
    names = [text[2:].partition("=")[0] for text in arguments if re.match(r"--[a-z]", text)]
    unknown = [name for name in dict.fromkeys(names) if not any(option.startswith(f"--{name}") for option in options)]
    if not unknown:
        return []
    try:
        from nki_mlir.passes.pass_manager import check_plugin_files, is_upstream_pass  # start-up: loads MLIR
        for name in unknown:
            check_plugin_files(name)
    except NkiMlirError as error:
        sys.exit(command.fail(error))
    return [name for name in unknown if is_upstream_pass(name)]


@alone
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parse_options(command.command_line(arguments))
    if options.reduce:
        return command.exit_status(lambda: reduce(options))
    return command.exit_status(lambda: lower(options), reads_data=not command.is_kernel(options.file))


def lower(options: argparse.Namespace) -> int:
    """Read, lower and print the module. Operations of plugins load with MLIR."""
    from nki_mlir.cli.lowering import run  # start-up: loads MLIR
    return run(options)


def reduce(options: argparse.Namespace) -> int:
    """Write the smallest text that the test accepts."""
    from nki_mlir.cli import reduction, source  # start-up: imported on first use
    if not options.test:
        raise source.SourceError("--reduce needs --test=COMMAND, with status 0 on files that show the mistake")
    file = options.file.rpartition(":")[0] if ".py:" in options.file else options.file
    source.write_output(options.output, reduction.reduce_file(file, source.read_text(file), options.test))
    return 0


if __name__ == "__main__":
    sys.exit(main())
