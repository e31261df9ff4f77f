# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that are filled with a number: which operations compute with the number, and the same bits."""

import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets.cpu.pipeline import PIPELINE

from .test_stored_products import result_and_text

P = 128
SHAPE = P, 96


def filled() -> object:
    return nl.full(SHAPE, 0.3, nl.float32)


@nki.jit
def scanned(a):
    """Scan a tile, and compute a difference whose second operand is the number."""
    out = nl.ndarray(SHAPE, dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(a)
    sums = nisa.tensor_tensor_scan(filled(), tile, initial=nl.zeros((P, 1), nl.float32), op0=np.multiply, op1=np.add)
    nl.store(out, nl.subtract(filled(), sums))
    return out


@nki.jit
def in_loop(a):
    """Read parts of the tile in a loop behind its fill."""
    out = nl.ndarray(SHAPE, dtype=nl.float32, buffer=nl.shared_hbm)
    tile, fill = nl.load(a), filled()
    for j in nl.affine_range(3):
        some = nl.ds(j * 32, 32)
        nl.store(out[:, some], nl.multiply(fill[:, some], tile[:, some]))
    return out


@nki.jit
def written_later(a):
    """Write a part of the tile after its fill."""
    out = nl.ndarray(SHAPE, dtype=nl.float32, buffer=nl.shared_hbm)
    tile, fill = nl.load(a), filled()
    fill[:, nl.ds(32, 32)] = nl.multiply(tile[:, nl.ds(0, 32)], 3.0)
    nl.store(out, nl.multiply(fill, tile))
    return out


@nki.jit
def added_up(a):
    """Sum rows, in an order that stays."""
    out = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(np.square, nl.load(a), scale=filled()[:, 0:1], reduce_op=np.add, reduce_res=total)
    nl.store(out, total)
    return out


@nki.jit
def multiplied(a):
    """Use the tile as a factor of a product."""
    out = nl.ndarray((96, 96), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nisa.nc_matmul(nl.load(a), filled())))
    return out


def bits(array: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(array), np.float32(np.nan), array).view(np.uint32)


@pytest.mark.parametrize("kernel, forwards", [
    (scanned, True), (in_loop, True), (written_later, False), (added_up, False), (multiplied, False)],
    ids=lambda value: getattr(value, "__name__", None))
def test_constant__is_read_instead_of_its_tile(kernel, forwards, monkeypatch) -> None:
    a = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    a.flat[::1009] = np.resize(np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40], np.float32), a.flat[::1009].size)
    for other in ("chunk-rows", "join-nests"):
        monkeypatch.delitem(PIPELINE, other)
    result, text = result_and_text(kernel, (a,))
    monkeypatch.delitem(PIPELINE, "forward-constants")
    expected, plain = result_and_text(kernel, (a,))
    assert np.array_equal(bits(result), bits(expected))
    assert (text != plain) == forwards
