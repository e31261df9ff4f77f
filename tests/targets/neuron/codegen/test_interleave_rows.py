# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Iterations over rows are joined where each partition is computed by itself, with equal values and longer runs."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.emission import Emission


@nki.jit
def normalized(x, factors):
    """Each row over its root mean square, times the factors, and the root mean squares."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    squares = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
    row = nl.load(factors).broadcast_to((128, x.shape[1]))
    for i in nl.affine_range(x.shape[0] // 128):
        rows = slice(128 * i, 128 * i + 128)
        tile = nl.load(x[rows])
        root = nl.sqrt(nl.mean(nl.square(tile), axis=[1]))
        nl.store(y[rows], nl.multiply(nl.divide(tile, root), row))
        nl.store(squares[rows], root)
    return y, squares


@nki.jit
def nested(x, factors):
    """The maximum of each row of two halves, whose loops are inside of one."""
    y = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    half = x.shape[0] // 2
    for k in nl.affine_range(2):
        for i in nl.affine_range(half // 128):
            rows = nl.ds(half * k + 128 * i, 128)
            nl.store(y[rows], nl.max(nl.load(x[rows]), axis=[1]))
    return y


@nki.jit
def by_partition(x, factors):
    """Each row times the factor of its partition."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    column = nl.load(x[0:128, 0:1])
    for i in nl.affine_range(x.shape[0] // 128):
        rows = slice(128 * i, 128 * i + 128)
        nl.store(y[rows], nl.multiply(nl.load(x[rows]), column))
    return y


@nki.jit
def transposes(x, factors):
    """Tiles that two transposes turn round."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = slice(128 * i, 128 * i + 128)
        nl.store(y[rows], nl.copy(nisa.nc_transpose(nl.copy(nisa.nc_transpose(nl.load(x[rows]))))))
    return y


@nki.jit
def positions(x, factors):
    """Each row plus the number of its partition."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = slice(128 * i, 128 * i + 128)
        numbers = nisa.iota(nl.arange(128)[:, None] + nl.arange(x.shape[1])[None, :], dtype=nl.float32)
        nl.store(y[rows], nl.add(nl.load(x[rows]), numbers))
    return y


@nki.jit
def power(x, factors):
    """Each element to the power of 17: the vector and the GpSimd engine take longer than the transfers."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = slice(128 * i, 128 * i + 128)
        tile = result = nl.load(x[rows])
        for _ in range(16):
            result = nl.multiply(result, tile)
        nl.store(y[rows], result)
    return y


@pytest.mark.parametrize(("kernel", "tiles", "columns", "dtype", "joins"), [
    (normalized, 67, 64, np.float32, True), (normalized, 64, 96, ml_dtypes.bfloat16, True),
    (nested, 64, 16, np.float32, False), (by_partition, 64, 64, np.float32, False),
    (transposes, 64, 64, np.float32, False), (positions, 64, 64, np.float32, False),
    (power, 64, 64, np.float32, False)])
def test_values_and_transfers(kernel, tiles, columns, dtype, joins):
    rng = np.random.default_rng(1)
    arrays = (rng.standard_normal((128 * tiles, columns)).astype(dtype), rng.standard_normal((1, columns)).astype(dtype))
    expected = kernel.on("interpreter")(*arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    spec = kernel.lower(*arrays).specialization
    programs = neuron.streams(spec.captured, spec.grid, Emission())
    outputs = [np.zeros(e.shape, e.dtype) for e in map(np.asarray, expected)]
    neuron.simulate(programs, arrays, outputs)
    for output, wanted in zip(outputs, expected, strict=True):
        assert output.tobytes() == np.asarray(wanted).tobytes()
    separate = neuron.streams(spec.captured, spec.grid, Emission(interleave=False))
    if joins:
        assert neuron.timed(programs).total_ns < 0.8 * neuron.timed(separate).total_ns
    else:
        assert neuron.write(programs, "asm") == neuron.write(separate, "asm")
