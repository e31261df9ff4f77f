# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A pytest plugin for `tools/mutation.py`: stores which lines ran during each test, and writes how long each test took,
or null if it did not pass, to the file that ``NKI_MLIR_SECONDS`` names.

Processes that a test starts take its name from pytest's variable ``PYTEST_CURRENT_TEST``.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.line_probes import take

seconds: dict[str, float | None] = {}


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    take("")                                                # lines that ran before the test, such as imports
    yield
    take(item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    before = seconds.get(report.nodeid, 0.0)
    seconds[report.nodeid] = before + report.duration if report.passed and before is not None else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):          # the process that all workers report to
        Path(os.environ["NKI_MLIR_SECONDS"]).write_text(json.dumps(seconds))
