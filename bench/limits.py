# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measure the limits of this machine: bytes copied and read, and floating-point operations, in a second.

    python bench/limits.py

It prints the rates of all threads and of one, how fast one thread reads each cache and pages of two sizes, and in which
time a cache line goes to another thread and back: longer where the two have no common cache. A copy counts the bytes
that it reads and writes; its stores bypass the cache. A multiply-add counts as two operations.
"""

import atexit
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent / "limits.cpp"


@cache
def program() -> Path | None:
    """Compile the measuring program, and return its path; None without a C++ compiler."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    executable = Path(folder) / "limits"
    subprocess.run([compiler, "-O3", "-march=native", "-std=c++17", "-ffp-contract=fast", "-pthread", str(SOURCE),
                    "-o", str(executable)], check=True)
    return executable


def measured(kind: str = "machine") -> dict[str, float]:
    """Return the machine's rate in a second for each kind of limit; empty without a C++ compiler.

    With ``thread``, return the same for one thread, the bytes a second that it reads from each cache, the sizes of
    caches in bytes, and the nanoseconds to read a cache line of a new page.
    """
    if program() is None:
        return {}
    process = subprocess.run([str(program()), kind], check=True, capture_output=True)
    limits: dict[str, float] = json.loads(process.stdout)
    return limits


@contextmanager
def streaming() -> Iterator[None]:
    """Run a process that copies memory during the body; run none without a C++ compiler."""
    process = subprocess.Popen([str(program()), "stream"]) if program() is not None else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {kind: statistics.median(measured_limits[kind] for measured_limits in rounds)
            for kind in (rounds[0] if rounds else ())}


if __name__ == "__main__":
    for what in ("machine", "thread"):
        limits = measured(what)
        rates = {kind: limits[kind] / 1e9 for kind in ("copy", "read", "fma")}
        print("threads: {threads:.0f}, copies {copy:.1f} GB/s, reads {read:.1f} GB/s, {fma:.0f} GF/s in float32".format(
            **limits | rates))
        if limits.get("line_ns"):
            print(f"a cache line goes to another thread and back in {limits['line_ns']:.0f} ns")
    for level in (1, 2, 3):
        print(f"L{level}: {limits[f'l{level}_bytes'] / 1024:.0f} KiB as the system reports, one thread reads "
              f"{limits[f'l{level}'] / 1e9:.0f} GB/s of half of it")
    print("a line of each page of 64 MiB: {page_ns:.1f} ns on pages of 4 KiB, {huge_ns:.1f} ns on huge ones".format(
        **limits))
