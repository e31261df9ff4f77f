# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random kernels that draw from the op tables of both generations: all executors agree, and the oracle.

`make fuzz` tries 20,000 of them, other ones each time, in parts that pytest reports one by one; NKI_MLIR_FUZZ_SEED
repeats a run. The ordinary run tries the same 80 each time.
"""

import os
import secrets
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from nki_mlir.language.beta import compiler as beta_ncc
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta.typing import mutable_tensor, scalar
from nki_mlir.language.current import collectives as ncc
from nki_mlir.language.current import isa as current_isa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki
from nki_mlir.targets.neuron.codegen import emission
from nki_mlir.targets.neuron.codegen.emission import emit_for_values

from ..fuzz_time import ending_in_time
from ..language.generated import kernel_from_text
from ..oracle import beta as beta_evaluator
from ..oracle import current as oracle
from ..oracle import run
from . import beta_rules, current_rules  # noqa: F401
from .beta import BetaWriter
from .comparing import arrays_of_ranks, check_agreement
from .current import CurrentWriter

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
SEED = int(os.environ.get("NKI_MLIR_FUZZ_SEED", secrets.randbelow(1 << 30) if FUZZ else 0))
PROGRAMS, PARTS = (20_000, 200) if FUZZ else (40, 10)
PROGRAMS = int(os.environ.get("NKI_MLIR_FUZZ_PROGRAMS", PROGRAMS))


@st.composite
def programs(draw, writer, special=False):
    return writer(lambda n: draw(st.integers(0, n - 1)), special).program()


def part_of(writer, check, part, count=PROGRAMS // PARTS // 2):
    """Run a part of the programs. In each fifth part the inputs have NaN, infinities and -0 in them."""
    @seed((SEED << 8) + part)
    @settings(max_examples=count, deadline=None, database=None, derandomize=False,
              suppress_health_check=list(HealthCheck))
    @given(programs(writer, special=part % 5 == 4))
    @ending_in_time
    def run(program):
        note(program.text)
        check(program)
    run()


def beta_oracle(program):
    return [run(program.text, arrays_of_ranks(program)[0], generation=beta_evaluator, names=beta_evaluator.NAMES,
                grid=program.grid)]


def beta_kernel(program):
    return kernel_from_text(program.text, {"nl": nl, "nisa": nisa, "np": np, "scalar": scalar, "ncc": beta_ncc,
                                           "mutable_tensor": mutable_tensor})


def check_beta(program):
    check_agreement(beta_kernel, program, beta_oracle)


def current_oracle(program):
    names = {"nl": oracle.nl, "nisa": oracle.nisa, "ncc": oracle.ncc, "np": np}
    return oracle.run_ranks(program.text, arrays_of_ranks(program), grid=program.grid, names=names)


def current_kernel(program):
    names = {"nl": current_nl, "nisa": current_isa, "ncc": ncc, "np": np}
    return kernel_from_text(program.text, names, jit=current_nki.jit)


def check_current(program):
    """Let the kernel run for the target that has all instructions."""
    with patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE="trn3"):
        check_agreement(current_kernel, program, current_oracle)


@pytest.mark.share(3)
@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_beta_kernels_agree(part):
    part_of(BetaWriter, check_beta, part)


@pytest.mark.share(3)
@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_current_kernels_agree(part):
    part_of(CurrentWriter, check_current, part)


@pytest.mark.filterwarnings("ignore")
def test_both_emissions__run_streams_of_both():
    """The two pipelines differ in whether they reorder."""
    program, reorder = BetaWriter(Random(3).randrange).program(), []
    emit_cores = emission.emit_cores

    def recorded(modules, grid, options, *more):
        reorder.append(options.reorder)
        return emit_cores(modules, grid, options, *more)
    with patch.object(emission, "emit_for_values", emit_for_values), patch.object(emission, "emit_cores", recorded):
        check_agreement(beta_kernel, program, beta_oracle, both_emissions=True)
    assert reorder == [False, True]


def test_special_inputs__have_nan_infinities_and_negative_zeros():
    arrays = [array for array in BetaWriter(Random(3).randrange, special=True).program().arrays.values() if array.dtype.kind == "f"]
    assert arrays
    for array in arrays:
        assert np.isnan(array).any() and np.isposinf(array).any() and np.isneginf(array).any()
        assert ((array == 0) & np.signbit(array)).any()
