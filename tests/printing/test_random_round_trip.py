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

from ..fuzz_time import ending_in_time
from ..random_programs.comparing import EXECUTORS
from ..random_programs.test_random_kernels import FUZZ, SEED, programs
from .counts import GENERATIONS, launch
from .round_trip import FORMS, check

PARTS, EACH = (20, 50) if FUZZ else (2, 3)
TRIED = EXECUTORS if FUZZ else EXECUTORS[1:2]


def tried(name, part):
    form = FORMS[name]
    writer, kernel_of = GENERATIONS[form.generation]
    counts: Counter[str] = Counter()

    @seed((SEED << 8) + part)
    @settings(max_examples=EACH, deadline=None, database=None, derandomize=False,
              suppress_health_check=list(HealthCheck))
    @given(programs(writer))
    @ending_in_time
    def run(program):
        note(program.text)
        if program.ranks == 1:
            again = check(program, launch(kernel_of(program), program.grid), form, TRIED, note)
            counts["printed" if again is not None else "not printed"] += 1
    with patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE="trn3"), np.errstate(all="ignore"):
        run()
    print(f"{name} part {part}: {dict(counts.most_common())}")
    assert counts["printed"]


@pytest.mark.share(3)
@pytest.mark.fuzz
@pytest.mark.parametrize("name, part", [(name, part) for name in FORMS
                                        for part in range(PARTS if name in GENERATIONS else PARTS // 2)])
@pytest.mark.filterwarnings("ignore")
def test_kernels_print(name, part):
    tried(name, part)
