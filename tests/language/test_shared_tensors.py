# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that all programs of a grid share, where a program's branches allocate them."""

import numpy as np
import pytest

from nki_mlir.capture.errors import SharedTensorsDiffer
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.results import DifferentResults

X = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
EXECUTORS = "eager", "interpreter", "jit", "isa"


@beta.jit
def scratch_in_one_program(x):
    out = beta_nl.ndarray((2, 128, 64), x.dtype, buffer=beta_nl.shared_hbm)
    if beta_nl.program_id(0) == 1:
        scratch = beta_nl.ndarray((128, 640), x.dtype, buffer=beta_nl.shared_hbm)
        beta_nl.store(scratch[:, 0:64], beta_nl.load(x) + 1)
        beta_nl.store(out[1], beta_nl.load(scratch[:, 0:64]))
    else:
        beta_nl.store(out[0], beta_nl.load(x))
    return out


@nki.jit
def named_scratch_first(x):
    if nl.program_id(0) == 1:
        scratch = nl.ndarray((128, 640), x.dtype, buffer=nl.shared_hbm, name="scratch")
        nisa.dma_copy(scratch[:, 0:64], x)
    out = nl.ndarray((2, 128, 64), x.dtype, buffer=nl.shared_hbm, name="out")
    nisa.dma_copy(out[nl.program_id(0)], x)
    return out


@beta.jit
def wider_in_one_program(x):
    width = 64 if beta_nl.program_id(0) == 0 else 640
    out = beta_nl.ndarray((128, width), x.dtype, buffer=beta_nl.shared_hbm)
    beta_nl.store(out[:, 0:64], beta_nl.load(x))
    return out


@beta.jit
def other_dtype_in_one_program(x):
    dtype = beta_nl.float32 if beta_nl.program_id(0) == 0 else beta_nl.bfloat16
    out = beta_nl.ndarray((128, 64), dtype, buffer=beta_nl.shared_hbm)
    beta_nl.store(out, beta_nl.load(x))
    return out


@nki.jit
def wider_on_one_core(x):
    out = nl.ndarray((128, 64 + nl.program_id(0)), x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out[:, 0:64], x)
    return out


@beta.jit
def allocated_in_other_orders(x):
    first = beta_nl.ndarray((128, 64), x.dtype, buffer=beta_nl.shared_hbm)
    second = beta_nl.ndarray((128, 64), x.dtype, buffer=beta_nl.shared_hbm)
    a, b = (first, second) if beta_nl.program_id(0) == 0 else (second, first)
    beta_nl.store(a, beta_nl.load(x))
    beta_nl.store(b, beta_nl.load(x))
    return a, b


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_tensor_that_one_program_allocates(executor):
    result = scratch_in_one_program[2].on(executor)(X)
    assert np.array_equal(result, [X, X + 1])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_names_identify_tensors_of_cores(executor):
    assert np.array_equal(named_scratch_first[2].on(executor)(X), [X, X])


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("kernel, shapes", [
    (wider_in_one_program, "[128, 640] of float32, and [128, 64] of float32"),
    (other_dtype_in_one_program, "[128, 64] of bfloat16, and [128, 64] of float32"),
    (wider_on_one_core, "[128, 65] of float32, and [128, 64] of float32")], ids=lambda v: getattr(v, "__name__", ""))
def test_tensors_that_differ_between_programs(kernel, shapes, executor):
    with pytest.raises(NkiMlirError, match="mismatched shape or dtype across program instances") as caught:
        kernel[2].on(executor)(X)
    assert shapes in str(caught.value)
    assert "out = " in str(caught.value) and caught.value.code == SharedTensorsDiffer.code


@pytest.mark.parametrize("executor", EXECUTORS)
def test_programs_that_return_different_tensors(executor):
    with pytest.raises(DifferentResults, match="one returns first, its shared tensor 0, second, its shared tensor 1; "
                                               "another second, its shared tensor 1, first, its shared tensor 0") as caught:
        allocated_in_other_orders[2].on(executor)(X)
    assert "return a, b" in str(caught.value)
