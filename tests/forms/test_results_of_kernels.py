# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel may return: tensors in any memory, parts of them, its parameters, nothing."""

import numpy as np
import pytest

from nki_mlir.language.beta.typing import mutable_tensor
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.results import BadResult

X = (np.random.default_rng(0).permutation(32 * 16) % 101).astype(np.float32).reshape(32, 16)


def result(on, names, kernel, *arguments, grid=None):
    launched = names.nki.jit(kernel)
    launched = launched if grid is None else launched[grid]
    return launched.on(on)(*(a.copy() if isinstance(a, np.ndarray) else a for a in arguments))


def same(got, expected):
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def test_tiles(on, names):
    nl = names.nl

    def kernel(x):
        tile = nl.load(x)
        half = nl.multiply(tile, 0.5, dtype=nl.bfloat16)
        return nl.multiply(tile, 2.0), half, tile[0:8, 4:8]
    twice, half, corner = result(on, names, kernel, X)
    same(twice, X * 2)
    same(half, (X * np.float32(0.5)).astype(nl.bfloat16))
    same(corner, X[0:8, 4:8])


def test_tiles_in_psum(on, names):
    nl = names.nl

    def kernel(x):
        return nl.matmul(nl.load(x), nl.load(x), transpose_x=True)
    product = result(on, names, kernel, X)
    assert product.shape == (16, 16) and product.dtype == np.float32
    np.testing.assert_allclose(product, X.T @ X, rtol=1e-5)


def test_lists_of_tiles_and_outputs(on, names):
    nl = names.nl

    def kernel(x, skip):
        tiles = []
        for k in range(2):
            tiles.append(nl.load(x[k * 16:(k + 1) * 16, :]))
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return [*tiles, (out, None if skip else tiles[0])]
    first, second, (out, none) = result(on, names, kernel, X, True)
    same(first, X[:16])
    same(second, X[16:])
    same(out, X)
    assert none is None


@pytest.mark.parametrize("buffer", ["hbm", "private_hbm", "shared_hbm"])
def test_tensors_in_hbm(on, names, buffer):
    nl = names.nl

    def make(x):
        return nl.ndarray(x.shape, dtype=x.dtype, buffer=getattr(nl, buffer))

    def kernel(x):
        out = make(x)
        nl.store(out, nl.load(x))
        return out
    same(result(on, names, kernel, X), X)


def test_private_hbm_of_several_programs_is_one_output(on, names):
    """Scratch that is made at the same place stays each program's own."""
    nl = names.nl

    def make(x):
        return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)

    def kernel(x):
        scratch, out = make(x), make(x)
        p = nl.program_id(0)
        rows = nl.ds(p * 16, 16)
        nl.store(scratch[0:16, :], nl.load(x[rows, :]))
        nl.store(out[rows, :], nl.multiply(nl.load(scratch[0:16, :]), 2.0))
        return out
    same(result(on, names, kernel, X, grid=2), X * 2)


def test_private_hbm_of_several_programs__leaves_inputs_as_one_run_does(on, names):
    """All programs may run again to share a result; the second run begins with the inputs as they were."""
    nl = names.nl

    def kernel(x, total):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
        rows = nl.ds(nl.program_id(0) * 16, 16)
        nl.store(out[rows, :], nl.multiply(nl.load(x[rows, :]), 2.0))
        nl.store(total[rows, :], nl.add(nl.load(total[rows, :]), 1.0))
        return out, total
    if names.nl.__name__.startswith("nki_mlir.language.beta"):
        kernel.__annotations__["total"] = mutable_tensor
    fixed = X.copy()
    fixed.flags.writeable = False
    out, total = result(on, names, kernel, fixed, X.copy(), grid=2)
    same(out, X * 2)
    same(total, X + 1)


def test_a_tile_of_several_programs_is_an_error(on, names):
    nl = names.nl

    def kernel(x):
        return nl.load(x)
    with pytest.raises(BadResult, match="a tile in sbuf, and each program of the grid has another one") as raised:
        result(on, names, kernel, X, grid=2)
    assert raised.value.at.line == kernel.__code__.co_firstlineno + 1


def test_parameters(on, names):
    nl = names.nl

    def kernel(x, y):
        nl.store(y, nl.multiply(nl.load(x), 2.0))
        return x
    if names.nki.__name__.endswith("beta.nki"):
        def kernel(x, y):
            return x
    same(result(on, names, kernel, X, X), X)


def test_updated_parameters(on, names):
    nl = names.nl

    def kernel(x, y, z):
        nl.store(z, nl.multiply(nl.load(x), 3.0))
        nl.store(y, nl.multiply(nl.load(x), 2.0))
    y, z = np.zeros_like(X), np.zeros_like(X)
    second, third = names.nki.jit(kernel).on(on)(X, y, z)
    assert second is y and third is z
    same(y, X * 2)
    same(z, X * 3)


def test_one_updated_parameter(on, names):
    nl = names.nl

    def kernel(x, y):
        return nl.store(y, nl.load(x))
    y = np.zeros_like(X)
    assert names.nki.jit(kernel).on(on)(X, y) is y
    same(y, X)


def test_parts_of_tensors(on):
    from nki_mlir.language.current import language as nl
    from nki_mlir.language.current import nki

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out[0:8, :], x[:, 4:8], out.reshape((512,)), out.view(nl.int32)
    rows, columns, flat, bits = kernel.on(on)(X)
    same(rows, X[:8])
    same(columns, np.ascontiguousarray(X[:, 4:8]))
    same(flat, X.reshape(512))
    same(bits, X.view(np.int32))


def test_nothing(on):
    from nki_mlir.language.current import language as nl
    from nki_mlir.language.current import nki

    @nki.jit
    def kernel(x):
        assert x.shape == (32, 16)
        nl.load(x)
    assert kernel.on(on)(X) is None


@pytest.mark.parametrize("value", [3, "text", object()])
def test_what_is_no_tensor(on, names, value):
    nl = names.nl

    def kernel(x):
        nl.load(x)
        return value
    with pytest.raises(BadResult, match=f"returns a value of type {type(value).__name__}; it must return tensors"):
        result(on, names, kernel, X)
