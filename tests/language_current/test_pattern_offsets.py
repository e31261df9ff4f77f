# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``.ap(pattern, offset=N)`` of a view: N elements after the view's own start."""

import re

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.dialects.nisa.dynamic_access import PositionOutOfBounds
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current.errors import NkiWarning

from .running import check, numbers, run

X = numbers(64, 6, 8)


def picked(array, start, pattern):
    """What a pattern names in a flat array."""
    places = start + sum(np.arange(count).reshape(-1, *(1,) * (len(pattern) - 1 - k)) * step
                         for k, (step, count) in enumerate(pattern))
    return array.reshape(-1)[places]


@pytest.mark.parametrize(("view", "start"), [
    (lambda t: t, 0), (lambda t: t[:, 2], 16), (lambda t: t[32:, 1:3, 4:], 32 * 48 + 12),
    (lambda t: t[:, 2].ap([[48, 4], [1, 2]], offset=5), 21), (lambda t: t[:, ::2, 1::3], 1)],
    ids=["whole", "row", "part", "pattern", "steps"])
@pytest.mark.parametrize("offset", [None, 0, 3, 48 * 2 + 7, -1])
def test_offsets_count_from_the_start_of_a_view(on, view, start, offset):
    if start + (offset or 0) < 0:
        return
    pattern = [[48, 30], [8, 2], [3, 2]]
    expected = picked(X, start + (offset or 0), pattern)
    if (start + (offset or 0)) // 48 % 32 == 0:         # instructions begin at partitions that the engines allow
        check(on, lambda d, t: nisa.tensor_copy(d, view(t).ap(pattern, offset=offset)), expected, X)

    def from_hbm(x):
        out = nl.ndarray(expected.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(expected.shape, x.dtype)
        nisa.dma_copy(t, view(x).ap(pattern, offset=offset))
        nisa.dma_copy(out, t)
        return out
    np.testing.assert_array_equal(run(on, from_hbm, X), expected)


def test_offsets_count_elements_of_the_dtype_that_is_asked_for(on):
    pattern, bits = [[96, 32], [1, 4]], X.view(ml_dtypes.bfloat16)
    check(on, lambda d, t: nisa.tensor_copy(d, t[:, 1].ap(pattern, offset=3, dtype=nl.bfloat16)),
          picked(bits, 16 + 3, pattern), X, dtype=nl.bfloat16)


def test_a_start_that_is_no_element_of_the_dtype_is_refused(on):
    with pytest.raises(AssertionError, match="the view starts at byte 2, which is not aligned to float32"):
        check(on, lambda d, t: nisa.tensor_copy(d, t[:, 1:].ap([[2, 32], [1, 1]], dtype=nl.float32)), X[:32, 0, :1],
              numbers(32, 4, dtype=ml_dtypes.bfloat16))


@pytest.mark.parametrize("start", [0, 3, 4])
def test_offsets_known_at_run_time_are_added_as_well(on, start):
    """A run-time index counts the dimension of the whole tensor, from the view's start and the offset on."""
    pattern = [[48, 32], [8, 2], [1, 3]]

    def body(dst, t, at):
        nisa.tensor_copy(dst, t[:, 0, 2:].ap(pattern, offset=1, scalar_offset=at, indirect_dim=1))
    check(on, body, picked(X, 3 + 8 * start, pattern), X, np.array([[start]], np.int32))


PARTS = {"a row": (lambda x: x[2], 0, "steps over 3 elements, the stride of dimension 0 .* the view's stride is 1"),
         "columns": (lambda x: x[:, 1:], 0, None), "rows": (lambda x: x[2:], 0, None),
         "a row of one": (lambda x: x[2:3], 0, None), "a reshape": (lambda x: x.reshape((4, 6)), 0, None), "every second row": (lambda x: x[::2], 0, "the view's stride is 6"),
         "a row's columns": (lambda x: x[2], 1, "steps over 1 element, .* the view has no such dimension")}


@pytest.mark.parametrize("name", PARTS)
def test_an_index_that_counts_another_dimension_than_the_views(name, recwarn):
    part, dim, text = PARTS[name]

    def kernel(x, index):
        t, out = nl.load(index), nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, part(x).ap([[1, 1], [1, 1]], scalar_offset=t, indirect_dim=dim))
        return out
    run("eager", kernel, np.arange(24, dtype=np.float32).reshape(8, 3), np.ones((1, 1), np.int32))
    texts = [str(w.message) for w in recwarn if issubclass(w.category, NkiWarning)]
    assert len(texts) == (text is not None) and all(re.search(text, message) for message in texts)


@pytest.mark.parametrize("executor", ["eager", "interpreter", "jit", "isa"])
def test_a_pattern_that_leaves_the_tensor(executor):
    """The error has the value of the index, which is a row, and the first element beyond the tensor."""
    def kernel(x, index):
        t, out = nl.load(index), nl.ndarray((1, 6), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x.ap([[3, 1], [1, 6]], scalar_offset=t, indirect_dim=0))
        return out
    with pytest.raises(IndexError, match="index 24 is out of bounds for axis 0 with size 24") as caught:
        run(executor, kernel, np.arange(24, dtype=np.float32).reshape(8, 3), np.full((1, 1), 7, np.int32))
    cause = caught.value.__cause__
    assert isinstance(cause, PositionOutOfBounds)
    assert cause.advice[0] == "an index tile has the value 7, which moves an access to element 24 of 24"
