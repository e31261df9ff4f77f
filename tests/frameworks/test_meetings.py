# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels whose programs meet, called with tensors of PyTorch and arrays of JAX, on every executor."""

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from . import kernels

X = np.arange(32, dtype=np.float32).reshape(2, 16)
EXECUTORS = ["eager", "interpreter", "jit", "isa"]


@nki.jit
def twice_of_the_other(x):
    """What one core leaves in memory of both, the other reads behind a barrier."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    shared = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="shared")
    core = nl.program_id(0)
    nl.store(shared[core:core + 1], nl.multiply(nl.load(x[core:core + 1]), 2.0))
    nisa.core_barrier(shared, (0, 1))
    nl.store(out[core:core + 1], nl.load(shared[1 - core:2 - core]))
    return out


@nki.jit
def exchanged(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    mine = nl.load(x[core:core + 1])
    theirs = nl.ndarray(mine.shape, x.dtype, buffer=nl.sbuf)
    nisa.sendrecv(mine, theirs, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    nl.store(out[core:core + 1], theirs)
    return out


@nki.jit
def updated_behind_a_barrier(x):
    """Each core replaces the row of the other, which has read it before."""
    core = nl.program_id(0)
    mine = nl.load(x[core:core + 1])
    nisa.core_barrier(x, (0, 1))
    nl.store(x[1 - core:2 - core], mine)


@nki.jit
def waits_alone(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    if nl.program_id(0) == 0:
        nisa.core_barrier(out, (0, 1))
    return out


def called_with(framework):
    """Makes a framework's tensor of an array."""
    if framework == "torch":
        return pytest.importorskip("torch").from_numpy
    return pytest.importorskip("jax").numpy.asarray


@pytest.mark.parametrize("on", EXECUTORS)
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_cores(framework, on):
    convert = called_with(framework)
    np.testing.assert_array_equal(np.asarray(twice_of_the_other[2].on(on)(convert(X))), X[::-1] * 2)
    np.testing.assert_array_equal(np.asarray(exchanged[2].on(on)(convert(X))), X[::-1])


@pytest.mark.parametrize("on", EXECUTORS)
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_programs_of_the_beta_generation(framework, on):
    x = np.arange(32 * 4, dtype=np.float32).reshape(32, 4)
    total = x[:16] + x[16:]
    got = kernels.summed_over_programs[2].on(on)(called_with(framework)(x))
    np.testing.assert_array_equal(np.asarray(got), np.concatenate([total, total]))


@pytest.mark.parametrize("on", EXECUTORS)
def test_a_tensor_that_is_updated(on):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X.copy())
    updated_behind_a_barrier[2].on(on)(x)
    np.testing.assert_array_equal(x.numpy(), X[::-1])


@pytest.mark.parametrize("on", EXECUTORS)
def test_in_a_compiled_jax_program(on):
    jax = pytest.importorskip("jax")
    got = jax.jit(lambda x: twice_of_the_other[2].on(on)(x) + 1)(X)
    np.testing.assert_array_equal(np.asarray(got), X[::-1] * 2 + 1)


@pytest.mark.parametrize("on", ["eager", "interpreter", "jit"])
def test_waiting_in_vain(on):
    torch = pytest.importorskip("torch")
    with pytest.raises(NkiMlirError, match=r"core 0 waits in nisa.core_barrier for core 1 .*; core 1 has ended"):
        waits_alone[2].on(on)(torch.from_numpy(X))
