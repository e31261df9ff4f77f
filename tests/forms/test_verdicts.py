# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same kernel gives the same values, or the same error with the same text and line, on every executor."""

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import nki

from .beta_verdicts import KERNELS as BETA
from .conftest import EXECUTORS
from .verdicts import KERNELS


def copied(value):
    if isinstance(value, np.ndarray):
        return value.copy()
    return [copied(v) for v in value] if isinstance(value, list) else value


def verdict(on, kernel, arguments, cores, jit=nki.jit):
    """(what kind of verdict, the values or the text, the line that an error names)."""
    compiled = jit(kernel)
    try:
        return "values", plain((compiled if cores is None else compiled[cores]).on(on)(*map(copied, arguments))), None
    except Exception as error:
        text = (error.code, error.headline, error.advice) if isinstance(error, NkiMlirError) else str(error)
        at = getattr(error, "at", None)
        return type(error), text, at and (at.file, at.line)


def plain(result):
    """Values that are compared with ``==``."""
    if isinstance(result, np.ndarray):
        return str(result.dtype), result.tolist()
    if isinstance(result, dict):
        return {k: plain(v) for k, v in result.items()}
    return type(result)(map(plain, result)) if isinstance(result, (tuple, list)) else result


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.filterwarnings("ignore")
def test_verdict(name, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    first, *others = (verdict(on, *KERNELS[name]) for on in EXECUTORS)
    for on, other in zip(EXECUTORS[1:], others):
        assert other == first, f"{on} and {EXECUTORS[0]}"


@pytest.mark.parametrize("name", BETA)
@pytest.mark.filterwarnings("ignore")
def test_verdict_of_the_beta_generation(name):
    first, *others = (verdict(on, *BETA[name], beta_nki.jit) for on in EXECUTORS)
    for on, other in zip(EXECUTORS[1:], others):
        assert other == first, f"{on} and {EXECUTORS[0]}"


EXPECTED = {
    "in_private_memory": "values", "in_sbuf": "values", "in_psum": "values", "inputs": "values", "views": "values",
    "updated": "values", "several": "values", "nothing_at_all": "values", "private_of_two_cores": "values",
    "attributes": "values", "attributes_on_two_cores": "values", "state_of_arguments": "values",
    "arguments_of_all_kinds": "values", "programs_of_no_grid": "values", "truth_and_identity": "values",
    "never_written": "OutputNotWritten", "no_tensor": "BadResult", "tile_of_two_cores": "BadResult",
    "python_error": "ValueError", "failed_assertion": "AssertionError", "array_of_double": "ElementType",
    "run_time_index_outside": "IndexError", "break_of_a_dynamic_loop": "NkiValidationError",
    "condition_on_a_register": "NkiTypeError", "carried_state": "NkiValidationError",
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.filterwarnings("ignore")
def test_which_verdict(on, name, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    kind, _, _ = verdict(on, *KERNELS[name])
    assert (kind if isinstance(kind, str) else kind.__name__) == EXPECTED[name]
