# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products that begin in registers and are stored where they are copied to: the same bits as with tiles of zeros."""

from typing import Any

import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets.cpu.pipeline import PIPELINE

from ...forced_passes import forced
from .compiled import assemblies

P = 128


@nki.jit
def scores(a, b):
    """Compute tiles of a.T @ b; store the maximum of each row, then the tiles."""
    out = nl.ndarray((P, b.shape[1] + 1), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    tile = nl.ndarray((P, b.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(b.shape[1] // P):
        tile[:, nl.ds(j * P, P)] = nisa.nc_matmul(left, right[:, nl.ds(j * P, P)])
    nl.store(out[:, nl.ds(0, 1)], nl.max(tile, axis=1, keepdims=True))
    nl.store(out[:, nl.ds(1, b.shape[1])], tile)
    return out


@nki.jit
def used_twice(a, b):
    """Read the tile of sums after the copy, too."""
    out = nl.ndarray((2 * P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nisa.nc_matmul(nl.load(a), nl.load(b[:, nl.ds(0, P)]))
    copied = nl.copy(sums)
    nl.store(out[nl.ds(0, P), :], nl.multiply(copied, copied))
    nl.store(out[nl.ds(P, P), :], nl.exp(nl.multiply(sums, 0.01)))
    return out


@nki.jit
def accumulated(a, b):
    """Accumulate two products in one tile; only the first one starts from 0."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.load(a)
    sums = nl.zeros((P, P), nl.float32, buffer=nl.psum)
    sums += nisa.nc_matmul(left, nl.load(b[:, nl.ds(0, P)]))
    sums += nisa.nc_matmul(left, nl.load(b[:, nl.ds(P, P)]))
    nl.store(out, nl.copy(sums))
    return out


@nki.jit
def rounded(a, b):
    """Convert in the copy, so that the pass keeps it."""
    out = nl.ndarray((P, P), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    narrow = nl.copy(nisa.nc_matmul(nl.load(a), nl.load(b[:, nl.ds(0, P)])), dtype=nl.bfloat16)
    nl.store(out, nl.multiply(narrow, 2.0))
    return out


@nki.jit
def in_place(a, b):
    """Overwrite a factor by the copy."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(a, dtype=nl.float32), nl.load(b[:, nl.ds(0, P)], dtype=nl.float32)
    copied = nl.copy(nisa.nc_matmul(left, right))
    copied[...] = nisa.nc_matmul(copied, right)
    nl.store(out, nl.multiply(copied, 2.0))
    return out


@nki.jit
def column(a, b):
    """Multiply three columns by one column."""
    out = nl.ndarray((3, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nisa.nc_matmul(nl.load(a[:, nl.ds(0, 3)]), nl.load(b[:, nl.ds(0, 1)])))
    return out


def operands(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(s).astype(np.float32).astype(dtype) for s in ((P, P), (P, 3 * P)))    # type: ignore


def result_and_text(kernel: Any, arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, str]:
    fresh = nki.jit(kernel.func)
    result = np.array(fresh.on("jit")(*arrays))
    (spec,) = fresh.specializations.values()
    program, = assemblies([v.module for v in spec.captured.variants.values()], ())
    return result, "\n".join(program.text(program.function.names))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernel", [scores, used_twice, accumulated, rounded, in_place])
def test_products__have_the_bits_of_sums_in_a_tile(kernel: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = operands(dtype)
    result, text = result_and_text(kernel, arrays)
    monkeypatch.delitem(PIPELINE, "store-products")
    expected, plain = result_and_text(kernel, arrays)
    assert np.array_equal(result.view(np.uint8), expected.view(np.uint8))
    assert "_fresh" in text and "_fresh" not in plain


def test_products__are_stored_where_they_are_copied() -> None:
    _, text = result_and_text(scores, operands("float32"))
    assert text.count("_fresh") == 1 and "set_16384" not in text and "copy_128x128" not in text.partition("_fresh")[2]


def test_column_of_sums__is_not_divided_into_parts_of_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of one row and one column is a sum, which the code of products cannot compute."""
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", "3")
    arrays = operands("float32")
    with forced():
        result, text = result_and_text(column, arrays)
    assert np.allclose(result, arrays[0][:, :3].T @ arrays[1][:, :1], atol=1e-4)
    assert "_fresh" in text
