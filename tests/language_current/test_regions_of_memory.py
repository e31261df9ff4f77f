# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names and places of memory as release 0.2 has them: ``sbuf`` without an import, ``sbuf.ptr``, ``t.address``."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .running import check, numbers, run

X = numbers(64, 8)


def copied(x):
    """A helper of the kernel: the names are there, too."""
    copy_of_x = sbuf.view(x.dtype, x.shape)             # noqa: F821
    nisa.dma_copy(copy_of_x, x)
    return copy_of_x


def on_bare_names(x):
    tile, out = copied(x), hbm.view(dtype="float32", shape=x.shape)         # noqa: F821
    product, other = psum.view(nl.float32, (64, 8)), nl.ndarray((64, 8), nl.float32, buffer=sbuf)       # noqa: F821
    assert sbuf is nl.sbuf and tile.buffer == sbuf and product.buffer is psum           # noqa: F821
    nisa.tensor_copy(product, tile)
    nisa.tensor_copy(other, product)
    nisa.dma_copy(out, other)
    return out


def test_names_without_an_import(on):
    """They are the kernel's, and gone when it has run."""
    np.testing.assert_array_equal(run(on, on_bare_names, X), X)
    assert not {"sbuf", "psum", "hbm"} & globals().keys()
    with pytest.raises(NameError, match="name 'sbuf' is not defined"):
        copied(X)


def test_a_name_that_the_kernel_defines_is_its_own(on):
    def kernel(x):
        sbuf = 2
        tile, out = nl.load(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.tensor_scalar(tile, tile, nl.multiply, float(sbuf))
        nisa.dma_copy(out, tile)
        return out
    np.testing.assert_array_equal(run(on, kernel, X), X * 2)


def test_a_name_that_is_none_is_an_error(on):
    def kernel(x):
        return dram.view(x.dtype, x.shape)              # noqa: F821
    with pytest.raises(NameError, match="dram"):
        run(on, kernel, X)


MEMBERS = {
    "a place": lambda: nl.sbuf.ptr(size=(64, 64), offset=(0, 128)),
    "one of the allocator": lambda: nl.sbuf.ptr(size=(64, 32)),
    "a part": lambda: nl.sbuf.ptr(size=(128, 256), offset=(0, 512)).ptr(size=(64, 40), offset=(64, 8)),
    "a slice": lambda: nl.sbuf[0:64, 256:320].ptr(size=(64, 32), offset=(0, 16)),
    "the rest": lambda: nl.sbuf.ptr((128, 72)).ptr(offset=(0, 40)),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_views_of_a_place_share_its_bytes(on, name):
    """Of any dtype and shape, from any byte that is one of the dtype's."""
    def body(d, words, halves, x):
        region = MEMBERS[name]()
        tile = nl.ndarray((64, 8), nl.float32, buffer=region)
        nisa.tensor_copy(tile, x)
        nisa.tensor_copy(words, region.view(nl.int32, (64, 8)))
        nisa.tensor_copy(halves, region.ptr(size=(64, 16), offset=(0, 16)).view(nl.bfloat16, (64, 2, 4)))
        nisa.memset(region.ptr((64, 8), (0, 8)).view("float32", (64, 2)), 3.0)
        nisa.tensor_copy(d, tile)

    def kernel(x):
        results = [nl.ndarray(s, t) for s, t in (((64, 8), nl.float32), ((64, 8), nl.int32), ((64, 2, 4), nl.bfloat16))]
        body(*results, nl.load(x))
        outs = [nl.ndarray(t.shape, t.dtype, buffer=nl.shared_hbm) for t in results]
        for out, t in zip(outs, results):
            nisa.dma_copy(out, t)
        return tuple(outs)
    values, words, halves = run(on, kernel, X)
    expected = X.copy()
    expected[:, 2:4] = 3
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(words, X.view(np.int32))
    np.testing.assert_array_equal(halves.view(np.uint16),
                                  X.view(np.uint16)[:, 8:16].reshape(64, 2, 4))
    assert halves.dtype == ml_dtypes.bfloat16


def test_places_that_lie_in_one_made_before_are_parts_of_it(on):
    def body(d, x):
        outer = nl.sbuf.ptr((64, 64), (0, 1024)).view(nl.float32, (64, 16))
        nisa.memset(outer, 1.0)
        nisa.tensor_copy(nl.sbuf.ptr((64, 32), (0, 1024 + 16)).view(nl.float32, (64, 8)), x)
        nisa.tensor_copy(d, outer)
    expected = np.ones((64, 16), np.float32)
    expected[:, 4:12] = X
    check(on, body, expected, X)


def test_addresses(on):
    def body(d, x):
        assert nl.ndarray((64, 8), nl.float32).address == ()
        assert nl.ndarray((64, 8), nl.float32, address=(0, 256)).address == (0, 256)
        assert x.address.reshape(nl.int32, (64, 4, 2)).dtype == nl.int32
        nisa.tensor_copy(d, x.address.reshape(nl.float32, (64, 2, 4)))
    check(on, body, X.reshape(64, 2, 4), X)


@pytest.mark.parametrize(("use", "text"), [
    (lambda: nl.sbuf.ptr((4, 16)).view(nl.float32, (4, 8)), r"shape has size 32 \(bytes\), which is too large"),
    (lambda: nl.sbuf.ptr((4, 16)).view(nl.float32, (5, 2)), "5 partitions do not fit in a region of 4"),
    (lambda: nl.sbuf.ptr((4, 16), (16, 0)).view(nl.float32, (4, 4)), "partition dimension must be 0, 32, 64, or 96"),
    (lambda: nl.sbuf.ptr((4, 16)).ptr((4, 8), (0, 2)).view(nl.float32, (4, 1)), "byte 2 is not aligned to float32"),
    (lambda: nl.sbuf.ptr((4, 16)).ptr((4, 16), (0, 2)), "is outside of one of 4 partitions and 16 bytes"),
    (lambda: nl.sbuf.ptr((0, 16)), "0 partitions and 16 bytes is empty"),
    (lambda: nl.sbuf.ptr(64), "ptr size: expecting 'pair', got 64"),
    (lambda: nl.hbm.ptr((4, 16)), "only nl.sbuf and nl.psum have regions"),
])
def test_what_is_no_place(use, text):
    with pytest.raises(AssertionError, match=text):
        nki.simulate(lambda x: use() and None)(X)
