# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compare every workload on the JIT with NumPy, PyTorch, JAX and IREE, and measure the costs of the toolchain itself.

    python bench/run.py [--cases softmax_4096,giou_8732] [--contended] [--rounds 7] [--output results.json]

Each contestant runs in its own process. Their rounds are interleaved, because machines are noisy, and a figure is the
median over the rounds of the best call in a slice of time. A line with the figures of a case appears when the case has
been measured. A table of all cases follows at the end, with the ratio to the best peer and the fraction of the
machine's limit, which is measured in the same run, then the goals that are missed, with their notes. The JSON has all
figures, also after an interrupted run. A contestant that takes ten times as long as the fastest one runs in one round.
With ``--contended`` each case runs three times: alone, then with the two fastest peers beside a process that streams
memory, and on one processor. The table has the ratio to the best peer for each, so that it does not depend on how quiet
the machine is.
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
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples"), str(ROOT / "bench")]
ROUNDS, SLICE_SECONDS = 7, 0.1
IDLE_SECONDS = 0.03                     # a process that uses no tick of 10 ms in this time is idle
MOST_IDLE_SECONDS = 20.0                # processes that run on after it, run beside the slice
SLOW = 10                           # times the fastest one's time, above which a contestant runs in one round
PEERS = 2                           # the fastest peers, which run in further races of a case


class Contestant:
    """A process that runs a library's form of a case. ``ready`` has the time of its first call, or the reason why
    there is none."""

    def __init__(self, case: str, name: str, one_thread: bool = False) -> None:
        # Idle threads of other libraries spin after a call; outside of their slices they must sleep.
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
        """Return the end of the text that a failed process printed."""
        self.process.wait()
        self.messages.seek(0)
        return self.messages.read()[-400:] or f"exit status {self.process.returncode}"

    def seconds(self) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(SLICE_SECONDS, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate()


def wait_until_idle(contestants: Iterable[Contestant]) -> None:
    """Wait until no thread of the contestants and of their processes runs. OpenBLAS ignores OMP_WAIT_POLICY, its
    threads spin for 100 ms; PyTorch's compiler starts processes, which import it for seconds."""
    before, until = None, time.monotonic() + MOST_IDLE_SECONDS
    while time.monotonic() < until:
        ticks = [ticks_of(contestant.process.pid) for contestant in contestants]
        if ticks == before:
            return
        before = ticks
        time.sleep(IDLE_SECONDS)


def ticks_of(pid: int) -> int:
    """Return the ticks of processor time that a process and its descendants have used; 0 where the system has no
    /proc."""
    try:
        user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        tasks = Path(f"/proc/{pid}/task")
        children = [child for file in tasks.glob("*/children") for child in file.read_text().split()]
    except OSError:                     # the process has ended
        return 0
    return int(user) + int(system) + sum(ticks_of(int(child)) for child in children)


def race(case: str, names: Sequence[str], rounds: int = ROUNDS, one_thread: bool = False) -> dict[str, Any]:
    """Measure contestants of a case, and the machine's limits, in interleaved rounds; record first calls and missing
    contestants."""
    from limits import measured
    contestants = {name: Contestant(case, name, one_thread) for name in names}
    running = {name: c for name, c in contestants.items() if "first_call_s" in c.ready}
    times: dict[str, list[float]] = {name: [] for name in running}
    limits = []                         # in each round: other users of the machine change its memory bandwidth
    for _ in range(rounds):
        fastest = min((first for first, *_ in filter(None, times.values())), default=0.0)
        for name, contestant in running.items():
            if not times[name] or times[name][0] <= SLOW * fastest:
                wait_until_idle(running.values())
                times[name].append(contestant.seconds())
        limits.append(measured())
    for contestant in running.values():
        contestant.close()
    return {"ready": {name: c.ready for name, c in contestants.items()},
            "seconds": {name: statistics.median(t) for name, t in times.items()}, "rounds": times,
            "limits": limits}


def races(case: str, names: Sequence[str], contended: bool, rounds: int) -> dict[str, Any]:
    """Run a case's race, and if ``contended`` those of the fastest contestants beside a process that streams memory and
    on one processor."""
    from limits import streaming
    record = race(case, names, rounds)
    if contended:
        peers = sorted({*record["seconds"]} - {"nki_mlir"}, key=record["seconds"].__getitem__)
        fastest = ["nki_mlir", *peers[:PEERS]]
        with streaming():
            record["contended"] = race(case, fastest, rounds)
        record["one_thread"] = race(case, fastest, rounds, one_thread=True)
    return record


def times_of_best(record: dict[str, Any]) -> float | None:
    """Return our time divided by the time of the best peer; None without a peer."""
    peers = [t for name, t in record["seconds"].items() if name != "nki_mlir"]
    return record["seconds"]["nki_mlir"] / min(peers) if peers and "nki_mlir" in record["seconds"] else None


def machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def measured_case(name: str, contended: bool, rounds: int) -> dict[str, Any]:
    """Measure a case beside its peers, or a cost of the toolchain, in separate processes."""
    from case import CASES
    from contestants import CONTESTANTS
    if name not in CASES:
        process = subprocess.run([sys.executable, __file__, "--cases", name, "--one", name], capture_output=True,
                                 text=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})
        record: dict[str, Any] = json.loads(process.stdout.splitlines()[-1]) if process.returncode == 0 else {
            "failed": process.stderr[-400:]}
        return record
    case = CASES[name]()
    limit = {"limit": case.limit, "amount": case.amount}
    contestants = [*CONTESTANTS, *case.more]
    del case                                                # its arrays would take memory from the contestants
    return races(name, contestants, contended, rounds) | limit


def share_of_limit(record: dict[str, Any]) -> float | None:
    """Return the fraction of the machine's limit that a case reaches; None if the limit is not measured."""
    from limits import medians
    limit = medians(record["limits"]).get(record["limit"])
    ours = record["seconds"].get("nki_mlir")
    return record["amount"] / ours / limit if limit and ours else None


def kinds_of(record: dict[str, Any]) -> list[str]:
    """List the races of a case besides the usual one, each the key of its record."""
    return [kind for kind in ("contended", "one_thread") if kind in record]


def columns_of(name: str, record: dict[str, Any]) -> list[str]:
    """Return the row of a case in the table."""
    seconds, share, times = record["seconds"], share_of_limit(record), times_of_best(record)
    readiness = record["ready"]["nki_mlir"]
    return [name, f"{readiness['first_call_s'] * 1e3:.0f} ms", f"{seconds['nki_mlir'] * 1e6:.0f} us",
            f"{share:.0%} of {record['limit']}" if share else "-",
            ", ".join(f"{n} {t * 1e6:.0f}" for n, t in seconds.items() if n != "nki_mlir"),
            f"{times:.2f}x the time" if times else "-",
            *[f"{ratio:.2f}x" if (ratio := times_of_best(record[kind])) else "-" for kind in kinds_of(record)],
            f"{readiness['error']:.0e}"]


def lines_of(name: str, record: dict[str, Any]) -> list[str]:
    """Return the lines that appear as soon as a case has been measured: failures, then its figures on one line."""
    if "seconds" not in record:
        return [f"{name}: {line}" for line in record.get("lines", [record.get("failed", "")])]
    lines = [f"{name}, {contestant}: failed: {state['failed'].strip().splitlines()[-1]}"
             for contestant, state in record["ready"].items() if "failed" in state]
    if "nki_mlir" in record["seconds"]:
        _, _, time, share, peers, best, *more, error = columns_of(name, record)
        kinds = [f"{kind.replace('_', ' ')} {ratio}" for kind, ratio in zip(kinds_of(record), more)]
        lines.append("; ".join([f"{name}: {time}", share, f"best peer {best}", *kinds, f"peers {peers}",
                                f"error {error}"]))
    return lines


def has_failed(record: dict[str, Any]) -> bool:
    """Return whether a cost, or our contestant in a case, ended with an error."""
    return "failed" in record or "failed" in record.get("ready", {}).get("nki_mlir", {})


def summary(results: dict[str, Any]) -> list[Any]:
    """Return the table of all cases, the goals that are missed, and the machine's limits."""
    from case import GOALS
    from limits import medians
    from rich.table import Table
    compared = {name: r for name, r in results.items() if "nki_mlir" in r.get("seconds", {})}
    parts: list[Any] = []
    if compared:
        kinds = kinds_of(next(iter(compared.values())))
        table = Table("case", "first call", "nki_mlir", "of the limit", "peers, us", "of the best peer",
                      *[kind.replace("_", " ") for kind in kinds], "error")
        for name, record in compared.items():
            table.add_row(*columns_of(name, record))
        parts.append(table)
    parts += [f"missed: {name}: {shortfall}. {GOALS[name].note}" for name, record in compared.items()
              for shortfall in GOALS[name].missed(times_of_best(record), share_of_limit(record))]
    limits = medians([measured_limits for record in results.values() for measured_limits in record.get("limits", ())])
    if limits:
        parts.append(f"limits: copy {limits['copy'] / 1e9:.1f} GB/s, read {limits['read'] / 1e9:.1f} GB/s, "
                     f"{limits['fma'] / 1e9:.0f} GF/s with {limits['threads']:.0f} threads; {machine()}")
    return parts


def save(path: str, results: dict[str, Any]) -> None:
    """Write all figures so far, so that an interrupted run leaves the figures of the cases that it has measured."""
    from limits import medians
    limits = medians([measured_limits for record in results.values() for measured_limits in record.get("limits", ())])
    Path(path).write_text(json.dumps({"machine": machine(), "python": platform.python_version(), "limits": limits,
                                      "cases": results}, indent=1))


def main() -> int:
    import cases  # noqa: F401
    from case import CASES
    from rich.console import Console
    costs = sorted(p.stem for p in (ROOT / "bench/costs").glob("*.py"))
    every = [*CASES, *costs]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default=",".join(every), help="names, separated by commas (default: all)")
    parser.add_argument("--output", default=str(ROOT / "bench/results.json"), help="the JSON file with all figures")
    parser.add_argument("--contended", action="store_true",
                        help="also run each case beside a process that streams memory, and on one processor")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each race (default: {ROUNDS})")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.cases.split(",")
    if unknown := {*names} - {*every}:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    if options.one:
        print(json.dumps(importlib.import_module(f"costs.{options.one}").measure()))
        return 0
    results: dict[str, Any] = {}
    for number, name in enumerate(names, 1):
        results[name] = measured_case(name, options.contended, options.rounds)
        save(options.output, results)
        for line in lines_of(name, results[name]):
            print(f"[{number}/{len(names)}] {line}", flush=True)
    console = Console(width=170)
    for part in summary(results):
        console.print(part)
    console.print(f"all figures: {options.output}")
    return 1 if any(map(has_failed, results.values())) else 0


if __name__ == "__main__":
    sys.exit(main())
