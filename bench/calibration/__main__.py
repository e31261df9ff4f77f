# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The timed machine against published latencies: whole kernels through the real back end, entry by entry.

    python bench/calibration [--only L041,L047]

Figures are kept in ``figures.json``, from which ``tools/error_table.py`` writes the table in docs/profile.md. Single
instructions are a table of their own: they are what costs were taken from.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypedDict

HERE = Path(__file__).parent
RESULTS = HERE / "figures.json"
sys.path[:0] = [str(HERE), str(HERE.parent.parent), str(HERE.parent.parent / "tools")]

from entries import ENTRIES, LAUNCH, Entry  # noqa: E402
from error_table import eightieth, ordered  # noqa: E402
from instructions import table  # noqa: E402

from nki_mlir.cli.arguments import parse_arguments  # noqa: E402
from nki_mlir.cli.source import load_kernel  # noqa: E402
from nki_mlir.language.kernel import describe_array, is_array  # noqa: E402
from nki_mlir.targets import neuron  # noqa: E402
from nki_mlir.targets.neuron.timing import Timing  # noqa: E402


class Outcome(TypedDict):
    entry: str
    target: str
    published_ns: float
    model_ns: float
    launch_ns: float
    instructions: int
    known: bool
    kernel: str


@cache
def timing_of(source: str, arguments: tuple[str, ...], target: str) -> Timing:
    kernel = load_kernel(str(HERE / source), target, ())
    positional, keywords = parse_arguments(list(arguments), values=False)
    spec = kernel.specialize(kernel.bind(tuple(positional), keywords, is_array, describe_array))
    return neuron.timed(neuron.streams(spec.captured, spec.grid, neuron.emission(as_written=True)), as_written=True)


def outcome(entry: Entry) -> Outcome:
    """The model's time of one entry, with its harness's launch."""
    timing = timing_of(entry.kernel, entry.arguments, entry.target)
    model = timing.total_ns - timing.launch_ns + LAUNCH[entry.harness]
    return Outcome(entry=entry.name, target=entry.target, published_ns=entry.published_ns, model_ns=model,
                   launch_ns=LAUNCH[entry.harness], instructions=timing.instructions, known=entry.known,
                   kernel=f"{entry.kernel.partition(':')[2]} {' '.join(entry.arguments)}")


def summary(title: str, found: Sequence[Outcome]) -> str:
    """Median error, 80th percentile and the worst."""
    errors = sorted(abs(o["model_ns"] / o["published_ns"] - 1) for o in found)
    if not errors:
        return f"{title}: none"
    return (f"{title}: {len(errors)} entries, median error {statistics.median(errors):.1%}, 80th percentile "
            f"{eightieth(errors):.1%}, worst {errors[-1]:.1%}")


def merged(found: Sequence[Outcome]) -> list[Outcome]:
    """What was found, and of entries that did not run what the file has."""
    known = {one["entry"]: one for one in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    known |= {one["entry"]: one for one in found}
    return [known[entry.name] for entry in ENTRIES if entry.name in known]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="entries by number, with commas")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else [e.name for e in ENTRIES]
    found = []
    print(f"{'entry':5}  {'target':6}  {'harness':9}  {'launch us':>9}  {'published us':>12}  {'model us':>12}  "
          f"{'ratio':>5}  {'instructions':>12}  {'s':>5}  kernel")
    for entry in ENTRIES:
        if entry.name not in chosen:
            continue
        started = time.process_time()
        one = outcome(entry)
        seconds = time.process_time() - started
        found.append(one)
        RESULTS.write_text(json.dumps(merged(found), indent=1) + "\n")
        print(f"{entry.name:5}  {entry.target:6}  {entry.harness:9}  {one['launch_ns'] / 1e3:9.1f}  "
              f"{one['published_ns'] / 1e3:12.1f}  {one['model_ns'] / 1e3:12.1f}  "
              f"{one['model_ns'] / one['published_ns']:5.2f}  {one['instructions']:12}  {seconds:5.1f}  "
              f"{one['kernel']}{'' if entry.known else ' (structure assumed)'}", flush=True)
    print(summary("kernels", found))
    print(summary("kernels whose loop nest is published", [o for o in found if o["known"]]))
    right, total = ordered(found)
    print(f"pairs that differ by 10%: {right} of {total} in the published order"
          + (f" ({right / total:.1%})" if total else ""))
    print()
    print("\n".join(table()))


if __name__ == "__main__":
    main()
