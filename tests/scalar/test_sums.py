# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``NKI_MLIR_SUMS=device``: every executor adds in the device's order, bit for bit that of a loop in Python."""

import numpy as np
import pytest

from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.beta import language as beta_language
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.scalar.sums import UnknownOrder, product

EXECUTORS = ("eager", "interpreter", "jit", "isa")
K, M, N = 256, 16, 24


def one_after_the_other(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Products of 128 rows each, whose sums are added in PSUM; then the sum of each row of the result."""
    total = None
    for start in range(0, K, 128):
        part = None
        for k in range(start, start + 128):
            step = left[k][:, None] * right[k][None, :]
            part = step if part is None else part + step
        total = part if total is None else total + part
    rows = total[:, :1]
    for n in range(1, N):
        rows = rows + total[:, n:n + 1]
    return np.concatenate([total, rows], axis=1)


@nki.jit
def current_kernel(left, right):
    out = nl.ndarray((M, N + 1), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.psum)
    for k in range(K // 128):
        a = nl.ndarray((128, M), dtype=nl.float32, buffer=nl.sbuf)
        b = nl.ndarray((128, N), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=left[k * 128:(k + 1) * 128, :])
        nisa.dma_copy(dst=b, src=right[k * 128:(k + 1) * 128, :])
        nisa.nc_matmul(dst=total, stationary=a, moving=b)
    copied = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.sbuf)
    rows = nl.ndarray((M, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=copied, src=total)
    nisa.tensor_reduce(dst=rows, op=nl.add, data=copied, axis=1, keepdims=True)
    nisa.dma_copy(dst=out[:, 0:N], src=copied)
    nisa.dma_copy(dst=out[:, N:N + 1], src=rows)
    return out


@beta.jit
def beta_kernel(left, right):
    out = beta_language.ndarray((M, N + 1), dtype=left.dtype, buffer=beta_language.shared_hbm)
    total = beta_language.zeros((M, N), beta_language.float32, buffer=beta_language.psum)
    for k in beta_language.affine_range(K // 128):
        total += beta_isa.nc_matmul(beta_language.load(left[k * 128:(k + 1) * 128, :]),
                                    beta_language.load(right[k * 128:(k + 1) * 128, :]))
    copied = beta_isa.tensor_copy(total)
    rows = beta_isa.tensor_reduce(np.add, copied, axis=[1], keepdims=True)
    beta_language.store(out[:, 0:N], copied)
    beta_language.store(out[:, N:N + 1], rows)
    return out


@pytest.fixture
def operands() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return tuple((rng.standard_normal((K, n)) * 10.0 ** rng.integers(-3, 4, (K, n))).astype(np.float32) for n in (M, N))


@pytest.mark.parametrize("on", EXECUTORS)
@pytest.mark.parametrize("kernel", [current_kernel, beta_kernel], ids=["current", "beta"])
def test_sums__are_those_of_a_loop(kernel, on, operands, monkeypatch) -> None:
    monkeypatch.setenv("NKI_MLIR_SUMS", "device")
    fresh = type(kernel)(kernel.func)                   # without programs that were compiled for another order
    assert np.array_equal(fresh.on(on)(*operands), one_after_the_other(*operands))


def test_order_matters__for_these_operands(operands) -> None:
    left, right = operands
    wanted = one_after_the_other(left, right)
    assert not np.array_equal(wanted[:, :N], left.T @ right)
    assert not np.array_equal(wanted[:, N], wanted[:, :N].sum(axis=1))


def test_other_words__are_refused(operands, monkeypatch) -> None:
    monkeypatch.setenv("NKI_MLIR_SUMS", "exact")
    with pytest.raises(UnknownOrder, match=r"NKI_MLIR_SUMS cannot be 'exact' \[NKI-SUMS\]"):
        current_kernel.on("eager")(*operands)


def test_products__sums_of_zeros_have_no_sign(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_SUMS", "device")
    for rows in (1, 3):
        total = product(np.zeros((rows, 2), np.float32), np.full((rows, 2), -1, np.float32))
        assert not total.any() and not np.signbit(total).any()
