# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Boxes of an iteration space on a memref, with steps in both directions, against element by element."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.targets.interpreter.windows import IterationWindow

SIZE = 24


@given(steps=st.lists(st.integers(-5, 5), min_size=1, max_size=3), start=st.integers(-4, SIZE + 4),
       offset=st.integers(0, 6), data=st.data())
def test_a_box_is_checked_at_both_ends_and_read_in_its_order(steps, start, offset, data):
    rank = len(steps)
    starts, counts = (data.draw(st.lists(st.integers(low, 4), min_size=rank, max_size=rank)) for low in (0, 1))
    axes = data.draw(st.permutations([*range(rank), -1]))
    array = np.arange(SIZE, dtype=np.float32)
    with shared_context():
        window = IterationWindow(ir.Type.parse(f"memref<{SIZE}xf32>"), "x", steps, start, frozenset(range(rank)))
    points = np.array(list(itertools.product(*(range(s, s + c) for s, c in zip(starts, counts))))).T
    places = start + offset + np.dot(steps, points)
    if places.min() < 0 or places.max() >= SIZE:
        bounds = rf"from {places.min()} to {places.max()}|{places.min()}.*{places.max()}"
        with pytest.raises(OutOfBounds, match=bounds):
            window.view((array, offset), starts, counts, axes)
        with pytest.raises(OutOfBounds, match=bounds):
            window.elements((array, offset), points)
        return
    inner = [axis for axis in axes if axis >= 0]
    expected = places.reshape(counts).transpose(inner).reshape([counts[a] if a >= 0 else 1 for a in axes])
    np.testing.assert_array_equal(window.view((array, offset), starts, counts, axes), expected)
    flat, index = window.elements((array, offset), points)
    np.testing.assert_array_equal(flat[index], places)
