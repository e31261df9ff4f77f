# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The limits of this machine, measured: bytes a second copied and read, floating-point operations a second.

    python bench/limits.py

A copy counts what it reads and what it writes; its stores go past the cache. A multiply-add counts as two.
"""

import atexit
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent / "limits.cpp"


@cache
def program() -> Path | None:
    """What measures, compiled; None without a C++ compiler."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    made = Path(folder) / "limits"
    subprocess.run([compiler, "-O3", "-march=native", "-std=c++17", "-ffp-contract=fast", "-pthread", str(SOURCE),
                    "-o", str(made)], check=True)
    return made


def measured() -> dict[str, float]:
    """By the kind of a case's limit: what the machine does of it in a second; empty without a C++ compiler."""
    if program() is None:
        return {}
    found: dict[str, float] = json.loads(subprocess.run([str(program())], check=True, capture_output=True).stdout)
    return found


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {kind: statistics.median(found[kind] for found in rounds) for kind in (rounds[0] if rounds else ())}


if __name__ == "__main__":
    limits = measured()
    print("{threads:.0f} threads: copies {copy:.1f} GB/s, reads {read:.1f} GB/s, {fma:.0f} GF/s in float32".format(
        **limits | {kind: limits[kind] / 1e9 for kind in ("copy", "read", "fma")}))
