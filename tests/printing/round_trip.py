# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Print a random kernel as NKI Python and capture the text again: equal values, and a text that stays.

``python -m tests.printing.round_trip --counts FILE [--only FORM] [--programs N] [--seed N]`` adds programs to the
counts of a file: of each form (the generation of the kernels, and that of the text), how many were printed and passed,
and of those in the current generation, how many have the instructions of the original within 2%.
"""

import argparse
import io
import os
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from nki_mlir.language.current import nki
from nki_mlir.printing.errors import Unprintable

from ..fuzzing.campaign import Counts, Tally
from ..random_programs.comparing import EXECUTORS, differences, flat
from ..random_programs.writer import Program
from .counts import GENERATIONS, differing, instructions, launch
from .reading import printed, reread, reread_beta


@dataclass(frozen=True)
class Form:
    """The generation of kernels, and what their texts are printed and read as."""

    generation: str
    read: Callable[..., Any] = reread
    options: dict[str, str] = field(default_factory=dict)


BETA = {"generation": "beta"}
FORMS = {"beta": Form("beta"), "current": Form("current"), "beta as beta": Form("beta", reread_beta, BETA),
         "current as beta": Form("current", reread_beta, BETA), "beta as 2.29": Form("beta", reread, {"release": "2.29"})}


def check(program: Program, launched: Any, form: Form, executors: Sequence[str] = EXECUTORS,
          tell: Callable[[str], object] = lambda text: None) -> Any:
    """Return the kernel of the text; None, where it has no form in the generation or release."""
    arrays = list(program.arrays.values())
    try:
        text = printed(launched, arrays, **form.options)
    except Unprintable as error:
        tell(f"not printed: {error.headline}")
        return None
    tell(text)
    again = form.read(text, program.grid)
    expected = flat([launched.on("interpreter")(*[a.copy() for a in arrays])])
    runs = {executor: again.on(executor) for executor in executors}
    if form.read is reread:
        runs["simulator"] = nki.simulate(again)         # fresh memory holds NaN, so a lost memset is seen
    for executor, run in runs.items():
        got = flat([run(*[a.copy() for a in arrays])])
        assert len(got) == len(expected) == len(program.outputs)
        for array, wanted, output in zip(got, expected, program.outputs):
            assert not (difference := differences(array, wanted, output)), f"{executor}: {difference}"
    second = printed(again, arrays, **form.options)
    assert printed(form.read(second, program.grid), arrays, **form.options) == second, "the third text differs"
    return again


def judge(tally: Tally, name: str, seed: int, number: int) -> None:
    """Add one program, which the seed and its number repeat, to the tally of its form."""
    form = FORMS[name]
    writer, kernel_of = GENERATIONS[form.generation]
    program = writer(random.Random(f"{name} {seed} {number}").randrange).program()
    tally.following = number + 1
    if program.ranks > 1:
        return
    launched, told = launch(kernel_of(program), program.grid), [""]
    try:
        again = check(program, launched, form, tell=told.append)
        if again is None:
            tally.rules[told[-1]] += 1
        elif form.read is reread and not form.options:
            arrays = list(program.arrays.values())
            cause = differing(instructions(launched, arrays), instructions(again, arrays))
            tally.rules[cause or "within 2%"] += 1
        tally.stages["printed" if again is not None else "not printed"] += 1
    except Exception:
        tally.stages["failed"] += 1
        tally.failures.append(f"{name} {seed} {number}: {traceback.format_exc(limit=-4)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.printing.round_trip", description=__doc__)
    parser.add_argument("--counts", type=Path, metavar="FILE", required=True, help="where the counts of several runs add up")
    parser.add_argument("--only", choices=FORMS, action="append", help="a form, repeated; all otherwise")
    parser.add_argument("--programs", type=int, default=50, help="of each form in this run")
    parser.add_argument("--seed", type=int, help="of the file's first run")
    options = parser.parse_args()
    counts = Counts.read(options.counts, options.seed) or Counts(options.seed or 0, {}, options.counts)
    for name in options.only or FORMS:
        tally = counts.tallies.setdefault(name, Tally())
        for number in range(tally.following, tally.following + options.programs):
            before = time.process_time()
            with redirect_stdout(io.StringIO()):                # of kernels that print
                judge(tally, name, counts.seed, number)
            tally.seconds += time.process_time() - before
        counts.write()
        print(f"{name}: {dict(tally.stages)} {tally.rules.most_common(4)}")
    failures = [failure for tally in counts.tallies.values() for failure in tally.failures]
    print(*failures, sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE="trn3"), np.errstate(all="ignore"):
        sys.exit(main())
