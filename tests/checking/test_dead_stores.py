# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statements whose results nothing reads, against the elements that each of random statements reads and writes."""

import random

import numpy as np
import pytest

from nki_mlir.capture.index import Index
from nki_mlir.capture.strides import Dim
from nki_mlir.capture.tensor import Buffer, View, tile_of
from nki_mlir.checking.dead_stores import DeadStores
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.dialects.nisa.elementwise import TensorCopyPredicatedOp
from nki_mlir.dialects.nki.elementwise import BinaryOp
from nki_mlir.dialects.nki.movement import CopyOp, MemsetOp
from nki_mlir.scalar.dtypes import FLOAT32, INT32

COLUMNS = 8
MASK = (Constraint(Linear(3, (), ((1, -1),)), False),)          # columns 0 to 3 of those of the view


def buffer(name, role="local", shape=(4, COLUMNS), dtype=FLOAT32):
    return Buffer(shape, dtype, "sbuf", name, handle=np.zeros(shape, dtype.numpy), role=role)


def view(of, low=0, high=None):
    high = of.shape[1] if high is None else high
    return View(of, Index(), Index(low), (Dim(1, 0, of.shape[0]), Dim(0, 1, high - low)), of.dtype)


def at(line, column=1):
    return Location("k.py", line, column)


class Run:
    """Statements, each at a line."""

    def __init__(self):
        self.stores, self.line = DeadStores(), 0

    def note(self, op, *views, line=None, name="op", **column):
        self.line = self.line + 1 if line is None else line
        self.stores.record(op, views, (at(self.line, **column), name))

    def memset(self, dst, mask=(), limits=(), **where):
        self.note(MemsetOp(dst=tile_of(dst, {}), value=0.0, mask=mask, limits=limits), dst, **where)

    def copy(self, dst, src, mask=(), **where):
        self.note(CopyOp(dst=tile_of(dst, {}), src=tile_of(src, {}), mask=mask), dst, src, **where)

    def add(self, dst, lhs, rhs, mask=(), **where):
        self.note(BinaryOp(dst=tile_of(dst, {}), lhs=tile_of(lhs, {}), rhs=tile_of(rhs, {}), op="add", mask=mask),
                  dst, lhs, rhs, **where)

    def choose(self, dst, src, predicate):
        self.note(TensorCopyPredicatedOp(dst=tile_of(dst, {}), src=tile_of(src, {}), predicate=tile_of(predicate, {})),
                  dst, src, predicate)

    def lines(self, idle=False):
        return sorted(f.location.line for f in self.stores.findings(idle))


def test_random_statements__are_dead_only_if_nothing_reads_their_elements():
    rng, reported, unread = random.Random(3), 0, 0
    for _ in range(300):
        buffers = [buffer("a"), buffer("b"), buffer("c"), buffer("out", "output")]
        run, last, live, overwritten, read_since = Run(), {}, set(), {}, {b.name: set() for b in buffers}
        never_read, parts = {}, [(0, COLUMNS), (0, COLUMNS), (0, 4), (4, COLUMNS), (2, 6)]
        for line in range(1, rng.randrange(4, 12)):
            dst, src = rng.sample(buffers, 2)
            low, high = rng.choice(parts)
            reads = rng.random() < 0.4 and src.role == "local"
            if reads:
                start = rng.randrange(COLUMNS - (high - low) + 1)
                live |= {last[src.name, k] for k in range(start, start + high - low) if (src.name, k) in last}
                for k in list(never_read):
                    if never_read[k][0] == src.name:
                        del never_read[k]
                run.copy(view(dst, low, high), view(src, start, start + high - low))
            else:
                run.memset(view(dst, low, high))
            if (low, high) == (0, COLUMNS):             # whatever was written and not read is certainly dead
                overwritten |= {k: line for k, (name, _) in never_read.items() if name == dst.name}
                never_read = {k: entry for k, entry in never_read.items() if entry[0] != dst.name}
            never_read[line] = dst.name, dst.role
            last |= {(dst.name, k): line for k in range(low, high)}
        outputs = {line for (name, _), line in last.items() if name == "out"}
        certain = {*overwritten, *(line for line, (_, role) in never_read.items() if role == "local")}
        lines = run.lines()
        assert len(set(lines)) == len(lines)
        assert certain <= set(lines)
        assert not set(lines) & (live | outputs)
        reported, unread = reported + len(lines), unread + len(certain)
    assert reported > unread > 300


def test_findings__name_the_statement_and_what_overwrites_it():
    run, t, out = Run(), buffer("t"), buffer("out", "output")
    run.memset(view(t), name="memset")
    run.memset(view(t), name="fill")
    run.copy(view(out), view(t))
    run.copy(view(t), view(buffer("x", "input")), name="load")
    assert [(f.kind, f.severity, f.message, f.location, f.fix) for f in run.stores.findings(False)] == [
        ("dead-store", "warning", "what memset writes to t is overwritten at line 2 before anything reads it", at(1),
         "remove the statement, or read its result"),
        ("dead-store", "warning", "nothing reads what load writes to t", at(4), "remove the statement, or use its result")]


def test_loops_that_did_not_run__may_read_what_is_unread():
    run, t = Run(), buffer("t")
    run.memset(view(t))
    run.memset(view(t))
    assert run.lines(idle=True) == [1]


def test_overwritten_without_a_location__has_no_line():
    run, t = Run(), buffer("t")
    run.memset(view(t))
    run.stores.record(MemsetOp(dst=tile_of(view(t), {}), value=0.0), [view(t)], (None, "op"))
    assert "is overwritten at line ? before" in run.stores.findings(True)[0].message


def test_loops__keep_a_statement_alive_that_one_iteration_reads():
    run, t, out = Run(), buffer("t"), buffer("out", "output")
    for reads in (True, False, True):
        run.memset(view(t), line=1)
        if reads:
            run.copy(view(out), view(t), line=2)
        run.memset(view(buffer("u")), line=3)
    assert run.lines() == [3]


def test_operation_that_reads_its_target__overwrites_nothing():
    run, t, out = Run(), buffer("t"), buffer("out", "output")
    run.memset(view(t))
    run.add(view(t), view(t), view(t))
    run.add(view(out), view(t), view(buffer("x", "input")))
    assert run.lines() == []


@pytest.mark.parametrize("where, dead", [
    ({"line": 1}, []),                                          # one statement that runs twice for one result
    ({"line": 1, "column": 9}, []),
    ({"line": 2}, [1]),
    ({"line": 1, "name": "other"}, [1])])
def test_statement_that_runs_again_at_once__is_alive(where, dead):
    run, t, out = Run(), buffer("t"), buffer("out", "output")
    run.memset(view(t), line=1)
    run.memset(view(t), **where)
    run.copy(view(out), view(t), line=3)
    assert run.lines() == dead


@pytest.mark.parametrize("mask, same, dead", [(MASK, True, []), (MASK, False, [1]), ((), True, [1])])
def test_masked_copies_of_one_source__are_one_statement(mask, same, dead):
    """An operation under a negated mask runs several times, under one part of the mask each time."""
    run, x, t, out = Run(), buffer("x", "input"), buffer("t"), buffer("out", "output")
    run.copy(view(t), view(x), mask)
    run.copy(view(t), view(x if same else buffer("y", "input")), mask)
    run.copy(view(out), view(t))
    assert run.lines() == dead


def test_masked_sums_of_other_operands__are_other_statements():
    run, x, t, out = Run(), buffer("x", "input"), buffer("t"), buffer("out", "output")
    run.add(view(t), view(x), view(x), MASK)
    run.add(view(t), view(x), view(buffer("y", "input")), MASK)
    run.copy(view(out), view(t))
    assert run.lines() == [1]


def test_operation_that_keeps_elements_of_its_target__overwrites_nothing():
    """It is not followed either: what it writes may be what was there."""
    run, x, t, out = Run(), buffer("x", "input"), buffer("t"), buffer("out", "output")
    run.memset(view(t))
    run.choose(view(t), view(x), view(x))
    run.memset(view(t))
    run.copy(view(out), view(t))
    assert run.lines() == []


def test_write_within_limits__covers_no_tile():
    run, t, out = Run(), buffer("t"), buffer("out", "output")
    run.memset(view(t))
    run.memset(view(t), limits=MASK)
    run.copy(view(out), view(t))
    assert run.lines() == []


def test_masked_write__covers_no_tile():
    run, t, out = Run(), buffer("t"), buffer("out", "output")
    run.memset(view(t))
    run.memset(view(t), MASK)
    run.copy(view(out), view(t))
    assert run.lines() == []


def test_part__is_overwritten_by_the_same_part():
    run, t, out = Run(), buffer("t"), buffer("out", "output")
    for low, high in ((0, 4), (4, 8), (0, 4)):
        run.memset(view(t, low, high))
    run.copy(view(out), view(t))
    assert run.lines() == [1]


def test_numbers__are_registers_that_loops_read():
    for shape, dtype, dead in (((1, 1), INT32, []), ((1, 2), INT32, [1]), ((1, 1), FLOAT32, [1])):
        run = Run()
        run.memset(view(buffer("n", shape=shape, dtype=dtype)))
        assert run.lines() == dead


def test_statement_that_once_wrote_a_number__is_alive():
    run = Run()
    run.memset(view(buffer("n", shape=(1, 1), dtype=INT32)), line=1)
    run.copy(view(buffer("u")), view(buffer("x", "input")), line=2)
    run.memset(view(buffer("t")), line=1)
    assert run.lines() == [2]


def test_view_with_a_mask__is_not_followed():
    run, t = Run(), buffer("t")
    masked = view(t)
    object.__setattr__(masked, "mask", MASK)
    run.memset(masked)
    assert run.lines() == []
