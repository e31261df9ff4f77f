# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run the checker on the streams of random kernels: each violation that it reports would be a false alarm.

``python -m tests.random_programs.checked_streams [--count N] [--first N] [--seed N] [--seconds N]`` prints how many
programs of each generation the checker proved, how many it could not analyze, and how many only read unwritten memory,
which a kernel may do. Other tests execute such programs, so their streams have the right values in all orders that the
simulator tries.
"""

import argparse
import os
import random
import sys
import time
import warnings
from collections import Counter
from unittest.mock import patch

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.checker.violations import UnwrittenBytes
from nki_mlir.targets.neuron.codegen.emission import Emission

from .beta import BetaWriter
from .comparing import arrays_of_ranks
from .current import CurrentWriter
from .test_random_kernels import beta_kernel, current_kernel
from .writer import Program

VERDICTS = ("proved", "not", "unwritten", "refused")
WRITERS = {"beta": (BetaWriter, beta_kernel), "current": (CurrentWriter, current_kernel)}


def drawn(generation: str, seed: int, number: int) -> Program:
    rng = random.Random(f"{seed} {generation} {number}")
    return WRITERS[generation][0](rng.randrange).program()


def verdict(generation: str, program: Program, options: Emission) -> str:
    """What the checker says of a program's streams: ``proved``, ``not analyzed``, ``unwritten``, or the text of a false
    alarm. ``refused`` programs have no streams."""
    target = {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn3"} if generation == "current" else {}
    with patch.dict(os.environ, target), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = WRITERS[generation][1](program)
        launched = kernel[program.grid if len(program.grid) > 1 else program.grid[0]] if program.grid else kernel
        try:
            of = launched.lower(*arrays_of_ranks(program)[0]).specialization
            programs = neuron.streams(of.captured, of.grid, options, of.cores)
        except NkiMlirError as error:
            return f"refused {error.code}"
        report = check_streams(programs)
    alarms = [str(error) for error in report.violations if not isinstance(error, UnwrittenBytes)]
    if report.violations:
        return alarms[0] if alarms else "unwritten"
    return f"not analyzed: {report.not_analyzed[0][:40]}" if report.not_analyzed else "proved"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    alarms, end = 0, time.monotonic() + options.seconds
    for number in range(options.first, options.first + options.count):
        if time.monotonic() > end:
            break
        generation = list(WRITERS)[number % 2]
        program = drawn(generation, options.seed, number)
        outcome = verdict(generation, program, Emission(reorder=number % 4 < 2))
        if outcome.split()[0] not in VERDICTS:
            alarms += 1
            print(f"program {number} of seed {options.seed}: {outcome}\n{program.text}", flush=True)
            outcome = "alarm"
        counts[generation, outcome] += 1
        if counts.total() % 100 == 0:
            print(counts.total(), *(f"{' '.join(kind)}: {n};" for kind, n in sorted(counts.items())), flush=True)
    print(counts.total(), *(f"{' '.join(kind)}: {n};" for kind, n in sorted(counts.items())))
    return int(alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
