# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random kernels that draw from the op tables of both generations: all executors agree.

`make fuzz` tries 5,000 of them, other ones each time, in parts that pytest reports one by one; NKI_MLIR_FUZZ_SEED
repeats a run. The ordinary run tries the same 200 each time.
"""

import os
import secrets

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta.typing import scalar

from ..language.generated import kernel_from_text
from . import beta_operations  # noqa: F401
from .beta import BetaWriter
from .comparing import check_agreement

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
SEED = int(os.environ.get("NKI_MLIR_FUZZ_SEED", secrets.randbelow(1 << 30) if FUZZ else 0))
PROGRAMS, PARTS = (5_000, 100) if FUZZ else (200, 8)
PROGRAMS = int(os.environ.get("NKI_MLIR_FUZZ_PROGRAMS", PROGRAMS))


@st.composite
def beta_programs(draw):
    return BetaWriter(lambda n: draw(st.integers(0, n - 1))).program()


def part_of(programs, check, part):
    @seed((SEED << 8) + part)
    @settings(max_examples=PROGRAMS // PARTS // 2, deadline=None, database=None, derandomize=False,
              suppress_health_check=list(HealthCheck))
    @given(programs)
    def run(program):
        note(program.text)
        check(program)
    run()


def check_beta(program):
    check_agreement(kernel_from_text(program.text, {"nl": nl, "nisa": nisa, "np": np, "scalar": scalar}), program)


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
def test_beta_kernels_agree(part):
    part_of(beta_programs(), check_beta, part)
