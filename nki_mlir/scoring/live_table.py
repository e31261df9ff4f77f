# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A table on the terminal that follows a search: the number of verdicts, and the fastest correct candidates."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from nki_mlir.scoring.verdict import CandidateVerdict

if TYPE_CHECKING:
    from rich.table import Table

BEST = 8


class LiveTable:
    """A table of the verdicts, on standard error if that is a terminal; otherwise it only counts."""

    def __init__(self, shown: bool | None = None) -> None:
        self.counts: dict[str, int] = {}
        self.best: list[CandidateVerdict] = []
        self.began = time.monotonic()
        self.live = None
        if sys.stderr.isatty() if shown is None else shown:
            from rich.console import Console  # start-up: imported on first use
            from rich.live import Live
            self.live = Live(console=Console(stderr=True), refresh_per_second=4)

    def add(self, verdict: CandidateVerdict) -> None:
        """Count a verdict and update the table."""
        self.counts[verdict["verdict"]] = self.counts.get(verdict["verdict"], 0) + 1
        if verdict.right:
            self.best = sorted([*self.best, verdict], key=lambda v: float(v["total_time"]))[:BEST]
        if self.live is not None:
            self.live.update(self.table())

    def summary(self) -> str:
        """Return the counts as a line."""
        judged = sum(self.counts.values())
        rate = 60 * judged / max(1e-9, time.monotonic() - self.began)
        return f"{judged} judged ({', '.join(f'{n} {word}' for word, n in self.counts.items())}), {rate:.0f} a minute"

    def table(self) -> "Table":
        from rich.table import Table  # start-up: imported on first use
        table = Table(title=self.summary())
        for name in ("candidate", "us", "interval", "SBUF KiB", "HBM / least", "advice"):
            table.add_column(name, overflow="fold")
        for verdict in self.best:
            low, high = (1e6 * t for t in verdict["interval"])
            table.add_row(verdict["candidate"], f"{1e6 * verdict['total_time']:.1f}", f"{low:.1f}-{high:.1f}",
                         f"{verdict['sbuf_peak_bytes'] / 1024:.0f}", f"{verdict['hbm_bytes_ratio'] or 0:.2f}",
                         verdict["advice"])
        return table

    def __enter__(self) -> "LiveTable":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        if self.live is not None:
            self.live.stop()
