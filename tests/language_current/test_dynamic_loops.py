# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Registers, and loops whose trip counts are known at run time only."""

import types

import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .running import numbers, run


def columns_copied(x, limit, loop):
    """The first columns of x, copied one by one in a loop."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    t, columns = nl.load(x), nl.zeros(x.shape, x.dtype)
    bound = nisa.register_alloc()
    nisa.register_load(bound, limit)

    def body(i):
        column = [[x.shape[1], x.shape[0]], [1, 1]]
        nisa.tensor_copy(columns.ap(column, scalar_offset=i, indirect_dim=1),
                         t.ap(column, scalar_offset=i, indirect_dim=1))
    loop(bound, body)
    nisa.dma_copy(out, columns)
    return out


@pytest.mark.parametrize("count", [0, 1, 5, 8])
def test_fori_loop(on, count):
    x = numbers(16, 8)
    expected = np.where(np.arange(8) < count, x, 0)
    result = run(on, lambda x, n: columns_copied(x, n, lambda bound, body: nl.fori_loop(0, bound, body)), x,
                 np.array([[count]], np.int32))
    np.testing.assert_array_equal(result, expected)


def test_fori_loop_with_a_step(on):
    x = numbers(16, 8)
    result = run(on, lambda x, n: columns_copied(x, n, lambda bound, body: nl.fori_loop(1, bound, body, step=3)), x,
                 np.array([[7]], np.int32))
    np.testing.assert_array_equal(result, np.where(np.isin(np.arange(8), (1, 4)), x, 0))


def test_dynamic_range(on):
    def loop(bound, body):
        for i in nl.dynamic_range(bound):
            body(i)
    x = numbers(16, 8)
    result = run(on, lambda x, n: columns_copied(x, n, loop), x, np.array([[3]], np.int32))
    np.testing.assert_array_equal(result, np.where(np.arange(8) < 3, x, 0))


def test_while_loop(on):
    def kernel(start):
        out = nl.ndarray((1, 3), nl.int32, buffer=nl.shared_hbm)
        left, total = nl.load(start), nl.zeros((1, 1), nl.int32)
        condition = nisa.register_alloc()
        nisa.register_load(condition, left)

        def body(r):
            nisa.tensor_tensor(total, total, left, nl.add)
            nisa.tensor_scalar(left, left, nl.subtract, 1)
            nisa.register_load(r, left)
            return r
        nl.while_loop(condition, body)
        nl.store(out[:, 0:1], total)
        nl.store(out[:, 1:2], left)
        before = nl.ndarray((1, 1), nl.int32)
        nisa.register_store(before, condition)              # the body's register is another one
        nl.store(out[:, 2:3], before)
        return out
    for count in (0, 4):
        result = run(on, kernel, np.array([[count]], np.int32))
        assert result.tolist() == [[count * (count + 1) // 2, 0, count]]


def test_loops_in_loops(on):
    def kernel(n):
        out = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
        total = nl.zeros((1, 1), nl.int32)
        bound = nisa.register_alloc()
        nisa.register_load(bound, n)

        def inner(j):
            nisa.tensor_scalar(total, total, nl.add, 1)

        nl.fori_loop(0, bound, lambda i: nl.fori_loop(i, 4, inner))
        nl.store(out, total)
        return out
    assert run(on, kernel, np.array([[3]], np.int32)).tolist() == [[4 + 3 + 2]]


def test_registers(on):
    def kernel(x):
        out = nl.ndarray((1, 4), nl.int32, buffer=nl.shared_hbm)
        values = nl.ndarray((1, 4), nl.int32)
        a, b = nisa.register_alloc(7), nisa.register_alloc()
        nisa.register_load(b, x[0, 1])
        nisa.register_store(values[:, 0:1], a)
        nisa.register_store(values[:, 1:2], b)
        nisa.register_move(a, b)
        nisa.register_store(values[:, 2:3], a)
        nisa.register_move(a, imm=-3)
        nisa.register_store(values[:, 3:4], a)
        nl.store(out, values)
        return out
    assert run(on, kernel, np.array([[1, -5]], np.int32)).tolist() == [[7, -5, -5, -3]]


def test_iota_with_a_register(on):
    def kernel(x):
        out = nl.ndarray((4, 3), nl.int32, buffer=nl.shared_hbm)
        counted, r = nl.ndarray((4, 3), nl.int32), nisa.register_alloc()
        nisa.register_load(r, x)
        nisa.iota(counted, [[2, 3]], offset=r, channel_multiplier=10)
        nl.store(out, counted)
        return out
    expected = 100 + 2 * np.arange(3) + 10 * np.arange(4)[:, None]
    np.testing.assert_array_equal(run(on, kernel, np.array([[100]], np.int32)), expected)


def test_a_register_subscript(on):
    def kernel(x, at):
        out = nl.ndarray((2, 3), x.dtype, buffer=nl.shared_hbm)
        r = nisa.register_alloc()
        nisa.register_load(r, at)
        nisa.dma_copy(out[0:1], x[r])
        t = nl.load(x)
        nisa.dma_copy(out[1:2, 0:2], t[0:1, nl.ds(r, 2)])
        nisa.dma_copy(out[1:2, 2:3], t[1:2, 0:1])
        return out
    x = numbers(4, 3)
    result = run(on, kernel, x, np.array([[1]], np.int32))
    np.testing.assert_array_equal(result, [x[1], [x[0, 1], x[0, 2], x[1, 0]]])


def simulated(body):
    nki.simulate(lambda x: body(x))(np.array([[2]], np.int32))


def test_registers_are_no_numbers():
    for use in (int, range, lambda r: r + 1, lambda r: r < 3, float):
        with pytest.raises(TypeError, match="not a Python number"):
            simulated(lambda x, use=use: use(nisa.register_alloc(1)) and None)


def test_a_loops_register_is_frozen():
    with pytest.raises(AssertionError, match="cannot be written"):
        simulated(lambda x: nl.fori_loop(0, 2, lambda i: nisa.register_move(i, 3)))


@pytest.mark.parametrize("loop", [nl.fori_loop, lambda lower, upper, body: [body(i) for i in nl.dynamic_range(lower, upper)]])
def test_a_loops_bound_cannot_be_written_in_its_body(on, loop):
    """The device compares the counter with the register before each iteration; a Python range has its bounds."""
    def kernel(n, changes):
        out, total = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm), nl.zeros((1, 1), nl.int32)
        bound = nisa.register_alloc()
        nisa.register_load(bound, nl.load(n))

        def body(i):
            nisa.tensor_scalar(total, total, nl.add, 1)
            if changes:
                nisa.register_move(bound, i)

        def twice(i):
            nl.fori_loop(0, bound, body)
        loop(0, bound, twice)
        nisa.register_move(bound, 5)
        nl.store(out, total)
        return out
    assert run(on, lambda n: kernel(n, False), np.array([[3]], np.int32)) == 9
    with pytest.raises(AssertionError, match=r"(register_move: the counter and the bound|the register) of a loop cannot be written"):
        run(on, lambda n: kernel(n, True), np.array([[3]], np.int32))


def test_what_loops_do_not_allow():
    with pytest.raises(AssertionError, match="step must be a positive int"):
        simulated(lambda x: nl.fori_loop(0, 2, lambda i: None, step=0))
    with pytest.raises(AssertionError, match="must return None"):
        simulated(lambda x: nl.fori_loop(0, 2, lambda i: i))
    with pytest.raises(AssertionError, match="must return the next condition"):
        simulated(lambda x: nl.while_loop(nisa.register_alloc(1), lambda r: None))

    def inside(x):
        with nl.no_reorder():
            nl.fori_loop(0, 2, lambda i: None)
    with pytest.raises(AssertionError, match="Dynamic control-flow cannot be nested with a no_reorder block"):
        simulated(inside)

    def across(x):
        moves = []
        nl.fori_loop(0, 1, lambda i: moves.append(nisa.register_move(nisa.register_alloc(), 1)))
        nisa.register_move(nisa.register_alloc(), 1).depends_on(moves[0])
    with pytest.raises(AssertionError, match="no dependency crosses"):
        simulated(across)


def test_while_register_in_the_simulator():
    def kernel(x):
        t, r = nl.load(x), nisa.register_alloc()
        nisa.register_load(r, t)
        count = 0
        while r:
            nisa.tensor_scalar(t, t, nl.subtract, 1)
            nisa.register_load(r, t)
            count += 1
        assert count == 2
    simulated(kernel)


def counted_down(start):
    """(start + (start - 1) + ... + 1, 0), added up in a loop that a register of Python's ``while`` ends."""
    out = nl.ndarray((1, 2), nl.int32, buffer=nl.shared_hbm)
    left, total, r = nl.load(start), nl.zeros((1, 1), nl.int32), nisa.register_alloc()
    nisa.register_load(r, left)
    while r:
        nisa.tensor_tensor(total, total, left, nl.add)
        nisa.tensor_scalar(left, left, nl.subtract, 1)
        r = nisa.register_alloc()                       # the next condition may be another register
        nisa.register_load(r, left)
    nl.store(out[:, 0:1], total)
    nl.store(out[:, 1:2], left)
    return out


@pytest.mark.filterwarnings("ignore:while on a register")
@pytest.mark.parametrize("count", [0, 1, 4])
def test_while_register(on, count):
    assert run(on, counted_down, np.array([[count]], np.int32)).tolist() == [[count * (count + 1) // 2, 0]]


@pytest.mark.filterwarnings("ignore:while on a register")
def test_while_registers_in_each_other(on):
    def kernel(n):
        out, total = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm), nl.zeros((1, 1), nl.int32)
        outer, inner = nl.load(n), nl.ndarray((1, 1), nl.int32)
        i, j = nisa.register_alloc(), nisa.register_alloc()
        nisa.register_load(i, outer)
        while i:
            nisa.tensor_copy(inner, outer)
            nisa.register_move(j, i)
            while j:
                nisa.tensor_scalar(total, total, nl.add, 1)
                nisa.tensor_scalar(inner, inner, nl.subtract, 1)
                nisa.register_load(j, inner)
            nisa.tensor_scalar(outer, outer, nl.subtract, 1)
            nisa.register_load(i, outer)
        nl.store(out, total)
        return out
    assert run(on, kernel, np.array([[3]], np.int32)).tolist() == [[3 + 2 + 1]]


def captured(body):
    def kernel(n):
        out, total, r = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm), nl.zeros((1, 1), nl.int32), \
            nisa.register_alloc()
        nisa.register_load(r, n)
        body(r, total)
        nl.store(out, total)
        return out
    return run("interpreter", kernel, np.array([[2]], np.int32))


def left_by_break(r, total):
    for _ in nl.dynamic_range(r):
        break


def left_by_return(r, total):
    while r:
        return


def counts_in_python(r, total):
    k = 0
    for _ in nl.dynamic_range(r):
        k += 1
        nisa.tensor_scalar(total, total, nl.add, k)


def swaps_names(r, total):
    a, b = total, nl.zeros((1, 1), nl.int32)
    for _ in nl.dynamic_range(r):
        nisa.tensor_tensor(a, a, b, nl.add)
        a, b = b, a


def swaps_entries(r, total):
    tiles = [total, nl.zeros((1, 1), nl.int32)]

    def body(i):
        nisa.tensor_tensor(tiles[0], tiles[0], tiles[1], nl.add)
        tiles.reverse()
    nl.fori_loop(0, r, body)


def rebinds_in_a_closure(r, total):
    k = 0

    def body(i):
        nonlocal k
        k += 1
        nisa.tensor_scalar(total, total, nl.add, k)
    nl.fori_loop(0, r, body)


def counts_in_an_object(r, total):
    class State:
        def __init__(self):
            self.inner = types.SimpleNamespace(k=0)
    state = State()
    for _ in nl.dynamic_range(r):
        state.inner.k += 1
        nisa.tensor_scalar(total, total, nl.add, state.inner.k)


class Counted:
    k = 0


COUNTS = {"k": 0}


def counts_in_a_class(r, total):
    for _ in nl.dynamic_range(r):
        Counted.k += 1
        nisa.tensor_scalar(total, total, nl.add, Counted.k)


def counts_in_the_class_of_an_object(r, total):
    counted = Counted()
    for _ in nl.dynamic_range(r):
        type(counted).k += 1
        nisa.tensor_scalar(total, total, nl.add, counted.k)


def counts_in_a_global(r, total):
    def body(i):
        COUNTS["k"] += 1
        nisa.tensor_scalar(total, total, nl.add, COUNTS["k"])
    nl.fori_loop(0, r, body)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_captured_bodies_stand_for_all_iterations():
    for body in (left_by_break, left_by_return):
        with pytest.raises(AssertionError, match="break and return are not allowed within dynamic loop"):
            captured(body)
    for body, names in ((counts_in_python, "k"), (swaps_names, "a, b"), (swaps_entries, "tiles"),
                        (rebinds_in_a_closure, "k"), (counts_in_an_object, "state"), (counts_in_a_class, "Counted"),
                        (counts_in_the_class_of_an_object, "counted"), (counts_in_a_global, "COUNTS")):
        with pytest.raises(AssertionError, match=f"changes Python variables that the next one reads: {names}") as caught:
            captured(body)
        assert "write it in place" in str(caught.value) and "test_dynamic_loops.py" in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_bodies_may_keep_books():
    def body(r, total):
        names = []
        for _ in nl.dynamic_range(r):
            names.append(f"t{len(names)}")
            last = nl.zeros((1, 1), nl.int32, name=names[-1])
            nisa.tensor_scalar(last, last, nl.add, 5)
            nisa.tensor_tensor(total, total, last, nl.add)
    assert captured(body).tolist() == [[10]]


def test_a_register_is_no_condition_of_if():
    def body(r, total):
        if r:
            pass
    with pytest.raises(TypeError, match="alone as the condition of while"):
        captured(body)
    with pytest.raises(TypeError, match="not a Python number"):
        captured(lambda r, total: r == 0)


def test_matmul_in_a_loop_on_psum_from_outside(on):
    a, b = numbers(32, 8), numbers(32, 6, seed=1)

    def kernel(a, b, n, how):
        out = nl.ndarray((8, 6), nl.float32, buffer=nl.shared_hbm)
        x, y, bound = nl.load(a), nl.load(b), nisa.register_alloc()
        nisa.register_load(bound, n)
        total = nl.zeros((8, 6), nl.float32, buffer=nl.psum)
        nl.fori_loop(0, bound, lambda i: nisa.nc_matmul(total, x, y) and None)
        nl.store(out, nl.copy(total))
        return out
    np.testing.assert_array_equal(run(on, kernel, a, b, np.array([[3]], np.int32), None), 3 * (a.T @ b))


def rows_times_columns(n):
    """A loop whose body defines the body of another one."""
    out = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
    total, bound = nl.zeros((1, 1), nl.int32), nisa.register_alloc()
    nisa.register_load(bound, n)
    for i in nl.dynamic_range(bound):
        def column(j):
            nisa.tensor_scalar(total, total, nl.add, 1)
        nl.fori_loop(0, 4, column)
    nl.store(out, total)
    return out


@pytest.mark.filterwarnings("ignore:nl.dynamic_range")
def test_a_body_that_is_defined_in_a_loop_of_the_device(on):
    assert run(on, rows_times_columns, np.array([[3]], np.int32)).tolist() == [[12]]


@pytest.mark.parametrize("step, count", [(1, 8), (3, 8), (2, 1), (5, 7)])
@pytest.mark.parametrize("first", [0, 4])
def test_row_of_one_dimension__at_a_run_time_offset(on, step, count, first):
    x = numbers(1, 40)[0]

    def loaded(x, start):
        out, i = nl.ndarray((count,), x.dtype, buffer=nl.shared_hbm), nisa.register_alloc()
        nisa.register_load(i, start)
        nisa.dma_copy(out, x.ap([[step, count]], scalar_offset=i, indirect_dim=0))
        return out

    def stored(x, start):
        out, i = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nisa.register_alloc()
        nisa.register_load(i, start)
        nisa.dma_copy(out, x)
        nisa.dma_copy(out.ap([[step, count]], scalar_offset=i, indirect_dim=0), x[30:30 + count])
        return out
    where = slice(first, first + (count - 1) * step + 1, step)
    np.testing.assert_array_equal(run(on, loaded, x, np.array([[first]], np.int32)), x[where])
    expected = x.copy()
    expected[where] = x[30:30 + count]
    np.testing.assert_array_equal(run(on, stored, x, np.array([[first]], np.int32)), expected)
