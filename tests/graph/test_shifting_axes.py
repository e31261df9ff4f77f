# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The summed axes of a product that shift the rows of a factor, as the windows of a convolution do."""

from types import SimpleNamespace

import pytest

from nki_mlir.graph.products import lies_across, shifting_axes

ROW, ROWS, COLUMNS, INNER = 16, 32, 20, 16          # elements between rows, and the extents of a product
UNUSED, LEFT_AXIS, RIGHT_AXIS, SUMMED, SHIFT = range(5)


def product(step: int, count: int, inner: int = INNER, rows: int = ROWS, row: int = ROW, inner_step: int = 1,
            other: tuple[int, ...] = (0, 0, INNER, 1, 0)) -> SimpleNamespace:
    """A product whose left factor a further summed axis moves by ``step`` elements ``count`` times."""
    left = SimpleNamespace(strides=(0, row, 0, inner_step, step))
    nest = SimpleNamespace(extents=(1, rows, COLUMNS, inner, count), reduced=frozenset({SUMMED, SHIFT}),
                           inputs=(left, SimpleNamespace(strides=other)))
    return SimpleNamespace(nest=nest, left=0, right=1, rows=LEFT_AXIS, columns=RIGHT_AXIS, inner=SUMMED)


@pytest.mark.parametrize("step, count, shifts", [
    (ROW, 3, True), (2 * ROW, 3, True), (ROW // 2, 3, True), (ROW, 2, True),
    (ROW, 1, False), (0, 3, False), (-ROW, 3, False), (3 * ROW // 2, 3, False), (ROW + 1, 3, False),
    (ROW, ROWS, True), (ROW, ROWS + 1, False), (ROW * ROWS, 2, False), (ROW * (ROWS - 1), 2, True)])
def test_axes__shift_whole_rows_if_shifts_share_rows(step: int, count: int, shifts: bool) -> None:
    assert shifting_axes(product(step, count), 128) == ({0: [SHIFT]} if shifts else {})


def test_factors__that_are_not_transposed_have_none() -> None:
    assert shifting_axes(product(ROW, 3, inner=1), 128) == shifting_axes(product(ROW, 3, rows=1), 128) == {}
    assert shifting_axes(product(1, 3, row=1, inner_step=ROWS), 128) == {}
    both = product(ROW, 3, other=(0, 0, INNER, 1, 2 * INNER))
    assert shifting_axes(both, 128) == {0: [SHIFT], 1: [SHIFT]}


@pytest.mark.parametrize("inner, size, shared", [
    (2 * ROW, ROW, True), (ROW + 1, ROW, True), (ROW, ROW, False), (3 * ROW, 2 * ROW, True), (2 * ROW, ROW // 2, False),
    (ROW * ROWS + 1, ROW * ROWS, False), (ROW * ROWS, ROW * (ROWS - 1), True)])
def test_factors__whose_pieces_share_rows_have_no_axes(inner: int, size: int, shared: bool) -> None:
    """A piece of the summed axis ends at a row, which is then the first of the next piece."""
    assert shifting_axes(product(0, 3, inner, other=(0, 0, 1, COLUMNS, 0)), size) == ({0: []} if shared else {})


def test_factor__lies_across_if_its_elements_are_nearer_along_the_summed_axis() -> None:
    for inner, other, expected in ((1, 2, True), (2, 2, False), (3, 2, False), (0, 2, False), (-1, 2, False), (1, 0, False)):
        assert lies_across(SimpleNamespace(strides=(inner, other)), 0, 1) is expected
