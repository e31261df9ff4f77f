# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random kernels of both generations, printed as NKI Python and captured again: equal values, and a text that stays.

`make fuzz` tries 2,000 of them on all executors; NKI_MLIR_FUZZ_SEED repeats a run. The ordinary run tries a few.
"""

import os
from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, seed, settings

from nki_mlir.language.current import nki
from nki_mlir.printing.errors import Unprintable

from ..random_programs import beta_rules, current_rules  # noqa: F401
from ..random_programs.beta import BetaWriter
from ..random_programs.comparing import EXECUTORS, differences, flat
from ..random_programs.current import CurrentWriter
from ..random_programs.test_random_kernels import FUZZ, SEED, beta_kernel, current_kernel, programs
from .reading import printed, reread, reread_beta

PARTS, EACH = (20, 50) if FUZZ else (2, 8)
TRIED = EXECUTORS if FUZZ else EXECUTORS[1:2]


def check(program, original, read=reread, **options):
    """``original`` is the kernel; nothing is checked of one that has no form in the generation or release."""
    launched = original[program.grid if len(program.grid) > 1 else program.grid[0]] if program.grid else original
    arrays = list(program.arrays.values())
    try:
        text = printed(launched, arrays, **options)
    except Unprintable as error:
        return f"not printed: {error.headline}"
    note(text)
    again = read(text, program.grid)
    expected = flat([launched.on("interpreter")(*[a.copy() for a in arrays])])
    runs = {executor: again.on(executor) for executor in TRIED}
    if read is reread:
        runs["simulator"] = nki.simulate(again)         # fresh memory holds NaN, so a lost memset is seen
    for executor, run in runs.items():
        got = flat([run(*[a.copy() for a in arrays])])
        assert len(got) == len(expected) == len(program.outputs)
        for array, wanted, output in zip(got, expected, program.outputs):
            assert not (difference := differences(array, wanted, output)), f"{executor}: {difference}"
    second = printed(again, arrays, **options)
    assert printed(read(second, program.grid), arrays, **options) == second
    return "printed"


def tried(writer, kernel_of, part, read=reread, **options):
    counts: Counter[str] = Counter()

    @seed((SEED << 8) + part)
    @settings(max_examples=EACH, deadline=None, database=None, derandomize=False,
              suppress_health_check=list(HealthCheck))
    @given(programs(writer))
    def run(program):
        note(program.text)
        if program.ranks == 1:
            counts[check(program, kernel_of(program), read, **options)] += 1
    with patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE="trn3"), np.errstate(all="ignore"):
        run()
    print(f"{writer.__name__} part {part}: {dict(counts.most_common())}")
    assert counts["printed"]


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_beta_kernels_print(part):
    tried(BetaWriter, beta_kernel, part)


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_current_kernels_print(part):
    tried(CurrentWriter, current_kernel, part)


@pytest.mark.fuzz
@pytest.mark.parametrize("writer, kernel_of", [(BetaWriter, beta_kernel), (CurrentWriter, current_kernel)],
                         ids=["beta", "current"])
@pytest.mark.parametrize("part", range(PARTS // 2))
@pytest.mark.filterwarnings("ignore")
def test_kernels_print_for_the_beta_generation(writer, kernel_of, part):
    tried(writer, kernel_of, part, reread_beta, generation="beta")


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS // 2))
@pytest.mark.filterwarnings("ignore")
def test_kernels_print_for_the_oldest_release(part):
    tried(BetaWriter, beta_kernel, part, release="2.29")
