# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keywords that no release has are errors where the kernel passes them; labels and hints change no value."""

import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.calls import BadCall

from .running import check, numbers, run


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, lazy_initialization=True)
    tile = nisa.activation(nl.relu, nl.load(x, name="x"), scale=2.0)
    nl.store(out, nl.multiply(tile, 2, max_free_vec_size=8))
    return out


def test_hints__change_no_value(on):
    x = numbers(8, 8)
    check(on, kernel, np.maximum(x * 2, 0) * 2, x)


@pytest.mark.parametrize("call, text", [
    (lambda t: nl.load(t, mosk=None), "load() got an unexpected keyword argument 'mosk'; did you mean mask=?"),
    (lambda t: nisa.activation(nl.relu, t, scle=2.0), "did you mean scale=?"),
    (lambda t: nl.max(t, 1, keepdim=True), "did you mean keepdims=?"),
    (lambda t: nl.mean(t, axis=1, keepdim=True), "did you mean keepdims=?"),
    (lambda t: nl.matmul(t, t, transpose_b=True), "did you mean transpose_x=?"),
    (lambda t: nl.exp(t, of=1), "exp() got an unexpected keyword argument 'of'")])
def test_unknown_keyword__is_an_error_that_names_the_nearest(call, text):
    @nki.jit
    def of_call(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, call(nl.load(x)))
        return out
    with pytest.raises(BadCall) as caught:
        run("eager", of_call, numbers(8, 8))
    assert text in caught.value.headline and isinstance(caught.value, TypeError)
    assert caught.value.at.file == __file__ and "fix: call it as" in str(caught.value)


def test_number_of_numpy_on_the_left_of_an_operator():
    @nki.jit
    def of_numbers(x):
        out = nl.ndarray((4, *x.shape), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for k, result in enumerate((np.float32(2) - tile, np.float64(8) / tile, np.int32(3) * tile, np.float32(1) > tile)):
            nl.store(out[k], result)
        return out
    x = numbers(8, 8) + 0.5
    np.testing.assert_array_equal(run("eager", of_numbers, x), np.stack(
        [2 - x, np.float32(8) / x, 3 * x, (1 > x).astype(np.float32)]))
