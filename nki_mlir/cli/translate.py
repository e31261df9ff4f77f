# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-translate``: Python to MLIR, MLIR to assembly or binary, assembly to binary and back."""

import argparse
import sys
from typing import Any


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="nki-translate", description="Translate between the forms of a kernel.")
    kinds = p.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--import-python", action="store_true", help="FILE.py:FUNCTION with --arg to nki-level MLIR")
    kinds.add_argument("--mlir-to-asm", action="store_true", help="MLIR of any level to assembly")
    kinds.add_argument("--mlir-to-bin", action="store_true", help="MLIR of any level to the binary container")
    kinds.add_argument("--assemble", action="store_true", help="assembly to the binary container")
    kinds.add_argument("--disassemble", action="store_true", help="the binary container to assembly")
    p.add_argument("source", help="the input; - for standard input")
    p.add_argument("--arg", action="append", default=[], metavar="VALUE", help="an argument of the kernel, repeated")
    p.add_argument("--grid", default="", metavar="N,M", help="launch grid of the kernel")
    p.add_argument("--target", help="trn1, trn2 or trn3")
    p.add_argument("-o", dest="output", default="-", metavar="FILE", help="write there and not to standard output")
    return p


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(given)
    from nki_mlir.cli import source
    from nki_mlir.diagnostics import NkiMlirError
    try:
        from nki_mlir.cli.output import write_output
        write_output(options.output, translate(options))
    except NkiMlirError as error:
        return source.fail(error)
    return 0


def translate(options: Any) -> str | bytes:
    from nki_mlir.cli import source
    if options.import_python:
        return import_python(options)
    if options.assemble:
        from nki_mlir.targets import neuron
        return neuron.assemble(source.read_text(options.source), source.display_name(options.source))
    if options.disassemble:
        from nki_mlir.targets import neuron
        return neuron.disassemble(read_bytes(options.source))
    from nki_mlir.cli.opt import Options, parse, process
    text = source.read_text(options.source)
    command = Options([options.source, "--lower-to-isa", f"--emit={'bin' if options.mlir_to_bin else 'asm'}"])
    command.target = options.target
    return process(parse(text, source.display_name(options.source), command), command)


def import_python(options: Any) -> str:
    from nki_mlir.cli.arguments import parse_arguments
    from nki_mlir.cli.run import KernelSource
    kernel = KernelSource(options, *parse_arguments(options.arg))
    module, _ = kernel.module()
    return str(module)


def read_bytes(file: str) -> bytes:
    from nki_mlir.cli.source import SourceError
    try:
        if file == "-":
            return sys.stdin.buffer.read()
        with open(file, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise SourceError(f"cannot read {file}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
