# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-opt``: read MLIR or a kernel, run passes, write MLIR or assembly."""

import re
import sys
import time
from typing import Any

HELP = """usage: nki-opt [OPTIONS] [PASSES] FILE

Read MLIR from FILE (- is standard input), or a kernel from FILE.py:FUNCTION with --arg, run the passes in the order
given, and write the result.

lowering
  --lower-to-linalg            to the waist: linalg on tiles, nisa instructions
  --lower-to-nisa              to engine instructions
  --lower-to-isa               to per-engine streams with addresses and semaphores; writes assembly
  --lower-to-llvm              to the LLVM dialect of the CPU
  --target=NAME                trn1, trn2, trn3 (inf2, gen2, gen3, gen4 are accepted)
  --emit=asm|mlir|bin          what --lower-to-isa writes

passes
{passes}
  --pass-pipeline=A,B{{x=1}}     passes by name
  PASS options are given as --PASS="name=value other=value"

input and output
  --arg VALUE                  an argument of the kernel, repeated: 128x512xf32=random, 2, name=value
  --load-library=FILE.so       load a library of custom C++ operators that the input calls, repeated
  -o FILE                      write there and not to standard output
  --split-input-file           treat parts separated by // ----- as files of their own
  --verify-diagnostics         check expected-error comments against the errors that come
  --mlir-print-ir-after-all    print the module after every pass, on standard error
  --mlir-print-debuginfo       print locations
  --mlir-timing                print the time of every pass, on standard error
"""

LOWER = {"--lower-to-linalg": "linalg", "--lower-to-nisa": "nisa", "--lower-to-isa": "isa", "--lower-to-llvm": "llvm"}


class Options:
    """The command line, parsed. Passes keep their order among each other."""

    def __init__(self, arguments: list[str]) -> None:
        self.file = ""
        self.output = "-"
        self.target: str | None = None
        self.emit = "asm"
        self.goal: str | None = None
        self.passes: list[tuple[str, str]] = []
        self.args: list[str] = []
        self.libraries: list[str] = []
        self.flags: set[str] = set()
        given = iter(arguments)
        for text in given:
            key, equals, value = text.partition("=")
            if text in LOWER:
                self.goal = LOWER[text]
            elif text == "-o" or key == "--output":
                self.output = value or next(given, "-")
            elif key == "--target":
                self.target = value or next(given, "")
            elif key == "--emit":
                self.emit = value or next(given, "asm")
            elif key == "--arg":
                self.args.append(value if equals else next(given, ""))
            elif key == "--load-library":
                self.libraries.append(value or next(given, ""))
            elif key == "--pass-pipeline":
                self.passes += split_pipeline(value or next(given, ""))
            elif text in ("--split-input-file", "--verify-diagnostics", "--mlir-print-ir-after-all",
                          "--mlir-print-debuginfo", "--mlir-timing"):
                self.flags.add(text)
            elif text.startswith("--"):
                self.passes.append((key[2:], value.strip("{}")))
            elif text.startswith("-") and text != "-":
                raise UsageError(f"unknown option {text}")
            elif self.file:
                raise UsageError(f"two input files: {self.file} and {text}")
            else:
                self.file = text
        self.file = self.file or "-"
        if self.emit not in ("asm", "mlir", "bin"):
            raise UsageError(f"--emit={self.emit}: choose asm, mlir or bin")


class UsageError(Exception):
    """A command line that cannot be understood."""


def split_pipeline(text: str) -> list[tuple[str, str]]:
    """``a,b{x=1 y=2}`` as (name, options) pairs; ``builtin.module(...)`` around it is accepted."""
    inner = re.fullmatch(r"\s*builtin\.module\((.*)\)\s*", text)
    found = re.findall(r"([\w-]+)(?:\{([^}]*)\})?", inner[1] if inner else text)
    return [(name, options) for name, options in found]


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if any(a in ("-h", "--help") for a in given):
        print(help_text())
        return 0
    try:
        options = Options(given)
    except UsageError as error:
        print(f"nki-opt: {error}\nnki-opt --help lists the options", file=sys.stderr)
        return 2
    from nki_mlir.cli import source
    from nki_mlir.diagnostics import NkiMlirError
    try:
        return run(options)
    except source.MalformedInput as error:
        return source.fail(error)
    except NkiMlirError as error:
        return source.fail(error)
    except BrokenPipeError:
        return 1


def help_text() -> str:
    from nki_mlir.cli.passes import pass_summaries
    return HELP.format(passes="\n".join(f"  --{name:27s}{summary}" for name, summary in pass_summaries()))


def run(options: Options) -> int:
    from nki_mlir.cli import source
    from nki_mlir.cli.verify import check_expected
    source.load_libraries(options.libraries)
    if source.is_kernel(options.file):
        from nki_mlir.cli.arguments import parse_arguments
        modules = captured_modules(options, *parse_arguments(options.args))
        outputs = [process(m, options) for m in modules]
        return write(options, outputs)
    text = source.read_text(options.file)
    parts = split_input(text) if "--split-input-file" in options.flags else [text]
    name = source.display_name(options.file)
    if "--verify-diagnostics" in options.flags:
        return check_expected(parts, name, lambda part: process(parse(part, name, options), options))
    status, made = 0, []
    for part in parts:
        try:
            made.append(process(parse(part, name, options), options))
        except source.NkiMlirError as error:
            if len(parts) == 1:
                raise
            status = source.fail(renamed(error, name))
    return max(status, write(options, made))


def renamed(error: Any, name: str) -> Any:
    """Locations of a text that came without a file name get the input's."""
    if error.at is not None and error.at.file in ("-", "<stdin>"):
        error.at = error.at._replace(file=name)
    return error


def split_input(text: str) -> list[str]:
    """The parts between ``// -----`` lines, each at the lines it has in the file."""
    parts, lines = [], 0
    for part in re.split(r"^// -----.*\n", text, flags=re.MULTILINE):
        parts.append("\n" * lines + part)
        lines += part.count("\n") + 1
    return parts


def parse(text: str, name: str, options: Options) -> Any:
    from nki_mlir.cli import source
    from nki_mlir.dialects.mlir_ops import new_context
    from nki_mlir.transforms.safety import check_safe
    context = new_context()
    if "stablehlo." in text or "vhlo." in text:
        load_stablehlo(context)
    try:
        module = source.parse_module(text, context, name)
        check_safe(module)
    except source.NkiMlirError as error:
        raise renamed(error, name) from None
    return module


def load_stablehlo(context: Any) -> None:
    from nki_mlir.conversion.graph.upstream import load_graph_dialects
    load_graph_dialects(context)
    context.allow_unregistered_dialects = True      # JAX marks shardings with attributes of a dialect of its own


def captured_modules(options: Options, positional: list[Any], keywords: dict[str, Any]) -> list[Any]:
    """The distinct modules of a kernel for these arguments."""
    from dataclasses import replace

    from nki_mlir.cli.source import load_kernel
    from nki_mlir.language.kernel import describe_array, is_array
    kernel = load_kernel(options.file)
    if options.target:
        kernel = replace(kernel, target=options.target, specializations={})
    bound = kernel.bind(tuple(positional), keywords, is_array, describe_array)
    return kernel.specialize(bound).modules


def process(module: Any, options: Options) -> Any:
    """Run what the command line asks for on one module; text or bytes to write."""
    from nki_mlir.bindings import ir
    from nki_mlir.machine import machine_named
    from nki_mlir.transforms.passes import pass_named, run_passes
    with module.context, ir.Location.unknown():
        if options.target:
            machine_named(options.target)
            module.operation.attributes["nki.target"] = ir.StringAttr.get(options.target)
        passes = [pass_named(name, text) for name, text in options.passes]
        run_passes(module, passes, Observer(options))
        if options.goal in ("linalg", "nisa"):
            from nki_mlir.transforms.pipelines import passes_to
            run_passes(module, passes_to(options.goal, module), Observer(options))
        elif options.goal == "isa":
            from nki_mlir.cli.emission import lower_to_isa
            return lower_to_isa(module, options.emit, Observer(options))
        elif options.goal == "llvm":
            from nki_mlir.cli.emission import lower_to_llvm
            return lower_to_llvm(module)
        module.operation.verify()
        return module.operation.get_asm(enable_debug_info="--mlir-print-debuginfo" in options.flags) + "\n"


class Observer:
    """Prints what was asked for after each pass."""

    def __init__(self, options: Options) -> None:
        self.flags, self.last = options.flags, time.perf_counter()

    def __call__(self, one: Any, module: Any) -> None:
        now = time.perf_counter()
        if "--mlir-timing" in self.flags:
            print(f"{one.name:32s} {(now - self.last) * 1e3:9.2f} ms", file=sys.stderr)
        if "--mlir-print-ir-after-all" in self.flags:
            print(f"// -----// IR Dump After {one.name} //----- //\n{module}", file=sys.stderr)
        self.last = time.perf_counter()


def write(options: Options, outputs: list[Any]) -> int:
    """Write all outputs; a file appears whole or not at all."""
    from nki_mlir.cli.output import write_output
    binary = [o for o in outputs if isinstance(o, bytes)]
    data = b"".join(binary) if binary else "// -----\n".join(outputs)
    write_output(options.output, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
