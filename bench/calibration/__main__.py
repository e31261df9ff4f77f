# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compare the timed machine with published latencies of complete kernels, which the back end compiles.

    python bench/calibration [--only L041,L047] [--no-fit]

The first table goes to ``figures.json``, from which ``tools/error_table.py`` writes the table in docs/profile.md. The
second has variants of single kernels; the third has the single instructions from which costs are taken. The last one
shows how well laws that are fitted on some operators predict the others (``fit.py``).
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

HERE = Path(__file__).parent
RESULTS = HERE / "figures.json"
sys.path[:0] = [str(HERE), str(HERE.parent.parent), str(HERE.parent.parent / "tools")]

from entries import ENTRIES, LAUNCH, STATIC, VARIANTS, Entry  # noqa: E402
from error_table import eightieth, ordered, reversed_pairs  # noqa: E402
from fit import Timed, numbers_of, report  # noqa: E402
from instructions import table  # noqa: E402

from nki_mlir.cli.arguments import parse_arguments  # noqa: E402
from nki_mlir.cli.source import load_kernel  # noqa: E402
from nki_mlir.dialects.isa.program import Program  # noqa: E402
from nki_mlir.language.kernel import describe_array, is_array  # noqa: E402
from nki_mlir.targets import neuron  # noqa: E402
from nki_mlir.targets.neuron.timing import Timing  # noqa: E402

FEW = 30_000                    # kernels on which laws are fitted have at most so many instructions


class Outcome(TypedDict):
    entry: str
    target: str
    published_ns: float
    model_ns: float
    launch_ns: float
    instructions: int
    known: bool
    kernel: str


@lru_cache(maxsize=1)           # neighbors often are two measurements of one kernel
def programs_of(source: str, arguments: tuple[str, ...], target: str, static: bool) -> list[Program]:
    kernel = load_kernel(str(HERE / source), target, ())
    positional, keywords = parse_arguments(list(arguments), values=False)
    spec = kernel.specialize(kernel.bind(tuple(positional), keywords, is_array, describe_array))
    return neuron.streams(spec.captured, spec.grid, neuron.emission(as_written=True, static=static))


def outcome(entry: Entry, timing: Timing) -> Outcome:
    """Return the model's time of one entry, with its harness's launch."""
    model = timing.total_ns - timing.launch_ns + LAUNCH[entry.harness]
    return Outcome(entry=entry.name, target=entry.target, published_ns=entry.published_ns, model_ns=model,
                   launch_ns=LAUNCH[entry.harness], instructions=timing.instructions, known=entry.known,
                   kernel=f"{entry.kernel.partition(':')[2]} {' '.join(entry.arguments)}")


def summary(title: str, outcomes: Sequence[Outcome]) -> str:
    """Return the median error, the 80th percentile and the largest error as text."""
    errors = sorted(abs(o["model_ns"] / o["published_ns"] - 1) for o in outcomes)
    if not errors:
        return f"{title}: none"
    return (f"{title}: {len(errors)} entries, median error {statistics.median(errors):.1%}, 80th percentile "
            f"{eightieth(errors):.1%}, worst {errors[-1]:.1%}")


def merged(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the new outcomes, and those of the file for entries that did not run."""
    by_entry = {entry_outcome["entry"]: entry_outcome
                for entry_outcome in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    by_entry |= {entry_outcome["entry"]: entry_outcome for entry_outcome in outcomes}
    return [by_entry[entry.name] for entry in ENTRIES if entry.name in by_entry]


def timed(entries: Sequence[Entry], keep: bool) -> tuple[list[Outcome], list[Timed]]:
    """Print a line for each entry; return the outcomes, and the data for the fit of laws. ``keep``: also write the
    file."""
    outcomes, fitted_on = [], []
    print(f"{'entry':5}  {'target':6}  {'harness':9}  {'launch us':>9}  {'published us':>12}  {'model us':>12}  "
          f"{'ratio':>5}  {'instructions':>12}  {'s':>5}  kernel")
    for entry in entries:
        started = time.process_time()
        programs = programs_of(entry.kernel, entry.arguments, entry.target, entry.harness in STATIC)
        timed_outcome = outcome(entry, neuron.timed(programs, as_written=True))
        seconds = time.process_time() - started
        outcomes.append(timed_outcome)
        if timed_outcome["instructions"] <= FEW and numbers_of(entry.target):
            fitted_on.append(Timed(entry.name, entry.operator, entry.target, entry.published_ns,
                                   timed_outcome["launch_ns"],
                                   programs))
        if keep:
            RESULTS.write_text(json.dumps(merged(outcomes), indent=1) + "\n")
        print(f"{entry.name:5}  {entry.target:6}  {entry.harness:9}  {timed_outcome['launch_ns'] / 1e3:9.1f}  "
              f"{timed_outcome['published_ns'] / 1e3:12.1f}  {timed_outcome['model_ns'] / 1e3:12.1f}  "
              f"{timed_outcome['model_ns'] / timed_outcome['published_ns']:5.2f}  {timed_outcome['instructions']:12}  "
              f"{seconds:5.1f}  {timed_outcome['kernel']}{'' if entry.known else ' (structure assumed)'}", flush=True)
    return outcomes, fitted_on


def in_order(title: str, groups: Sequence[Sequence[Outcome]]) -> str:
    """Return as text how many pairs within the groups have the published order."""
    right, total = (sum(counts) for counts in zip((0, 0), *(ordered(group) for group in groups)))
    return f"{title}: {right} of {total} in the published order" + (f" ({right / total:.1%})" if total else "")


def other_order(groups: Sequence[Sequence[Outcome]]) -> str:
    """Return as text the pairs within the groups that the model orders otherwise, also those that differ by less."""
    lines = [f"{less['entry']} {more['entry']}  published {more['published_ns'] / less['published_ns'] - 1:6.2%}  "
             f"model {more['model_ns'] / less['model_ns'] - 1:6.2%}  {less['kernel']}, {more['kernel']}"
             for group in groups for less, more in reversed_pairs(group)]
    pairs = sum([len(group) * (len(group) - 1) // 2 for group in groups])
    return "\n".join([f"{len(lines)} of {pairs} pairs in another order:", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="names of entries, separated by commas")
    parser.add_argument("--no-fit", action="store_true", help="only time the entries")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else [e.name for e in (*ENTRIES, *VARIANTS)]
    outcomes, fitted_on = timed([e for e in ENTRIES if e.name in chosen], keep=True)
    print(summary("kernels", outcomes))
    print(summary("kernels whose loop nest is published", [o for o in outcomes if o["known"]]))
    print(in_order("pairs that differ by 10%", [outcomes]))
    print()
    variants = [e for e in VARIANTS if e.name in chosen]
    of_variants, fitted_on_variants = timed(variants, keep=False)
    print(summary("variants", of_variants))
    operators = {e.name: e.operator for e in variants}
    groups = [[o for o in of_variants if operators[o["entry"]] == operator]
              for operator in dict.fromkeys(operators.values())]
    print(in_order("pairs of variants of one operator that differ by 10%", groups))
    print(other_order(groups))
    print()
    print("\n".join(table()))
    if not options.no_fit:
        print()
        print("\n".join(report([*fitted_on, *fitted_on_variants])))


if __name__ == "__main__":
    main()
