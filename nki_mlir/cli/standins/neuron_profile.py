# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuron-profile`` and ``neuron-explorer``: ``capture`` executes a NEFF and writes traces, ``view`` prints the
contents of a trace, ``show-session`` its totals, ``inspect`` runs a command whose kernels write NEFFs and traces.

The options are those that the vendor documents. Options that concern only a device, a server or a database are accepted
and have no effect. Programs start the tool once for each run of a kernel, so each subcommand imports only the modules
that it needs.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nki_mlir.alone import alone
from nki_mlir.cli.command import CommandParser, command_line, exit_status, words_of_program
from nki_mlir.cli.standins.tool_files import ToolError, read_compiled
from nki_mlir.files import write_file
from nki_mlir.targets.neuron.format.artifacts import NtffContent, digest_of_kernel, reads_profile, unpack_trace
from nki_mlir.version import __version__

FORMATS = ("db", "parquet", "summary-text", "summary-json", "json", "perfetto")
ENGINES = {"tensor": "Tensor", "vector": "Vector", "scalar": "Scalar", "gpsimd": "GpSimd", "sync": "Sync", "dma": "DMA"}
IGNORED_FLAGS = ("ignore-event-trace", "ignore-dma-trace", "ignore-instruction-trace", "ignore-instruction-hierarchy",
                 "ignore-nc-buf-usage", "ignore-device-profile", "ignore-system-profile", "show-perfetto-flows",
                 "enable-memory-tracker", "ingest-only", "disable-ui", "force")
IGNORED_VALUES = ("port", "processing-status-file", "nki-source-root",
                  "framework-source-root", "system-trace-primary-group", "system-trace-secondary-group", "terminology",
                  "db-endpoint", "db-org", "db-bucket")


def parser(tool: str) -> argparse.ArgumentParser:
    """Build the parser of the tool called ``tool``."""
    p = CommandParser(prog=tool, description="Execute compiled kernels on the model of "
                                "the machine, and show their traces. A stand-in of nki_mlir for the vendor's tool.")
    p.add_argument("--version", action="version", version=f"{tool} of nki_mlir {__version__}")
    commands = p.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_capture(commands.add_parser("capture", help="execute a NEFF, and write its traces"))
    _add_view(commands.add_parser("view", help="print the contents of a trace"))
    inspect = commands.add_parser("inspect", help="run a command whose kernels write NEFF and NTFF files")
    inspect.add_argument("-o", "--output-dir", default="./output", metavar="DIR",
                         help="write the files to this directory (./output)")
    inspect.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="run this command")
    session = commands.add_parser("show-session", help="print the totals of a trace")
    session.add_argument("-s", "--session-file", "--ntff", required=True, metavar="NTFF", help="read this trace")
    session.add_argument("-j", "--json", action="store_true", help="print JSON")
    session.add_argument("--show-trace", action="store_true", help="also print when each instruction starts and ends")
    session.add_argument("--show-dma", action="store_true", help="also print when each transfer starts and ends")
    for flags in (["-e", "--show-errors"], ["-i"]):
        session.add_argument(*flags, action="store_true",
                             help="accept the option without an effect: the totals include the errors")
    return p


def _add_capture(p: argparse.ArgumentParser) -> None:
    p.add_argument("-n", "--neff", default="file.neff", metavar="NEFF", help="execute this compiled kernel (file.neff)")
    p.add_argument("-s", "--session-file", default="profile.ntff", metavar="NTFF",
                   help="write this trace (profile.ntff)")
    p.add_argument("--num-exec", type=int, default=1, metavar="N", help="execute the kernel this many times (1)")
    p.add_argument("--profile-nth-exec", type=int, default=1, metavar="N", help="trace each nth execution, 0 none (1)")
    p.add_argument("--disable-profile", action="store_true", help="write no trace")
    p.add_argument("--save-output", action="store_true", help="write each output as raw bytes to a file of its name")
    p.add_argument("--save-output-npy", action="store_true", help="write each output as NAME.npy")
    p.add_argument("--save-nth-output", type=int, metavar="N", help="save only the outputs of this execution")
    p.add_argument("-r", "--collectives-workers-per-node", type=int, default=0, metavar="N", help="run this many ranks")
    p.add_argument("--collectives-worker-count", type=int, metavar="N", help="set the total number of ranks")
    p.add_argument("--collectives-worker-start-id", type=int, default=0, metavar="N",
                   help="set the first rank that runs here (0)")
    p.add_argument("-i", "--collectives-profile-id", default="all", metavar="N", help="trace this rank (all)")
    p.add_argument("-m", "--multi-input", metavar="FILE", help="read the first line of NAME FILE pairs")
    for flag in ("ignore-exec-errors", "enable-dge-notifs", "single-io", "check-output-determinism"):
        p.add_argument(f"--{flag}", action="store_true", help="accept the option without an effect on the model")
    for option in ("-t --capture-type", "--exec-mode", "--io-from", "--write-tensors-per-exec",
                   "--single-io-threshold", "--session-name", "--output-dir"):
        p.add_argument(*option.split(), metavar="VALUE", help="accept the option without an effect on the model")
    p.add_argument("inputs", nargs="*", metavar="NAME FILE", help="read inputs from .npy files or raw bytes (zeros)")


def _add_view(p: argparse.ArgumentParser) -> None:
    p.add_argument("-n", "--neff-path", "--neff", metavar="NEFF", help="show the trace of this compiled kernel")
    p.add_argument("-s", "--session-file", "--ntff", metavar="NTFF", help="read this trace")
    p.add_argument("-d", "--session-dir", metavar="DIR", help="read the newest trace below this directory")
    p.add_argument("--output-format", choices=FORMATS, help="choose what to print or write (neuron-profile: a page for "
                                                                 "a browser; neuron-explorer: parquet)")
    p.add_argument("--output-file", metavar="FILE",
                   help="write json, perfetto or the page to this file (ntff.json, trace.json.gz, TRACE.html), or "
                        "parquet to this directory")
    p.add_argument("--data-path", metavar="DIR", help="otherwise write parquet into this store (.)")
    p.add_argument("--display-name", metavar="NAME", help="store the trace under this name (the kernel's)")
    for flag in IGNORED_FLAGS:
        p.add_argument(f"--{flag}", action="store_true", help="accept the option without an effect")
    for option in IGNORED_VALUES:
        p.add_argument(f"--{option}", metavar="VALUE", help="accept the option without an effect")


@alone
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = command_line(arguments)
    tool = Path(sys.argv[0]).name if arguments is None else "neuron-profile"
    options = parser(tool).parse_args(words)
    if options.command == "view":
        options.tool = tool
        if options.output_format is None and tool == "neuron-explorer":
            options.output_format = "parquet"
    run = {"capture": capture, "view": view, "show-session": show_session, "inspect": inspect}[options.command]
    return exit_status(lambda: file_errors_named(run, options))


def file_errors_named(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run a command and return its status. Raise ``ToolError`` with the name of a file that cannot be written."""
    try:
        return run(options)
    except OSError as error:
        if error.filename is None:              # standard output: ``exit_status`` reports it
            raise
        raise ToolError(what=f"cannot write {error.filename}: {error.strerror}", fix="name another file") from None


def capture(options: argparse.Namespace) -> int:
    """Execute a kernel, and write its traces."""
    from nki_mlir.cli.standins.neuron_capture import capture  # start-up: loads the simulator
    return capture(options)


def inspect(options: argparse.Namespace) -> int:
    """Run a command whose kernel calls write files below the directory."""
    words = words_of_program(options.words)
    if not words:
        raise ToolError(what="there is no command to run", fix="write neuron-profile inspect -o DIR COMMAND")
    variables = {"NEURON_RT_INSPECT_ENABLE": "1", "NEURON_RT_INSPECT_DEVICE_PROFILE": "1",
                 "NEURON_RT_INSPECT_OUTPUT_DIR": os.path.abspath(options.output_dir)}
    try:
        return subprocess.run(words, env=os.environ | variables, check=False).returncode
    except OSError as error:
        raise ToolError(what=f"{words[0]} cannot be started: {error.strerror}", fix="name a program of PATH"
                        ) from None


# -- view --------------------------------------------------------------------------------------------------------------
def view(options: argparse.Namespace) -> int:
    """Print or write a trace in the form that ``--output-format`` names."""
    file = options.session_file or "" if options.session_dir is None else newest_trace(options.session_dir)
    trace = unpack_trace(read_compiled(file, "--session-file"), str(file))
    if options.neff_path is not None:
        digest = digest_of_kernel(read_compiled(options.neff_path, "--neff-path"), options.neff_path)
        if digest != trace.digest:
            print(f"warning: {file} is a trace of another build of {trace.kernel} than {options.neff_path}",
                  file=sys.stderr)
    with reads_profile(str(file)):
        show(trace, file, options)
    return 0


def show(trace: NtffContent, file: str | Path, options: argparse.Namespace) -> None:
    """Print or write a trace, read from ``file``, in the form that the options choose."""
    match options.output_format:
        case "summary-json":
            print(json.dumps({f"n_{trace.digest[:16]}": trace.summary}))
        case "summary-text":
            width = max(map(len, trace.summary))
            print(f"n_{trace.digest[:16]}")
            for name, value in trace.summary.items():
                print(f"  {name:{width}}  {'-' if value is None else value}")
        case "json":
            from nki_mlir.targets.neuron.profile.vendor_json import vendor_json  # start-up: loads the machine
            write_file(options.output_file or "ntff.json", json.dumps(vendor_json(trace.profile, trace.summary)))
        case "perfetto":
            from nki_mlir.targets.neuron.profile import perfetto  # start-up: as above
            write_file(options.output_file or "trace.json.gz", perfetto.trace(trace.profile))
        case "parquet" if options.tool == "neuron-profile":
            raise ToolError(what="neuron-profile writes no parquet", fix="use neuron-explorer view, with these options")
        case "parquet":
            view_tables(trace, options)
        case None if not options.disable_ui and not options.ingest_only:
            from nki_mlir.targets.neuron.profile import page  # start-up: as above
            name = options.output_file or f"{Path(file).stem}.html"
            write_file(name, page(trace.profile))
            print(f"wrote {name}, a page for a browser: there is no server", file=sys.stderr)
        case other:
            raise ToolError(what=f"the format {other or 'db'} needs the vendor's server",
                            fix="give --output-format summary-json, summary-text, json, parquet or perfetto")


def view_tables(trace: NtffContent, options: argparse.Namespace) -> None:
    """Write the tables of the vendor's schema into ``--output-file``, else into the store of ``--data-path``."""
    from nki_mlir.targets.neuron.profile.vendor_tables import write_into, write_tables  # start-up: loads the machine
    if options.output_file is not None:
        files = write_into(trace.profile, Path(options.output_file))
    else:
        files = write_tables(trace.profile, Path(options.data_path or "."), options.display_name or "")
    print(f"wrote {len(files)} tables into {files[0].parent}", file=sys.stderr)


def newest_trace(folder: str) -> Path:
    """Return the newest trace below a directory."""
    traces = sorted(Path(folder).rglob("*.ntff"), key=os.path.getmtime)
    if not traces:
        raise ToolError(what=f"there is no trace below {folder}", fix="name a directory that a capture wrote to")
    return traces[-1]


# -- totals ------------------------------------------------------------------------------------------------------------
def show_session(options: argparse.Namespace) -> int:
    """Print the totals of a trace; it needs no NEFF."""
    trace = unpack_trace(read_compiled(options.session_file, "--session-file"), options.session_file)
    with reads_profile(options.session_file):
        print_totals(trace, options)
    return 0


def print_totals(trace: NtffContent, options: argparse.Namespace) -> None:
    """Print the totals of a trace, and of the slices that the options choose."""
    timing = trace.profile["timing"]
    if options.json:
        graphs = [{"NC": core, "CycleCount": round(timing["total_ns"]),
                   "TotalInstructionTraceCount": timing["instructions"], "EventsCount": timing["instructions"],
                   "ErrorCount": 0} for core in range(len(timing["cores"]))]
        print(json.dumps({"Name": trace.kernel, "Source": trace.summary["source"],
                          "NeffNodes": [{"NodeInfo": {"Graphs": graphs}}]}))
        return
    print(f"{trace.kernel}: execution time {timing['total_ns']:.0f} ns, 0 errors ({trace.summary['source']})")
    counts = timing["instructions_per_engine"] | {"dma": trace.summary["dma_transfer_count"]}
    for engine, name in ENGINES.items():
        print(f"  {name}: {counts.get(engine, 0)} {'transfers' if engine == 'dma' else 'instructions'}")
    if options.show_trace:
        print("\n".join(instruction_lines(trace.profile)))
    if options.show_dma:
        print("\n".join(transfer_lines(trace.profile)))


def instruction_lines(profile: dict[str, Any]) -> Iterator[str]:
    """Yield lines with the start and end of each instruction, by core."""
    from nki_mlir.targets.neuron.profile.slices import QUEUE  # start-up: as above
    slices, tracks = profile["slices"], profile["tracks"]
    for core in sorted({track["core"] for track in tracks}):
        yield f"Instruction trace for ND 0 NC {core}"
        for track, begin, end, number in zip(*(slices[n] for n in ("track", "begin", "end", "instruction"))):
            if tracks[track]["core"] == core and tracks[track]["kind"] != QUEUE:
                name = profile["instructions"]["name"][number]
                engine = ENGINES[tracks[track]["name"]]
                yield f"  {engine} START {begin:.0f} {name}\n  {engine} END {end:.0f} {name}"


def transfer_lines(profile: dict[str, Any]) -> Iterator[str]:
    """Yield lines with the first read and the last write of each transfer."""
    from nki_mlir.targets.neuron.profile.slices import QUEUE  # start-up: as above
    slices, tracks = profile["slices"], profile["tracks"]
    for track, begin, end in zip(*(slices[n] for n in ("track", "begin", "end"))):
        if tracks[track]["kind"] == QUEUE:
            queue = tracks[track]["name"]
            yield f"  {queue} M2S_SOP {begin:.0f}\n  {queue} S2M_EOP {end:.0f}\n  {queue} S2M_COMPLETION {end:.0f}"


if __name__ == "__main__":
    sys.exit(main())
