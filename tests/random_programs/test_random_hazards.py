# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random kernels that overwrite what others read: executors, streams in several orders, the oracle, against NumPy."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from ..fuzz_time import ending_in_time
from ..language.generated import kernel_from_text
from ..oracle import current as oracle
from ..oracle import run
from .comparing import EXECUTORS, executing
from .hazards import Hazards, Memory, start
from .test_random_kernels import FUZZ, PARTS, PROGRAMS, SEED

ORDERS = EXECUTORS + ("isa in order 1", "isa in order 2")


def check_hazards(drawn: Hazards) -> None:
    kernel = kernel_from_text(drawn.text, {"nl": nl, "nisa": nisa}, jit=nki.jit)
    inputs, names = (start(Memory("h", "hbm", "float32")), drawn.initial.copy()), {"nl": oracle.nl, "nisa": oracle.nisa}
    outcome = run(drawn.text, inputs, generation=oracle, names=names)
    assert not outcome.findings
    for array, wanted in zip((*outcome.results, inputs[1]), (*drawn.expected(), drawn.arrays["m"]), strict=True):
        np.testing.assert_array_equal(array, wanted, err_msg="oracle")
    for on in ORDERS:
        x, m = start(Memory("h", "hbm", "float32")), drawn.initial.copy()
        with executing(on) as executor:
            got = kernel.on(executor)(x, m)
        for name, array, wanted in zip([f.name for f in drawn.memories if f.name != "m"], got, drawn.expected(), strict=True):
            np.testing.assert_array_equal(array, wanted, err_msg=f"{on}: {name}")
        np.testing.assert_array_equal(m, drawn.arrays["m"], err_msg=f"{on}: m")


@st.composite
def hazards(draw):
    return Hazards(lambda n: draw(st.integers(0, n - 1)))


@pytest.mark.share(3)
@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_hazards(part, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")

    @seed((SEED << 8) + part)
    @settings(max_examples=PROGRAMS // PARTS // (2 if FUZZ else 4), deadline=None, database=None, derandomize=False,
              suppress_health_check=list(HealthCheck))
    @given(hazards())
    @ending_in_time
    def check(drawn):
        note(drawn.text)
        check_hazards(drawn)
    check()
