# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls from several threads: kernels run while other Python threads do, and many kernels are made known at once."""

import threading
import time

import numpy as np
import pytest

from ..at_once import at_once
from . import kernels

BLOCKS = 2048
X = np.ones((16 * BLOCKS, 256), np.float32)


def together(call):
    """How often this thread ran in the middle of the time that a call took in another."""
    span, moments = [], []

    def work():
        for _ in range(2):              # the first may compile
            started = time.perf_counter()
            call()
            span[:] = [started, time.perf_counter()]
    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        moments.append(time.perf_counter())
    start, end = span
    quarter = (end - start) / 4
    return sum(start + quarter < t < end - quarter for t in moments)


def run_together(call):
    """Whether this thread ran while a call ran in another. On a busy machine a call may run alone."""
    return any(together(call) > 100 for _ in range(20))


@pytest.mark.torch
def test_torch__other_threads_run_meanwhile():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X)
    assert run_together(lambda: kernels.add[BLOCKS](x, x))


@pytest.mark.jax
def test_jax__other_threads_run_meanwhile():
    jax = pytest.importorskip("jax")
    f = jax.jit(kernels.add[BLOCKS])
    assert run_together(lambda: f(X, X).block_until_ready())


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_kernels__captured_by_several_threads_at_once(framework):
    if framework == "jax":
        array = pytest.importorskip("jax").numpy.asarray
    else:
        array = pytest.importorskip("torch").from_numpy
    wrong = []

    def work(n):
        for k in range(6):
            x = np.full((4 + k, 4), n + 1, np.float32)
            if not np.array_equal(np.asarray(kernels.scaled(array(x), 100 + k + n % 2)), x * (100 + k + n % 2)):
                wrong.append((n, k))
    at_once(work, range(4))
    assert not wrong
