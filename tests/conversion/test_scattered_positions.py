# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Positions that an operation computes with, where its mask is not a box: they do not depend on the tile's dtype."""

import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki


@nki.jit
def selected(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    p, f = nl.arange(16)[:, None], nl.arange(512)[None, :]
    r = nl.zeros((16, 512), dtype=x.dtype, buffer=nl.sbuf)
    r[p, f] = nisa.affine_select(pred=(f - p - 300 == 0), on_true_tile=t, on_false_value=7, mask=(f > 3 * p))
    nl.store(out, r)
    return out


@pytest.mark.parametrize("on", ["eager", "interpreter", "jit", "isa"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.float32, nl.bfloat16])
def test_a_predicate_beyond_the_numbers_of_the_tile_s_dtype(dtype, on):
    """The predicate goes from -315 to 211: in 8 bits two columns would be equal to 0."""
    x = np.full((16, 512), 5).astype(dtype)
    p, f = np.mgrid[:16, :512]
    expected = np.where(f > 3 * p, np.where(f - p - 300 == 0, 5, 7), 0)
    np.testing.assert_array_equal(np.asarray(selected.on(on)(x)).astype(np.float32), expected)
