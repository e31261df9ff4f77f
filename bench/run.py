# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Benchmarks: every workload on the JIT beside NumPy, PyTorch, JAX and IREE, and what the toolchain itself costs.

    python bench/run.py [--cases softmax_4096,giou_8732] [--contended] [--output results.json]

Each contestant runs in its own process; rounds of all are interleaved, because machines are noisy, and a figure is the
median over the rounds of the best call in a slice of time. The table has the ratio to the best peer and the fraction
of the machine's limit, which is measured in the same run; goals that are missed follow with their notes. The JSON has
all figures. With ``--contended`` each case runs three times: as always, beside a process that streams memory, and on
one processor; the table has the ratio to the best peer of each, so that it does not depend on how quiet a machine is.
"""

import argparse
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples"), str(ROOT / "bench")]
ROUNDS, SLICE_SECONDS = 7, 0.1


class Contestant:
    """A process that runs one library's form of a case. ``ready`` is what it took, or why there is none."""

    def __init__(self, case: str, name: str, one_thread: bool = False) -> None:
        # Threads of others that wait for work spin after a call; between rounds they must sleep.
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "OMP_WAIT_POLICY": "passive"} | (
            {"NKI_MLIR_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} if one_thread else {})
        self.messages = tempfile.TemporaryFile("w+")            # a pipe that nobody reads would fill, and stop it
        self.process = subprocess.Popen([sys.executable, str(ROOT / "bench/worker.py"), case, name,
                                         *["one-thread"] * one_thread], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.messages, env=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.ready: dict[str, Any] = json.loads(line) if line else {"failed": self.failure()}

    def failure(self) -> str:
        """The end of what a process that has failed printed."""
        self.process.wait()
        self.messages.seek(0)
        return self.messages.read()[-400:] or f"exit status {self.process.returncode}"

    def seconds(self) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(SLICE_SECONDS, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate()


def race(case: str, names: Sequence[str], rounds: int = ROUNDS, one_thread: bool = False) -> dict[str, Any]:
    """All contestants of a case, and the machine's limits: interleaved rounds, first calls, who is missing."""
    from limits import measured
    contestants = {name: Contestant(case, name, one_thread) for name in names}
    running = {name: c for name, c in contestants.items() if "first_call_s" in c.ready}
    times: dict[str, list[float]] = {name: [] for name in running}
    limits = []                         # of the same minutes: other users of a machine change what its memory gives
    for _ in range(rounds):
        for name, contestant in running.items():
            times[name].append(contestant.seconds())
        limits.append(measured())
    for contestant in running.values():
        contestant.close()
    return {"ready": {name: c.ready for name, c in contestants.items()},
            "seconds": {name: statistics.median(t) for name, t in times.items()}, "rounds": times,
            "limits": limits}


def races(case: str, names: Sequence[str], contended: bool) -> dict[str, Any]:
    """A case's race; with the races beside a process that streams memory and on one processor, where they are asked."""
    from limits import streaming
    record = race(case, names)
    if contended:
        with streaming():
            record["contended"] = race(case, names)
        record["one_thread"] = race(case, names, one_thread=True)
    return record


def times_of_best(record: dict[str, Any]) -> float | None:
    """The time of ours in times of the best peer; None without one."""
    peers = [t for name, t in record["seconds"].items() if name != "nki_mlir"]
    return record["seconds"]["nki_mlir"] / min(peers) if peers and "nki_mlir" in record["seconds"] else None


def machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def main() -> int:
    import cases  # noqa: F401
    from case import CASES, GOALS
    from contestants import CONTESTANTS
    from limits import medians
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table
    costs = sorted(p.stem for p in (ROOT / "bench/costs").glob("*.py"))
    every = [*CASES, *costs]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default=",".join(every), help="names, separated by commas (default: all)")
    parser.add_argument("--output", default=str(ROOT / "bench/results.json"), help="the JSON file with all figures")
    parser.add_argument("--contended", action="store_true",
                        help="run each case beside a process that streams memory, and on one processor, as well")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.cases.split(",")
    if unknown := {*names} - {*every}:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    if options.one:
        print(json.dumps(importlib.import_module(f"costs.{options.one}").measure()))
        return 0
    results: dict[str, Any] = {}
    for name in track(names, description="measuring"):
        if name in CASES:
            case = CASES[name]()
            results[name] = races(name, [*CONTESTANTS, *case.more], options.contended)
            results[name] |= {"limit": case.limit, "amount": case.amount}
            del case
        else:
            done = subprocess.run([sys.executable, __file__, "--cases", name, "--one", name], capture_output=True,
                                  text=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})
            results[name] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {
                "failed": done.stderr[-400:]}
    limits = medians([found for record in results.values() for found in record.get("limits", ())])
    Path(options.output).write_text(json.dumps({"machine": machine(), "python": platform.python_version(),
                                                "limits": limits, "cases": results}, indent=1))
    console = Console(width=170)
    more = {"contended": "contended", "one_thread": "one thread"} if options.contended else {}
    table = Table("case", "first call", "nki_mlir", "of the limit", "peers, us", "of the best peer", *more.values(),
                  "error")
    failed, notes = 0, list[str]()
    for name, record in results.items():
        if "seconds" not in record:
            failed += "failed" in record
            for line in record.get("lines", [record.get("failed", "")]):
                console.print(f"{name}: {line}")
            continue
        ready, seconds = record["ready"], record["seconds"]
        for contestant, state in ready.items():
            if "failed" in state:
                failed += contestant == "nki_mlir"
                console.print(f"{name}, {contestant}: failed: {state['failed'].strip().splitlines()[-1]}")
        if "nki_mlir" not in seconds:
            continue
        ours, peers = seconds["nki_mlir"], {n: t for n, t in seconds.items() if n != "nki_mlir"}
        limit = medians(record["limits"]).get(record["limit"])
        times = times_of_best(record)
        share = record["amount"] / ours / limit if limit else None
        notes += [f"{name}: {what}. {GOALS[name].note}" for what in GOALS[name].missed(times, share)]
        table.add_row(name, f"{ready['nki_mlir']['first_call_s'] * 1e3:.0f} ms", f"{ours * 1e6:.0f} us",
                      f"{share:.0%} of {record['limit']}" if share else "-",
                      ", ".join(f"{n} {t * 1e6:.0f}" for n, t in peers.items()),
                      f"{times:.2f}x the time" if times else "-",
                      *[f"{ratio:.2f}x" if (ratio := times_of_best(record[kind])) else "-" for kind in more],
                      f"{ready['nki_mlir']['error']:.0e}")
    if table.row_count:
        console.print(table)
    for note in notes:
        console.print(f"missed: {note}")
    if limits:
        console.print(f"limits: copy {limits['copy'] / 1e9:.1f} GB/s, read {limits['read'] / 1e9:.1f} GB/s, "
                      f"{limits['fma'] / 1e9:.0f} GF/s with {limits['threads']:.0f} threads; {machine()}")
    console.print(f"all figures: {options.output}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
