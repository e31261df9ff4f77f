# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Iterations over rows take a row for each partition where each partition is computed by itself, with equal values."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.emission import Emission
from nki_mlir.targets.neuron.codegen.fill_partitions import fill_partitions, fits
from nki_mlir.targets.neuron.codegen.records import LoopVariable
from tests.targets.neuron.code_builder import Builder, run_in_order


@nki.jit
def maxima(x, rows):
    """The maxima of windows of 3 x 3 elements, and the sums of their rows."""
    height, width = x.shape[0] - 2, x.shape[1] - 2
    y = nl.ndarray((height, width), dtype=x.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(height // rows):
        first, second, third = (nl.load(x[nl.ds(i * rows + k, rows), :]) for k in range(3))
        three = nl.maximum(nl.maximum(first, second), third)
        result = nl.maximum(nl.maximum(three[:, 0:width], three[:, 1:width + 1]), three[:, 2:width + 2])
        nl.store(y[nl.ds(i * rows, rows), :], result)
        nl.store(sums[nl.ds(i * rows, rows), :], nl.sum(result, axis=[1], dtype=nl.float32))
    return y, sums


@nki.jit
def nested(x, rows):
    """The root mean square of each row of two parts of columns, in reverse order of the parts."""
    height, width = x.shape
    y = nl.ndarray((2, height, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for k in nl.affine_range(2):
        for i in nl.affine_range(height // rows):
            part = nl.load(x[nl.ds(i * rows, rows), nl.ds(k * (width // 2), width // 2)])
            nl.store(y[1 - k, nl.ds(i * rows, rows)], nl.sqrt(nl.mean(nl.square(part, dtype=nl.float32), axis=[1])))
    return y


@nki.jit
def scaled(x, rows):
    """Each row times factors that all rows share, and these factors."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    z = nl.ndarray((rows, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    factors = nl.exp(nl.add(nl.load(x[0:1]).broadcast_to((rows, x.shape[1])), nl.ones((rows, 1), x.dtype)))
    for i in nl.sequential_range(x.shape[0] // rows):
        nl.store(y[nl.ds(i * rows, rows)], nl.multiply(nl.load(x[nl.ds(i * rows, rows)]), factors))
    nl.store(z, factors)
    return y, z


@nki.jit
def carried(x, rows):
    """Running sums of tiles."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((rows, x.shape[1]), dtype=x.dtype)
    for i in nl.sequential_range(x.shape[0] // rows):
        total[...] = nl.add(total, nl.load(x[nl.ds(i * rows, rows)]))
        nl.store(y[nl.ds(i * rows, rows)], total)
    return y


@nki.jit
def apart(x, rows):
    """Tiles whose rows do not follow those of the iteration before."""
    y = nl.ndarray((x.shape[0] // 2, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // rows // 2):
        nl.store(y[nl.ds(i * rows, rows)], nl.exp(nl.load(x[nl.ds(2 * i * rows, rows)])))
    return y


@nki.jit
def by_partition(x, rows):
    """Each row times the factor of its partition."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    column = nl.load(x[0:128, 0:1])
    for i in nl.affine_range(x.shape[0] // rows):
        nl.store(y[nl.ds(i * rows, rows)], nl.multiply(nl.load(x[nl.ds(i * rows, rows)]), column[0:rows]))
    return y


@nki.jit
def positions(x, rows):
    """Each row plus the number of its partition."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // rows):
        numbers = nisa.iota(nl.arange(rows)[:, None] + nl.arange(x.shape[1])[None, :], dtype=nl.float32)
        nl.store(y[nl.ds(i * rows, rows)], nl.add(nl.load(x[nl.ds(i * rows, rows)]), numbers))
    return y


@nki.jit
def across(x, rows):
    """Tiles that two transposes turn round."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // rows):
        tile = nl.load(x[nl.ds(i * rows, rows)])
        nl.store(y[nl.ds(i * rows, rows)], nl.copy(nisa.nc_transpose(nl.copy(nisa.nc_transpose(tile)))))
    return y


@nki.jit
def differences(x, rows):
    """Each row minus a row of the next tile, which is loaded once for two iterations."""
    y = nl.ndarray((x.shape[0] - rows, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // rows - 1):
        tile, following = (nl.load(x[nl.ds((i + k) * rows, rows)]) for k in range(2))
        nl.store(y[nl.ds(i * rows, rows)], nl.subtract(tile, following))
    return y


@nki.jit
def twice(x, rows):
    """Rows that two loops load, of which one has running sums: they stay on chip between the loops."""
    y, z = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    for i in nl.affine_range(x.shape[0] // rows):
        nl.store(y[nl.ds(i * rows, rows)], nl.exp(nl.load(x[nl.ds(i * rows, rows)])))
    total = nl.zeros((rows, x.shape[1]), dtype=x.dtype)
    for i in nl.sequential_range(x.shape[0] // rows):
        total[...] = nl.add(total, nl.load(x[nl.ds(i * rows, rows)]))
        nl.store(z[nl.ds(i * rows, rows)], total)
    return y, z


@nki.jit
def in_python(x, rows):
    """Maxima of each row and the row after it, in a loop that Python runs."""
    y = nl.ndarray((x.shape[0] - 2, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, x.shape[0] - 2, rows):
        first, second = (nl.load(x[start + k:start + k + rows]) for k in range(2))
        nl.store(y[start:start + rows], nl.maximum(first, second))
    return y


@nki.jit
def in_place(x, rows):
    """Rows of a tensor that each iteration reads from the iteration before and writes."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y[0:rows], nl.load(x[0:rows]))
    for i in nl.sequential_range(x.shape[0] // rows - 1):
        nl.store(y[nl.ds((i + 1) * rows, rows)], nl.exp(nl.load(y[nl.ds(i * rows, rows)])))
    return y


@pytest.mark.parametrize(("kernel", "rows", "tiles", "dtype", "fills"), [
    (maxima, 89, 12, np.float32, True), (maxima, 64, 9, ml_dtypes.bfloat16, True), (maxima, 96, 16, np.float32, True),
    (nested, 40, 15, ml_dtypes.bfloat16, True), (scaled, 64, 16, np.float32, True),
    (maxima, 64, 6, np.float32, False), (maxima, 120, 12, np.float32, False), (carried, 64, 16, np.float32, False),
    (apart, 64, 16, np.float32, False), (by_partition, 64, 16, np.float32, False),
    (positions, 64, 16, np.float32, False), (across, 64, 16, np.float32, False), (in_place, 64, 16, np.float32, False),
    (differences, 64, 16, np.float32, False), (twice, 64, 16, np.float32, False),
    (in_python, 89, 24, np.float32, True)])
def test_values_and_times(kernel, rows, tiles, dtype, fills):
    x = np.random.default_rng(1).standard_normal((rows * tiles + (2 if kernel in (maxima, in_python) else 0), 48)).astype(dtype)
    expected = kernel.on("interpreter")(x, rows)
    expected = expected if isinstance(expected, tuple) else (expected,)
    spec = kernel.lower(x, rows).specialization
    programs = neuron.streams(spec.captured, spec.grid, Emission())
    outputs = [np.zeros(e.shape, e.dtype) for e in map(np.asarray, expected)]
    neuron.simulate(programs, (x,), outputs)
    for output, wanted in zip(outputs, expected, strict=True):
        assert output.tobytes() == np.asarray(wanted).tobytes()
    partial = neuron.streams(spec.captured, spec.grid, Emission(fill=False))
    if fills:
        assert neuron.timed(programs).total_ns <= neuron.timed(partial).total_ns
        assert neuron.timed(programs).instructions < neuron.timed(partial).instructions
    else:
        assert neuron.write(programs, "asm") == neuron.write(partial, "asm")


def test_tiles_that_fit__have_a_partition_for_each_row_of_an_iteration():
    """A buffer of the loop from its first partition on; another buffer at one row, or at rows of equal values."""
    rows, most, b = 32, 128, Builder()
    local, outer, wide = (b.on_chip(name, (count, 8)) for name, count in (("local", rows), ("outer", rows), ("wide", most)))
    variable = LoopVariable("i", 0, 3)

    class Equal:
        writers = dict.fromkeys((outer, wide), ())

        def holds(self, buffer):
            return self.is_equal

    def holds(tile, written=False, is_equal=False):
        equal = Equal()
        equal.is_equal = is_equal
        return fits(tile, rows, most, {local}, written, equal)

    def one_row(tile):
        return tile.patterned(free=tile.access.free, dims=((0, rows), *tile.access.dims[1:]))
    all_rows = b.tile({}, local, 0, rows, 0, 8)
    assert holds(all_rows) and holds(all_rows, written=True) and holds(b.tile({}, local, 0, rows, 3, 2), written=True)
    assert not any(map(holds, (b.tile({}, local, 0, rows // 2, 0, 8), b.tile({}, local, 16, rows // 2, 0, 8), one_row(all_rows),
                               b.tile({}, local, (0, {variable: 1}), rows, 0, 8),
                               b.tile({}, local, 0, rows, (0, {variable: 1}), 8))))
    for buffer in (outer, wide):
        tile = b.tile({}, buffer, 0, rows, 0, 8)
        assert not holds(tile) and holds(tile, is_equal=True) and holds(one_row(tile))
        assert not holds(tile, True, is_equal=True) and not holds(one_row(tile), True)
        assert not holds(b.tile({}, buffer, 0, rows // 2, 0, 8), is_equal=True)
    assert not holds(b.tile({}, wide, most - rows, rows, 0, 8), is_equal=True)     # too few partitions for more rows
    assert not holds(b.tile({}, b.hbm("x", (rows, 8), "input"), 0, rows, 0, 8), is_equal=True)


def test_new_loops__have_variables_of_their_iterations():
    """17 iterations of 32 rows are 4 of 128 and one of 32. Each row is multiplied with one that the iterations load
    from the same place for all partitions."""
    rows, b = 32, Builder()
    x, y = (b.hbm(name, (17 * rows, 8), role) for name, role in (("x", "input"), ("y", "output")))
    factors = b.hbm("factors", (1, 8), "input")
    with b.loop(17) as i:
        tile, factor, product = (b.on_chip(name, (rows, 8)) for name in ("tile", "factor", "product"))
        b.copy((tile, 0, rows, 0, 8), (x, (0, {i: rows}), rows, 0, 8))
        row = b.tile({}, factors, 0, 1, 0, 8)
        b.step(DmaCopyOp, dst=b.tile({}, factor, 0, rows, 0, 8), src=row.patterned(dims=((0, rows), (1, 8))))
        b.add((product, 0, rows, 0, 8), (tile, 0, rows, 0, 8), (factor, 0, rows, 0, 8), op="multiply")
        b.copy((y, (0, {i: rows}), rows, 0, 8), (product, 0, rows, 0, 8))
    assert fill_partitions(b.code) == 1
    assert [(loop.span, loop.variable.low, loop.variable.high) for loop in b.code.body.nodes] == [
        (range(4), 0, 3), (range(4, 5), 4, 4)]
    arrays = {x: np.random.default_rng(2).standard_normal(x.shape).astype(np.float32), y: np.zeros(y.shape, np.float32),
              factors: np.arange(8, dtype=np.float32)[None]}
    run_in_order(b.code, arrays)
    np.testing.assert_array_equal(arrays[y], arrays[x] * arrays[factors])


def test_rows_that_iterations_store_in_one_place__stay():
    """The last iteration's rows remain: a wider iteration would store other rows there."""
    rows, b = 32, Builder()
    x, y = b.hbm("x", (16 * rows, 8), "input"), b.hbm("y", (rows, 8), "output")
    with b.loop(16) as i:
        tile = b.on_chip("tile", (rows, 8))
        b.copy((tile, 0, rows, 0, 8), (x, (0, {i: rows}), rows, 0, 8))
        b.copy((y, 0, rows, 0, 8), (tile, 0, rows, 0, 8))
    assert fill_partitions(b.code) == 0
