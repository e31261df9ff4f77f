# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuron-profile`` and ``neuron-explorer``: ``capture`` executes a NEFF and writes traces, ``view`` prints what is in
one, ``show-session`` its totals.

The options are those that the vendor documents. Options that concern a device, a server or a database alone are taken
and have no effect; a format that is not written here is an error, with an empty standard output.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nki_mlir.alone import alone
from nki_mlir.cli.command import CommandParser, command_line, exit_status
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.files import write_file
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.format.artifacts import (
    NeffContent,
    NtffContent,
    pack_trace,
    unpack_kernel,
    unpack_trace,
)
from nki_mlir.targets.neuron.profile import perfetto, profile_of
from nki_mlir.targets.neuron.profile.slices import QUEUE
from nki_mlir.targets.neuron.profile.vendor_json import vendor_json
from nki_mlir.targets.neuron.profile.vendor_summary import vendor_summary
from nki_mlir.targets.neuron.profile.vendor_tables import write_into, write_tables
from nki_mlir.version import __version__

FORMATS = ("db", "parquet", "summary-text", "summary-json", "json", "perfetto")
ENGINES = {"tensor": "Tensor", "vector": "Vector", "scalar": "Scalar", "gpsimd": "GpSimd", "sync": "Sync", "dma": "DMA"}
IGNORED_FLAGS = ("ignore-event-trace", "ignore-dma-trace", "ignore-instruction-trace", "ignore-instruction-hierarchy",
                 "ignore-nc-buf-usage", "ignore-device-profile", "ignore-system-profile", "show-perfetto-flows",
                 "enable-memory-tracker", "ingest-only", "disable-ui", "force")
IGNORED_VALUES = ("port", "processing-status-file", "nki-source-root",
                  "framework-source-root", "system-trace-primary-group", "system-trace-secondary-group", "terminology",
                  "db-endpoint", "db-org", "db-bucket")


class ToolError(NkiMlirError):
    code = "NKI-TOOL"
    message = "{what}"
    fix = "{fix}"


def parser(tool: str) -> argparse.ArgumentParser:
    """The options of the tool called ``tool``."""
    p = CommandParser(prog=tool, description="Execute compiled kernels on the model of "
                                "the machine, and show their traces. A stand-in of nki_mlir for the vendor's tool.")
    p.add_argument("--version", action="version", version=f"{tool} of nki_mlir {__version__}")
    commands = p.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_capture(commands.add_parser("capture", help="execute a NEFF, and write its traces"))
    _add_view(commands.add_parser("view", help="print what is in a trace"))
    session = commands.add_parser("show-session", help="print the totals of a trace")
    session.add_argument("-s", "--session-file", "--ntff", required=True, metavar="NTFF", help="the trace")
    session.add_argument("-j", "--json", action="store_true", help="as JSON")
    session.add_argument("--show-trace", action="store_true", help="when each instruction starts and ends, too")
    session.add_argument("--show-dma", action="store_true", help="when each transfer begins and ends, too")
    for flags in (["-e", "--show-errors"], ["-i"]):
        session.add_argument(*flags, action="store_true", help="no effect: the totals have the errors")
    return p


def _add_capture(p: argparse.ArgumentParser) -> None:
    p.add_argument("-n", "--neff", default="file.neff", metavar="NEFF", help="the compiled kernel (file.neff)")
    p.add_argument("-s", "--session-file", default="profile.ntff", metavar="NTFF", help="the trace (profile.ntff)")
    p.add_argument("--num-exec", type=int, default=1, metavar="N", help="how often it executes (1)")
    p.add_argument("--profile-nth-exec", type=int, default=1, metavar="N", help="trace each nth execution, 0 none (1)")
    p.add_argument("--disable-profile", action="store_true", help="write no trace")
    p.add_argument("--save-output", action="store_true", help="write each output as raw bytes to a file of its name")
    p.add_argument("--save-output-npy", action="store_true", help="write each output as NAME.npy")
    p.add_argument("--save-nth-output", type=int, metavar="N", help="only the outputs of that execution")
    p.add_argument("-r", "--collectives-workers-per-node", type=int, default=0, metavar="N", help="ranks that run")
    p.add_argument("--collectives-worker-count", type=int, metavar="N", help="ranks in total")
    p.add_argument("--collectives-worker-start-id", type=int, default=0, metavar="N", help="the first rank here (0)")
    p.add_argument("-i", "--collectives-profile-id", default="all", metavar="N", help="the rank that is traced (all)")
    p.add_argument("-m", "--multi-input", metavar="FILE", help="a line of NAME FILE pairs a rank; the first is read")
    for flag in ("ignore-exec-errors", "enable-dge-notifs", "single-io", "check-output-determinism"):
        p.add_argument(f"--{flag}", action="store_true", help="no effect on the model")
    for option in ("-t --capture-type", "--exec-mode", "--io-from", "--write-tensors-per-exec",
                   "--single-io-threshold", "--session-name", "--output-dir"):
        p.add_argument(*option.split(), metavar="VALUE", help="no effect on the model")
    p.add_argument("inputs", nargs="*", metavar="NAME FILE", help="inputs, .npy or raw bytes; zeros by default")


def _add_view(p: argparse.ArgumentParser) -> None:
    p.add_argument("-n", "--neff-path", "--neff", metavar="NEFF", help="the compiled kernel")
    p.add_argument("-s", "--session-file", "--ntff", metavar="NTFF", help="the trace")
    p.add_argument("-d", "--session-dir", metavar="DIR", help="the newest trace below a directory")
    p.add_argument("--output-format", choices=FORMATS, help="what to print or write")
    p.add_argument("--output-file", metavar="FILE", help="where json and perfetto go (ntff.json, trace.json.gz), the "
                                                              "directory that parquet fills")
    p.add_argument("--data-path", metavar="DIR", help="the store that parquet is written into otherwise (.)")
    p.add_argument("--display-name", metavar="NAME", help="its name there (the kernel's)")
    for flag in IGNORED_FLAGS:
        p.add_argument(f"--{flag}", action="store_true", help="no effect")
    for option in IGNORED_VALUES:
        p.add_argument(f"--{option}", metavar="VALUE", help="no effect")


@alone
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    words = command_line(arguments)
    tool = Path(sys.argv[0]).name if arguments is None else "neuron-profile"
    options = parser(tool).parse_args(words)
    if options.command == "view":
        options.tool = tool
        if options.output_format is None and tool == "neuron-explorer":
            options.output_format = "parquet"
    run = {"capture": capture, "view": view, "show-session": show_session}[options.command]
    return exit_status(lambda: file_errors_named(run, options))


def file_errors_named(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """The status of a command; a file that cannot be written is an error that names it."""
    try:
        return run(options)
    except OSError as error:
        if error.filename is None:              # standard output, of which every command says the same
            raise
        raise ToolError(what=f"cannot write {error.filename}: {error.strerror}", fix="name another file") from None


def read(file: str | Path | None, option: str) -> bytes:
    """What a file has that an option names."""
    if file is None:
        raise ToolError(what=f"{option} is missing", fix=f"name the file with {option}")
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ToolError(what=f"cannot read {file}: {error.strerror}", fix=f"name a file that exists with {option}"
                        ) from None


# -- capture -----------------------------------------------------------------------------------------------------------
def capture(options: argparse.Namespace) -> int:
    """Execute the kernel on its inputs, and write the traces and outputs that the options name."""
    kernel = unpack_kernel(read(options.neff, "--neff"), options.neff)
    inputs = read_inputs(kernel, pairs_of(options))
    if options.save_output or options.save_output_npy:
        save_outputs(kernel, inputs, options)
    executions = [] if options.disable_profile else list(traced(options.num_exec, options.profile_nth_exec))
    if not executions:
        return 0
    profile = profile_of(kernel.programs, kernel.mode)
    summary = vendor_summary(profile)
    for file, execution, core in trace_files(options, executions):
        trace = NtffContent(kernel.kernel, kernel.digest, execution, core, summary, profile)
        try:
            write_file(file, pack_trace(trace))
        except OSError as error:
            raise ToolError(what=f"cannot write {file}: {error.strerror}", fix="name another --session-file") from None
        print(f"wrote {file}", file=sys.stderr)
    return 0


def traced(count: int, nth: int) -> range:
    """The executions that leave a trace: the nth, 2nth ... of ``count``, and the nth where that is more."""
    return range(nth, max(count, nth) + 1, nth) if nth > 0 else range(0)


def trace_files(options: argparse.Namespace, executions: Sequence[int]) -> Iterator[tuple[Path, int, int]]:
    """(file, execution, rank) of each trace."""
    base = Path(options.session_file)
    first, here = options.collectives_worker_start_id, options.collectives_workers_per_node
    chosen = options.collectives_profile_id
    ranks: list[int | None] = [None] if not here else [
        k for k in range(first, first + here) if chosen == "all" or str(k) == chosen]
    for rank in ranks:
        for execution in executions:
            stem = base.stem + (f"_rank_{rank}" if rank is not None else "") + (
                f"_exec_{execution}" if execution > 1 else "")
            yield base.with_name(stem + (base.suffix or ".ntff")), execution, rank or 0


def pairs_of(options: argparse.Namespace) -> dict[str, str]:
    """Input name -> file."""
    words = options.inputs
    if options.multi_input is not None:
        if words:
            raise ToolError(what="--multi-input and inputs by name exclude each other", fix="give one of them")
        lines = read(options.multi_input, "--multi-input").decode(errors="replace").splitlines()
        words = lines[0].split() if lines else []
    if len(words) % 2:
        raise ToolError(what=f"input {words[-1]} has no file", fix="write NAME FILE for each input")
    return dict(zip(words[::2], words[1::2]))


def read_inputs(kernel: NeffContent, files: dict[str, str]) -> list[np.ndarray]:
    """The inputs in order: from files, else zeros. Raises ``ToolError`` for unknown names and other sizes."""
    variables = kernel.programs[0].of_kind("input")
    if unknown := [name for name in files if name not in {v.name for v in variables}]:
        raise ToolError(what=f"the kernel has no input '{unknown[0]}'",
                        fix="its inputs are " + ", ".join(v.name for v in variables))
    inputs = []
    for v in variables:
        if v.name not in files:
            inputs.append(np.zeros(v.shape, v.dtype.numpy))
            continue
        data, file = read(files[v.name], v.name), files[v.name]
        if file.endswith(".npy"):
            try:
                array = np.load(file, allow_pickle=False)
            except ValueError as error:
                raise ToolError(what=f"cannot read {file}: {error}", fix="give what numpy.save wrote") from None
            data = np.ascontiguousarray(array).tobytes()
        if len(data) != v.nbytes:
            raise ToolError(what=f"{file} has {len(data)} bytes, input {v.name} takes {v.nbytes}",
                            fix=f"give {v.dtype.name}{list(v.shape)}")
        inputs.append(np.frombuffer(bytearray(data), v.dtype.numpy).reshape(v.shape))
    return inputs


def save_outputs(kernel: NeffContent, inputs: list[np.ndarray], options: argparse.Namespace) -> None:
    """Execute for values, and write the outputs of each execution: all are equal."""
    variables = kernel.programs[0].of_kind("output")
    outputs = [np.zeros(v.shape, v.dtype.numpy) for v in variables]
    neuron.simulate(kernel.programs, inputs, outputs)
    named = [(v.name, array) for v, array in zip(variables, outputs)]
    if not variables:
        named = [(v.name, array) for v, array in zip(kernel.programs[0].of_kind("input"), inputs)]
    for execution in range(1, max(1, options.num_exec) + 1):
        if options.save_nth_output not in (None, execution):
            continue
        for name, array in named:
            file = name if execution == 1 else f"{name}.{execution}"
            if options.save_output_npy:
                file += ".npy"
                np.save(file, array)
            else:
                write_file(file, array.tobytes())
            print(f'saved output "{name}" as "{file}"')


# -- view --------------------------------------------------------------------------------------------------------------
def view(options: argparse.Namespace) -> int:
    """Print or write a trace in the form that ``--output-format`` names."""
    file = options.session_file if options.session_dir is None else newest_trace(options.session_dir)
    trace = unpack_trace(read(file, "--session-file"), str(file))
    if options.neff_path is not None:
        kernel = unpack_kernel(read(options.neff_path, "--neff-path"), options.neff_path)
        if kernel.digest != trace.digest:
            print(f"warning: {file} is a trace of another build of {trace.kernel} than {options.neff_path}",
                  file=sys.stderr)
    match options.output_format:
        case "summary-json":
            print(json.dumps({f"n_{trace.digest[:16]}": trace.summary}))
        case "summary-text":
            width = max(map(len, trace.summary))
            print(f"n_{trace.digest[:16]}")
            for name, value in trace.summary.items():
                print(f"  {name:{width}}  {'-' if value is None else value}")
        case "json":
            write_file(options.output_file or "ntff.json", json.dumps(vendor_json(trace.profile, trace.summary)))
        case "perfetto":
            write_file(options.output_file or "trace.json.gz", perfetto.trace(trace.profile))
        case "parquet" if options.tool == "neuron-profile":
            raise ToolError(what="neuron-profile writes no parquet", fix="use neuron-explorer view, with these options")
        case "parquet":
            view_tables(trace, options)
        case other:
            raise ToolError(what=f"the format {other or 'db'} needs the vendor's server",
                            fix="give --output-format summary-json, summary-text, json, parquet or perfetto")
    return 0


def view_tables(trace: NtffContent, options: argparse.Namespace) -> None:
    """Write the tables of the vendor's schema into ``--output-file``, else into the store of ``--data-path``."""
    if options.output_file is not None:
        files = write_into(trace.profile, Path(options.output_file))
    else:
        files = write_tables(trace.profile, Path(options.data_path or "."), options.display_name or "")
    print(f"wrote {len(files)} tables into {files[0].parent}", file=sys.stderr)


def newest_trace(folder: str) -> Path:
    """The trace below a directory that was written last."""
    traces = sorted(Path(folder).rglob("*.ntff"), key=os.path.getmtime)
    if not traces:
        raise ToolError(what=f"there is no trace below {folder}", fix="name a directory that a capture wrote to")
    return traces[-1]


# -- totals ------------------------------------------------------------------------------------------------------------
def show_session(options: argparse.Namespace) -> int:
    """Print the totals of a trace; it needs no NEFF."""
    trace = unpack_trace(read(options.session_file, "--session-file"), options.session_file)
    timing = trace.profile["timing"]
    if options.json:
        graphs = [{"NC": core, "CycleCount": round(timing["total_ns"]),
                   "TotalInstructionTraceCount": timing["instructions"], "EventsCount": timing["instructions"],
                   "ErrorCount": 0} for core in range(len(timing["cores"]))]
        print(json.dumps({"Name": trace.kernel, "NeffNodes": [{"NodeInfo": {"Graphs": graphs}}]}))
        return 0
    print(f"{trace.kernel}: execution time {timing['total_ns']:.0f} ns, 0 errors ({trace.summary['source']})")
    counts = timing["instructions_per_engine"] | {"dma": trace.summary["dma_transfer_count"]}
    for engine, name in ENGINES.items():
        print(f"  {name}: {counts.get(engine, 0)} {'transfers' if engine == 'dma' else 'instructions'}")
    if options.show_trace:
        print("\n".join(instruction_lines(trace.profile)))
    if options.show_dma:
        print("\n".join(transfer_lines(trace.profile)))
    return 0


def instruction_lines(profile: dict[str, Any]) -> Iterator[str]:
    """When each instruction starts and ends, by core."""
    slices, tracks = profile["slices"], profile["tracks"]
    for core in sorted({track["core"] for track in tracks}):
        yield f"Instruction trace for ND 0 NC {core}"
        for track, begin, end, number in zip(*(slices[n] for n in ("track", "begin", "end", "instruction"))):
            if tracks[track]["core"] == core and tracks[track]["kind"] != QUEUE:
                name = profile["instructions"]["name"][number]
                engine = ENGINES[tracks[track]["name"]]
                yield f"  {engine} START {begin:.0f} {name}\n  {engine} END {end:.0f} {name}"


def transfer_lines(profile: dict[str, Any]) -> Iterator[str]:
    """When each transfer begins to read, and has written."""
    slices, tracks = profile["slices"], profile["tracks"]
    for track, begin, end in zip(*(slices[n] for n in ("track", "begin", "end"))):
        if tracks[track]["kind"] == QUEUE:
            queue = tracks[track]["name"]
            yield f"  {queue} M2S_SOP {begin:.0f}\n  {queue} S2M_EOP {end:.0f}\n  {queue} S2M_COMPLETION {end:.0f}"


if __name__ == "__main__":
    sys.exit(main())
