# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views, methods, empty parts, annotations and described arguments of beta kernels."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.capture.errors import AnnotationMismatch, BadReshape
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta import typing as nt

from .running import check, numbers, output_of, run

X = numbers(32, 4, 6)
VIEWS = {
    "view with a shape": (lambda t: t.view(nl.int32, shape=(32, 2, 12)), lambda x: x.view(np.int32).reshape(32, 2, 12)),
    "reshape to a dtype": (lambda t: t.reshape((32, 6, 4), dtype=nl.int32), lambda x: x.view(np.int32).reshape(32, 6, 4)),
    "reshape to half the size": (lambda t: t.reshape(shape=(32, 48), dtype=nl.bfloat16),
                                 lambda x: x.view(ml_dtypes.bfloat16).reshape(32, 48)),
    "new_shape": (lambda t: t.reshape(new_shape=(32, 24)), lambda x: x.reshape(32, 24)),
    "permute": (lambda t: t.permute((0, 2, 1)), lambda x: x.transpose(0, 2, 1)),
    "transpose": (lambda t: t.transpose(0, 2, 1), lambda x: x.transpose(0, 2, 1)),
    "slice": (lambda t: t.slice(1, 1, 4, 2), lambda x: x[:, 1:4:2]),
    "select": (lambda t: t.select(-1, 3), lambda x: x[..., 3]),
    "expand_dim": (lambda t: t.expand_dim(1), lambda x: x[:, None]),
    "squeeze_dim": (lambda t: t[:, 1:2].squeeze_dim(1), lambda x: x[:, 1]),
    "flatten_dims": (lambda t: t.flatten_dims(1, 2), lambda x: x.reshape(32, 24)),
    "reshape_dim": (lambda t: t.reshape_dim(2, (-1, 2)), lambda x: x.reshape(32, 4, 3, 2)),
    "as_tile": (lambda t: t.as_tile(), lambda x: x),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(on, name):
    make, expect = VIEWS[name]

    @nki.jit
    def kernel(x):
        return output_of(nl.copy(make(nl.load(x)))), output_of(nl.load(make(x)))
    expected = np.ascontiguousarray(expect(X))
    check(on, kernel, (expected, expected), X)


def test_dimensions_of_hbm_move_freely(on):
    @nki.jit
    def kernel(x):
        return output_of(nl.load(x.permute((1, 0, 2)))), output_of(nl.load(x.transpose()))
    check(on, kernel, (X.transpose(1, 0, 2).copy(), X.transpose().copy()), X)


def test_views_that_are_none(on):
    for make, text in ((lambda t: t.permute((1, 0, 2)), "the partition dimension .* is moved"),
                       (lambda t: t.permute((0, 1, 1)), "is not a permutation of 3 dimensions"),
                       (lambda t: t.squeeze_dim(1), "has more than one element"),
                       (lambda t: t.reshape((32, 5)), "do not reshape")):
        @nki.jit
        def kernel(x, make=make):
            return output_of(nl.copy(make(nl.load(x))))
        with pytest.raises(BadReshape, match=text):
            run(on, kernel, X)


def test_steps_of_slices(on):
    """Of a source in HBM, a tile, a destination, and an output."""
    @nki.jit
    def kernel(x):
        tile, out = nl.ndarray((32, 8), nl.float32), nl.ndarray((32, 8), nl.float32, buffer=nl.shared_hbm)
        even = nl.load(x[:, 0:8:2])
        tile[:, ::2] = even
        tile[:, 1::2] = nl.load(x)[:, 1:8:2] + 1
        nl.store(out[:, 0:8:2], tile[:, ::2])
        nl.store(out[:, 1::2], tile[:, 1::2])
        return out
    x = numbers(32, 8)
    expected = x.copy()
    expected[:, 1::2] += 1
    check(on, kernel, expected, x)


def test_empty_parts_are_left_alone(on):
    """What is computed of nothing is nothing; it can be stored, and assigned to nothing."""
    @nki.jit
    def kernel(x):
        tile, kept = nl.load(x), nl.ndarray((32, 8), nl.float32)
        nothing = nl.load(x[:, 0:0])
        assert nothing.shape == (32, 0) and nl.exp(tile[:, 4:4]).shape == (32, 0) and tile[0:0].shape == (0, 8)
        kept[...] = tile
        kept[:, 3:3] = 2.0
        kept[:, 0:0] = nothing
        kept[:, 8:8] += nl.add(tile[:, 1:1], nothing)
        nisa.tensor_copy(tile[:, 2:2])
        out = output_of(kept)
        nl.store(out[0:0], tile[0:0])
        nl.store(out[:, 8:], nl.exp(tile[:, 4:4]))
        return out
    x = numbers(32, 8)
    check(on, kernel, x, x)


def test_annotations(on):
    """Those of parameters change nothing; of those of variables only a shape is looked at."""
    @nki.jit
    def kernel(x: nt.tensor[1, 2], y: nt.tensor[[8192, 4096], nl.bfloat16] = None):
        a: nt.tensor[32, 4, 6] = nl.load(x)
        b: nl.ndarray = a
        c: nt.tensor[[32, 4, 6], nl.float32] = b
        d: nt.mutable_tensor = c
        e: undefined.tensor[3] = d                      # noqa: F821
        return output_of(e)

    @nki.jit
    def wrong(x):
        a: nt.tensor[[32, 24], nl.float32] = nl.load(x)
        return output_of(a)
    check(on, kernel, X, X)
    with pytest.raises(AnnotationMismatch, match=r"says \(32, 24\), but the value has shape \(32, 4, 6\)"):
        run(on, wrong, X)


def test_tensors_that_are_described_by_shape_and_dtype(on):
    @nki.jit
    def kernel(x, y):
        assert x.dtype == nl.bfloat16 and y.shape == (64, 2)
        return output_of(nl.load(x)), output_of(nl.load(y) + 1)
    results = kernel.on(on)(nt.tensor[[64, 8], nl.bfloat16], y=nt.tensor[64, 2])
    np.testing.assert_array_equal(results[0], np.zeros((64, 8), ml_dtypes.bfloat16))
    np.testing.assert_array_equal(results[1], np.ones((64, 2), np.float32))


def test_measured_with_described_tensors():
    @nki.benchmark(warmup=1, iters=2)
    def kernel(x):
        return output_of(nl.load(x))
    kernel(nt.tensor[[64, 8], nl.bfloat16])
    assert kernel.benchmark_result.nc_latency.get_latency_percentile(50) > 0
