# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hostile inputs through each entry: none ends in a traceback, takes long or 500 MB."""

import subprocess
import sys
from pathlib import Path

import pytest

from ..property_counts import FUZZ

ROOT = Path(__file__).resolve().parent.parent.parent
EVERY = 1 if FUZZ else 151
SECONDS = 20                    # of CPU time: an input that takes 1 s took 2 on a busy machine


@pytest.mark.fuzz
def test_no_input_takes_long_or_much_memory():
    """The tool of the table measures in a process that is smaller than those that it measures."""
    ended = subprocess.run([sys.executable, "-m", "tests.hostile_inputs.entries", f"--seconds={SECONDS}",
                            f"--every={EVERY}"], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("\n") >= 5
