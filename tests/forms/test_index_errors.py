# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A run-time index out of bounds is exactly an ``IndexError``, with the text that the documents have."""

import numpy as np
import pytest

from nki_mlir.dialects.nisa.indirect import IndirectOutOfBounds
from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.beta import language as beta
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

X = np.arange(128, dtype=np.float32).reshape(8, 16)


def places(bad):
    index = np.arange(8, dtype=np.int32)[:, None]
    index[5] = bad
    return index


@beta_nki.jit
def loaded(x, index):
    out = beta.ndarray(x.shape, x.dtype, buffer=beta.shared_hbm)
    i, (p, f) = beta.load(index), beta.mgrid[0:8, 0:16]
    beta.store(out[p, f], beta.load(x[i[beta.arange(8)[:, None], 0], beta.arange(16)[None, :]]))
    return out


@beta_nki.jit
def stored(x, index):
    out = beta.ndarray(x.shape, x.dtype, buffer=beta.shared_hbm)
    i = beta.load(index)
    beta.store(out[i[beta.arange(8)[:, None], 0], beta.arange(16)[None, :]], beta.load(x))
    return out


@beta_nki.jit
def columns(x, index):
    """Columns 4 to 8, of rows that start at the table's third one in the second iteration."""
    out = beta.ndarray((2, 8, 4), x.dtype, buffer=beta.shared_hbm)
    i = beta.load(index)
    for k in beta.affine_range(2):
        rows = x[i[beta.arange(8)[:, None], 0], beta.arange(4)[None, :] + 4 * (k + 1)]
        beta.store(out[k], beta.load(rows))
    return out


@beta_nki.jit
def copied(x, index):
    out = beta.ndarray(x.shape, x.dtype, buffer=beta.shared_hbm)
    i = beta.load(index)
    beta_isa.dma_copy(dst=out, src=x[i[beta.arange(8)[:, None], 0], beta.arange(16)[None, :]])
    return out


@nki.jit
def gathered(x, index):
    tile = nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(tile, x.ap([[16, 8], [1, 16]], vector_offset=nl.load(index)))
    return tile


@nki.jit
def scattered(x, index):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out.ap([[16, 8], [1, 16]], vector_offset=nl.load(index)), nl.load(x))
    return out


@pytest.mark.parametrize("kernel", [loaded, stored, copied, gathered, scattered], ids=lambda k: k.__name__)
@pytest.mark.parametrize("bad, flat", [(8, 128), (11, 176), (-1, -16)])
def test_rows(on, kernel, bad, flat):
    np.testing.assert_array_equal(kernel.on(on)(X, places(5)), X)
    with pytest.raises(IndexError) as raised:
        kernel.on(on)(X, places(bad))
    assert type(raised.value) is IndexError
    assert str(raised.value) == f"index {flat} is out of bounds for axis 0 with size 128"
    assert isinstance(raised.value.__cause__, IndirectOutOfBounds)
    assert raised.value.at.file == __file__ and raised.value.code == "err_tensor_access_out_of_bound"


def test_parts_of_rows(on):
    with pytest.raises(IndexError) as raised:
        columns.on(on)(X, places(9))
    assert str(raised.value) == f"index {9 * 16 + 4} is out of bounds for axis 0 with size 128"


def test_simulators():
    for call in (lambda: beta_nki.simulate_kernel(loaded, X, places(9)), lambda: nki.simulate(gathered)(X, places(9))):
        with pytest.raises(IndexError, match=r"^index 144 is out of bounds for axis 0 with size 128$") as raised:
            call()
        assert type(raised.value) is IndexError
