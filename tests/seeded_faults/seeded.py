# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seed each fault of ``faults.py`` in a copy of the package, and run random programs on the oracle to find it.

``python -m tests.seeded_faults.seeded [--seconds N] [--only TEXT] [--jobs N]`` prints which program found each fault,
and after how many; the exit status is 1 if more than two are missed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tools.seeding import copy_project, replacing, seed

from .faults import FAULTS, Fault

MISSES = 2


@dataclass(frozen=True)
class Hunt:
    fault: Fault
    difference: str                 # the first difference; empty: none
    programs: int
    seconds: float


NONE = Fault("none, which must not be found", "__init__.py", "", "")


def seeded(fault: Fault, directory: Path) -> None:
    """A copy of the package with the fault, beside the tests."""
    copy_project(directory, ("tests", "examples"))
    if fault is not NONE:
        seed(replacing(fault.file, fault.old, fault.new), directory)


def hunt(fault: Fault, seconds: float) -> Hunt:
    """Random programs of the fault's generation until one shows it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        seeded(fault, Path(name))
        done = subprocess.run([sys.executable, "-B", "-m", "tests.seeded_faults.hunt", fault.generation, str(seconds)], cwd=name,
                              capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""}, check=False)
    if done.returncode and "/tests/oracle/" in done.stderr:
        raise SystemExit(f"the evaluator itself ended with an error, which finds no fault:\n{done.stderr[-2000:]}")
    programs, _, difference = (done.stdout.strip() or f"0 {done.stderr[-400:]}").partition(" ")
    return Hunt(fault, difference.splitlines()[0] if difference else "", int(programs), time.monotonic() - started)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.seeded_faults.seeded", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="for each fault")
    parser.add_argument("--only", default="", help="faults whose title or file has this text")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    chosen = [f for f in FAULTS if options.only in f.title or options.only in f.file]
    if control := hunt(NONE, options.seconds / 4).difference:
        print(f"without a fault the executors and the oracle differ already: {control}")
        return 1
    with ThreadPoolExecutor(options.jobs) as pool:
        hunts = []
        for one in pool.map(lambda f: hunt(f, options.seconds), chosen):
            hunts.append(one)
            print(f"{len(hunts)} of {len(chosen)}: {one.fault.title}: {'found' if one.difference else 'MISSED'} after "
                  f"{one.programs} programs, {one.seconds:.0f} s", flush=True)
    table = Table("fault", "file", "programs", "seconds", "found by", title=f"{len(chosen)} seeded faults")
    for h in hunts:
        table.add_row(h.fault.title, h.fault.file, str(h.programs), f"{h.seconds:.0f}", h.difference[:100] or "missed")
    Console().print(table)
    missed = sum(not h.difference for h in hunts)
    print(f"{len(hunts) - missed} of {len(hunts)} found")
    return int(missed > MISSES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
