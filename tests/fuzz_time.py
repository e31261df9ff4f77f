# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The time of ``make fuzz``: each test gets a share of what is left, and a test that would take longer ends early.

``NKI_MLIR_FUZZ_SECONDS`` is the wall time of the run; without it, and outside of ``make fuzz``, tests have no limit.
A share depends on the number of tests that are left, so what short tests leave goes to the later ones. Tests run in an
order that depends on the seed: where the time ends before the tests do, other ones are left out in the next run.
"""

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis.errors import UnsatisfiedAssumption

Item = TypeVar("Item")

FULL_TIME, EARLY, LEFT_OUT = "ran to their end", "ended with their share of the time", "were left out"
GENEROUS = 3            # shares of the average: many tests take much less than theirs
LARGEST = 1 / 2         # of the time that is left: the share of a test that is not the last
END = "NKI_MLIR_FUZZ_END"       # the time at which the run ends, which a worker has from its parent


class TimeOver(pytest.skip.Exception):
    """The share of a test is over. Hypothesis ends a test with such an exception at once."""


class FuzzTime:
    """A plugin of pytest that limits the time of tests."""

    def __init__(self, seconds: float, workers: int, seed: int) -> None:
        self.end = float(os.environ.setdefault(END, str(time.time() + seconds)))
        self.workers = workers
        self.seed = seed
        self.numbers: dict[str, int] = {}       # of the tests in the order of the run
        self.share_ends = self.end
        self.cut = False                        # whether the test that runs ended early
        self.outcomes: dict[str, int] = dict.fromkeys((FULL_TIME, EARLY, LEFT_OUT), 0)

    def order(self, items: list[pytest.Item]) -> None:
        """Order the modules by the seed. Cases of one module stay neighbors."""
        modules = sorted({item.nodeid.partition("::")[0] for item in items})
        Random(self.seed).shuffle(modules)
        numbers = {module: number for number, module in enumerate(modules)}
        items.sort(key=lambda item: numbers[item.nodeid.partition("::")[0]])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.numbers = {item.nodeid: number for number, item in enumerate(session.items)}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        now, left = time.time(), len(self.numbers) - self.numbers[item.nodeid]
        self.cut = False
        if now > self.end:
            item.user_properties.append(("fuzz", LEFT_OUT))
            pytest.skip("the time of make fuzz is over")
        self.share_ends = now + (self.end - now) * (1.0 if left == 1 else min(LARGEST, GENEROUS * self.workers / left))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if call.when == "call":
            if call.excinfo is not None and isinstance(call.excinfo.value, TimeOver):
                report.outcome, report.longrepr = "passed", None
            report.user_properties.append(("fuzz", EARLY if self.cut else FULL_TIME))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        if report.when == "call" or (report.when == "setup" and properties.get("fuzz") == LEFT_OUT):
            self.outcomes[properties["fuzz"]] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.items())
        terminalreporter.write_line(f"make fuzz with seed {self.seed}: {counts}")


_limited: FuzzTime | None = None         # the plugin of this process, if its time is limited


def limit(config: pytest.Config, seconds: float, seed: int) -> None:
    """Let the tests of a run end after some seconds of wall time."""
    global _limited
    _limited = FuzzTime(seconds, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), seed)
    config.pluginmanager.register(_limited, "fuzz-time")


def order(items: list[pytest.Item]) -> None:
    """Order the tests of a run with limited time, and let its property tests end with their shares."""
    if _limited is not None:
        _limited.order(items)
        for item in items:
            property_test = getattr(getattr(item, "obj", None), "hypothesis", None)
            if property_test is not None and not hasattr(property_test.inner_test, "ends_in_time"):
                property_test.inner_test = ending_in_time(property_test.inner_test)


def is_over() -> bool:
    """Whether the running test has used its share; it is then reported as one that ended early."""
    if _limited is None or time.time() < _limited.share_ends:
        return False
    _limited.cut = True
    return True


def ending_in_time(test: Callable[..., None]) -> Callable[..., None]:
    """The decorator of a property, below ``given``: no example begins after the share of the test. One that failed is
    run again as often as Hypothesis needs to reduce it."""
    failed = False

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        nonlocal failed
        if not failed and is_over():
            raise TimeOver("the share of this test is over")
        try:
            test(*arguments, **named)
        except UnsatisfiedAssumption:
            raise
        except Exception:
            failed = True
            raise
    run.ends_in_time = True             # type: ignore[attr-defined]
    return run


def in_time(values: Iterable[Item]) -> Iterator[Item]:
    """Yield the values until the share of the test is over."""
    for value in values:
        if is_over():
            return
        yield value
