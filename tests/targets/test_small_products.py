# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""While kernels run on eager, the interpreter and the simulator, NumPy's products take one thread; afterwards as before."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from nki_mlir.dialects.nki.matmul import MatrixProduct
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets.small_products import on_one_thread

from ..at_once import at_once


def threads():
    return {entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def three_threads():
    with threadpool_limits(3, "blas"):
        yield


def test_products_take_one_thread__and_as_many_as_before_afterwards():
    assert threads() == {3}
    with on_one_thread():
        with on_one_thread():
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {3}


def test_an_error__gives_the_threads_back():
    with pytest.raises(ZeroDivisionError, match="division"), on_one_thread():
        raise ZeroDivisionError("division")
    assert threads() == {3}


def test_runs_at_once__end_in_any_order():
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()
    observed = []

    def first():
        with on_one_thread():
            first_in.set()
            second_in.wait(20)
        first_out.set()

    def second():
        first_in.wait(20)
        with on_one_thread():
            second_in.set()
            first_out.wait(20)
            observed.append(threads())
    at_once(lambda work: work(), (first, second))
    assert observed == [{1}] and threads() == {3}


@nki.jit
def squared(x):
    out = nl.ndarray((32, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out, nl.matmul(tile, tile, transpose_x=True))
    return out


@pytest.mark.parametrize("executor", ["eager", "interpreter", "isa"])
def test_executors_that_compute_with_numpy(executor, monkeypatch):
    observed, reference = [], MatrixProduct.reference
    x = np.random.default_rng(0).integers(-4, 5, (128, 32)).astype(np.float32)

    def watched(self, *sources):
        observed.append(threads())
        return reference(self, *sources)
    monkeypatch.setattr(MatrixProduct, "reference", watched)
    np.testing.assert_array_equal(squared.on(executor)(x), x.T @ x)
    assert observed and all(counts == {1} for counts in observed)
    assert threads() == {3}
