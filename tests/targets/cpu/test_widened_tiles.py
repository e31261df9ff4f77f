# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of narrow floats that are stored in float32 for products: which are, and the same bits as where they stay."""

from collections import Counter
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.native_nodes import Compute, RoutineCall, ScratchBuffer, calls_in
from nki_mlir.targets.cpu.passes import widen_tiles
from nki_mlir.targets.cpu.passes.widen_tiles import WidenTiles, can_be_wide
from nki_mlir.targets.cpu.pipeline import PIPELINE

from .compiled import set_options
from .test_widened_factors import of_dtype

DTYPES = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2)


def scores(q, k):
    """Multiply by exp of a tile, rounded to its dtype, in a loop."""
    depth, rows = q.shape
    out = nl.ndarray((rows, k.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.copy(nl.exp(nl.load(q)), dtype=q.dtype)
    for j in nl.affine_range(k.shape[1] // 128):
        some = nl.ds(j * 128, 128)
        nl.store(out[:, some], nl.copy(nisa.nc_matmul(left, nl.load(k[:, some]))))
    return out


def added(q, k):
    """Convert the tile in an addition, too."""
    out = nl.ndarray((q.shape[1], k.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nl.ndarray(q.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.copy(nl.exp(nl.load(q)), dtype=q.dtype)
    nl.store(out, nl.copy(nisa.nc_matmul(left, nl.load(k))))
    nl.store(sums, nl.add(left, 1.0, dtype=nl.float32))
    return out, sums


def transposed(q, k):
    """Use the tile as a factor twice, once transposed by a copy."""
    out = nl.ndarray((q.shape[1], k.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    squares = nl.ndarray((q.shape[0], q.shape[0]), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.copy(nl.exp(nl.load(q)), dtype=q.dtype)
    left_t = nl.copy(nl.transpose(left), dtype=q.dtype)
    nl.store(out, nl.copy(nisa.nc_matmul(left, nl.load(k))))
    nl.store(squares, nl.copy(nisa.nc_matmul(left_t, left_t)))
    return out, squares


def copied(q, k):
    """Store the tile unchanged, too."""
    out = nl.ndarray((q.shape[1], k.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    left = nl.copy(nl.exp(nl.load(q)), dtype=q.dtype)
    nl.store(out, nl.copy(nisa.nc_matmul(left, nl.load(k))))
    nl.store(tiles, left)
    return out, tiles


def parts(q, k):
    """Multiply parts of a tile."""
    out = nl.ndarray((q.shape[1], k.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    right = nl.copy(nl.exp(nl.load(k)), dtype=k.dtype)
    for j in nl.affine_range(k.shape[1] // 128):
        some = nl.ds(j * 128, 128)
        nl.store(out[:, some], nl.copy(nisa.nc_matmul(nl.load(q), right[:, some])))
    return out


def repeated_parts(q, k):
    """Multiply the same parts of a tile in each iteration of the outer loop, in an inner loop."""
    out = nl.ndarray((q.shape[1] // 32, 32, k.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    right = nl.copy(nl.exp(nl.load(k)), dtype=k.dtype)
    for i in nl.affine_range(q.shape[1] // 32):
        left = nl.load(q[:, nl.ds(i * 32, 32)])
        for j in nl.affine_range(k.shape[1] // 128):
            some = nl.ds(j * 128, 128)
            nl.store(out[i, :, some], nl.copy(nisa.nc_matmul(left, right[:, some])))
    return out


def rewritten_parts(q, k):
    """Multiply parts of a tile that each iteration of the outer loop computes."""
    out = nl.ndarray((q.shape[1] // 32, 32, k.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(q.shape[1] // 32):
        left = nl.load(q[:, nl.ds(i * 32, 32)])
        right = nl.copy(nl.exp(nl.load(k)), dtype=k.dtype)
        for j in nl.affine_range(k.shape[1] // 128):
            some = nl.ds(j * 128, 128)
            nl.store(out[i, :, some], nl.copy(nisa.nc_matmul(left, right[:, some])))
    return out


def unrolled(q, k):
    """Multiply by one tile for each product, in a loop that unrolls."""
    out = nl.ndarray((4, q.shape[1], k.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    for j in nl.static_range(4):
        left = nl.copy(nl.exp(nl.multiply(nl.load(q), j + 1.0)), dtype=q.dtype)
        nl.store(out[j], nl.copy(nisa.nc_matmul(left, nl.load(k))))
    return out


def one_factor(q, k):
    """Multiply one tile by nine others."""
    out = nl.ndarray((9, q.shape[1], k.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    right = nl.copy(nl.exp(nl.load(k)), dtype=k.dtype)
    for j in nl.static_range(9):
        left = nl.copy(nl.exp(nl.multiply(nl.load(q), j + 1.0)), dtype=q.dtype)
        nl.store(out[j], nl.copy(nisa.nc_matmul(left, right)))
    return out


@pytest.fixture
def factors(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Return the dtypes of the factors of products after the pass, for each kernel."""
    dtypes: list[set[str]] = []
    rewrite = WidenTiles.rewrite

    def watched(self: WidenTiles, function: NativeFunction) -> None:
        rewrite(self, function)
        dtypes.append({str(o.dtype) for call in calls_in(*function.body.nodes) if isinstance(call, Compute)
                       and call.nest.reduced for o in call.nest.inputs})
    monkeypatch.setattr(WidenTiles, "rewrite", watched)
    monkeypatch.setenv("NKI_MLIR_CACHE", "off")
    set_options(monkeypatch, "form-products", worth=1 << 40)
    monkeypatch.delitem(PIPELINE, "pair-factors")
    monkeypatch.delitem(PIPELINE, "hoist-tiles")            # its tiles are wide, too
    return dtypes


def results_of(kernel, *arrays: np.ndarray) -> list[np.ndarray]:
    results = nki.jit(kernel).on("jit")(*arrays)
    return [*results] if isinstance(results, tuple) else [results]


@pytest.mark.share(3)
@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel, is_wide", [
    (scores, True), (added, True), (transposed, True), (copied, False), (parts, False), (repeated_parts, True),
    (rewritten_parts, False),
    (unrolled, True), (one_factor, True)])
def test_tiles__have_the_same_bits(monkeypatch, factors, kernel, is_wide: bool, dtype: type, edges: bool) -> None:
    q, k = of_dtype(dtype, (64, 96), edges), of_dtype(dtype, (64, 256), edges)
    wide = results_of(kernel, q, k)
    monkeypatch.delitem(PIPELINE, "widen-tiles")
    for a, b in zip(wide, results_of(kernel, q, k), strict=True):
        bits = f"u{a.dtype.itemsize}"
        assert np.array_equal(a.view(bits)[~np.isnan(a)], b.view(bits)[~np.isnan(b)])
        assert np.array_equal(np.isnan(a), np.isnan(b))
    assert (factors[0] == {str(FLOAT32)}) == is_wide


def test_tiles__that_are_large_or_read_seldom_stay(monkeypatch, factors) -> None:
    q, k = (of_dtype(ml_dtypes.bfloat16, (64, n), False) for n in (96, 256))
    for options in ({"most": 4 * 64 * 96 - 1}, {"least": 129}):
        set_options(monkeypatch, "widen-tiles", **options)
        results_of(scores, q, k)
    assert "bfloat16" in factors[0] and "bfloat16" in factors[1]


@pytest.mark.parametrize("kernel", [unrolled, one_factor])
def test_tiles__are_judged_again_only_after_a_call_that_reads_them_changes(monkeypatch, factors, kernel) -> None:
    judged: Counter[ScratchBuffer] = Counter()

    def verdict(buffer: ScratchBuffer, calls: Sequence[RoutineCall], most: int) -> bool:
        judged[buffer] += 1
        return can_be_wide(buffer, calls, most)
    monkeypatch.setattr(widen_tiles, "can_be_wide", verdict)
    results_of(kernel, *(of_dtype(ml_dtypes.bfloat16, (64, n), False) for n in (96, 256)))
    assert factors[0] == {str(FLOAT32)} and 1 <= max(judged.values()) <= 3
