# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels whose Python decides by the number of a program: several programs of a grid share a module."""

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel import kernel_text

from .reading import printed, reread, reread_beta

X = np.random.default_rng(0).standard_normal((2, 3, 8, 4)).astype(np.float32)


def stored(x, i, j, tile):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out[i, j], tile)
    return out


@nki.jit
def by_the_first_axis(x):
    i, j = nl.program_id(0), nl.program_id(1)
    tile = nl.load(x[i, j])
    return stored(x, i, j, nl.negative(tile) if {0: True, 1: False}[i] else tile)


@nki.jit
def by_the_second_axis(x):
    i, j = nl.program_id(0), nl.program_id(1)
    tile = nl.load(x[i, j])
    return stored(x, i, j, nl.negative(tile) if {0: True, 1: False, 2: True}[j] else tile)


@nki.jit
def by_both_axes(x):
    j, i = nl.program_id(1), nl.program_id(0)
    return stored(x, i, j, nl.load(x[i, j]) * [2.0, 3.0, 5.0][j] + [1.0, 10.0][i])


FACTORS = np.array([[2, 3, 5]])[:, :, None, None]
CASES = {by_the_first_axis: np.concatenate([-X[:1], X[1:]]), by_both_axes: X * FACTORS + np.array([1, 10])[:, None, None, None],
         by_the_second_axis: X * np.array([-1, 1, -1])[None, :, None, None]}


@pytest.mark.parametrize("captured", CASES, ids=lambda captured: captured.__name__)
@pytest.mark.parametrize("generation, read", [("current", reread), ("beta", reread_beta)])
def test_every_program_is_printed(captured, generation, read):
    text = printed(captured[2, 3], [X], generation=generation)
    for executor in ("interpreter", "jit"):
        np.testing.assert_allclose(read(text).on(executor)(X), CASES[captured], rtol=1e-6, err_msg=text)


def test_programs_that_share_a_module_are_a_loop():
    text = printed(by_the_first_axis[2, 3], [X])
    assert text.count("for program in range(3):") == 2 and "x[0, program]" in text and "x[1, program]" in text


def test_modules_of_some_programs_are_refused():
    modules = by_the_first_axis[2, 3].lower(X).specialization.modules
    with pytest.raises(Unprintable, match="a launch of 6 programs, of which 2 have a module, cannot be printed"):
        kernel_text(modules)
