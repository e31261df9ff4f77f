# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run random programs on the interpreter and on the oracle until they differ, or until the time is over.

``python -m tests.seeded_faults.hunt beta|current|both SECONDS`` prints how many programs ran, and the difference if
there was one.
"""

import itertools
import os
import random
import sys
import time
import traceback
import warnings

from ..random_programs import beta_rules, current_rules  # noqa: F401
from ..random_programs.beta import BetaWriter
from ..random_programs.comparing import check_oracle, results
from ..random_programs.current import CurrentWriter
from ..random_programs.test_random_kernels import beta_kernel, beta_oracle, current_kernel, current_oracle

ON = "interpreter"                      # captures, and computes with NumPy: cheap, and has the whole front end
GENERATIONS = {"beta": [(BetaWriter, beta_kernel, beta_oracle)], "current": [(CurrentWriter, current_kernel, current_oracle)]}
GENERATIONS["both"] = GENERATIONS["beta"] + GENERATIONS["current"]


def difference(number: int, writer, kernel, oracle) -> str:
    """What differs on the random program of that number, on one line."""
    program = writer(random.Random(number).randrange).program()
    try:
        outcomes = oracle(program)
    except AssertionError as error:     # of the program's own text: the writer asserts dtypes that it has from the package
        if traceback.extract_tb(error.__traceback__)[-1].filename.startswith("<oracle"):
            return f"the evaluator refuses what the program asserts: {error}"
        raise
    try:
        got, _ = results(kernel(program), program, ON)
        check_oracle(outcomes, got, program)
    except Exception as error:          # a fault may show in any way
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def main(generation: str, seconds: float) -> str:
    warnings.simplefilter("ignore")
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = "trn3"      # which has all instructions
    end = time.monotonic() + seconds
    for number in itertools.count():
        for choice in GENERATIONS[generation]:
            first_difference = difference(number, *choice)
            if first_difference or time.monotonic() > end:
                return f"{number + 1} {first_difference}"
    raise AssertionError


if __name__ == "__main__":
    print(main(sys.argv[1], float(sys.argv[2])))
