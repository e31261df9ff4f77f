# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Benchmarks: every case of ``bench/cases`` on the JIT, beside NumPy, JAX and PyTorch in the same run.

    python bench/run.py [--cases softmax,giou] [--output results.json]

Each case runs in a fresh process, where rounds of all contestants are interleaved; a figure is the median over the
rounds of the best call in a slice of time, because machines are noisy. The table has ratios to the best peer; the JSON
has all.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples"), str(ROOT / "bench")]


def best_seconds(call: Any, slice_seconds: float) -> float:
    best, until = float("inf"), time.perf_counter() + slice_seconds
    while True:
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
        if time.perf_counter() > until:
            return best


def measure(name: str, rounds: int = 5, slice_seconds: float = 0.1) -> dict[str, Any]:
    """Run one case here: first-result time, then interleaved rounds of all contestants."""
    import importlib
    started = time.perf_counter()
    case = importlib.import_module(f"cases.{name}")
    if hasattr(case, "measure"):
        return case.measure()
    contestants = {"nki_mlir": case.kernel, **{n: f for n, f in case.peers().items() if f is not None}}
    first = time.perf_counter()
    contestants["nki_mlir"]()
    record: dict[str, Any] = {"import_s": first - started, "first_call_s": time.perf_counter() - first,
                              "error": case.error()}
    for call in contestants.values():
        call()
    times: dict[str, list[float]] = {n: [] for n in contestants}
    for _ in range(rounds):
        for n, call in contestants.items():
            times[n].append(best_seconds(call, slice_seconds))
    record["seconds"] = {n: statistics.median(t) for n, t in times.items()}
    return record


def all_cases() -> list[str]:
    return sorted(p.stem for p in (ROOT / "bench/cases").glob("*.py") if p.stem != "contestants")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default=",".join(all_cases()), help="names, separated by commas (default: all)")
    parser.add_argument("--output", default=str(ROOT / "bench/results.json"), help="the JSON file with all figures")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = {*options.cases.split(",")} - {*all_cases()}
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(all_cases())}")
    if options.one:
        print(json.dumps(measure(options.one)))
        return 0
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table
    results: dict[str, Any] = {}
    for name in track(options.cases.split(","), description="measuring"):
        done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True,
                              env=os.environ | {"JAX_PLATFORMS": "cpu"})
        results[name] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"failed": done.stderr}
    Path(options.output).write_text(json.dumps({"machine": platform.processor() or platform.machine(),
                                                "python": platform.python_version(), "cases": results}, indent=1))
    console = Console(width=140)
    table = Table("case", "first call", "nki_mlir", "peers", "of the best peer", "error")
    for name, record in results.items():
        if "seconds" not in record:
            for line in record.get("lines", [record.get("failed", "")[-300:]]):
                console.print(f"{name}: {line}")
            continue
        ours = record["seconds"].pop("nki_mlir")
        peers = record["seconds"]
        ratio = f"{ours / min(peers.values()):.2f}x the time" if peers else "-"
        table.add_row(name, f"{record['first_call_s'] * 1e3:.0f} ms", f"{ours * 1e6:.0f} us",
                      ", ".join(f"{n} {t * 1e6:.0f}" for n, t in peers.items()), ratio, f"{record['error']:.0e}")
    console.print(table)
    console.print(f"all figures: {options.output}")
    return 1 if any("failed" in r for r in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
