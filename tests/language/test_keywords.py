# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keywords that a function does not have are reported where the kernel passes them, and ignored."""

import inspect
import warnings

import numpy as np

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.keywords import UnknownKeywordWarning

from .running import numbers, run


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, lazy_initialization=True)
    tile = nisa.activation(nl.relu, nl.load(x, mosk=None, name="x"), scle=2.0)      # here
    nl.store(out, tile, max_free_vec_size=8)
    return out


def test_unknown_keyword__is_reported_at_its_line_and_ignored():
    x = numbers(8, 8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = run("eager", kernel, x)
    np.testing.assert_array_equal(made, np.maximum(x, 0))
    lines, first = inspect.getsourcelines(kernel.func)
    here = first + next(k for k, line in enumerate(lines) if "# here" in line)
    found = [w for w in caught if w.category is UnknownKeywordWarning]
    assert [(str(w.message).split("; ")[1], w.lineno) for w in found] == [
        ("did you mean 'mask'?", here), ("did you mean 'scale'?", here)]


def test_number_of_numpy_on_the_left_of_an_operator():
    @nki.jit
    def of_numbers(x):
        out = nl.ndarray((4, *x.shape), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for k, made in enumerate((np.float32(2) - tile, np.float64(8) / tile, np.int32(3) * tile, np.float32(1) > tile)):
            nl.store(out[k], made)
        return out
    x = numbers(8, 8) + 0.5
    np.testing.assert_array_equal(run("eager", of_numbers, x), np.stack(
        [2 - x, np.float32(8) / x, 3 * x, (1 > x).astype(np.float32)]))
