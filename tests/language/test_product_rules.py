# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of products: parts of the array that exist, operands that fit, masks that do not say their axis."""

import itertools
from types import SimpleNamespace

import pytest

from nki_mlir.capture.index import Index, Mask, arange
from nki_mlir.dialects.verifier import TooLarge
from nki_mlir.language import product_rules
from nki_mlir.language.product_rules import (
    ArrayPart,
    BadPerfMode,
    BadPosition,
    MaskOfProduct,
    check_double_row,
    product_shape,
)
from nki_mlir.machine import machine_named
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT32, INT8, UINT8


@pytest.fixture(params=["trn1", "trn2"])
def machine(request, monkeypatch):
    monkeypatch.setattr(product_rules, "active", lambda op: SimpleNamespace(machine=machine_named(request.param)))
    return machine_named(request.param)


def is_part(machine, position, size):
    """Whether the array, cut into parts of a size, has one at a position."""
    rows, columns = ({*range(0, 128, n)} if n in machine.array_parts else set() for n in size)
    return position[0] in rows and position[1] in columns


def test_parts_of_the_array(machine):
    numbers = (0, 16, 32, 48, 64, 96, 128)
    for size in itertools.product((0, 16, 32, 64, 96, 128, 256), repeat=2):
        for position in itertools.product(numbers, repeat=2):
            if is_part(machine, position, size):
                part = ArrayPart("product", position, size)
                assert (part.rows, part.columns) == size and part.has_all_columns == (size[1] == 128)
            else:
                with pytest.raises(BadPosition, match=r"rows and columns must be of|must be a multiple of the size"):
                    ArrayPart("product", position, size)


def test_positions_and_sizes_come_together(machine):
    everything = ArrayPart("product", (), ())
    assert (everything.rows, everything.columns, everything.has_all_columns) == (128, 128, True)
    for position, size in (((0, 0), ()), ((), (64, 64)), ((0,), (64,)), ((0, 0, 0), (64, 64, 64)), ((0, 0), (64,))):
        with pytest.raises(BadPosition, match="both must be given, with two integers each"):
            ArrayPart("product", position, size)
    moving = ArrayPart("product", (Index(3), 64), (64, 64))         # an index is known at run time
    assert (moving.rows, moving.columns) == (64, 64)
    with pytest.raises(BadPosition, match="must be a multiple"):
        ArrayPart("product", (Index(3), 63), (64, 64))


@pytest.mark.parametrize("shape, fits", [((64, 32), True), ((65, 32), False), ((64, 33), False), ((1, 1), True),
                                         ((64, 4, 8), True), ((64, 4, 9), False), ((32, 64), False)])
def test_operands_fit_their_part(machine, shape, fits):
    if 32 not in machine.array_parts:
        return
    part = ArrayPart("product", (64, 96), (64, 32))
    ArrayPart("product", (), ()).check((200, 200))                  # other rules limit those of the complete array
    if fits:
        part.check(shape)
    else:
        with pytest.raises(BadPosition, match="stationary must fit the part, got"):
            part.check(shape)


def tile(*shape):
    return SimpleNamespace(shape=shape)


@pytest.mark.parametrize("left, right, result", [((128, 128), (128, 512), (128, 512)), ((4, 2, 3), (4, 5), (2, 3, 5)),
                                                 ((4, 2), (4, 3, 5), (2, 3, 5)), ((4, 1), (4, 1), (1, 1))])
def test_shapes_of_products(left, right, result):
    assert product_shape("product", tile(*left), tile(*right), None) == result


@pytest.mark.parametrize("left, right, message", [
    ((128, 129), (128, 4), r"stationary\[128, 129\]"), ((128, 2, 65), (128, 4), r"stationary\[128, 2, 65\]"),
    ((128, 4), (128, 513), r"moving\[128, 513\]"), ((128, 4), (128, 3, 171), r"moving\[128, 3, 171\]")])
def test_operands_beyond_the_array(left, right, message):
    with pytest.raises(TooLarge, match=message):
        product_shape("product", tile(*left), tile(*right), None)


def test_masks_of_one_of_two_equal_dimensions():
    """A row of a mask may be M or N if both have its extent; a mask of three dimensions says which."""
    row, column = arange(8)[None, :], arange(8)[:, None]
    for m, n in itertools.product((8, 6), (8, 4)):
        operands = tile(16, m), tile(16, n)
        if m == n == 8:
            with pytest.raises(MaskOfProduct, match=r"the mask of shape \(1, 8\) may select rows \(M\) or columns \(N\)"):
                product_shape("product", *operands, row < 5)
            with pytest.raises(MaskOfProduct, match=r"of \[K, M, N\] = \[16, 8, 8\]"):
                product_shape("product", *operands, (column < 5) & (row < 5))
        else:
            assert product_shape("product", *operands, row < 5) == (m, n)
        for mask in (column < 5, row[None] < 5, Mask(((Index(3).spread((1, 8)), False),)), arange(1)[None, :] < 5,
                     column + row < 5, None, arange(8)[None, :, None] < 5):
            assert product_shape("product", *operands, mask) == (m, n)


def pair(shape, dtype):
    return SimpleNamespace(shape=shape, dtype=dtype)


@pytest.mark.parametrize("shape, dtype, fits", [
    ((128, 2, 64), FLOAT8_E4M3, True), ((128, 3, 64), FLOAT8_E4M3, False), ((128, 64), FLOAT8_E4M3, False),
    ((128, 2), FLOAT8_E4M3, False), ((128, 2, 64), BFLOAT16, False), ((128, 2, 64), FLOAT32, False),
    ((128, 2, 64), UINT8, False), ((128, 2, 64), INT8, False), ((128, 2, 4, 16), FLOAT8_E4M3, True)])
def test_pairs_of_rows(shape, dtype, fits):
    right = pair((128, 2, 512), FLOAT8_E4M3)
    for operands, name in (({"stationary": pair(shape, dtype), "moving": right}, "stationary"),
                           ({"stationary": right, "moving": pair(shape, dtype)}, "moving")):
        if fits:
            check_double_row("double_row", operands, False)
            with pytest.raises(BadPerfMode, match="it does not transpose"):
                check_double_row("double_row", operands, True)
        else:
            with pytest.raises(BadPerfMode, match=rf"{name} must have 8-bit floats of shape \[K, 2, N\], got \[128"):
                check_double_row("double_row", operands, False)
