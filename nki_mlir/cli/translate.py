# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-translate``: Python to MLIR and back, MLIR to assembly or binary, assembly to binary and back."""

import argparse
import sys
from pathlib import Path

from nki_mlir.alone import alone
from nki_mlir.cli import command


def parser() -> argparse.ArgumentParser:
    p = command.CommandParser(prog="nki-translate", description="Translate between the forms of a kernel.")
    kinds = p.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--import-python", action="store_true",
                       help="capture FILE.py:FUNCTION with --arg to MLIR at the level nki")
    kinds.add_argument("--to-nki-python", action="store_true",
                       help="print a kernel in NKI Python for FILE.py:FUNCTION with --arg, for MLIR of the level nki, "
                            "waist or nisa, or for a graph")
    kinds.add_argument("--mlir-to-asm", action="store_true", help="lower MLIR of any level to assembly")
    kinds.add_argument("--mlir-to-bin", action="store_true", help="lower MLIR of any level to the binary container")
    kinds.add_argument("--assemble", action="store_true", help="assemble assembly to the binary container")
    kinds.add_argument("--disassemble", action="store_true", help="disassemble the binary container to assembly")
    p.add_argument("source", help="read this file; - is standard input")
    command.add_common(p)
    p.add_argument("--arg", action="append", default=[], metavar="VALUE",
                   help="pass an argument to the kernel; may be repeated")
    p.add_argument("--grid", default="", metavar="N,M", help="set the launch grid of the kernel")
    p.add_argument("--release", default="2.32", help="with --to-nki-python: write for this release, 2.27 to 2.32 "
                   "(default)")
    p.add_argument("--generation", choices=["current", "beta"], default="current",
                   help="with --to-nki-python: choose the generation of the text (default: current)")
    p.add_argument("--keep-placement", action="store_true",
                   help="with --to-nki-python: print the compiled program, fused and in its order, with engines and "
                        "addresses")
    p.add_argument("--reciprocals", action="store_true",
                   help="with --to-nki-python: compute quotients as products with reciprocals, because devices do not "
                        "divide; the last bit may differ")
    p.add_argument("--target", help="compile for trn1, trn2 or trn3" + command.targets_of_plugins())
    command.add_plugins(p)
    command.add_check(p)
    p.add_argument("-o", dest="output", default="-", metavar="FILE", help="write to FILE, not to standard output")
    return p


@alone
def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    command.load_plugins(command.command_line(arguments))
    options = parser().parse_args(arguments)
    return command.exit_status(lambda: run(options), reads_data=not command.is_kernel(options.source))


def run(options: argparse.Namespace) -> int:
    """Translate the input as the options say, and write the result."""
    from nki_mlir.cli.source import write_output  # start-up: imported on first use
    write_output(options.output, translate(options))
    return 0


def translate(options: argparse.Namespace) -> str | bytes:
    """Return the translation of the source that the options select."""
    from nki_mlir.cli import opt, source  # start-up: imported on first use
    from nki_mlir.targets import neuron
    if options.assemble:
        return assembled(source.read_text(options.source), source.display_name(options.source), options.check_streams)
    if options.disassemble:
        with source.errors_of_file(source.display_name(options.source)):
            return neuron.disassemble(source.read_bytes(options.source))
    from nki_mlir.cli import lowering  # start-up: loads MLIR
    opt_options = opt.parse_options([options.source, *([] if options.target is None else ["--target", options.target]),
                                     *(f"--arg={text}" for text in options.arg), "--grid", options.grid])
    if options.import_python:
        return "// -----\n".join(str(lowering.process(m, opt_options)) for m in lowering.captured(opt_options).modules)
    if options.to_nki_python:
        from nki_mlir.printing.kernel import kernel_text  # start-up: imported on first use
        if command.is_kernel(options.source):
            modules = lowering.captured(opt_options).program_modules
        else:
            name = source.display_name(options.source)
            modules = source.read_modules(lowering.split_input(source.read_text(options.source), name), name)
        return kernel_text(modules, release=options.release, keep_placement=options.keep_placement,
                           generation=options.generation, reciprocals=options.reciprocals,
                           file=Path(options.output) if options.output != "-" else None)
    opt_options.goal, opt_options.emit = "isa", "bin" if options.mlir_to_bin else "asm"
    text = source.read_text(options.source)
    return lowering.process(source.read_module(text, source.display_name(options.source)), opt_options)


def assembled(text: str, name: str, check: bool) -> str | bytes:
    """Assemble a text to a binary, after the check of its streams if ``check``."""
    from nki_mlir.cli.stream_check import require_sound  # start-up: imported on first use
    from nki_mlir.targets import neuron
    if not check:
        return neuron.assemble(text, name)
    programs = neuron.programs_of_assembly(text, name)
    if len(programs) == 1:                  # several programs have no binary: that error comes first
        require_sound(programs)
    return neuron.write(programs, "bin")


if __name__ == "__main__":
    sys.exit(main())
