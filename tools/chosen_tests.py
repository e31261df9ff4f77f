# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A pytest plugin for `tools/mutation.py`: runs the tests of a list, short ones first. A test that takes far longer
than recorded fails.

The file that ``NKI_MLIR_TESTS`` names gives the seconds of each test, or null to leave it out. Tests that the file does
not name run, too: they are newer than the recording. The name of a test that fails goes to ``NKI_MLIR_FAILED``.
"""

import json
import os
import signal
from collections.abc import Iterator
from math import ceil, log10
from pathlib import Path
from types import FrameType

import pytest

FACTOR, LEAST = 10, 60              # a test may take FACTOR times its last time, and LEAST seconds
NEW = 1.0                           # seconds of a test without a record

seconds: dict[str, float | None] = json.loads(Path(os.environ["NKI_MLIR_TESTS"]).read_text())


def _rank(item: pytest.Item) -> int:
    """Return the class of a test's duration. Tests of one class keep their order, so that fixtures are shared."""
    return ceil(log10(max(seconds.get(item.nodeid, NEW) or 0, 0.1)) * 2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = sorted((i for i in items if seconds.get(i.nodeid, NEW) is not None), key=_rank)


def _fail(number: int, frame: FrameType | None) -> None:
    pytest.fail("the test does not end")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    signal.signal(signal.SIGPROF, _fail)
    signal.setitimer(signal.ITIMER_PROF, max(LEAST, FACTOR * (seconds.get(item.nodeid) or 0)))
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        Path(os.environ["NKI_MLIR_FAILED"]).write_text(report.nodeid)
