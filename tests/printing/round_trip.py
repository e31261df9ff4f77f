# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Print a random kernel as NKI Python and capture the text again: equal values, and a text that stays.

``python -m tests.printing.round_trip --counts FILE [--only FORM] [--programs N] [--seed N]`` adds programs to the
counts of a file and prints a table: of each form (the generation of the kernels, and what their text is), how many were
printed, refused and failed, how many have an equal second text, and how many have the instructions of the original:
within 2% before the search for the fastest program, or as many as the device runs where the text keeps the placement
(``counts.instructions`` says why), and how many are within 2% as the device runs them. It names the others by their
number, which ``--show FORM NUMBER`` prints again, with what they have that docs/limits.md names as a reason.
``--examples`` adds a row for the kernels of the examples.
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
from rich.console import Console
from rich.table import Table

from nki_mlir.language.current import nki
from nki_mlir.printing.errors import Unprintable
from nki_mlir.scalar.dtypes import dtype_of

from ..fuzzing.campaign import Counts, Tally
from ..random_programs.comparing import EXECUTORS, differences, flat
from ..random_programs.writer import Output, Program
from .counts import GENERATIONS, WITHIN, differing, instructions, launch, limits
from .reading import printed, reread, reread_beta
from .test_examples import all_cases


@dataclass(frozen=True)
class Form:
    """The generation of kernels, what their texts are printed and read as, and the part by which the number of
    instructions may differ (None: by any number)."""

    generation: str
    read: Callable[..., Any] = reread
    options: dict[str, Any] = field(default_factory=dict)
    within: float | None = None

    @property
    def placed(self) -> bool:
        return "keep_placement" in self.options


BETA, PLACED = {"generation": "beta"}, {"keep_placement": True}
FORMS = {"beta": Form("beta", within=WITHIN), "current": Form("current", within=WITHIN),
         "beta placed": Form("beta", options=PLACED, within=0.0),
         "current placed": Form("current", options=PLACED, within=0.0),
         "beta as beta": Form("beta", reread_beta, BETA), "current as beta": Form("current", reread_beta, BETA),
         "beta as 2.29": Form("beta", options={"release": "2.29"})}
EXAMPLES = {"examples": FORMS["beta"], "examples placed": FORMS["beta placed"]}


def check(program: Program, launched: Any, form: Form, executors: Sequence[str] = EXECUTORS,
          tell: Callable[[str], object] = lambda text: None, arguments: Sequence[Any] | None = None) -> Any:
    """Return the kernel of the text; None, where it has no form in the generation or release.

    ``arguments`` are those of the launched kernel, where it has others beside the arrays that the text takes: its values
    are then compared on each executor, because executors may round them in different ways.
    """
    arrays, exact = list(program.arrays.values()), arguments is None
    arguments = arrays if arguments is None else arguments
    try:
        text = printed(launched, arguments, **form.options)
    except Unprintable as error:
        tell(f"not printed: {error.headline}")
        return None
    tell(text)
    again = form.read(text, program.grid)
    expected = {"interpreter": flat([launched.on("interpreter")(*copied(arguments))])}
    runs = {executor: again.on(executor) for executor in executors}
    if form.read is reread:
        runs["simulator"] = nki.simulate(again)         # fresh memory holds NaN, so a lost memset is seen
    for executor, run in runs.items():
        got, on = flat([run(*copied(arrays))]), "interpreter" if exact or executor == "simulator" else executor
        if on not in expected:
            expected[on] = flat([launched.on(on)(*copied(arguments))])
        assert len(got) == len(expected[on]) == len(program.outputs)
        for array, wanted, output in zip(got, expected[on], program.outputs):
            assert not (difference := differences(array, wanted, output)), f"{executor}: {difference}"
    second = printed(again, arrays, **form.options)
    assert printed(form.read(second, program.grid), arrays, **form.options) == second, "the third text differs"
    tell("stable" if second == text else "another second text")
    return again


def copied(arguments: Sequence[Any]) -> list[Any]:
    """The arguments, with copies of the arrays, which a kernel may write."""
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]


def drawn(name: str, seed: int, number: int) -> tuple[Program, Any] | None:
    """Return a program, which the seed and its number repeat, and its launched kernel; None for one of several ranks."""
    writer, kernel_of = GENERATIONS[FORMS[name].generation]
    program = writer(random.Random(f"{name.removesuffix(' placed')} {seed} {number}").randrange).program()
    return (program, launch(kernel_of(program), program.grid)) if program.ranks == 1 else None


def judge(tally: Tally, form: Form, name: str, program: Program, launched: Any,
          arguments: Sequence[Any] | None = None) -> None:
    """Add one program to the tally of its form."""
    told = [""]
    try:
        again = check(program, launched, form, tell=told.append, arguments=arguments)
        if again is None:
            tally.rules[told[-1]] += 1
        else:
            stable = told[-1] == "stable"
            tally.stages["stable"] += stable
            if not stable:
                tally.rules[f"{name} {told[-1]}"] += 1
        if again is not None and form.within is not None:
            arrays = list(program.arrays.values())
            kernels = (launched, arguments or arrays), (again, arrays)
            counts = [[instructions(*each, searched=searched) for each in kernels] for searched in (True, False)]
            causes = [differing(*both, form.within) for both in counts]
            cause = causes[0 if form.placed else 1]
            tally.stages["counts"] += not cause
            tally.stages["searched"] += not causes[0]
            if cause:
                reasons = limits(launched, arguments or arrays)
                tally.stages["limited"] += bool(reasons)
                tally.rules[f"{name} {cause} ({', '.join(sorted(reasons)) or 'no limit'})"] += 1
            elif causes[0]:
                tally.rules[f"{name} {causes[0]} (by the search alone)"] += 1
        tally.stages["printed" if again is not None else "not printed"] += 1
    except Exception:
        tally.stages["failed"] += 1
        tally.failures.append(f"{name}: {traceback.format_exc(limit=-4)}")


def judge_examples(tally: Tally, form: Form) -> None:
    """Add the first case of each kernel of the examples, of one rank, to a tally."""
    for file, launched, arguments, tolerance in all_cases():
        arrays = {f"a{n}": a for n, a in enumerate(arguments) if isinstance(a, np.ndarray)}
        specialization = launched.lower(*arguments).specialization
        results = flat([launched.on("interpreter")(*copied(arguments))])
        # Each of the two is within the tolerance of the example's answer.
        outputs = [Output(f"result {n}", a.shape, dtype_of(a.dtype), atol=2 * tolerance) for n, a in enumerate(results)]
        program = Program("", arrays, outputs, grid=specialization.grid)
        judge(tally, form, f"{file} {launched.__name__}", program, launched, arguments)


def table(counts: Counts) -> Table:
    """The counts of all forms, one in a row."""
    rows = Table("form", "printed", "refused", "failed", "stable", "instructions as many, or within 2%", "as the device runs them", "others with a limit", title=f"seed {counts.seed}")
    for name, tally in counts.tallies.items():
        stages = tally.stages
        near = f"{stages['counts']:,} of {stages['printed']:,}" if (FORMS | EXAMPLES)[name].within is not None else ""
        rows.add_row(name, *(f"{stages[stage]:,}" for stage in ("printed", "not printed", "failed", "stable")), near,
                     *(f"{stages[stage]:,}" if near else "" for stage in ("searched", "limited")))
    return rows


def show(name: str, seed: int, number: int) -> None:
    """Print a program, its text, and the instructions of both."""
    if (pair := drawn(name, seed, number)) is None:
        return
    program, launched = pair
    arrays, form = list(program.arrays.values()), FORMS[name]
    text = printed(launched, arrays, **form.options)
    print(program.text, text, sep="\n")
    for kernel in launched, form.read(text, program.grid):
        print(*(dict(instructions(kernel, arrays, searched=searched)) for searched in (True, False)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.printing.round_trip", description=__doc__)
    parser.add_argument("--counts", type=Path, metavar="FILE", required=True, help="where the counts of several runs add up")
    parser.add_argument("--only", choices=FORMS, action="append", help="a form, repeated; all otherwise")
    parser.add_argument("--programs", type=int, default=50, help="of each form in this run")
    parser.add_argument("--seed", type=int, help="of the file's first run")
    parser.add_argument("--examples", action="store_true", help="the kernels of the examples instead")
    parser.add_argument("--show", nargs=2, metavar=("FORM", "NUMBER"), help="print a program and its text")
    options = parser.parse_args()
    counts = Counts.read(options.counts, options.seed) or Counts(options.seed or 0, {}, options.counts)
    if options.show:
        show(options.show[0], counts.seed, int(options.show[1]))
        return 0
    for name, form in EXAMPLES.items() if options.examples else ():
        counts.tallies[name] = Tally()
        with redirect_stdout(io.StringIO()):
            judge_examples(counts.tallies[name], form)
        counts.write()
    for name in () if options.examples else options.only or FORMS:
        tally = counts.tallies.setdefault(name, Tally())
        before = time.process_time()
        for number in range(tally.following, tally.following + options.programs):
            tally.following = number + 1
            with redirect_stdout(io.StringIO()):                # of kernels that print
                if pair := drawn(name, counts.seed, number):
                    judge(tally, FORMS[name], f"{name} {number}", *pair)
        tally.seconds += time.process_time() - before
        counts.write()
    for tally in counts.tallies.values():
        print(*(f"{count:5} {rule}" for rule, count in tally.rules.most_common()), sep="\n")
    failures = [failure for tally in counts.tallies.values() for failure in tally.failures]
    print(*failures, sep="\n")
    Console().print(table(counts))
    return int(bool(failures))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE="trn3"), np.errstate(all="ignore"):
        sys.exit(main())
