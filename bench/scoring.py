# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measure how many candidates of 500 and of 5,000 instructions a worker judges in a minute, and whether killed workers
lose verdicts.

    python bench/scoring.py [--seconds 30] [--kills 20] [--cpu] [--json FILE]

Candidates differ in a comment, so that no verdict is stored. With ``--cpu`` minutes are CPU time of the worker and its
processes, which other users of the machine do not change.
"""

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from nki_mlir.scoring.client import Scorer  # noqa: E402
from nki_mlir.scoring.engine import WorkerPool, score_all  # noqa: E402

GOALS = {500: 40, 5_000: 10}            # candidates a minute, by instructions
KERNEL = '''
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for c in range(0, x.shape[1], 64):
        tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, c:c + 64])
        for _ in range(6):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=1.0)
        nisa.dma_copy(dst=out[:, c:c + 64], src=tile)
    return out
'''
REFERENCE = '''
import numpy as np
def inputs(rng, columns): return [rng.standard_normal((128, columns)).astype(np.float32)]
def reference(x):
    for _ in range(6):
        x = x * np.float32(0.5) + 1
    return x
CASES = [{{"columns": {columns}}}]
'''


def references(folder: Path) -> dict[int, Path]:
    """Write a file for each number of instructions: eight for each piece of 64 columns."""
    files = {}
    for instructions in GOALS:
        files[instructions] = folder / f"reference_{instructions}.py"
        files[instructions].write_text(REFERENCE.format(columns=64 * -(-instructions // 8)))
    return files


def rate(scorer: Scorer, reference: Path, seconds: float, clock: Callable[[], float]) -> tuple[float, int]:
    """Return candidates a minute, and the instructions of a candidate."""
    count, verdict = 0, scorer.score({"source": KERNEL, "reference": str(reference)})
    assert verdict.right, verdict
    began, until = clock(), time.monotonic() + seconds
    while time.monotonic() < until:
        count += 1
        assert scorer.score({"source": f"{KERNEL}# {count}\n", "reference": str(reference)}).right
    return 60 * count / (clock() - began), int(verdict["instructions"])


def cpu_seconds(scorer: Scorer) -> float:
    """Return the CPU time of a worker and of all its processes, also of those that have ended."""
    import psutil  # start-up: comes with the extra for search
    assert scorer.process is not None
    worker = psutil.Process(scorer.process.pid)
    family = [worker, *worker.children(recursive=True)]
    return sum(sum(p.cpu_times()[:4]) for p in family if p.is_running())


def survived(reference: Path, kills: int) -> tuple[int, int]:
    """Kill the only worker several times while it judges; return the number of verdicts and of candidates."""
    requests = [{"source": f"{KERNEL}# {n}\n", "name": str(n), "reference": str(reference)} for n in range(2 * kills)]
    names = []
    with WorkerPool(1) as pool:
        for n, (_, verdict) in enumerate(score_all(iter(requests), pool)):
            names.append(verdict["candidate"])
            if n % 2 == 0 and pool.scorers[0].process is not None:
                os.kill(pool.scorers[0].process.pid, signal.SIGKILL)
    return len(set(names)) if len(names) == len(set(names)) else -1, len(requests)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="the time for each number of instructions (30)")
    parser.add_argument("--kills", type=int, default=20, help="how many workers are killed (20)")
    parser.add_argument("--cpu", action="store_true", help="count CPU time")
    parser.add_argument("--json", metavar="FILE", help="a file for all figures")
    options = parser.parse_args()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        files = references(Path(name))
        with Scorer() as scorer:
            scorer.start()
            clock = (lambda: cpu_seconds(scorer)) if options.cpu else time.monotonic
            for instructions, goal in GOALS.items():
                a_minute, counted = rate(scorer, files[instructions], options.seconds, clock)
                figures[str(instructions)] = {"a_minute": a_minute, "instructions": counted, "goal": goal}
                print(f"{counted} instructions: {a_minute:.0f} candidates a minute (goal {goal})", flush=True)
        verdicts, of = survived(files[500], options.kills)
        figures["killed"] = {"kills": options.kills, "verdicts": verdicts, "candidates": of}
        print(f"{options.kills} workers killed: {verdicts} verdicts of {of} candidates, each once")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"largest process {peak // 1024} MB")
    return int(verdicts != of)


if __name__ == "__main__":
    sys.exit(main())
