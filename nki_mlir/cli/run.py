# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-run``: run a kernel, a module or instruction streams on an executor, and compare executors."""

import argparse
import io
import itertools
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nki_mlir import extensions
from nki_mlir.alone import permanent_imports
from nki_mlir.cli import command

if TYPE_CHECKING:
    from nki_mlir.cli.runnable import Results, Runnable



def parser() -> argparse.ArgumentParser:
    p = command.CommandParser(
        prog="nki-run", description="Run a kernel FILE.py:FUNCTION, the function of an MLIR file, or instruction "
                                    "streams, and print the results.")
    p.add_argument("source", metavar="KERNEL_OR_IR", nargs="+",
                   help="run FILE.py:FUNCTION, or a file of MLIR, assembly or a binary; - is standard input; --time "
                        "compares two of them")
    command.add_common(p)
    p.add_argument("--arg", action="append", default=[], metavar="VALUE",
                   help="pass an argument: FILE.npy, 128x512xf32=random|zeros|ones|arange|FILE.npy, 0.5, None, "
                        "(1, 2), Config(rows=64) with a class of the kernel's file, name=value; may be repeated")
    p.add_argument("--load-library", action="append", default=[], metavar="FILE.so",
                   help="load a library of custom C++ operators that the source calls; may be repeated")
    p.add_argument("--on", choices=executors(), help="choose the executor (default: jit, isa for instruction "
                   "streams and with --time)")
    p.add_argument("--grid", metavar="N,M", default="",
                   help="set the launch grid of a kernel, for example 2,4; nc(2) is an extent over two cores")
    p.add_argument("--target",
                   help="compile a kernel or a module for trn1, trn2 or trn3" + command.targets_of_plugins())
    command.add_plugins(p)
    add_timing(p)
    add_comparison(p)
    add_stepping(p)
    p.add_argument("--witness", metavar="FILE",
                   help="write an order in which unordered accesses of instruction streams lead to a wrong value")
    p.add_argument("--order", metavar="FILE",
                   help="run instruction streams in the order that --witness wrote, without a check")
    p.add_argument("--save", metavar="FILE.npz", help="write the results to a file")
    p.add_argument("--quiet", action="store_true", help="do not print the results")
    return p


def add_timing(p: argparse.ArgumentParser) -> None:
    """Add the options that predict times."""
    p.add_argument("--time", action="store_true",
                   help="predict how long the source takes on the device, with a timed model, without computing values")
    p.add_argument("--as-written", action="store_true",
                   help="with --time: keep the kernel's loads, order and engines, with all loops unrolled")
    p.add_argument("--disable-dge", action="store_true",
                   help="with --time: let the compiler write the descriptors of all transfers, as the vendor's option "
                        "of that name does, so that an engine starts a transfer in less time")
    p.add_argument("-O", dest="level", type=int, choices=command.LEVELS, default=1,
                   help="with --time: choose how long to search for a fast order; 0 keeps program order (default: 1)")
    p.add_argument("--json", action="store_true", help="print the result of --time or --check as one JSON object")
    p.add_argument("--profile", metavar="DIR",
                   help="time the source, as --time does, and write a profile to a directory, as JSON, a trace "
                        "and a page")
    p.add_argument("--format", choices=("page", "neuron-explorer"), default=None,
                   help="choose the form of --profile: a page with its data (default), or tables of the "
                        "vendor's schema")


def add_comparison(p: argparse.ArgumentParser) -> None:
    """Add the options that compare results, and that check a kernel."""
    p.add_argument("--compare", nargs="?", const="all", metavar="ON,ON",
                   help="also run on these executors (without a value: on all) and compare; exit with status 1 "
                        "if they differ")
    p.add_argument("--tolerance", type=float,
                   help="set the largest accepted error for --compare and --verify-each, relative to max(1, |value|) "
                        "(default: 1e-5; native code may also differ by what its order of additions explains)")
    p.add_argument("--verify-each", action="store_true",
                   help="run the module before and after every pass on the same inputs, and name the first pass whose "
                        "results differ")
    p.add_argument("--check", action="store_true",
                   help="print every mistake that the checkers find in a kernel for these arguments; exit with status "
                        "1 if there is an error")
    command.add_check(p)


def add_stepping(p: argparse.ArgumentParser) -> None:
    """Add the options that run step by step."""
    p.add_argument("--step", action="store_true",
                   help="stop at each operation, and in the simulator at each instruction")
    p.add_argument("--break", dest="breaks", action="append", default=[], metavar="FILE:LINE",
                   help="stop at a source line; may be repeated")
    p.add_argument("--watch", action="append", default=[], metavar="NAME",
                   help="stop when the tile of a variable changes; may be repeated")
    p.add_argument("--break-on", action="append", default=[], choices=("nan", "inf"),
                   help="stop when an operation writes a NaN or an infinity")
    p.add_argument("--script", metavar="FILE",
                   help="read the debugger's commands from a file, or - for standard input, without a screen")
    p.add_argument("--at-level", choices=("nki", "waist", "nisa"), default="nki",
                   help="choose the level of a kernel that the interpreter steps through (default: nki)")


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = command.command_line(arguments)
    command.load_plugins(arguments)
    p = parser()
    options = p.parse_args(comparing(arguments))
    refuse(p, options)
    return command.exit_status(lambda: run(options), reads_data=not any(map(command.is_kernel, options.source)))


def executors() -> tuple[str, ...]:
    """Return the names of the executors, including those of plugins."""
    return (*extensions.EXECUTORS, *extensions.of("executors"))


def comparing(arguments: list[str]) -> list[str]:
    """Return the arguments with ``--compare`` as ``--compare=all`` where the next word names no executors, but the
    file."""
    changed = []
    for text, after in zip(arguments, [*arguments[1:], ""]):
        named = after and all(name in executors() for name in after.split(","))
        changed.append("--compare=all" if text == "--compare" and not named else text)
    return changed


def refuse(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the command if options exclude each other, and set the default executor of instruction streams.
    ``--profile`` implies ``--time``."""
    options.time = options.time or options.profile is not None
    options.stepped = steps(options)
    for mistake in mistakes(options):
        parser.error(mistake)
    streams = options.time or options.order is not None or options.witness is not None
    options.on = options.on or ("isa" if streams else "")


def mistakes(options: argparse.Namespace) -> Iterator[str]:
    """Yield an error for each combination of options that exclude each other."""
    sources = len(options.source)
    if options.time:
        clash = first_set(options, "compare", "save", "verify_each", "check")
        if options.on not in (None, "isa"):
            clash = f"--on={options.on}"
        if clash:
            yield f"--time times instruction streams and computes no values: leave out {clash}"
        if sources > 2:
            yield f"--time compares two sources, {sources} are given: leave {options.source[2]} out"
        if options.profile is not None and sources > 1:
            yield f"--profile takes one kernel or module, two are given: leave {options.source[1]} out"
    if options.tolerance is not None and not options.tolerance >= 0:
        yield f"--tolerance is an error of at least 0, got {options.tolerance:g}"
    if options.profile is None and options.format is not None:
        yield "--format selects what --profile writes: add --profile DIR"
    if not options.time:
        if options.as_written:
            yield "--as-written selects how --time compiles the streams: add --time"
        if options.disable_dge:
            yield "--disable-dge selects how --time compiles the streams: add --time"
        if options.level != 1:
            yield "-O selects how long --time searches for a fast order: add --time"
        if options.json and not options.check:
            yield "--json selects the form of --time and --check: add one of them"
        if sources > 1:
            file, name = options.source[:2]
            hint = f"; did you mean {file}:{name}?" if file.endswith(".py") and name.isidentifier() else ""
            yield f"give one kernel or module; --time compares two{hint}"
    clash = first_set(options, "time", "compare", "verify_each", "check")
    if options.stepped and clash:
        yield f"--step, --break, --watch and --break-on exclude {clash}: leave one of them out"
    if not options.stepped and (options.script or options.at_level != "nki"):
        yield "--script and --at-level need a run that stops: add --step, --break, --watch or --break-on"
    clash = first_set(options, "time", "check", "verify_each", "compare")
    for name in ("order", "witness"):
        if getattr(options, name) is not None and clash:
            yield f"--{name} runs instruction streams, and excludes {clash}: leave one of them out"


def first_set(options: argparse.Namespace, *names: str) -> str:
    """Return the first of the named options that is set, as the user writes it; "" if none is."""
    return next((f"--{name.replace('_', '-')}" for name in names if getattr(options, name)), "")


def executor_of(source: str) -> str:
    """Return the default executor of a source. Modules run on the JIT, because not every executor runs them."""
    if not command.is_kernel(source):
        return "jit"
    from nki_mlir.language.kernel import default_executor  # start-up: loads the language
    return default_executor()


def steps(options: argparse.Namespace) -> bool:
    """Return whether the run stops somewhere."""
    return bool(options.step or options.breaks or options.watch or options.break_on)


def run(options: argparse.Namespace) -> int:
    """Run, print, save and compare, as the options select."""
    if options.time:
        with permanent_imports():
            from nki_mlir.cli.timing import time_all  # start-up: imported on first use
        return time_all(options)
    source, = options.source
    is_chosen = bool(options.on)
    options.on = options.on or ("" if options.stepped else executor_of(source))
    from nki_mlir.cli.runnable import check_executor, requested  # start-up: imported on first use
    runnable = requested(source, options)
    if options.on and not is_chosen and "jit" not in runnable.executors and not command.is_kernel(source):
        options.on = runnable.executors[0]              # the only executor of streams
    if options.check:
        return print_report(runnable, options.json)
    if options.stepped:
        from nki_mlir.cli.stepping import run_stepped  # start-up: imported on first use
        results = run_stepped(runnable, options, source)
        if results is None:
            return 0
        if not options.quiet:
            print_results(results)
        if options.save:
            save(options.save, results)
        return 0
    if options.order is not None:
        runnable.take_order(options.order)
    elif options.check_streams or options.witness is not None:
        runnable.check(options.witness)
    if options.verify_each:
        return verify_each(runnable, options.tolerance)
    other_executors = executors_to_compare(runnable, options)
    for on in (options.on, *other_executors):
        check_executor(runnable, on, source)
    runnable.runs_again = bool(other_executors)
    results = timed(runnable, options)
    if options.save:
        save(options.save, results)
    return compare(runnable, results, other_executors, options)


def print_report(runnable: "Runnable", as_json: bool) -> int:
    """Print the report of a kernel's check, and return 1 unless it is sound."""
    import json  # start-up: imported on first use
    report = runnable.report()
    print(json.dumps(report.json(), indent=2, default=str) if as_json else report)
    return int(not report.sound)


def executors_to_compare(runnable: "Runnable", options: argparse.Namespace) -> list[str]:
    """Return the executors that ``--compare`` names, or all others if it names none."""
    if options.compare == "all":
        return [on for on in runnable.executors if on != options.on]
    return options.compare.split(",") if options.compare else []


def timed(runnable: "Runnable", options: argparse.Namespace) -> "Results":
    """Run the source, print the results and the time, and return the results."""
    started = time.perf_counter()
    results = runnable.run(options.on)
    first_seconds = time.perf_counter() - started
    if not options.quiet:
        print_results(results)
    print(f"{options.on}: {first_seconds * 1e3:.1f} ms (with compilation)")
    return results


def print_results(results: "Results") -> None:
    """Print each result with its name, dtype and shape."""
    for name, value in results:
        print(f"{name}: {value.dtype}{list(value.shape)}\n{value}")


def save(file: str, results: list[tuple[str, Any]]) -> None:
    """Write the results to an ``.npz`` file. Results of equal names get a number: ``out``, ``out_2``."""
    import zipfile  # start-up: imported on first use

    import numpy as np  # start-up: imported on first use

    from nki_mlir.cli.source import write_output
    buffer, used = io.BytesIO(), set[str]()
    with zipfile.ZipFile(buffer, "w") as archive:       # np.savez takes no result with the name of its parameters
        for name, value in results:
            names = (name.replace(" ", "_") + (f"_{n}" if n > 1 else "") for n in itertools.count(1))
            used.add(chosen := next(candidate for candidate in names if candidate not in used))
            with archive.open(f"{chosen}.npy", "w") as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=False)
    write_output(file, buffer.getvalue())


def compare(runnable: "Runnable", results: "Results", other_executors: list[str], options: argparse.Namespace) -> int:
    """Run on the other executors, print the largest error of each, and return 1 if one differs.

    Without ``--tolerance``, native code may differ by what another order of additions explains.
    """
    from nki_mlir.cli.agreement import TOLERANCE, largest_error, orders_explain  # start-up: imported on first use
    tolerance = TOLERANCE if options.tolerance is None else options.tolerance
    first = [value for _, value in results]
    status = 0
    for on in other_executors:
        started = time.perf_counter()
        second = [value for _, value in runnable.run(on)]
        spent = time.perf_counter() - started
        worst = largest_error(first, second)
        verdict = "agrees" if worst <= tolerance else "DIFFERS"
        if verdict == "DIFFERS" and options.tolerance is None and "jit" in (on, options.on) \
                and orders_explain(first, second):
            verdict = "agrees, native code adds in another order"
        status |= verdict == "DIFFERS"
        print(f"{on}: {spent * 1e3:.1f} ms, largest error against {options.on} {worst:.3g}: {verdict}")
    return int(status)


def verify_each(runnable: "Runnable", tolerance: float | None) -> int:
    """Interpret the module before and after every pass on the same inputs; name the first pass that changes a value."""
    from nki_mlir.bindings import cloned, ir  # start-up: loads MLIR
    from nki_mlir.cli.agreement import TOLERANCE, largest_error  # start-up: imported on first use
    from nki_mlir.cli.runnable import copied, run_module
    from nki_mlir.passes.pass_manager import run_passes
    from nki_mlir.passes.pipelines import passes_to
    from nki_mlir.targets import neuron
    original, inputs = runnable.module()
    reference = run_module(original, copied(inputs), "interpreter")
    with original.context, ir.Location.unknown():
        module = cloned(original)
        for step in passes_to("nisa", module):
            run_passes(module, [step])
            again = run_module(module, copied(inputs), "interpreter")
            worst = largest_error([value for _, value in reference], [value for _, value in again])
            if worst > (TOLERANCE if tolerance is None else tolerance):
                print(f"{step.name}: changes the result, largest error {worst:.3g}")
                return 1
            print(f"{step.name}: same values (largest error {worst:.3g})")
    report = neuron.checked(runnable.streams(neuron.emission()))
    for violation in report.violations:
        print(violation, file=sys.stderr)
    print(f"streams: {report.verdict}" + "".join(f"; {reason}" for reason in report.not_analyzed))
    return int(report.verdict == "violated")


if __name__ == "__main__":
    sys.exit(main())
