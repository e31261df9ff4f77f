# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs and values that the documents of the current generation give, with their numbers, on every executor."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .running import check, numbers, on_tiles, run


def row(*values, dtype=np.float32):
    return np.array([values], dtype)


def output(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


# -- views -------------------------------------------------------------------------------------------------------------
def test_facts_of_views(on):
    observed = []

    def kernel(x):
        out, t = output(128, 64), nl.load(x)
        assert (t.strides, t.offset, t.size) == ((64, 1), 0, 8192)
        part, same = t.slice(1, 8, 24), t.ap([[64, 128], [1, 16]], offset=8)
        assert part.get_pattern() == [[64, 128], [1, 16]] and part.offset == 8
        assert (part.shape, part.strides, part.offset) == (same.shape, same.strides, same.offset)
        cube = nl.ndarray((128, 4, 16), nl.float32)[0:64].permute((0, 2, 1))[:, 0, :]
        assert cube.shape == (64, 4) and cube.strides == (64, 16)
        wide = nl.ndarray((128, 256), nl.float32)
        twice, once = wide.ap([[256, 128], [2, 128]]).ap([[256, 128], [1, 64]]), wide.ap([[256, 128], [1, 64]])
        assert (twice.shape, twice.strides, twice.offset) == (once.shape, once.strides, once.offset)
        observed.append(on)
        nl.store(out, t)
        return out
    x = numbers(128, 64)
    np.testing.assert_array_equal(run(on, kernel, x), x)
    assert observed


def test_elements_of_views(on):
    x, cube, wide = numbers(128, 64), numbers(128, 4, 16), numbers(128, 256)
    for view in (lambda t: t.slice(1, 8, 24), lambda t: t.ap([[64, 128], [1, 16]], offset=8)):
        check(on, lambda d, t, view=view: nisa.tensor_copy(d, view(t)), x[:, 8:24], x)
    check(on, lambda d, t: nisa.tensor_copy(d, t[0:64].permute((0, 2, 1))[:, 0, :]), cube[:64, :, 0], cube)
    check(on, lambda d, t: nisa.tensor_copy(d, t.ap([[256, 128], [2, 128]]).ap([[256, 128], [1, 64]])), wide[:, :64],
          wide)


def test_the_partition_stride_of_a_pattern(on):
    def kernel(x):
        t = nl.load(x)
        t.ap([[64, 8], [1, 32]])
    with pytest.raises(AssertionError, match=r"partition stride 64.*32") as caught:
        run(on, kernel, numbers(16, 32))
    assert (caught.value.at.file, caught.value.at.line) == (__file__, kernel.__code__.co_firstlineno + 2)


# -- loops and cores ---------------------------------------------------------------------------------------------------
def test_a_counter_of_python(on):
    def kernel(x):
        out, count = output(1, 1), 0
        for i in range(8):
            count += 1
        nl.store(out, nl.multiply(nl.load(x), float(count)))
        return out
    assert run(on, kernel, row(1)).tolist() == [[8]]


def test_loops_of_no_iterations(on):
    """What a body would have changed is as it was."""
    def kernel(x, none):
        out, t, bound, condition = output(1, 4), nl.load(x), nisa.register_alloc(), nisa.register_alloc(0)
        nisa.register_load(bound, none)

        def counted(i):
            nisa.memset(t, 1.0)

        def conditional(r):
            nisa.memset(t, 2.0)
            return r
        nl.fori_loop(0, bound, counted)
        nl.while_loop(bound, conditional)
        nl.while_loop(condition, conditional)
        nl.store(out, t)
        return out
    x = row(5, 6, 7, 8)
    np.testing.assert_array_equal(run(on, kernel, x, np.zeros((1, 1), np.int32)), x)


@pytest.mark.parametrize("count", [0, 3, 8])
def test_columns_of_one_row_copied_in_a_loop(on, count):
    def kernel(x, limit):
        out, t, columns, bound = output(1, 8), nl.load(x), nl.zeros((1, 8), nl.float32), nisa.register_alloc()
        nisa.register_load(bound, limit)

        def body(i):
            source = t.ap([[1, 1], [1, 1]], scalar_offset=i, indirect_dim=1)
            nisa.tensor_copy(columns.ap([[1, 1], [1, 1]], scalar_offset=i, indirect_dim=1), source)
        nl.fori_loop(0, bound, body)
        nl.store(out, columns)
        return out
    x = row(*range(1, 9))
    np.testing.assert_array_equal(run(on, kernel, x, np.array([[count]], np.int32)), np.where(np.arange(8) < count, x, 0))


def test_each_core_writes_its_half(on):
    def kernel(x):
        out, i = output(2, 16, 8), nl.program_id(0)
        nl.store(out[i], nl.multiply(nl.load(x[i]), i + 2.0))
        return out
    x = numbers(2, 16, 8)
    np.testing.assert_array_equal(run(on, kernel, x, cores=2), x * np.array([2, 3], np.float32)[:, None, None])


# -- values ------------------------------------------------------------------------------------------------------------
def test_abs_max_of_the_language(on):
    x, y = row(-5, 1, 3), row(3, -1, -3)
    check(on, lambda d, a, b: nisa.tensor_copy(d, nl.abs_max(a, b)), row(-5, -1, -3), x, y)
    check(on, lambda d, a, b: nisa.tensor_copy(d, nl.abs_min(a, b)), row(3, -1, -3), x, y)
    check(on, lambda d, a: nisa.tensor_copy(d, nl.abs_max(a, 3.0)), row(-5, 3, 3), x)


@pytest.mark.parametrize("way", [
    lambda d, t: nisa.tensor_copy(d, t), lambda d, t: nisa.tensor_copy(d, nl.copy(t, d.dtype)),
    lambda d, t: nisa.tensor_scalar(d, t, nl.add, 0.0), lambda d, t: nisa.activation(d, nl.copy, t),
    lambda d, t: nisa.dma_copy(d, t)], ids=["copy", "function", "arithmetic", "activation", "transfer"])
def test_numbers_stored_as_integers(on, way):
    x = row(2.5, 3.5, -2.5, 300, -1)
    check(on, way, row(2, 4, -2, 127, -1, dtype=np.int8), x)
    check(on, way, row(2, 4, 0, 255, 0, dtype=np.uint8), x)


def test_product_in_psum(on):
    x, y = numbers(64, 32) % 8, numbers(64, 40, seed=1) % 8

    def body(d, a, b):
        product = nl.matmul(a, b, transpose_x=True)
        assert product.buffer == nl.psum and product.shape == (32, 40)
        nisa.tensor_copy(d, product)
    check(on, body, x.T @ y, x, y)


@pytest.mark.parametrize("launch", [nki.simulate, lambda kernel: nki.jit(kernel).on("interpreter")])
def test_operand_of_256_partitions(launch):
    def kernel(x):
        a, b = nl.ndarray((256, 512), nl.float32), nl.ndarray((128, 512), nl.float32)
        nisa.tensor_tensor(b, a, b, nl.add)
    with pytest.raises(AssertionError, match=r"tensor_tensor data1 partition dimension 256 exceeds maximum 128") as caught:
        launch(kernel)(row(1))
    assert (caught.value.at.file, caught.value.at.line) == (__file__, kernel.__code__.co_firstlineno + 2)


# -- instructions ------------------------------------------------------------------------------------------------------
def test_replaced_values(on):
    data = row(1, 2, 3, 4, *[8] * 7)

    def body(d, places, t, v):
        nisa.nc_match_replace8(d, t, v, -1.0, dst_idx=places)
    outputs = [((1, 11), nl.float32), ((1, 8), nl.uint32)]
    replaced, places = on_tiles(on, body, outputs, data, row(3, *[8] * 7))
    assert places.tolist() == [[2, 10, 9, 8, 7, 6, 5, 4]] and replaced.tolist() == [[1, 2, -1, 4] + [-1] * 7]
    replaced, places = on_tiles(on, body, outputs, data, row(3, *[77] * 7))  # seven that are not there
    assert places.tolist() == [[2] + [0xFFFFFFFF] * 7] and replaced.tolist() == [[1, 2, -1, 4] + [8] * 7]


@pytest.mark.parametrize("offset", [0, 4, 8, 12])
def test_rows_of_scales(on, offset):
    """Groups 0-3 are in partitions 0-3 (from the offset on), 4-7 in 32-35, 8-11 in 64-67, 12-15 in 96-99."""
    largest = 2.0 ** np.arange(-8, 8)                                       # of each group of eight partitions
    x = np.repeat(largest, 8)[:, None].repeat(8, 1).astype(ml_dtypes.bfloat16)

    def body(data, scale, t):
        slots = scale if offset == 0 else scale[offset:128]
        nisa.quantize_mx(data.view(nl.float8_e4m3fn_x4), t, slots)
    data, scale = on_tiles(on, body, [((128, 2), nl.uint32), ((128, 2), nl.uint8, 9)], x)
    expected = np.full((128, 2), 9, np.uint8)
    for group in range(16):
        expected[[0, 1, 2, 3, 32, 33, 34, 35, 64, 65, 66, 67, 96, 97, 98, 99][group] + offset] = 127 + group - 8 - 7
    np.testing.assert_array_equal(scale, expected)
    assert (data.view(ml_dtypes.float8_e4m3fn).astype(np.float32) == 128).all()


@pytest.mark.parametrize("offset", [0, 4, 8, 12])
def test_scales_that_a_product_reads(on, offset):
    """Each group has its own scale; what lies in the other rows is not read."""
    ones = np.ones((128, 8), ml_dtypes.float8_e4m3fn).view(np.uint32)
    places = np.array([0, 1, 2, 3, 32, 33, 34, 35, 64, 65, 66, 67, 96, 97, 98, 99]) + offset
    scales, plain = (np.full((128, 2), other, np.uint8) for other in (200, 127))
    scales[places] = 127 + np.arange(16)[:, None] % 5

    def body(d, a, b, left, right):
        left, right = (t if offset == 0 else t[offset:128] for t in (left, right))
        nisa.nc_matmul_mx(d, a.view(nl.float8_e4m3fn_x4), b.view(nl.float8_e4m3fn_x4), left, right)
    total = np.full((2, 2), 32 * (2.0 ** (np.arange(16) % 5)).sum(), np.float32)
    check(on, body, total, ones, ones, scales, plain, memory=nl.psum)
    check(on, body, total, ones, ones, plain, scales, memory=nl.psum)


def test_packed_scales_that_a_product_reads(on):
    """A group of 32 partitions has its four rows without gaps."""
    ones = np.ones((32, 8), ml_dtypes.float8_e5m2).view(np.uint32)
    scales = 127 + np.arange(4, dtype=np.uint8)[:, None].repeat(2, 1)

    def body(d, a, b, left, right):
        nisa.nc_matmul_mx(d, a.view(nl.float8_e5m2_x4), b.view(nl.float8_e5m2_x4), left, right)
    check(on, body, np.full((2, 2), 32 * (1 + 4 + 16 + 64), np.float32), ones, ones, scales, scales, memory=nl.psum)


@pytest.mark.parametrize("indices, skip, expected", [
    ([2, 0], False, [[6, 7, 8], [0, 1, 2]]), ([2, 9], True, [[6, 7, 8], [-1, -1, -1]]),
    ([9, 1], True, [[-1, -1, -1], [3, 4, 5]]), ([2, 9], False, None)])
@pytest.mark.parametrize("kind", [np.int32, np.uint32])
def test_gather_by_a_vector(on, indices, skip, expected, kind):
    def kernel(base, idx):
        out, t = output(2, 3), nl.full((2, 3), -1.0, nl.float32)
        places = base.ap([[3, 2], [1, 3]], vector_offset=nl.load(idx))
        nisa.dma_copy(t, places, oob_mode=nisa.oob_mode.skip if skip else nisa.oob_mode.error)
        nl.store(out, t)
        return out
    arguments = np.arange(12, dtype=np.float32).reshape(4, 3), np.array(indices, kind)[:, None]
    if expected is None:
        with pytest.raises(IndexError, match="index 27 is out of bounds for axis 0 with size 12"):
            run(on, kernel, *arguments)
    else:
        assert run(on, kernel, *arguments).tolist() == expected
