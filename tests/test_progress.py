# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The line about long work: what it says and when, with a clock of the test."""

import io

import numpy as np
import pytest
from rich.console import Console

from nki_mlir import progress
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.progress import ProgressLine, described, phase


class Recorded(ProgressLine):
    """Keeps what it would show; the clock goes on by a quarter of a second a look."""

    def __init__(self, step: float = 0.25, **options) -> None:
        self.now, self.texts = 0.0, []

        def clock() -> float:
            self.now += step
            return self.now
        super().__init__(clock, **options)

    def show(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def line(monkeypatch):
    shown = Recorded()
    monkeypatch.setattr(progress, "_line", shown)
    return shown


def test_a_line_has_phase_share_count_rate_and_time():
    assert described("scheduling", 500, 2000, "instructions", 2.0) == (
        "scheduling, 25 %, 500 of 2,000 instructions, 250/s, 2 s")
    assert described("simulation", 1500, 0, "instructions", 3.0) == "simulation, 1,500 instructions, 500/s, 3 s"
    assert described("streams", 0, 0, "", 1.2) == "streams, 1 s"


def test_nothing_is_shown_before_a_second_of_work(line):
    with phase("capture", 8, "operations") as advance:
        advance()
        assert line.texts == []
        for _ in range(7):
            advance()
    assert line.texts[0].startswith("capture, 2") and line.texts[-1].startswith("capture, 100 %, 8 of 8 operations")


def test_it_changes_five_times_a_second_at_most(monkeypatch):
    line = Recorded(step=0.01)
    monkeypatch.setattr(progress, "_line", line)
    with phase("simulation", unit="instructions") as advance:
        for _ in range(300):
            advance()
    assert len(line.texts) == 10                # of three seconds the last two


def test_without_somebody_who_reads_it__nothing_is_counted(monkeypatch):
    monkeypatch.setattr(progress, "_line", None)
    monkeypatch.setenv("NKI_MLIR_PROGRESS", "on")       # standard error is not a terminal
    with phase("capture", 8, "operations") as advance:
        assert advance is progress.ignore


def test_on_a_terminal__the_line_is_gone_at_the_end():
    written = io.StringIO()
    line = ProgressLine(lambda: 5.0, Console(file=written, force_terminal=True, width=80))
    line.began = 0.0
    line.restarts = False
    with line.phase("streams", 4, "instructions") as advance:
        advance()
        assert line.live is not None
    assert line.live is None and "streams, 0 %" in written.getvalue() and written.getvalue().endswith("\x1b[2K")


def test_a_kernel_reports_its_phases(monkeypatch):
    phases = []

    class Named(Recorded):
        def phase(self, name, total, unit):
            phases.append(name.partition(",")[0])
            return super().phase(name, total, unit)
    monkeypatch.setattr(progress, "_line", Named(step=1e-6))

    def double(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.multiply(nl.load(x), 2.0))
        return out
    kernel, x = nki.jit(double), np.ones((4, 8), np.float32)
    assert np.array_equal(kernel.on("isa")(x), x * 2)
    kernel.lower(x).profile()
    assert {"capture", "pass nki-to-linalg", "pass linalg-to-nisa", "scheduling", "streams", "simulation", "timing",
            "profile", "advice"} <= {*phases}
