# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The shadow in float64 that finds lost digits: which statements it names, with which errors, and what resets it."""

import re

import numpy as np
import pytest

import nki_mlir
from nki_mlir.checking.float64_shadow import distance
from nki_mlir.compat import install

install()

import neuronxcc.nki as nki  # noqa: E402
import neuronxcc.nki.language as nl  # noqa: E402

x = np.random.default_rng(3).uniform(-1, 1, (128, 64)).astype(np.float32)


@nki.jit
def shifted(x, shift, back, scale):
    """Return (x + shift - back) * scale."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    far = nl.add(nl.load(x), shift)
    near = nl.subtract(far, back)                       # loses digits
    nl.store(out, nl.multiply(near, scale))
    return out


def lost(kernel, *arguments):
    """The findings about lost digits, as the errors that each states."""
    findings = [f for f in nki_mlir.check(kernel, *arguments).of("precision") if "loses digits" in f.message]
    assert all(f.severity == "warning" and f.fix for f in findings)
    return [(f.location.line, *map(float, re.findall(r"by ([\d.e+-]+)", f.message))) for f in findings]


@pytest.mark.parametrize("shift", [2.0 ** 12, 2.0 ** 16, 2.0 ** 20])
def test_errors_are_those_of_float64(shift):
    line = shifted.func.__code__.co_firstlineno + 5
    far = x + np.float32(shift)
    near = (far - np.float32(shift)).astype(np.float64)
    operands = np.abs(far - (x.astype(np.float64) + shift)).max() / np.abs(x + shift).max()
    result = np.abs(near - x).max() / np.abs(x).max()
    expected = [] if result < 1e-3 else [(line, *(float(f"{e:.1g}") for e in (operands, result, result)))]
    assert lost(shifted, x, shift, shift, 3.0) == expected
    assert bool(expected) == (shift > 2.0 ** 12)


def test_a_difference_that_keeps_its_digits():
    assert lost(shifted, x, 1000.0, 1.0, 3.0) == []


@nki.jit
def through_integers(x):
    """The whole numbers next to x + 2^20 have no digits to lose."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    far = nl.copy(nl.add(nl.load(x), 2.0 ** 20), dtype=nl.int32)
    nl.store(out, nl.subtract(nl.copy(far, dtype=nl.float32), 2.0 ** 20))
    return out


@nki.jit
def compared(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    far = nl.add(nl.load(x), 2.0 ** 20)
    nl.store(out, nl.greater(far, 2.0 ** 20, dtype=nl.float32))
    return out


@nki.jit
def replaced_under_a_mask(x):
    """A mask replaces all elements that have lost digits."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    near = nl.subtract(nl.add(tile, 2.0 ** 20), 2.0 ** 20)
    rows, columns = nl.arange(128)[:, None], nl.arange(64)[None, :]
    near[rows, columns] = nl.copy(tile[rows, columns], mask=columns < 64)
    nl.store(out, near)
    return out


@nki.jit
def in_bfloat16(x):
    """Roundings to bfloat16 are what its author chose."""
    out = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    tile = nl.copy(nl.load(x), dtype=nl.bfloat16)
    nl.store(out, nl.multiply(nl.add(tile, 1.0, dtype=nl.bfloat16), 3.0, dtype=nl.bfloat16))
    return out


@pytest.mark.parametrize("kernel", [through_integers, compared, replaced_under_a_mask, in_bfloat16])
def test_what_loses_no_digits(kernel):
    assert lost(kernel, x) == []


@nki.jit
def lost_before_a_mask(x):
    """Half of the elements keep what the difference has lost."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    near = nl.subtract(nl.add(tile, 2.0 ** 20), 2.0 ** 20)
    rows, columns = nl.arange(128)[:, None], nl.arange(64)[None, :]
    near[rows, columns] = nl.copy(tile[rows, columns], mask=columns < 32)
    nl.store(out, near)
    return out


def test_elements_that_a_mask_leaves_keep_their_shadow():
    (line, *_), = lost(lost_before_a_mask, x)
    assert line == lost_before_a_mask.func.__code__.co_firstlineno + 5


@nki.jit
def shifted_in_bfloat16(x, shift):
    out = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nl.subtract(nl.add(nl.load(x), shift), shift), dtype=nl.bfloat16))
    return out


@pytest.mark.parametrize("shift, reported", [(2.0 ** 19, False), (2.0 ** 21, True)])
def test_an_output_may_be_off_by_16_roundings(shift, reported):
    """By 1/16 in bfloat16: the difference rounds to multiples of 2^-4, and of 2^-2."""
    assert bool(lost(shifted_in_bfloat16, x, shift)) == reported


def test_distances():
    nan, inf = np.nan, np.inf
    for actual, wide, expected in (([], [], 0), ([nan], [nan], 0), ([inf, 1.5], [1, 1], 0.5), ([0, 3], [0, 4], 0.25),
                                   ([1], [nan], 0), ([-5, 2], [-4, 2], 0.25), ([1, 2], [0, 0], 0)):
        assert distance(np.float32(actual), np.float64(wide)) == expected
