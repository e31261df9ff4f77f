# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators as users write them after the public guide: what they compute, without a finding."""

import warnings

import ml_dtypes
import numpy as np
import pytest

RNG = np.random.default_rng(0)
X = RNG.standard_normal((32, 48)).astype(np.float32)
E = np.exp(X - X.max(1, keepdims=True))
TILES = RNG.standard_normal((160, 64)).astype(np.float32), RNG.standard_normal((64, 32)).astype(np.float32)
BYTES = RNG.integers(0, 7, 5000).astype(np.uint8)
SHORTS = RNG.integers(-9, 9, (2, 1003)).astype(np.int16)
INTEGRAL = RNG.integers(-3, 4, 5000).astype(ml_dtypes.bfloat16)

ONE = [
    ("softmax_rows", (X,), E / E.sum(1, keepdims=True)),
    ("sum_and_max", (X,), np.stack([X.sum(1), X.max(1)])),
    ("limited", (X, -0.5, 0.25), X.clip(np.float32(-0.5), np.float32(0.25))),
    ("running_sum", (INTEGRAL,), INTEGRAL.astype(np.float32).cumsum().astype(ml_dtypes.bfloat16)),
    ("histogram", (BYTES, 7), np.bincount(BYTES, minlength=7).astype(np.int32)),
    ("squashed", (X, 0.5, -0.25), np.tanh(np.float32(0.5) * X - np.float32(0.25))),
]
MANY = [
    ("tiled_matmul", TILES, TILES[0] @ TILES[1]),
    ("chosen", (BYTES[:1003] % 2, *SHORTS), np.where(BYTES[:1003] % 2, *SHORTS)),
]


@pytest.mark.share(3)
@pytest.mark.parametrize("checked", [True, False], ids=["checked", "fast"])
@pytest.mark.parametrize("cores, name, arguments, expected", [*((1, *one) for one in ONE), *((8, *one) for one in MANY)],
                         ids=[name for name, *_ in (*ONE, *MANY)])
def test_operator(build, checked, cores, name, arguments, expected):
    operator = build("guide", multicore=cores > 1, checked=checked).operators[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = operator(*arguments)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), 2e-5, 2e-5)


def test_shape_function__refuses_with_both_sizes(build):
    with pytest.raises(Exception, match="inner sizes 64 and 63"):
        build("guide", multicore=True).tiled_matmul(TILES[0], TILES[1][:63])
