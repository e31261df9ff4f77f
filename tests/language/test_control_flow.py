# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Control flow of kernels: conditions, jumps, loops and exceptions give what plain Python gives, at no more than its cost."""

import math

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array

from .running import check, numbers, run

X = numbers(4, 16, 8)


def output(x):
    return nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)


def each(scales):
    return X * np.float32(scales)[:, None, None]


def loops_of(kernel, *arguments):
    """How many loops the captured kernel has."""
    spec = kernel.specialize(kernel.bind(arguments, {}, is_array, describe_array))
    return str(spec.modules[0]).count("scf.for")


# -- conditions --------------------------------------------------------------------------------------------------------
def test_symbolic_conditions(on):
    """Every spelling of a condition on a loop variable."""
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            tile = nl.load(x[i])
            flag = True
            if (i > 0) & (i < 3) & flag:
                tile += 1
            if (i == 0) | (i == 3):
                tile += 10
            if i != 2:
                tile += 100
            if ~(i == 1):
                tile += 1000
            if (i != 2) & (i < 3):
                tile += 10000
            if i > 0 and i < 3:
                tile += 0.5
            if not i == 2 or i == 1:
                tile += 0.25
            if 1 <= i < 3:
                tile += 0.125
            if i:
                tile += 2000
            if i % 2 == 0:
                tile += 4000
            if i > 1.5:
                tile += 0.0625
            if i in (1, 3):
                tile += 0.03125
            if (i > 2) ^ (i < 1):
                tile += 20000
            nl.store(out[i], tile)
        return out
    added = [sum(((0 < i < 3) * 1, (i in (0, 3)) * 10, (i != 2) * 100, (i != 1) * 1000, (i != 2 and i < 3) * 10000,
                  (0 < i < 3) * 0.5, (i != 2 or i == 1) * 0.25, (1 <= i < 3) * 0.125, (i > 0) * 2000,
                  (i % 2 == 0) * 4000, (i > 1.5) * 0.0625, (i in (1, 3)) * 0.03125, ((i > 2) ^ (i < 1)) * 20000))
             for i in range(4)]
    check(on, kernel, X + np.float32(added)[:, None, None], X)


def test_conditional_expression_and_python_selection(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            scale = 2.0 if i < 2 else 3.0
            offset = max(i, 2) - min(i, 1) + [5, 6, 7, 8][i] + {0: 1, 1: 2, 2: 3, 3: 4}[i]
            nl.store(out[i], nl.load(x[i]) * scale + offset)
        return out
    offsets = [max(i, 2) - min(i, 1) + 5 + i + 1 + i for i in range(4)]
    check(on, kernel, each([2, 2, 3, 3]) + np.float32(offsets)[:, None, None], X)


def test_asserts_on_loop_variables(on):
    @nki.jit
    def kernel(x, limit):
        out = output(x)
        for i in nl.affine_range(4):
            assert i < 4 and i >= 0
            assert i * 2 < limit, "the loop is too long"
            nl.store(out[i], nl.load(x[i]))
        return out
    check(on, kernel, X, X, 7)
    with pytest.raises(AssertionError, match="too long"):
        run(on, kernel, X, 5)


def test_both_branches_write_a_tensor_from_outside(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            tile = nl.ndarray((16, 8), nl.float32)
            if i < 2:
                part = nl.load(x[i])
                tile[...] = part * 2
            else:
                tile[...] = nl.load(x[i]) * 3
            nl.store(out[i], tile)
        return out
    check(on, kernel, each([2, 2, 3, 3]), X)
    if on != "eager":
        assert loops_of(kernel, X) == 1


# -- jumps -------------------------------------------------------------------------------------------------------------
def test_jumps(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]))
        for i in nl.affine_range(4):
            if i == 0:
                continue
            if i == 3:
                break
            nl.store(out[i], nl.load(x[i]) * 2)
        else:
            nl.store(out[0], 0.0)
        for i in nl.affine_range(1):
            pass
        else:
            nl.store(out[3], nl.load(x[3]) * 5)
        return out
    check(on, kernel, each([1, 2, 2, 5]), X)


def test_early_return(on):
    def fill(out, x, until):
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]) * 2)
            if i == until:
                return i
        return None

    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]))
        last = fill(out, x, 2)
        if last == 2:
            return out
        nl.store(out[0], 0.0)
        return out
    check(on, kernel, each([2, 2, 2, 1]), X)


def test_while_loops(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        n = 0
        while n < 4:
            for i in nl.affine_range(2):
                nl.store(out[n + i], nl.load(x[n + i]) * (n + 1))
            n += 2
            if n > 100:
                break
        else:
            n = 0
        for i in nl.affine_range(3):
            k = i
            while k < 2:
                k += 1
            nl.store(out[i], nl.load(out[i]) + k)
        return out
    check(on, kernel, each([1, 1, 3, 3]) + np.float32([2, 2, 2, 0])[:, None, None], X)


def test_exceptions(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        table = {0: 2.0, 2: 4.0}
        for i in nl.affine_range(4):
            try:
                scale = table[i]
            except KeyError:
                scale = 9.0
            finally:
                offset = 1
            nl.store(out[i], nl.load(x[i]) * scale + offset)
        return out
    check(on, kernel, each([2, 9, 4, 9]) + 1, X)


def test_exceptions__swallowed_outside_of_a_loop_or_branch(on):
    """What follows is not part of the loop that was left."""
    @nki.jit
    def kernel(x):
        out = output(x)
        table = {}
        try:
            for i in nl.affine_range(4):
                nl.store(out[i], nl.load(x[i]) * 2)
                table["missing"]
        except KeyError:
            nl.store(out[1], nl.load(x[1]) * 3)
        for i in nl.affine_range(2):
            try:
                if i == 1:
                    nl.store(out[2], nl.load(x[2]) * 4)
                    table["missing"]
                nl.store(out[3], nl.load(x[3]) * (i + 5))
            except KeyError:
                pass
        return out
    check(on, kernel, each([2, 3, 4, 5]), X)


def test_exceptions__of_a_branch_that_no_iteration_takes(on):
    def fail():
        raise ValueError("never")

    @nki.jit
    def kernel(x, last):
        out = output(x)
        for i in nl.affine_range(4):
            if i * i > 9:
                fail()
            if i > last:
                assert False, "too far"
            nl.store(out[i], nl.load(x[i]) * 2)
        return out
    check(on, kernel, X * 2, X, 3)
    with pytest.raises(AssertionError, match="too far"):
        run(on, kernel, X, 2)


def test_symbols_taken_for_numbers(on):
    """Python refuses some uses of a symbol that it allows of a number: then it gets numbers."""
    @nki.jit
    def kernel(x):
        out = output(x)
        assert type(nl.program_id(0)) is int or isinstance(nl.program_id(0), int)
        for i in nl.affine_range(4):
            scale = len("%d" % i) + len("x" * i) + int(np.maximum(i, 2)) + (type(i) is int) + i.__index__()
            nl.store(out[i], nl.load(x[i]) * scale)
        return out
    check(on, kernel, each([1 + i + max(i, 2) + 1 + i for i in range(4)]), X, grid=1)


def test_exceptions_of_the_kernel_pass(on):
    class Mine(Exception):
        pass

    @nki.jit
    def kernel(x):
        if x.shape[0] == 4:
            raise Mine("four rows")
        return x
    with pytest.raises(Mine, match="four rows"):
        run(on, kernel, X)


# -- loops -------------------------------------------------------------------------------------------------------------
def test_loop_forms(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.sequential_range(0, 4, 2, directives="anything"):
            nl.store(out[i], nl.load(x[i]) * 2)
        for i in nl.affine_range(1, 4, 2, precise_schedule=True):
            nl.store(out[i], nl.load(x[i]) * 3)
        for i in range(3, 4):
            nl.store(out[i], nl.load(x[i]) * 4)
        for i in range(1, -1, -1):
            nl.store(out[i], nl.load(out[i]) + (i + 1))
        for i in range(0, 3, 2):
            nl.store(out[i], nl.load(out[i]) + 10)
        for _ in range(0):
            nl.store(out[0], 0.0)
        for i in nl.static_range(2):
            nl.store(out[i], nl.load(out[i]) + [100, 200][i])
        return out
    expected = each([2, 3, 2, 4])
    expected += np.float32([1 + 10 + 100, 2 + 200, 10, 0])[:, None, None]
    check(on, kernel, expected, X)


def test_iteration_by_other_means(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        tiles = [nl.load(x[i]) for i in nl.affine_range(4)]
        sums = {i: tiles[i] + i for i in range(4)}
        pairs = list(zip(nl.affine_range(4), reversed(tiles)))
        total = sum(n for n in nl.affine_range(4))
        for n, (i, tile) in enumerate(pairs):
            nl.store(out[n], tile + sums[i] * 0 + total + len(list(nl.affine_range(3))))
        return out
    check(on, kernel, X[::-1] + 9, X)


def test_iterating_over_a_tensor(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        assert len(x) == 4
        for row, target in zip(x, out):
            nl.store(target, nl.load(row) * 2)
        first, *rest = x
        nl.store(out[0], nl.load(first) + nl.load(rest[2]))
        return out
    expected = X * 2
    expected[0] = X[0] + X[3]
    check(on, kernel, expected, X)


def test_loop_variable_of_nested_loops_and_after_them(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(2):
            for j in nl.affine_range(2):
                k = i * 2 + j
                nl.store(out[k], nl.load(x[k]))
        nl.store(out[k], nl.load(x[k]) + i * 10 + j)
        return out
    expected = X.copy()
    expected[3] += 11
    check(on, kernel, expected, X)


def test_state_carried_in_python(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        scale, indices, offset = 1.0, [], 0
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]) * scale + len(indices) + offset)
            scale *= 2
            indices.append(i)
            offset = i
        return out
    check(on, kernel, each([1, 2, 4, 8]) + np.float32([0, 1, 3, 5])[:, None, None], X)


def test_list_of_tiles_indexed_by_the_loop(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        tiles = []
        for i in nl.affine_range(4):
            tiles.append(nl.load(x[i]))
        for i in nl.affine_range(4):
            nl.store(out[i], tiles[3 - i])
        return out
    check(on, kernel, X[::-1].copy(), X)


def test_text_of_loop_variables(on, capsys):
    """Names and messages may use them; where the text decides something, the loop is unrolled."""
    @nki.jit
    def kernel(x):
        out = output(x)
        names = {"w0": 2.0, "w1": 3.0, "w2": 4.0, "w3": 5.0}
        for i in nl.affine_range(4):
            buffer = nl.ndarray((16, 8), nl.float32, name=f"tile_{i}")
            print(f"row {i:02d}", i)
            buffer[...] = nl.load(x[i])
            nl.store(out[i], buffer)
        for i in nl.affine_range(4):
            nl.store(out[i], nl.load(x[i]) * names[f"w{i}"])
        return out
    check(on, kernel, each([2, 3, 4, 5]), X)
    assert "row" in capsys.readouterr().out


def test_types_of_loop_variables(on):
    @nki.jit
    def kernel(x):
        out = output(x)
        for i in nl.affine_range(4):
            assert isinstance(i, int) and not isinstance(i, str) and isinstance(i, (str, int))
            row = i if isinstance(i, int) else 0
            nl.store(out[row], nl.load(x[row]) * math.ceil((i + 1) / 2) + round(i * 0.6) + divmod(i, 2)[1])
        return out
    scales = [math.ceil((i + 1) / 2) for i in range(4)]
    check(on, kernel, each(scales) + np.float32([round(i * 0.6) + i % 2 for i in range(4)])[:, None, None], X)


# -- cost --------------------------------------------------------------------------------------------------------------
def test_long_loops_are_captured_once():
    @nki.jit
    def kernel(x, count):
        acc = nl.zeros((16, 8), nl.float32)
        for i in nl.sequential_range(count):
            for j in nl.affine_range(count):
                acc += nl.load(x[(i + j) % 4]) * 1.0
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, acc)
        return out

    def text(count):
        spec = kernel.specialize(kernel.bind((X, count), {}, is_array, describe_array))
        assert spec.captured.attempts == 1
        return str(spec.modules[0])
    assert text(1_000_000).count("\n") == text(7).count("\n")


def test_loops_without_operations_may_be_long(on):
    @nki.jit
    def kernel(x):
        total, indices = 0, []
        for i in range(200_000):
            total += i % 3
            if i % 50_000 == 0:
                indices.append(i)
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x[0]) + total + len(indices))
        return out
    check(on, kernel, X[0] + np.float32(sum(i % 3 for i in range(200_000)) + 4), X)


def test_capture_is_linear_in_operations():
    """Ten times the operations are ten times the text, and no operation is captured more than once."""
    @nki.jit
    def kernel(x, count):
        tile = nl.load(x[0])
        for _ in nl.static_range(count):
            tile = nl.add(tile, 1.0)
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    def operations(count):
        spec = kernel.specialize(kernel.bind((X, count), {}, is_array, describe_array))
        assert spec.captured.attempts == 1
        return str(spec.modules[0]).count("nki.binary_scalar")
    assert [operations(n) for n in (20, 200)] == [20, 200]
