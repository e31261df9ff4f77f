# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The limits of this machine, measured: bytes a second copied and read, floating-point operations a second.

    python bench/limits.py

A copy counts what it reads and what it writes; its stores go past the cache. A multiply-add counts as two.
"""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parent / "limits.cpp"


def measured() -> dict[str, float]:
    """By the kind of a case's limit: what the machine does of it in a second; empty without a C++ compiler."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "limits"
        subprocess.run([compiler, "-O3", "-march=native", "-std=c++17", "-ffp-contract=fast", "-pthread", str(SOURCE),
                        "-o", str(program)], check=True)
        found: dict[str, float] = json.loads(subprocess.run([program], check=True, capture_output=True).stdout)
        return found


if __name__ == "__main__":
    limits = measured()
    print("{threads:.0f} threads: copies {copy:.1f} GB/s, reads {read:.1f} GB/s, {fma:.0f} GF/s in float32".format(
        **limits | {kind: limits[kind] / 1e9 for kind in ("copy", "read", "fma")}))
