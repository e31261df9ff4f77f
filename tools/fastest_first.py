# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A pytest plugin for `tools/mutation.py`: short tests run first, and a test that takes far longer than before fails.

The file that ``NKI_MLIR_DURATIONS`` names stores the duration of each test's last success. Tests of equal duration
keep their order, so that shared fixtures of a module are seldom created twice.
"""

import json
import os
import signal
from collections.abc import Iterator
from math import ceil, log10
from pathlib import Path
from types import FrameType

import pytest

FILE = Path(os.environ["NKI_MLIR_DURATIONS"])
# A test fails after FACTOR times its earlier time, but not before LEAST seconds of processor time.
FACTOR, LEAST = 10, 60
UNKNOWN = 1.0                       # seconds of a test that has not passed yet

known: dict[str, float] = json.loads(FILE.read_text()) if FILE.is_file() else {}
passed: dict[str, float] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ceil(log10(max(known.get(item.nodeid, UNKNOWN), 0.1)) * 2))


def _fail(number: int, frame: FrameType | None) -> None:
    pytest.fail("the test does not end")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    signal.signal(signal.SIGPROF, _fail)
    signal.setitimer(signal.ITIMER_PROF, max(LEAST, FACTOR * known.get(item.nodeid, 0)))
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.passed and report.when != "teardown":
        passed[report.nodeid] = passed.get(report.nodeid, 0) + report.duration


def pytest_sessionfinish() -> None:
    times: dict[str, float] = json.loads(FILE.read_text()) if FILE.is_file() else {}
    beside = FILE.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps({**times, **passed}))
    beside.replace(FILE)                                    # other jobs read it
