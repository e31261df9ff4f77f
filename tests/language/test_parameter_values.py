# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters that change values in special ways: moved bits, sums over transfers, default dtypes."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.indirect import IndirectNotSupported

from .running import check, floats, run

TABLE, ROWS = floats(50, 8), np.random.default_rng(0).permutation(50)[:16, None].astype(np.int32)
OTHERS = np.random.default_rng(1).permutation(50)[:16, None].astype(np.int32)


def test_is_transpose__moves_bits(on):
    @nki.jit
    def kernel(x, identity):
        out = nl.ndarray((32, 64), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nisa.nc_matmul(nl.load(x), nl.load(identity), is_transpose=True))
        return out
    x = floats(64, 32)
    x[3, 4], x[5, 6] = np.inf, np.nan
    check(on, kernel, x.T.copy(), x, np.eye(64, dtype=np.float32))


@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("op", [None, np.add])
def test_dma_copy__of_rows_that_are_gathered(on, scattered, op):
    @nki.jit
    def kernel(table, rows, others):
        out, f = nl.ndarray((50, 8), nl.float32, buffer=nl.shared_hbm), nl.arange(8)[None, :]
        nl.store(out, 1.0)
        target = out[nl.load(others), f] if scattered else out[0:16, :]
        nisa.dma_copy(dst=target, src=table[nl.load(rows), f], dst_rmw_op=op)
        return out
    expected = np.ones((50, 8), np.float32)
    places = OTHERS[:, 0] if scattered else np.arange(16)
    expected[places] = TABLE[ROWS[:, 0]] + (0 if op is None else 1)
    check(on, kernel, expected, TABLE, ROWS, OTHERS)


def test_dma_copy__skips_rows_of_plain_gathers_only(on):
    @nki.jit
    def kernel(table, rows):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, 1.0)
        nisa.dma_copy(dst=out, src=table[nl.load(rows), nl.arange(8)[None, :]], dst_rmw_op=np.add,
                      oob_mode=nisa.oob_mode.skip)
        return out
    with pytest.raises(IndirectNotSupported, match="skips rows"):
        run(on, kernel, TABLE, ROWS)


@pytest.mark.parametrize("dtype", [None, nl.float32])
def test_bn_stats__has_the_dtype_of_its_data(on, dtype):
    @nki.jit
    def kernel(x):
        stats = nisa.bn_stats(nl.load(x), dtype=dtype)
        out = nl.ndarray((16, 6), stats.dtype, buffer=nl.shared_hbm)
        nl.store(out, stats)
        return out
    x = floats(16, 8, dtype=ml_dtypes.bfloat16)
    halves = [x[:, k::2].astype(np.float64) for k in range(2)]
    expected = np.stack([v for h in halves for v in (np.full(16, 4), h.mean(1), h.var(1) * 4)], 1).astype(np.float32)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype else {"steps": 1}
    check(on, kernel, expected.astype(dtype or x.dtype), x, **tolerance)
