# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-score``: judge candidate kernels against a reference, without a device.

It judges one candidate and prints the verdict, or judges several on ``--jobs`` workers or those of a Dask scheduler,
stores and ranks the verdicts; ``--serve`` answers requests in lines of JSON.
"""

import argparse
import io
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nki_mlir.cli.command import LEVELS, CommandParser, add_common, command_line, exit_status
from nki_mlir.diagnostics import Location, NkiMlirError

if TYPE_CHECKING:
    from nki_mlir.scoring.engine import Cluster, WorkerPool
    from nki_mlir.scoring.verdict import CandidateVerdict


class ScoreFile(NkiMlirError):
    code = "NKI-SCORE-FILE"
    message = "the file cannot be used: {reason}"
    fix = "name another file"


def failed_file(file: str, reason: object) -> NkiMlirError:
    """Return the error of a file that cannot be read or written."""
    return ScoreFile(reason=reason).located(Location(file, 0, 0))


def add_judging(p: argparse.ArgumentParser) -> None:
    """Add the options of commands whose workers judge candidates: target, limits, workers, store."""
    p.add_argument("--target", help="judge for trn1, trn2 or trn3 (default: TARGET of the reference)")
    p.add_argument("--seconds", type=float, default=60.0, metavar="S",
                   help="limit the time of a candidate to this many seconds (60)")
    p.add_argument("--megabytes", type=int, default=4096, metavar="MB",
                   help="limit the memory of a candidate to this many megabytes (4096)")
    p.add_argument("-O", dest="level", type=int, choices=LEVELS, default=1,
                   help="choose how long to search for a fast order of a candidate's instructions; 0 keeps program "
                        "order, which is quicker and predicts longer times (1)")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="use this many workers on this machine (1)")
    p.add_argument("--scheduler", metavar="ADDRESS", help="let the workers of a Dask scheduler judge, for example "
                                                          "tcp://HOST:8786")
    p.add_argument("--store", metavar="FILE.db", help="store verdicts in an SQLite file, and reuse them")
    p.add_argument("--page", metavar="FILE.html", help="write a page of the store: Pareto front, history, profiles")


def refuse_judging(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the command if the options of ``add_judging`` contradict each other."""
    if options.page and not options.store:
        parser.error("--page writes a page of a store: add --store FILE.db")
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {options.jobs}")


def parser() -> argparse.ArgumentParser:
    p = CommandParser(prog="nki-score", description="Judge candidate kernels: their values, the rules of the device, "
                      "and their time. Times come from a model of the machine.")
    p.add_argument("candidates", nargs="*", metavar="CANDIDATE.py",
                   help="judge these Python files, each with one kernel")
    p.add_argument("-r", "--reference", metavar="REF.py", help="read inputs, reference and tolerance from this file")
    p.add_argument("--json", action="store_true", help="print each verdict as a line of JSON")
    p.add_argument("--compare", action="store_true",
                   help="rank the candidates, and group those whose times the model cannot distinguish")
    p.add_argument("--kernel", metavar="NAME",
                   help="judge the kernel of this name in each file (default: ENTRY of the reference)")
    add_judging(p)
    p.add_argument("--serve", action="store_true", help="answer requests in lines of JSON on standard input")
    add_common(p)
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    p = parser()
    options = p.parse_args(command_line(arguments))
    if options.serve:
        if options.candidates:
            p.error(f"--serve takes candidates from standard input: leave {options.candidates[0]} out")
    elif not options.reference and not (options.page and options.store and not options.candidates):
        p.error("--reference is missing: add -r REF.py")
    elif not options.candidates and not options.page:
        p.error("there is no candidate: give CANDIDATE.py, or --serve to read requests")
    refuse_judging(p, options)
    return exit_status(lambda: serve(options) if options.serve else run(options))


def settings_of(options: argparse.Namespace) -> dict[str, object]:
    """Return the settings that all requests of a command share."""
    return {name: getattr(options, name) for name in ("reference", "kernel", "target", "seconds", "megabytes", "level")}


def workers_of(options: argparse.Namespace) -> "WorkerPool | Cluster":
    from nki_mlir.scoring.engine import Cluster, WorkerPool  # start-up: not for --help
    return Cluster(options.scheduler) if options.scheduler else WorkerPool(options.jobs)


def run(options: argparse.Namespace) -> int:
    """Judge the candidates and print the verdicts. Return 1 unless all are right."""
    from nki_mlir.scoring.engine import score_all  # start-up: not for --help
    from nki_mlir.scoring.live_table import LiveTable
    from nki_mlir.scoring.page import write_page
    from nki_mlir.scoring.store import Store
    store = Store(options.store) if options.store else None
    settings = {**settings_of(options), "profile": bool(options.page)}
    verdicts: list[CandidateVerdict] = []
    has_several = len(options.candidates) > 1
    try:
        with workers_of(options) as workers, LiveTable(None if has_several else False) as table:
            requests = [{**settings, "candidate": file} for file in options.candidates]
            for _, verdict in score_all(requests, workers, store):
                verdicts.append(verdict)
                table.add(verdict)
        if options.page and store is not None:
            write_page(store, options.page)
    except OSError as error:
        if error.filename is None:
            raise
        raise failed_file(error.filename, error.strerror) from None
    order = {name: k for k, name in enumerate(options.candidates)}
    verdicts.sort(key=lambda v: order.get(str(v["candidate"]), 0))
    show(verdicts, options)
    if has_several and not options.json:
        print(table.summary(), file=sys.stderr)
    return int(not all(v.right for v in verdicts))


def show(verdicts: "list[CandidateVerdict]", options: argparse.Namespace) -> None:
    """Print verdicts as the options select."""
    if options.compare:
        from nki_mlir.scoring.ranking import lines_of, ranked  # start-up: loads MLIR
        ranking = ranked(verdicts)
        if options.json:
            for ranked_verdict in ranking:
                print(json.dumps({"rank": ranked_verdict.rank, "probability": ranked_verdict.probability,
                                  **ranked_verdict.verdict}))
        else:
            print("\n".join(lines_of(ranking)))
        return
    for verdict in verdicts:
        print(json.dumps({k: v for k, v in verdict.items() if k != "profile"}) if options.json else verdict)


def serve(options: argparse.Namespace) -> int:
    """Answer requests in lines of JSON, each as soon as it is ready. The options' reference judges requests without
    one."""
    from nki_mlir.scoring.engine import serve_lines  # start-up: not for --help
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")         # a line that is not text is not JSON, as the answer says
    with workers_of(options) as workers:
        serve_lines(sys.stdin, settings_of(options), workers, lambda answer: print(json.dumps(answer), flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
