# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The checker finds nothing in the streams of random kernels."""

import os

import pytest

from nki_mlir.targets.neuron.codegen.emission import Emission

from ..fuzz_time import in_time
from .checked_streams import VERDICTS, WRITERS, drawn, verdict
from .test_random_kernels import FUZZ, SEED

COUNT = int(os.environ.get("NKI_MLIR_FUZZ_PROGRAMS", 2_500)) if FUZZ else 6


@pytest.mark.fuzz
@pytest.mark.parametrize("generation", WRITERS)
def test_streams_of_random_kernels__raise_no_false_alarm(generation):
    for number in in_time(range(COUNT)):
        program = drawn(generation, SEED, number)
        outcome = verdict(generation, program, Emission(reorder=number % 2 == 0))
        assert outcome.split()[0] in VERDICTS, f"program {number} of seed {SEED}: {outcome}\n{program.text}"


def test_cores_of_which_one_has_further_tiles__decide_alike_how_often_they_meet():
    """Program 978 of seed 4712, whose loops looked like a deadlock."""
    assert verdict("beta", drawn("beta", 4712, 978), Emission(reorder=False)).startswith("not analyzed")
