# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random kernels as native code with every pass of the CPU forced, with each of them alone, and with all of them on the
text of the one before: the oracle agrees.

`make fuzz` tries 5,000 of them, other ones each time; NKI_MLIR_FUZZ_SEED repeats a run. The ordinary run tries some.
"""

import os
from contextlib import nullcontext
from math import ceil
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, note, seed, settings

from ..forced_passes import OPTIONAL, forced
from ..fuzz_time import ending_in_time
from ..module_passes import on_text
from .beta import BetaWriter
from .comparing import check_oracle, results
from .current import CurrentWriter
from .test_random_kernels import (
    FUZZ,
    SEED,
    beta_kernel,
    beta_oracle,
    current_kernel,
    current_oracle,
    programs,
)

CHOICES = (None, *OPTIONAL)
PARTS = 10 if FUZZ else 1
EXAMPLES = ceil(5_000 / PARTS / len(CHOICES) / 2) if FUZZ else 2


def agrees(writer, kernel, oracle, alone, number, on_modules=False):
    @seed((SEED << 16) + number)
    @settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=False,
              suppress_health_check=list(HealthCheck))
    @given(programs(writer))
    @ending_in_time
    def run(program):
        note(program.text)
        with forced(alone), on_text() if on_modules else nullcontext():
            got, _ = results(kernel(program), program, "jit")
        check_oracle(oracle(program), got, program)
    with patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE="trn3"):
        run()


@pytest.mark.share(3)
@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("alone", CHOICES, ids=lambda name: name or "all")
def test_kernels_agree(alone, part):
    number = part * len(CHOICES) + CHOICES.index(alone)
    agrees(BetaWriter, beta_kernel, beta_oracle, alone, number)
    agrees(CurrentWriter, current_kernel, current_oracle, alone, number + (1 << 12))


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_agree__through_the_text_of_each_pass(part):
    agrees(BetaWriter, beta_kernel, beta_oracle, None, part + (1 << 13), on_modules=True)
    agrees(CurrentWriter, current_kernel, current_oracle, None, part + (1 << 14), on_modules=True)
