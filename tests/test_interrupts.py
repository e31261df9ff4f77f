# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ctrl-C ends work of every kind, and the next call is right; ``interrupted_workload.py`` has the work, of hours."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_ctrl_c__ends_what_runs_wherever_it_is(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", "2")
    ended = subprocess.run([sys.executable, "-m", "tests.interrupted_workload"], cwd=ROOT, capture_output=True, text=True,
                           timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "native loop", "native products on the pool", "native code again",
        "native code on another thread", "native code under another handler", "capture", "compilation", "eager",
        "interpreter", "simulation", "streams", "timing", "profile", "checker of streams"]
