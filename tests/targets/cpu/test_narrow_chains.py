# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions behind several roundings to narrow floats: through a tile and in one nest they give the same bits."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.passes.pass_manager import pass_named
from nki_mlir.targets.cpu.lowering import at_waist

from .compiled import compiled

EDGES = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40, -1e-40, 65504.0, -13.5], np.float32)


@nki.jit
def scaled_function(x, g, b):
    """Compute exp(x * g + b), where both the product and the sum are rounded."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.exp(nl.add(nl.multiply(nl.load(x), nl.load(g)), nl.load(b))))
    return out


def arrays_of(dtype, columns):
    rng = np.random.default_rng(columns)
    arrays = [rng.standard_normal((128, columns)).astype(np.float32) for _ in range(3)]
    for k, array in enumerate(arrays):
        array.flat[::3 + k] = np.resize(EDGES, array.flat[::3 + k].size)
    with np.errstate(all="ignore"):
        return [array.astype(dtype) for array in arrays]


def nests_of(module):
    return str(at_waist(module)).count("linalg.generic")


@pytest.mark.parametrize("columns", (1, 31, 64, 513))
@pytest.mark.parametrize("dtype", (ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e5m2, np.float32),
                         ids=("bfloat16", "float16", "float8_e5m2", "float32"))
def test_tile_before_a_function__keeps_the_bits(dtype, columns):
    arrays = arrays_of(dtype, columns)
    kernel = scaled_function.on("jit")
    through_tile, in_one_nest = (kernel.lower(*arrays).module("waist") for _ in range(2))
    pass_named("fuse-tiles", "roundings=0").run(in_one_nest)
    assert nests_of(in_one_nest) == 1
    assert columns < 64 or nests_of(through_tile) == (1 if dtype is np.float32 else 2)
    results = [np.zeros_like(arrays[0]) for _ in range(2)]
    for module, result in zip((through_tile, in_one_nest), results):
        compiled(module)(arrays, [result])
    bits = f"u{arrays[0].itemsize}"
    assert np.array_equal(results[0].view(bits), results[1].view(bits))
    expected = scaled_function.on("interpreter")(*arrays).astype(np.float32)
    tolerance = 2.0 ** -1 if dtype is ml_dtypes.float8_e5m2 else 2.0 ** -7      # neighbors: it may round to either
    np.testing.assert_allclose(results[0].astype(np.float32), expected, rtol=tolerance, atol=1e-3)
