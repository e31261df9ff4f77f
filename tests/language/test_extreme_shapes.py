# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shapes, indices and results that no tensor has, however large: errors at the kernel's line."""

import numpy as np
import pytest

import nki_mlir.language.beta.language as nl
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.input_limits import DIMENSIONS, ELEMENTS
from nki_mlir.language.beta import nki
from nki_mlir.language.creation import TooLargeExtent, TooLongShape, plain_shape
from nki_mlir.language.results import BadResult

HUGE = 10 ** 5_000
X = np.arange(16, dtype=np.float32).reshape(4, 4)


@nki.jit
def many_dimensions(x):
    return nl.ndarray((1,) * 50_000, nl.float32, buffer=nl.shared_hbm)


@nki.jit
def huge_extent(x):
    return nl.zeros((4, HUGE), nl.float32)


@nki.jit
def huge_index(x):
    return nl.load(x[HUGE])


@nki.jit
def result_of_itself(x):
    results = [x]
    results.append(results)
    return results


@pytest.mark.parametrize("on", ["eager", "jit", "interpreter", "isa"])
@pytest.mark.parametrize(("kernel", "error", "text"), [
    (many_dimensions, TooLongShape, "a shape has 50,000 dimensions; a tensor has at most 32"),
    (huge_extent, TooLargeExtent, "dimension 1 of a shape is a number of 16,610 bits; a tensor has less than "
                                  "1,152,921,504,606,846,976 elements"),
    (huge_index, NkiMlirError, "Out-of-bound access for tensor `x` on dimension 0: index range "
                               "[<int of 16,610 bits>, <int of 16,610 bits>] exceed dimension size of 4"),
    (result_of_itself, BadResult, "the kernel returns tuples, lists or dicts that contain themselves, or are nested too deeply"),
])
def test_what_no_tensor_has_is_an_error_at_its_line(kernel, error, text, on):
    with pytest.raises(error) as raised:
        kernel.on(on)(X)
    lines = str(raised.value).splitlines()
    assert lines[0].startswith(f"{__file__}:") and text in lines[0] and len(lines[0]) < 400
    assert "return" in lines[1] and lines[-1].startswith("  fix: ")


def test_a_shape_at_its_limits():
    assert plain_shape((1,) * DIMENSIONS) == ((1,) * DIMENSIONS, None)
    assert plain_shape([np.int64(1)] * DIMENSIONS) == ((1,) * DIMENSIONS, None)
    assert plain_shape((2, ELEMENTS - 1)) == ((2, ELEMENTS - 1), None)
    assert plain_shape((2, nl.par_dim(ELEMENTS - 1), 3)) == ((2, ELEMENTS - 1, 3), 1)
    for shape in ((1,) * (DIMENSIONS + 1), [1] * (DIMENSIONS + 1)):
        with pytest.raises(TooLongShape, match="33 dimensions"):
            plain_shape(shape)
    for shape in ((2, ELEMENTS), (2, np.int64(ELEMENTS), 3)):
        with pytest.raises(TooLargeExtent, match="dimension 1 of a shape is a number of 61 bits"):
            plain_shape(shape)
