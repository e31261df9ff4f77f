# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions, queries and older instructions that kernels seldom use, against NumPy."""

import numpy as np
import pytest

from nki_mlir.language.current import collectives as ncc
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current.simulator import simulate_ranks

from .running import check, floats, numbers, run


def stored(function):
    def body(d, *tiles):
        nisa.tensor_copy(d, function(*tiles))
    return body


@pytest.mark.parametrize("function, formula", [
    (nl.right_shift, np.right_shift), (nl.left_shift, np.left_shift), (nl.bitwise_or, np.bitwise_or),
    (nl.bitwise_and, np.bitwise_and), (nl.logical_or, np.logical_or), (nl.logical_and, np.logical_and)])
def test_integers(on, function, formula):
    x, y = numbers(32, 16, dtype=np.uint32), numbers(32, 16, dtype=np.uint32, seed=1) % 8
    check(on, stored(function), formula(x, y).astype(np.uint32), x, y)


def test_power_and_negation(on):
    x, y = np.abs(floats(32, 16)) + 0.5, floats(32, 16, seed=1)
    check(on, stored(nl.power), (x.astype(np.float64) ** y).astype(np.float32), x, y, rtol=1e-5)
    zeros = (numbers(32, 16) % 3).astype(np.float32)
    check(on, stored(nl.logical_not), (zeros == 0).astype(np.float32), zeros)


def test_gelu_by_tanh(on):
    x = floats(32, 16)
    wide = x.astype(np.float64)
    expected = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide ** 3)))
    check(on, stored(nl.gelu_apprx_tanh), expected.astype(np.float32), x, rtol=2e-5, atol=2e-6)


def test_memories_and_names(on):
    def body(d, x):
        product = nl.ndarray((16, 16), nl.float32, buffer=nl.psum, name=nl.unique_name("product"))
        assert nl.is_psum(product.buffer) and not nl.is_sbuf(product.buffer) and nl.is_on_chip(product.buffer)
        assert nl.is_sbuf(x.buffer) and not nl.is_psum(x.buffer) and not nl.is_hbm(x.buffer)
        assert nl.unique_name("product") != product.name != nl.unique_name("product")
        nisa.nc_matmul(product, x, x)
        nisa.tensor_copy(d, product)
    x = numbers(8, 16) % 7
    check(on, body, x.T @ x, x)


@pytest.mark.parametrize("target, generation", [("trn1", 2), ("trn2", 3), ("trn3", 4)])
def test_generation_of_the_target(on, target, generation, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    monkeypatch.setenv("NKI_NC_SUB_VERSION", "1")

    def body(d, x):
        nisa.tensor_scalar(d, x, nl.multiply, float(nisa.get_nc_version().value), op1=nl.add,
                           operand1=float(nisa.get_nc_sub_version()))
    x = numbers(16, 8)
    check(on, body, x * generation + 1, x)


def test_dynamic_copies_of_older_releases(on):
    x = numbers(16, 24)

    def kernel(x, at):
        out, moved = (nl.ndarray(s, x.dtype, buffer=nl.shared_hbm) for s in ((16, 8), (16, 24)))
        tile, piece, target = nl.load(x), nl.ndarray((16, 8), x.dtype), nl.zeros((16, 24), x.dtype)
        start, pattern = nl.load(at), [[24, 16], [1, 8]]
        nisa.tensor_copy_dynamic_src(piece, tile.ap(pattern, scalar_offset=start, indirect_dim=1))
        nisa.tensor_copy_dynamic_dst(target.ap(pattern, scalar_offset=start, indirect_dim=1), piece)
        nisa.dma_copy(out, piece)
        nisa.dma_copy(moved, target)
        return out, moved
    piece, moved = run(on, kernel, x, np.array([[5]], np.int32))
    expected = np.zeros_like(x)
    expected[:, 5:13] = x[:, 5:13]
    np.testing.assert_array_equal(piece, x[:, 5:13])
    np.testing.assert_array_equal(moved, expected)


@pytest.mark.parametrize("axis, kept, order", [
    (1, (16, 2), (0, 1, 2)), ([1], (16, 2), (0, 1, 2)), ([4], (16, 2), (0, 1, 2)), (2, (16, 4), (0, 2, 1)),
    (1, (16, 4), (0, 2, 1)), ([2, 1], (16, 1), (0, 1, 2)), ([4, 3], (16, 1), (0, 2, 1))])
def test_axes_of_a_reduction_of_an_older_release_are_counted(on, axis, kept, order):
    """2.28: as many of the last free axes as are given, also those of a permuted view, whatever their numbers."""
    x = numbers(16, 2, 4)
    view = x.transpose(order)
    expected = view.sum(tuple(range(1, 3)) if kept[1] == 1 else 2).reshape(kept)
    check(on, lambda d, t: nisa.tensor_reduce(d, nl.add, t.permute(order), axis), expected, x)


def test_axes_that_are_counted_are_reported():
    with pytest.warns(UserWarning) as warned:
        check("eager", lambda d, t: nisa.tensor_reduce(d, nl.add, t, 1), numbers(16, 2, 4).sum(2), numbers(16, 2, 4))
    assert [str(w.message) for w in warned] == ["tensor_reduce axis 1 of a tensor of 3 dimensions reduces the last 1, "
                                                "axes [2], as in release 2.28; later releases refuse it"]


def test_gather_of_parts_of_different_sizes():
    """The part that sender s sends lands at s * (elements of dst / ranks) of each receiver."""
    counts, group = [3, 1, 4, 2], ncc.ReplicaGroup([[0, 1, 2, 3]])
    sent = [np.arange(4, dtype=np.float32) + 10 * r for r in range(4)]
    tables = [np.stack([np.full(4, counts[r]), np.zeros(4), np.zeros(4)]).astype(np.uint32) for r in range(4)]

    def kernel(x, table):
        src, dst = nl.ndarray((4,), x.dtype, buffer=nl.hbm), nl.zeros((16,), x.dtype, buffer=nl.hbm)
        copied, out = nl.ndarray((3, 4), nl.uint32, buffer=nl.hbm), nl.ndarray((16,), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(src, x)
        nisa.dma_copy(copied, table)
        ncc.all_gather_v([src], [dst], group, copied)
        nisa.dma_copy(out, dst)
        return out
    expected = np.zeros(16, np.float32)
    for s, n in enumerate(counts):
        expected[4 * s:4 * s + n] = sent[s][:n]
    for got in simulate_ranks(nki.jit(kernel), list(zip(sent, tables))):
        np.testing.assert_array_equal(got, expected)
