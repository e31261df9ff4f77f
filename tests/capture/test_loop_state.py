# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Snapshots see changes of Python state that a deep comparison sees; traces compare operations by what they do."""

import copy
import itertools
import logging
import math
import os
import pathlib

import numpy as np
import pytest

from nki_mlir.capture import loop_state
from nki_mlir.capture.loop_state import BlockArguments, Identity, Trace, changes, snapshot
from nki_mlir.dialects.op import FRESH
from nki_mlir.language.beta import language as nl


class Plain:
    def __init__(self, **values):
        vars(self).update(values)


class Slotted:
    __slots__ = ("__dict__", "a", "b")

    def __init__(self, a, **rest):
        self.a = a
        vars(self).update(rest)


def counter():
    count = 0

    def step(change=0):
        nonlocal count
        count += change
        return count
    return step


class Method:
    def __init__(self):
        self.n = 0

    def step(self, change=0):
        self.n += change


def recursive():
    items = [1]
    items.append(items)
    return items


CHANGED = {
    "list item": (lambda: [1, 2, 3], lambda v: v.__setitem__(1, 5)), "list length": (lambda: [1], lambda v: v.append(1)),
    "list equal length": (lambda: [1, 2], lambda v: v.reverse()), "dict value": (lambda: {"a": 1}, lambda v: v.update(a=2)),
    "dict key": (lambda: {"a": 1}, lambda v: (v.pop("a"), v.update(b=1))), "dict order": (
        lambda: {"a": 1, "b": 1}, lambda v: v.update(a=v.pop("a"))),
    "set": (lambda: {1}, lambda v: (v.discard(1), v.add(2))), "array": (lambda: np.zeros(4), lambda v: v.__setitem__(2, 1)),
    "array of 4 KB": (lambda: np.zeros(512), lambda v: v.__setitem__(2, 1)), "attribute": (
        lambda: Plain(a=1), lambda v: setattr(v, "a", 2)),
    "nested": (lambda: [Plain(a={"b": [1]})], lambda v: v[0].a["b"].append(2)), "slot": (
        lambda: Slotted(1), lambda v: setattr(v, "a", 2)),
    "new slot": (lambda: Slotted(1), lambda v: setattr(v, "b", 2)), "beside slots": (
        lambda: Slotted(1, c=1), lambda v: setattr(v, "c", 2)),
    "closure": (counter, lambda v: v(1)), "method": (lambda: Method().step, lambda v: v(1)), "in a tuple": (
        lambda: ([1],), lambda v: v[0].append(1)),
    "iterator": (lambda: iter([1, 2]), lambda v: None), "generator": (lambda: (x for x in [1]), lambda v: None),
    "recursive": (recursive, lambda v: v.__setitem__(0, 2)), "last of the items": (
        lambda: [0] * 256, lambda v: v.__setitem__(255, 1)),
    "large array": (lambda: np.zeros(4097, np.uint8), lambda v: v.__setitem__(0, 1)), "array of objects": (
        lambda: np.array([Plain(a=1), None]), lambda v: setattr(v[0], "a", 2)),
    "late item": (lambda: [0] * 257, lambda v: v.__setitem__(256, 1)),
    "key of a dict": (lambda: {(1, (p := Plain(a=1))): p}, lambda v: setattr(next(iter(v))[1], "a", 2)),
}
EQUAL = {"numbers": lambda: [1, 2.5, 1j, True, None, "a", b"b", range(3), slice(1, 2), math.nan], "class": lambda: [Plain, math],
         "recursive": recursive, "objects": lambda: Plain(a=[1], b=Slotted(2)), "function": counter, "array": lambda: np.arange(600),
         "short array": lambda: np.arange(6), "environment": lambda: os.environ, "tuples": lambda: {(1, 2): (3, [4])},
         "method": lambda: Method().step, "function without closure": lambda: recursive}


@pytest.mark.parametrize("name", CHANGED)
def test_changes_are_seen(name):
    make, change = CHANGED[name]
    value = make()
    before = snapshot({"x": value, "y": 1})
    change(value)
    assert changes(before, snapshot({"x": value, "y": 1})) == {"x"}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_state(name):
    value = EQUAL[name]()
    assert changes(snapshot({"x": value}), snapshot({"x": value})) == set()


@pytest.mark.parametrize("first, second", itertools.combinations([1, 1.0, True, "1", b"1", None, 0.0, -0.0, range(2), range(3)], 2))
def test_numbers_differ_by_type_and_value(first, second):
    assert changes(snapshot({"x": first}), snapshot({"x": second})) == {"x"}


def test_what_is_compared_by_identity():
    for make in (list, Plain, counter, lambda: np.zeros(3)):
        value = make()
        assert changes(snapshot({"x": value}), snapshot({"x": make()})) == {"x"}
    value = [1]
    assert changes(snapshot({"x": value}), snapshot({"x": copy.copy(value)})) == {"x"}
    assert changes(snapshot({"x": Plain}), snapshot({"x": Slotted})) == {"x"} == changes(snapshot({"x": math}), snapshot({"x": np}))
    assert Identity(value) == Identity(value) != Identity([1]) and Identity(value) != value
    assert len({Identity(value), Identity(value), Identity([1])}) == 2


def test_items_beyond_the_first_are_compared_by_identity():
    late, inside = Plain(a=1), [0] * 256
    items = [*inside, late]
    before = snapshot({"x": items})
    late.a = 2
    assert changes(before, snapshot({"x": items})) == set()
    items[256] = Plain(a=2)
    assert changes(before, snapshot({"x": items})) == {"x"}


def test_what_is_not_inspected(monkeypatch):
    """Beyond the limit a change stays unseen; the trace of the second iteration sees what it does."""
    monkeypatch.setattr(loop_state, "OBJECTS", 3)
    values = [[k] for k in range(6)]
    before = snapshot({"x": values})
    seen = set()
    for k in range(6):
        values[k].append(1)
        if changes(before, snapshot({"x": values})):
            seen.add(k)
        values[k].pop()
    assert len(seen) == 3


def test_near_state_beside_large_tables():
    """A table of many objects does not hide a counter: neither of another variable, nor beside it in an object."""
    table, counter = [[k] for k in range(250)] * 2, {"n": 0}
    holder = Plain(table=[[table, [[k] for k in range(200)], j] for j in range(200)], counter=counter)
    tables = [[[k] for k in range(200)] for _ in range(20)]
    before = snapshot({"tables": tables, "holder": holder})
    counter["n"] = 1
    assert changes(before, snapshot({"tables": tables, "holder": holder})) == {"holder"}
    before = snapshot({"tables": tables, "x": counter})
    counter["n"] = 2
    assert changes(before, snapshot({"tables": tables, "x": counter})) == {"x"}


def test_objects_of_the_library_are_compared_by_identity():
    """They fill in memos when they are used."""
    logger, path = logging.getLogger("test_loop_state"), pathlib.Path("a/b")
    before = snapshot({"logger": logger, "path": path})
    logger.isEnabledFor(logging.INFO)
    hash(path)
    assert changes(before, snapshot({"logger": logger, "path": path})) == set()


def test_indices_and_masks_are_compared_by_what_they_are():
    row, column = nl.arange(4)[:, None], nl.arange(4)[None, :]
    values = [row, row + 1, column, row * 2, row < 2, row < 3, column < 2, row <= 2, row == 2, (row < 2) & (column < 2),
              nl.arange(5)[:, None]]
    again = [row, 1 + row, column, row + row, row < 2, 3 > row, column < 2, row <= 2, row == 2, (row < 2) & (column < 2),
             nl.arange(5)[:, None]]
    for (a, first), (b, second) in itertools.product(enumerate(values), enumerate(again)):
        same = a == b or {a, b} == {5, 7}               # row < 3 and row <= 2 are one mask
        assert (changes(snapshot({"x": first}), snapshot({"x": second})) == set()) is same, (a, b)


def test_names_that_were_unbound():
    before, after = snapshot({"a": 1, "c": 1}), snapshot({"a": 1, "b": None})
    assert changes(before, after) == {"c"} and changes(before, after, new_counts=True) == {"b", "c"}


def test_cells_that_are_unbound():
    def outer():
        def inner():
            return late
        before = snapshot({"f": inner})
        assert not loop_state.is_bound(inner.__closure__[0])
        late = 1
        assert loop_state.is_bound(inner.__closure__[0])
        return before, snapshot({"f": inner})
    assert changes(*outer()) == {"f"}


# -- traces ------------------------------------------------------------------------------------------------------------
class Operation:
    def __init__(self, name, operands=(), results=(), **attributes):
        self.name, self.operands, self.results, self.attributes = name, operands, results, attributes
        self.erased = False

    def erase(self):
        self.erased = True


def body(outside, name="add", **attributes):
    first, variable = object(), object()
    return [Operation("load", [outside], [first]), BlockArguments([variable]), Operation(name, [first, variable], [object()], **attributes)]


def recorded(*bodies):
    trace, marks = Trace(), []
    for entries in bodies:
        marks.append(trace.mark())
        for entry in entries:
            trace.record(entry)
    return trace, [*marks, trace.mark()]


def test_segments_are_equal_if_they_do_the_same():
    x, y = object(), object()
    trace, marks = recorded(body(x), body(x), body(y), body(x, "sub"), body(x, scale=1), body(x, scale=1), body(x, **{FRESH: 1}))
    assert marks == [3 * k for k in range(8)]
    segments = [trace.segment(a, b) for a, b in itertools.pairwise(marks)]
    same = {(a, b) for a, b in itertools.combinations(range(7), 2) if segments[a] == segments[b]}
    assert same == {(0, 1), (4, 5), (0, 6), (1, 6)}
    assert segments[0] == [("load", [x], {}), BlockArguments, ("add", [(0, 0), (1, 0)], {})]


def test_segments_know_which_result_an_operand_is():
    first, second = object(), object()
    one, other = ([Operation("two", [], [first, second]), Operation("use", [v], [])] for v in (first, second))
    trace, marks = recorded(one, other)
    assert trace.segment(*marks[:2]) != trace.segment(*marks[1:])


def test_operations_that_are_cleared_or_erased():
    x = object()
    trace, marks = recorded(body(x), body(x))
    entries = list(trace.entries)
    trace.erase_from(marks[1])
    assert [getattr(e, "erased", None) for e in entries] == [False, None, False, True, None, True] and trace.mark() == 3
    trace.clear_entries()
    assert trace.mark() == 3 and not trace.entries
    more = body(x)
    for entry in more:
        trace.record(entry)
    assert trace.mark() == 6 and [len(trace.segment(3, end)) for end in (3, 4, 5, 6)] == [0, 1, 2, 3]
    assert trace.segment(5, 6)[0][0] == "add"
    trace.erase_from(5)
    assert more[2].erased and not more[0].erased and trace.mark() == 5
