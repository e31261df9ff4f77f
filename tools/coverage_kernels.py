# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiny kernels of the names that have no example in ``help()``: decorators, allocators and annotations.

``docs/coverage.md`` runs them. All other names run their examples.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_mlir.language.beta import compiler as ncc
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.beta import typing as nt
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.kernel import Kernel, unwrap

RNG = np.random.default_rng(0)
A, B = (RNG.random((2, 64, 32)) + 0.25).astype(np.float32)
COUNT = np.array([[3]], np.int32)


@dataclass(frozen=True)
class Sample:
    """A kernel of tensors in HBM, its arguments and its decorator."""

    body: Callable
    decorate: Callable
    arrays: tuple[np.ndarray, ...] = (A,)
    simulated: str = ""                 # the reason why it runs only in the simulator

    def kernel(self) -> Kernel:
        return unwrap(self.decorate(self.body))

    def run(self, on: str) -> Any:
        """Return the results on an executor."""
        arrays = tuple(a.copy() for a in self.arrays)
        return self.decorate(self.body)(*arrays) if self.simulated else self.kernel().run(arrays, {}, on)


# -- beta --------------------------------------------------------------------------------------------------------------
def beta(body: Callable, *arrays: np.ndarray, decorate: Callable = beta_nki.jit) -> Sample:
    return Sample(body, decorate, arrays or (A,))


def beta_copied(x: Any) -> Any:
    out = beta_nl.ndarray(x.shape, x.dtype, buffer=beta_nl.shared_hbm)
    beta_nl.store(out, beta_nl.load(x))
    return out


def allocated(buffer: Any) -> Sample:
    """Return a sample whose kernel copies through a buffer that it allocates."""
    def body(x):
        out = beta_nl.ndarray(x.shape, x.dtype, buffer=beta_nl.shared_hbm)
        tile = beta_nl.ndarray(x.shape, x.dtype, buffer=buffer)
        tile[...] = beta_nl.load(x)
        beta_nl.store(out, tile)
        return out
    return beta(body)


def multi_buffered(x: Any) -> Any:
    out = beta_nl.ndarray(x.shape, x.dtype, buffer=beta_nl.shared_hbm)
    for i in beta_nl.sequential_range(4, directives=ncc.multi_buffer(2)):
        beta_nl.store(out[beta_nl.ds(i * 16, 16)], beta_nl.load(x[beta_nl.ds(i * 16, 16)]))
    return out


def in_order(x: Any) -> Any:
    with ncc.no_reorder():
        return beta_copied(x)


def written(x: nt.tensor, out: nt.mutable_tensor) -> Any:
    beta_nl.store(out, beta_nl.load(x))
    return out


def annotated(x: Any) -> Any:
    tile: nt.tensor[64, 32] = beta_nl.load(x)
    out = beta_nl.ndarray(x.shape, x.dtype, buffer=beta_nl.shared_hbm)
    beta_nl.store(out, tile)
    return out


def counted(x: Any, n: Any) -> Any:
    out = beta_nl.ndarray(x.shape, x.dtype, buffer=beta_nl.shared_hbm)
    total, steps = beta_nl.zeros(x.shape, beta_nl.float32), beta_nl.load(n)
    condition = nt.scalar(True)
    while condition:
        total += beta_nl.load(x)
        steps[...] = beta_nl.subtract(steps, 1)
        condition = nt.scalar(steps)
    beta_nl.store(out, total)
    return out


DECORATORS = "skip_middle_end_transformations enable_stack_allocator force_auto_alloc"
COMPILER: dict[str, Sample] = {
    **{n: beta(beta_copied, decorate=lambda f, n=n: getattr(ncc, n)(beta_nki.jit(f))) for n in DECORATORS.split()},
    "sbuf": allocated(ncc.sbuf.mod_alloc(base_addr=0)), "psum": allocated(ncc.psum.mod_alloc(base_bank=0)),
    "multi_buffer": beta(multi_buffered), "no_reorder": beta(in_order),
    "allocation_scope": beta(lambda x: (ncc.allocation_scope(), beta_copied(x))[1]),
}
TYPING: dict[str, Sample] = {
    "tensor": beta(annotated), "scalar": beta(counted, A, COUNT),
    "mutable_tensor": beta(written, A, B), "mutable": beta(written, A, B),
}
BETA_NKI: dict[str, Sample] = {
    **{n: beta(beta_copied, decorate=lambda f, n=n: getattr(beta_nki, n)(f))
       for n in ("jit", "trace", "baremetal", "benchmark")},
    "profile": beta(beta_copied, decorate=lambda f: beta_nki.profile(f, working_directory=tempfile.gettempdir())),
    "simulate_kernel": Sample(beta_copied, lambda f: lambda *arrays: beta_nki.simulate_kernel(beta_nki.jit(f), *arrays),
                              simulated="it is the simulator"),
    "tensor": beta(lambda x: beta_copied(x) if isinstance(x, beta_nki.tensor) else None),
}


# -- current -----------------------------------------------------------------------------------------------------------
def copied(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, nl.load(x))
    return out


def identity(x: Any) -> Any:
    return copied(nl.shared_constant(nki.tensor.identity(16)))


NKI: dict[str, Sample] = {
    "jit": Sample(copied, lambda f: nki.jit(f)), "Kernel": Sample(copied, nki.jit),
    "dtype": Sample(lambda x: copied(x) if x.dtype is nki.dtype.float32 else None, nki.jit),
    "tensor": Sample(identity, nki.jit),
    **{n: Sample(copied, lambda f, n=n: getattr(nki, n)(nki.jit(f)), simulated="it is the simulator")
       for n in ("simulate", "cpu_simulate")},
}
