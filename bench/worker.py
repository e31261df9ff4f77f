# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run a contestant on a case in a separate process, which answers a number of seconds with the best time in them.

    python bench/worker.py CASE CONTESTANT [one-thread]

It writes lines of JSON to standard output: first the time of the first call, then an answer for each line of standard
input.
"""

import json
import os
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
        ended = time.perf_counter()
        best = min(best, ended - started)
        if ended > until:
            return best


def main() -> int:
    name, contestant, *options = sys.argv[1:]
    if "one-thread" in options and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})         # before libraries count the processors
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)                                       # libraries may print
    import cases  # noqa: F401
    from case import CASES, largest_error
    from contestants import CONTESTANTS
    case = CASES[name]()
    try:
        started = time.perf_counter()
        call = case.more[contestant]() if contestant in case.more else CONTESTANTS[contestant](case)
        result = call()
    except ImportError as missing:
        print(json.dumps({"missing": str(missing)}), file=answers)
        return 0
    record = {"first_call_s": time.perf_counter() - started}
    if contestant == "nki_mlir":
        record["error"] = largest_error(result, case.answer())
    del result
    print(json.dumps(record), file=answers)
    for line in sys.stdin:
        print(json.dumps(best_seconds(call, float(line))), file=answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
