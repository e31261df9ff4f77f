# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tune a kernel's file with the workers that judge candidates: only correct choices count."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from nki_mlir.scoring.engine import Cluster, WorkerPool, score_all
from nki_mlir.scoring.live_table import LiveTable
from nki_mlir.scoring.store import Store
from nki_mlir.scoring.verdict import CandidateVerdict
from nki_mlir.tuning.search import Attempt, TuningResult, search
from nki_mlir.tuning.source import read_kernel, with_parameters
from nki_mlir.tuning.space import GRID, LEVEL, Choice, Space


def tune_file(file: str, space: Space, settings: dict[str, Any], workers: "WorkerPool | Cluster", trials: int,
              seed: int, store: Store | None, table: LiveTable | None) -> TuningResult:
    """Search the space of a file. ``settings`` are those of a request. Raise the errors of the file and the reference.
    """
    text = read_kernel(file)

    def judge(choices: Sequence[Choice]) -> Iterator[Attempt]:
        requests = [{**settings, "source": with_parameters(text, choice, file), "name": name_of(file, choice),
                     "parameters": choice, **options_of(choice)} for choice in choices]
        verdicts = {}
        for request, verdict in score_all(requests, workers, store):
            verdicts[str(request["name"])] = verdict
            if table is not None:
                table.add(verdict)
        for choice, request in zip(choices, requests):
            yield attempt_of(choice, verdicts[str(request["name"])])
    return search(space, judge, trials, seed, workers.jobs)


def name_of(file: str, choice: Choice) -> str:
    """Return the name of a choice in verdicts: the file with its parameters."""
    return f"{file}[{', '.join(f'{name}={value}' for name, value in choice.items())}]"


def options_of(choice: Choice) -> dict[str, object]:
    """Return the fields of a request for the choice's grid and level, which are not in the text."""
    options: dict[str, object] = {}
    if GRID in choice:
        grid = choice[GRID]
        options["grid"] = list(grid) if isinstance(grid, tuple) else [grid]
    if LEVEL in choice:
        options["level"] = choice[LEVEL]
    return options


def attempt_of(choice: Choice, verdict: CandidateVerdict) -> Attempt:
    """Convert a verdict to an attempt."""
    if not verdict.right:
        return Attempt(choice, math.inf, reason=f"{verdict['reason']['message']} [{verdict['reason']['code']}]")
    low, high = verdict["interval"]
    return Attempt(choice, float(verdict["total_time"]), (low, high), "", int(verdict["sbuf_peak_bytes"]))
