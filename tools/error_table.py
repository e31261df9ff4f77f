# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write the table of errors to ``docs/profile.md``: the timed machine against published latencies.

The figures come from ``bench/calibration/figures.json``, which ``python bench/calibration`` writes. ``--check``
writes nothing and exits with status 1 if the page differs.
"""

import json
import statistics
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "calibration" / "figures.json"
PAGE = ROOT / "docs" / "profile.md"
BEGIN, END = "<!-- errors: tools/error_table.py -->", "<!-- end of errors -->"
APART = 0.10                    # latencies that differ by at least this fraction are compared by their order

Outcome = dict[str, Any]


def error(outcome: Outcome) -> float:
    return abs(outcome["model_ns"] / outcome["published_ns"] - 1)


def eightieth(errors: Sequence[float]) -> float:
    return statistics.quantiles(errors, n=10, method="inclusive")[7] if len(errors) > 1 else errors[0]


def ordered(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """Count the pairs whose published latencies differ by at least 10%, and those that the model orders the same way;
    a tie is wrong."""
    right = total = 0
    for k, outcome in enumerate(outcomes):
        for other in outcomes[:k]:
            a, b = outcome["published_ns"], other["published_ns"]
            if max(a, b) >= (1 + APART) * min(a, b):
                total += 1
                right += (a - b) * (outcome["model_ns"] - other["model_ns"]) > 0
    return right, total


def reversed_pairs(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """Return the pairs that the model orders otherwise than they were measured or takes for equal, however close they
    are: first those that differ most."""
    by_time = sorted(outcomes, key=lambda outcome: outcome["published_ns"])
    pairs = [(less, more) for less, more in combinations(by_time, 2)
             if less["published_ns"] < more["published_ns"] and less["model_ns"] >= more["model_ns"]]
    return sorted(pairs, key=lambda pair: pair[0]["published_ns"] / pair[1]["published_ns"])


def share(value: float) -> str:
    return f"{value:.1%}".replace("%", " %")


def row(name: str, outcomes: Sequence[Outcome]) -> str:
    errors = [error(outcome) for outcome in outcomes]
    right, total = ordered(outcomes)
    return (f"| {name} | {len(outcomes)} | {share(statistics.median(errors))} | {share(eightieth(errors))} | "
            f"{share(max(errors))} | {right} of {total} |")


def duration(ns: float) -> str:
    return f"{ns / 1e6:.2f} ms" if ns >= 1e6 else f"{ns / 1e3:.1f} us"


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the table: the totals, then each entry."""
    with_structure = [outcome for outcome in outcomes if outcome["known"]]
    lines = ["| kernels | entries | median error | 80th percentile | largest | pairs in order |",
             "|---|---|---|---|---|---|",
             row("all", outcomes), row("loop nest published", with_structure)]
    lines += [row(f"on {target}", [outcome for outcome in outcomes if outcome["target"] == target])
              for target in sorted({outcome["target"] for outcome in outcomes})]
    lines += ["", "| entry | target | kernel | published | model | model / published |", "|---|---|---|---|---|---|"]
    for outcome in sorted(outcomes, key=error):
        kernel = outcome["kernel"] if outcome["known"] else f"{outcome['kernel']} (structure assumed)"
        lines.append(f"| {outcome['entry']} | {outcome['target']} | {kernel} | {duration(outcome['published_ns'])} | "
                     f"{duration(outcome['model_ns'])} | {outcome['model_ns'] / outcome['published_ns']:.2f} |")
    return "\n".join(lines)


def page() -> str:
    """Return the page with an updated table."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, table_text = text.partition(BEGIN)
    _, _, after = table_text.partition(END)
    return f"{before}{BEGIN}\n{table(json.loads(RESULTS.read_text(encoding='utf-8')))}\n{END}{after}"


def main() -> None:
    new_page = page()
    if "--check" in sys.argv[1:]:
        sys.exit(int(new_page != PAGE.read_text(encoding="utf-8")))
    PAGE.write_text(new_page, encoding="utf-8")


if __name__ == "__main__":
    main()
