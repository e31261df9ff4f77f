# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of which only a part is read: nests compute that part, and values stay."""

from unittest.mock import patch

import ml_dtypes  # noqa: F401
import numpy as np
import pytest

from nki_mlir.dialects.access import Linear
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets.cpu.passes.trim_tiles import read_sizes
from nki_mlir.targets.cpu.pipeline import PIPELINE
from nki_mlir.waist.overlap import ByteRegion

from ...forced_passes import FORCED


def product(a_t, b):
    """Compute a_t.T @ b of any sizes; masks leave out what tiles have beyond them."""
    (depth, rows), columns = a_t.shape, b.shape[1]
    out = nl.ndarray((rows, columns), dtype=a_t.dtype, buffer=nl.shared_hbm)
    k, m, n = (nl.arange(size) for size in (64, 32, 64))
    for i in nl.affine_range(-(-rows // 32)):
        for j in nl.affine_range(-(-columns // 64)):
            total = nl.zeros((32, 64), nl.float32, buffer=nl.psum)
            for s in nl.affine_range(-(-depth // 64)):
                deep = s * 64 + k[:, None] < depth
                left = nl.load(a_t[s * 64 + k[:, None], i * 32 + m[None, :]], mask=deep & (i * 32 + m[None, :] < rows))
                right = nl.load(b[s * 64 + k[:, None], j * 64 + n[None, :]], mask=deep & (j * 64 + n[None, :] < columns))
                total += nl.matmul(left, right, transpose_x=True, mask=deep)
            nl.store(out[i * 32 + m[:, None], j * 64 + n[None, :]], nl.copy(total, dtype=out.dtype),
                     mask=(i * 32 + m[:, None] < rows) & (j * 64 + n[None, :] < columns))
    return out


def corner(a_t, b):
    """Square a tile, store a part of it, then parts that begin elsewhere."""
    out = nl.ndarray((b.shape[0], b.shape[1]), dtype=b.dtype, buffer=nl.shared_hbm)
    tile = nl.multiply(nl.load(b), nl.load(b))
    half = b.shape[1] // 2
    nl.store(out, nl.load(b))
    nl.store(out[0:9, 0:half], nl.copy(tile[0:9, 0:half]))
    nl.store(out[3:7, half:half + 3], nl.copy(tile[20:24, 2:5]))
    return out


def values(kernel, passes: dict[str, str], a_t: np.ndarray, b: np.ndarray) -> np.ndarray:
    with patch.dict(PIPELINE, passes, clear=True):
        return np.asarray(nki.jit(kernel).on("jit")(a_t, b))


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("sizes", [(64, 32, 64), (65, 33, 65), (127, 40, 100), (40, 20, 30), (130, 96, 129)])
@pytest.mark.parametrize("kernel", [product, corner], ids=lambda kernel: kernel.__name__)
def test_trimmed_tiles__keep_values(kernel, sizes: tuple[int, int, int], dtype: str,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_MLIR_CACHE", "off")
    depth, rows, columns = sizes
    rng = np.random.default_rng(0)
    a_t, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((depth, rows), (min(depth, 128), columns)))
    if kernel is product:
        b = rng.integers(-4, 5, (depth, columns)).astype(dtype)
        expected = (a_t.astype(np.float32).T @ b.astype(np.float32)).astype(dtype)
        np.testing.assert_array_equal(values(kernel, PIPELINE, a_t, b), expected)
    else:
        with_zeros = {name: options for name, options in PIPELINE.items() if name != "trim-tiles"}
        np.testing.assert_array_equal(values(kernel, PIPELINE, a_t, b), values(kernel, with_zeros, a_t, b))
    forced = {name: FORCED[name] if name in ("trim-tiles", "form-products") else "" for name in PIPELINE}
    np.testing.assert_array_equal(values(kernel, forced, a_t, b), values(kernel, PIPELINE, a_t, b))


@pytest.mark.parametrize("start, dims, sizes", [
    (0, [(256, 10), (4, 20)], (10, 80)), (512, [(256, 3), (4, 1)], (5, 4)), (0, [(4, 128)], (2, 256)),
    (8, [(4, 20)], (1, 88)), (8, [(4, 64)], None), (0, [(4, 70)], None), (0, [(8, 40)], None), (0, [], (1, 4))])
def test_sizes__have_all_bytes_of_an_access(start: int, dims: list[tuple[int, int]], sizes: tuple[int, int] | None) -> None:
    assert read_sizes(ByteRegion("tile", Linear(), 1 << 12, Linear(start)), dims, 4, 256) == sizes
