# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A run of tests with limited time ends in it, finds what fails, and counts what it has left out."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFTEST = """
import os
from tests import fuzz_time

def pytest_configure(config):
    fuzz_time.limit(config, float(os.environ["SECONDS_OF_TEST"]), 7)

def pytest_collection_modifyitems(items):
    fuzz_time.order(items)
"""
PROPERTIES = """
import time
from hypothesis import given, settings, strategies as st
from tests.fuzz_time import ending_in_time, in_time

@settings(max_examples=1_000_000, deadline=None, database=None)
@given(st.integers())
def test_property(number):
    time.sleep(0.01)

def test_inner_property():
    @settings(max_examples=1_000_000, deadline=None, database=None)
    @given(st.integers())
    @ending_in_time
    def run(number):
        time.sleep(0.01)
    run()

def test_loop():
    for number in in_time(range(1_000_000)):
        time.sleep(0.01)
    assert number < 999_999

def test_short():
    pass
"""
FAILING = """
import time
from hypothesis import given, settings, strategies as st

@settings(max_examples=1_000_000, deadline=None, database=None)
@given(st.integers())
def test_property(number):
    time.sleep(0.001)
    assert number < 1000
"""


def run(folder: Path, tests: str, seconds: float) -> "subprocess.CompletedProcess[str]":
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "NKI_MLIR_FUZZ"))}
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)], cwd=folder,
                          env={**environment, "PYTHONPATH": str(ROOT), "SECONDS_OF_TEST": str(seconds)},
                          capture_output=True, text=True, check=False)


def test_tests_end_with_their_shares(tmp_path: Path) -> None:
    done = run(tmp_path, PROPERTIES, 4)
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout
    assert "seed 7: 1 ran to their end, 3 ended with their share of the time, 0 were left out" in done.stdout


def test_no_test_begins_when_the_time_is_over(tmp_path: Path) -> None:
    done = run(tmp_path, PROPERTIES, 0)
    assert "seed 7: 0 ran to their end, 0 ended with their share of the time, 4 were left out" in done.stdout
    assert "4 skipped" in done.stdout


def test_what_fails_is_reduced(tmp_path: Path) -> None:
    done = run(tmp_path, FAILING, 3)
    assert done.returncode == 1
    assert "number=1000," in done.stdout or "number=1_000," in done.stdout, done.stdout
