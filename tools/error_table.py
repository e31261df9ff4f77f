# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write the table of errors to ``docs/profile.md``: the timed machine against published latencies.

The figures are those of ``bench/calibration/figures.json``, which ``python bench/calibration`` writes. ``--check``
writes nothing and exits with status 1 where the page differs.
"""

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "calibration" / "figures.json"
PAGE = ROOT / "docs" / "profile.md"
BEGIN, END = "<!-- errors: tools/error_table.py -->", "<!-- end of errors -->"
APART = 0.10                    # latencies that differ by so much have an order

Outcome = dict[str, Any]


def error(one: Outcome) -> float:
    return abs(one["model_ns"] / one["published_ns"] - 1)


def eightieth(errors: Sequence[float]) -> float:
    return statistics.quantiles(errors, n=10, method="inclusive")[7] if len(errors) > 1 else errors[0]


def ordered(found: Sequence[Outcome]) -> tuple[int, int]:
    """Count the pairs whose published latencies differ by at least 10%, and those that the model orders the same way;
    a tie is wrong."""
    right = total = 0
    for k, one in enumerate(found):
        for other in found[:k]:
            a, b = one["published_ns"], other["published_ns"]
            if max(a, b) >= (1 + APART) * min(a, b):
                total += 1
                right += (a - b) * (one["model_ns"] - other["model_ns"]) > 0
    return right, total


def share(value: float) -> str:
    return f"{value:.1%}".replace("%", " %")


def row(name: str, found: Sequence[Outcome]) -> str:
    errors = [error(one) for one in found]
    right, total = ordered(found)
    return (f"| {name} | {len(found)} | {share(statistics.median(errors))} | {share(eightieth(errors))} | "
            f"{share(max(errors))} | {right} of {total} |")


def duration(ns: float) -> str:
    return f"{ns / 1e6:.2f} ms" if ns >= 1e6 else f"{ns / 1e3:.1f} us"


def table(found: Sequence[Outcome]) -> str:
    """Return the table: the totals, then each entry."""
    known = [one for one in found if one["known"]]
    lines = ["| kernels | entries | median error | 80th percentile | largest | pairs in order |",
             "|---|---|---|---|---|---|",
             row("all", found), row("loop nest published", known)]
    lines += [row(f"on {target}", [one for one in found if one["target"] == target])
              for target in sorted({one["target"] for one in found})]
    lines += ["", "| entry | target | kernel | published | model | model / published |", "|---|---|---|---|---|---|"]
    for one in sorted(found, key=error):
        kernel = one["kernel"] if one["known"] else f"{one['kernel']} (structure assumed)"
        lines.append(f"| {one['entry']} | {one['target']} | {kernel} | {duration(one['published_ns'])} | "
                     f"{duration(one['model_ns'])} | {one['model_ns'] / one['published_ns']:.2f} |")
    return "\n".join(lines)


def page() -> str:
    """Return the page with an updated table."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(json.loads(RESULTS.read_text(encoding='utf-8')))}\n{END}{after}"


def main() -> None:
    made = page()
    if "--check" in sys.argv[1:]:
        sys.exit(int(made != PAGE.read_text(encoding="utf-8")))
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
