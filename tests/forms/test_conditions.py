# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``and``, ``or``, ``not`` and chained comparisons of conditions on indices: masks and branches of all of them."""

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from tests.language.test_control_flow import loops_of

X = (np.random.default_rng(0).permutation(16 * 16) % 101 + 1).astype(np.float32).reshape(16, 16)
P, F = np.mgrid[0:16, 0:16]


def masked_by(condition):
    """A kernel that doubles where the condition holds, ones elsewhere."""
    @nki.jit
    def kernel(x, n, flag):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(16)[:, None], nl.arange(16)[None, :]
        tile = nl.ones(x.shape, x.dtype)
        loaded = nl.load(x)
        tile[i_p, i_f] = nl.multiply(loaded[i_p, i_f], 2.0, mask=condition(i_p, i_f, n, flag))
        nl.store(out, tile)
        return out
    return kernel


def among(p, f, n):
    return 2 <= p < n and f >= 1


MASKS = {}


def mask(holds):
    """Registers a condition with where it holds, for n = 5 and the flag set."""
    return lambda condition: MASKS.setdefault(condition.__name__, (condition, holds))[0]


@mask((P < 5) & (F < 3))
def mask_and(p, f, n, flag):
    return p < n and f < 3


@mask((P < 5) & (F < 3) & (P >= 1))
def mask_three(p, f, n, flag):
    return p < n and f < 3 and p >= 1


@mask((P >= 1) & (P < 5))
def mask_chained(p, f, n, flag):
    return 1 <= p < n


@mask((P + F >= 1) & (P + F < 5))
def mask_chained_with_ends(p, f, n, flag):
    return 1 <= p + f < n <= 9


@mask((P < 5) | (F < 3))
def mask_or(p, f, n, flag):
    return p < n or f < 3


@mask(P >= 5)
def mask_not(p, f, n, flag):
    return not p < n


@mask(~((P < 5) & (F < 3)))
def mask_not_and(p, f, n, flag):
    return not (p < n and f < 3)


@mask(P < 5)
def mask_flag(p, f, n, flag):
    return p < n and flag


@mask(P < 5)
def mask_flag_first(p, f, n, flag):
    return flag and p < n


@mask(np.zeros_like(P, bool))
def mask_false(p, f, n, flag):
    return not flag and p < n


@mask(np.zeros_like(P, bool))
def mask_false_last(p, f, n, flag):
    return p < n and not flag


@mask(np.ones_like(P, bool))
def mask_or_flag(p, f, n, flag):
    return p < n or flag


@mask(P < 5)
def mask_or_not_flag(p, f, n, flag):
    return p < n or not flag


@mask(F < 3)
def mask_always(p, f, n, flag):
    return p < 16 and f < 3


@mask(P < 5)
def mask_or_none(p, f, n, flag):
    return None or p < n


@mask((P < 5) & (F < 3))
def mask_choice(p, f, n, flag):
    return (p < n and f < 3) if flag else p < 1


@mask((P >= 2) & (P < 5) & (F >= 1))
def mask_helper(p, f, n, flag):
    return among(p, f, n)


@mask((P < 5) & (F < 3))
def mask_in_a_comprehension(p, f, n, flag):
    selected, *_ = [p < n and g < 3 for g in (f,)]
    return selected


@mask((P < 5) & (F < 3))
def mask_bits(p, f, n, flag):
    return (p < n) & flag & (f < 3)


@mask(P < 5)
def mask_bits_of_bools(p, f, n, flag):
    return flag & (p < n) | (not flag)


@pytest.mark.parametrize("name", MASKS)
def test_masks(on, name):
    condition, holds = MASKS[name]
    np.testing.assert_array_equal(masked_by(condition).on(on)(X, 5, True), np.where(holds, X * 2, 1))


def branching_on(condition):
    """A kernel of programs and loops that stores twice its rows where the condition holds, else thrice."""
    @nki.jit
    def kernel(x, n, flag):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        g = nl.program_id(0)
        for i in nl.affine_range(8):
            row = nl.load(x[nl.ds(g * 8 + i, 1), :])
            if condition(g, i, n, flag):
                nl.store(out[nl.ds(g * 8 + i, 1), :], row * 2)
            else:
                nl.store(out[nl.ds(g * 8 + i, 1), :], row * 3)
        return out
    return kernel


G, I = (v[:, None] for v in np.divmod(np.arange(16), 8))
BRANCHES = {}


def branch(holds):
    return lambda condition: BRANCHES.setdefault(condition.__name__, (condition, holds))[0]


@branch((G > 0) & (I < 5))
def branch_and(g, i, n, flag):
    return g > 0 and i < n


@branch((G > 0) | (I < 5))
def branch_or(g, i, n, flag):
    return g > 0 or i < n


@branch(I >= 5)
def branch_not(g, i, n, flag):
    return not i < n


@branch((I >= 2) & (I < 5))
def branch_chained(g, i, n, flag):
    return 2 <= i < n


@branch(I == 1 + G)
def branch_chained_shapes(g, i, n, flag):
    return 0 < n == 5 and i == 1 + g


@branch(((G > 0) & (I < 5)) | (I == 7))
def branch_mixed(g, i, n, flag):
    return (g > 0 and i < n) or (flag and i == 7)


@branch(I != 2)
def branch_unequal(g, i, n, flag):
    return i != 2 and flag


@branch((I > 0) & (5 // np.maximum(I, 1) >= 2))
def branch_guard(g, i, n, flag):
    return i > 0 and n // i >= 2


@branch(I > 2)
def branch_list(g, i, n, flag):
    return i > 2 and [1]


@branch((I == 0) | (I == 2))
def branch_table(g, i, n, flag):
    return i < 3 and (1, 0, 1)[i]


@branch((I % 2 == 0) & (G == 0))
def branch_even(g, i, n, flag):
    return i % 2 == 0 and not g


@pytest.mark.parametrize("name", BRANCHES)
def test_branches(on, name):
    condition, holds = BRANCHES[name]
    kernel = branching_on(condition)[2]
    np.testing.assert_array_equal(kernel.on(on)(X, 5, True), X * np.where(holds, 2, 3))


def test_a_conjunction_keeps_its_loop():
    def condition(g, i, n, flag):
        return g > 0 and 2 <= i < n
    kernel = branching_on(condition)[2]
    assert loops_of(kernel, X, 5, True) == 1


def test_the_right_operand_runs_only_where_the_left_one_holds(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)

        def stored(i, factor):
            nl.store(out[nl.ds(i, 1), :], nl.load(x[nl.ds(i, 1), :]) * factor)
            return True
        for i in nl.affine_range(16):
            if i > 3 and stored(i, 2.0):
                pass
            if not (i > 3 or stored(i, 3.0)):
                raise ValueError
        return out
    np.testing.assert_array_equal(kernel.on(on)(X), X * np.where(P > 3, 2, 3))


def test_asserts_of_conditions(on):
    @nki.jit
    def kernel(x, limit):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(16):
            assert 0 <= i < limit and not i < 0, f"row {i} of {limit}"
            nl.store(out[nl.ds(i, 1), :], nl.load(x[nl.ds(i, 1), :]))
        return out
    np.testing.assert_array_equal(kernel.on(on)(X, 16), X)
    with pytest.raises(AssertionError, match="row 12 of 12"):
        kernel.on(on)(X, 12)
