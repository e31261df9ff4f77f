# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that are padded with a value known at run time, as native code and as streams: the bits of JAX."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from ..conversion.test_comparisons import X, equal  # noqa: E402

pytestmark = [pytest.mark.jax, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("padding", [((1, 2, 0), (3, 0, 0)), ((1, 2, 1), (-3, 0, 2)), ((-1, -2, 3), (0, 0, 0)),
                                     ((-3, 5, 1), (2, -4, 0)), ((0, 0, 0), (0, 0, 0))], ids=str)
def test_each_end__is_padded_or_cut(padding):
    """Padding before, behind and between elements, and results of other operations."""
    equal(lambda x, v: jax.lax.pad(x * 2, v + 1, padding) + jax.lax.pad(x, v, padding), X, np.float32(-2.5))


@pytest.mark.parametrize("dtype, constant", [(np.float32, 3), (jnp.bfloat16, ((1, 2), (3, 4))), (np.int32, 0), (bool, 0)])
def test_constants_of_another_dtype__are_converted(dtype, constant):
    equal(lambda x: jnp.pad(x, ((1, 2), (3, 0)), constant_values=constant), (X * 3).astype(dtype))
