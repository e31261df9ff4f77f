# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verdicts on iterations and programs, for accesses whose sets of elements are enumerated here.

Each case is a pair of accesses of one tensor, in a loop or by the programs of a grid. Capture and an eager run have to
come to the verdict that the sets give; the places and numbers of a race have to be in them.
"""

import itertools
import re
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest

from nki_mlir.capture.errors import UnexpectedOutputDependencies
from nki_mlir.capture.races.verdicts import IterationsMeet, ProgramsMeet, ProgramsRepeat, RaceWarning, UnknownRaceLevel
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta import typing as nt
from nki_mlir.language.kernel import describe_array, is_array

from .running import numbers, run

ROWS, COLUMNS = 128, 104
X = numbers(ROWS, COLUMNS)


@dataclass(frozen=True)
class Place:
    """``rows`` from ``row + sum(by_row[d] * i[d])``, ``columns`` from ``column + sum(by_column[d] * i[d])``, every
    ``step``-th; of these only columns below ``limit + by_limit * i[0]``, and only where ``i[0] < turns``."""

    row: int = 0
    by_row: tuple = (0,)
    rows: int = 16
    column: int = 0
    by_column: tuple = (0,)
    columns: int = 8
    step: int = 1
    limit: int | None = None
    by_limit: int = 0
    turns: int | None = None

    def at(self, tensor, i):
        row = self.row + sum(c * n for c, n in zip(self.by_row, i) if c)
        column = self.column + sum(c * n for c, n in zip(self.by_column, i) if c)
        p, f = nl.arange(self.rows)[:, None], nl.arange(self.columns)[None, :]
        return tensor[row + p, column + f * self.step]

    def mask(self, i):
        if self.limit is None:
            return None
        column = self.column + sum(c * n for c, n in zip(self.by_column, i) if c)
        return column + nl.arange(self.columns)[None, :] * self.step < self.limit + self.by_limit * i[0]

    def elements(self, i):
        if self.turns is not None and not i[0] < self.turns:
            return set()
        row = self.row + sum(c * n for c, n in zip(self.by_row, i))
        columns = [self.column + sum(c * n for c, n in zip(self.by_column, i)) + k * self.step for k in range(self.columns)]
        kept = [c for c in columns if self.limit is None or c < self.limit + self.by_limit * i[0]]
        return {(row + r, c) for r in range(self.rows) for c in kept}


@dataclass(frozen=True)
class Case:
    """What is written, and what is read (or written, ``twice``) beside it, by iterations or programs ``extents``."""

    write: Place
    other: Place | None = None
    twice: bool = False
    extents: tuple = (5,)
    memory: str = "hbm"

    def pairs(self):
        """(element, one, other) of two iterations that touch the same element, one of which writes."""
        points = list(itertools.product(*map(range, self.extents)))
        writes = {i: self.write.elements(i) | (self.other.elements(i) if self.twice else set()) for i in points}
        touched = {i: writes[i] | (self.other.elements(i) if self.other is not None else set()) for i in points}
        return [(e, i, j) for i in points for j in points if i != j for e in writes[i] & touched[j]]

    def body(self, tensor, on_chip, i):
        """One iteration: the other access first, as in ``r[k + 1] = r[k] + 1``."""
        shape = self.write.rows, self.write.columns
        value = nl.full(shape, 1.0, nl.float32)
        if self.other is not None and not self.twice:
            read = on_chip if self.memory == "sbuf" else None

            def loaded():
                if read is not None:
                    nl.add(self.other.at(read, i), 1.0, mask=self.other.mask(i))
                else:
                    nl.load(self.other.at(tensor, i), mask=self.other.mask(i))
            self.when(self.other, i, loaded)
        self.when(self.write, i, lambda: self.put(self.write, tensor, on_chip, value, i))
        if self.twice:
            more = nl.full((self.other.rows, self.other.columns), 2.0, nl.float32)
            self.when(self.other, i, lambda: self.put(self.other, tensor, on_chip, more, i))

    def put(self, access, tensor, on_chip, value, i):
        if self.memory == "sbuf":
            access.at(on_chip, i)[...] = nl.copy(value, mask=access.mask(i))
        else:
            nl.store(access.at(tensor, i), value, mask=access.mask(i))

    @staticmethod
    def when(access, i, act):
        if access.turns is None:
            act()
            return
        from nki_mlir.language.loop_reductions import decide
        decide(i[0] < access.turns, act, lambda: None)


def looped(case, constant):
    def kernel(x: nt.mutable_tensor):
        tile = nl.zeros((ROWS, COLUMNS), nl.float32)
        order = list(range(case.extents[0]))
        for k in nl.affine_range(case.extents[0]):
            case.body(x, tile, (order[k] if constant else k,))
        nl.store(x[0:1, 0:1], tile[0:1, 0:1])
        return x
    return kernel


def launched(case):
    def kernel(x: nt.mutable_tensor):
        case.body(x, None, tuple(nl.program_id(d) for d in range(len(case.extents))))
        return x
    return kernel


def verdicts(kernel, grid=None):
    """What capture finds, and what an eager run finds: lists of errors."""
    chosen = nki.jit(kernel) if grid is None else nki.jit(kernel)[grid]
    bound = chosen.bind((X.copy(),), {}, is_array, describe_array)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        try:
            spec = chosen.specialize(bound)
        except UnexpectedOutputDependencies as error:
            with pytest.raises(UnexpectedOutputDependencies, match=re.escape(error.headline)):
                run("eager", chosen, X)
            return error, None
    assert not spec.captured.verdict.undecided
    with warnings.catch_warnings(record=True) as eager:
        warnings.simplefilter("always")
        run("eager", chosen, X)
    kept = [[str(w.message) for w in caught if w.category is RaceWarning] for caught in (shown, eager)]
    assert kept[0] == kept[1]
    return None, spec.captured.verdict.races


def agree(case, races, kinds, numbers_of):
    """The races are some of those that the sets give, and there is one if these give one."""
    met = case.pairs()
    assert bool(races) == bool(met)
    for race in races:
        assert isinstance(race, kinds)
        values = race.values
        assert any(e == tuple(values["element"]) and numbers_of(values, i, j) for e, i, j in
                   met + [(e, j, i) for e, i, j in met])


# -- loops -------------------------------------------------------------------------------------------------------------
ONE = [replace(Place(), by_column=(b,), columns=w, step=s) for b, w, s in itertools.product(
    (1, 4, 8, 9), (1, 4, 8, 9, 12), (1, 2)) if 4 * b + (w - 1) * s < COLUMNS]
LOOPS = [Case(p) for p in ONE]
LOOPS += [Case(replace(p, limit=p.column + w, by_limit=p.by_column[0])) for p in ONE[::3] for w in (3, 8)]
LOOPS += [Case(replace(p, limit=limit)) for p in ONE[1::4] for limit in (5, 12, 24)]
LOOPS += [Case(p, Place(by_column=(c,), column=start, columns=w), twice) for p, (c, start, w), twice in itertools.product(
    (Place(column=8, by_column=(8,)), Place(column=2, by_column=(16,), columns=4, step=2)),
    ((8, 0, 8), (8, 8, 8), (8, 3, 4), (0, 0, 4), (0, 60, 4), (16, 4, 2), (8, 40, 8)), (False, True))
    if not (twice and c == 0)]
LOOPS += [Case(Place(by_row=(r,), rows=n, column=c), Place(by_row=(q,), row=start, rows=m)) for r, n, c, q, start, m in (
    (16, 16, 0, 16, 0, 16), (16, 17, 0, 16, 0, 16), (16, 16, 0, 16, 16, 16), (16, 16, 8, 16, 16, 16), (8, 4, 0, 8, 4, 4),
    (8, 4, 0, 8, 4, 5), (2, 1, 0, 2, 1, 1), (3, 2, 0, 2, 50, 3), (20, 20, 4, 0, 100, 28), (20, 20, 4, 0, 99, 28))]
LOOPS += [Case(replace(Place(by_column=(8,)), turns=t), Place(column=c, by_column=(b,), columns=8, turns=u))
          for t, c, b, u in ((1, 0, 8, None), (2, 8, 8, None), (5, 8, 8, 1), (1, 40, 8, None), (2, 24, 8, 2), (2, 16, 8, 1))]
LOOPS += [replace(case, memory="sbuf") for case in LOOPS[::3]
          if all(p is None or p.by_row == (0,) for p in (case.write, case.other))]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("case", LOOPS, ids=str)
def test_iterations(case, constant):
    error, races = verdicts(looped(case, constant))
    assert error is None
    agree(case, races, IterationsMeet, lambda v, i, j: (v["first"], v["second"]) == (*i, *j))


# -- programs ----------------------------------------------------------------------------------------------------------
GRIDS = [Case(Place(by_row=(r,), rows=n), extents=(4,)) for r, n in ((16, 16), (16, 17), (8, 16), (32, 16), (1, 1), (1, 2))]
GRIDS += [Case(Place(by_row=(r, 0), by_column=(0, c), rows=n, columns=w), extents=(3, 4)) for r, n, c, w in (
    (16, 16, 8, 8), (16, 16, 8, 9), (16, 20, 8, 8), (16, 8, 8, 4), (32, 32, 16, 17))]
GRIDS += [Case(Place(by_row=(0, 4, 0), by_column=(24, 0, 12), rows=n, columns=w), extents=(2, 3, 2)) for n, w in (
    (4, 12), (4, 13), (5, 12), (1, 1))]
GRIDS += [Case(Place(by_column=(8, 24, 48), rows=4, columns=w), extents=(3, 2, 2)) for w in (8, 9)]
GRIDS += [Case(Place(by_row=(16,)), Place(row=s, by_row=(q,), rows=n, columns=8, column=c), extents=(4,))
          for s, q, n, c in ((0, 16, 16, 0), (16, 16, 16, 0), (0, 16, 17, 0), (64, 16, 16, 0), (0, 0, 4, 8), (0, 0, 4, 7),
                             (1, 16, 15, 0))]
GRIDS += [Case(replace(Place(by_row=(16,)), turns=2), Place(row=16, by_row=(16,), turns=t), extents=(4,))
          for t in (None, 1, 2)]


def along(extents, i, j, values):
    texts = []
    for number in (values["first"], values["second"]):
        words = number.split()
        texts.append((int(words[1]), int(words[4]) if len(words) > 2 else 0))
    return all(point[axis] == n for point, (n, axis) in zip((i, j), texts))


@pytest.mark.parametrize("case", GRIDS, ids=str)
def test_programs(case):
    grid = case.extents if len(case.extents) > 1 else case.extents[0]
    error, races = verdicts(launched(case), grid)
    assert error is None
    agree(case, races, ProgramsMeet, lambda v, i, j: along(case.extents, i, j, v))


def test_there_are_200_cases_of_both_verdicts():
    met = [bool(case.pairs()) for case in LOOPS + LOOPS + GRIDS]
    assert len(met) >= 200 and met.count(True) >= 80 and met.count(False) >= 80


# -- what becomes of them ----------------------------------------------------------------------------------------------
def strips(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for k in nl.affine_range(9):
        nl.store(out[:, k * 8:k * 8 + 40], nl.load(x[:, k * 8:k * 8 + 40]))     # here
    return out


def carried(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    r = nl.zeros(x.shape, x.dtype)
    for k in nl.affine_range(COLUMNS - 1):
        r[:, k + 1:k + 2] = r[:, k:k + 1] + nl.load(x[:, k:k + 1])              # here
    nl.store(out, r)
    return out


def rows(x):
    out = nl.ndarray((320, COLUMNS), x.dtype, buffer=nl.shared_hbm)
    p = nl.program_id(0)
    i, j = nl.arange(128)[:, None], nl.arange(COLUMNS)[None, :]
    nl.store(out[p * 64 + i, j], nl.load(x))                                    # here
    return out


def neighbors(x: nt.mutable_tensor):
    p = nl.program_id(0)
    tile = nl.load(x[:, p * 8:p * 8 + 8])
    nl.store(x[:, p * 8 + 8:p * 8 + 16], tile)                                  # here
    return x


RACES = [
    (strips, None, IterationsMeet, "out[0, 8] is written by iteration 0 of the loop over k here, and written by iteration "
     "1 at {file}:{line}:9"),
    (carried, None, IterationsMeet, "r[0, 1] is written by iteration 0 of the loop over k here, and read by iteration 1 at "
     "{file}:{line}:29"),
    (rows, 4, ProgramsMeet, "out[64, 0] is written by program 0 here, and written by program 1 at {file}:{line}:5"),
    (neighbors, 4, ProgramsMeet, "x[0, 8] is written by program 0 here, and read by program 1 at {file}:{before}:12"),
]


def line_of(function):
    start = function.__code__.co_firstlineno
    with open(__file__) as file:
        lines = file.readlines()[start - 1:]
    return start + next(k for k, line in enumerate(lines) if "# here" in line)


@pytest.mark.parametrize("function, grid, kind, text", RACES, ids=lambda v: getattr(v, "__name__", None))
def test_a_race_is_a_warning_or_an_error(on, function, grid, kind, text, monkeypatch):
    line = line_of(function)
    text = text.format(file=__file__, line=line, before=line - 1)
    kernel = nki.jit(function)
    with pytest.warns(RaceWarning) as shown:
        run(on, kernel, X, grid=grid)
    assert [w.lineno for w in shown] == [line]
    assert str(shown[0].message) == f"{text} [{kind.code}]; {kind.fix}"
    monkeypatch.setenv("NKI_MLIR_STRICT", "1")
    with pytest.raises(kind, match=re.escape(text)):
        run(on, kernel, X, grid=grid)
    monkeypatch.setenv("NKI_MLIR_RACES", "error")
    with pytest.raises(kind) as caught:
        run(on, kernel, X, grid=grid)
    assert caught.value.headline == text and (caught.value.at.file, caught.value.at.line) == (__file__, line)
    monkeypatch.setenv("NKI_MLIR_RACES", "off")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(on, kernel, X, grid=grid)
    monkeypatch.setenv("NKI_MLIR_RACES", "strict")
    with pytest.raises(UnknownRaceLevel, match="NKI_MLIR_RACES cannot be 'strict'"):
        run(on, kernel, X, grid=grid)


def test_programs_that_do_the_same_run_with_a_warning(on, monkeypatch):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 2)
        return out
    monkeypatch.setenv("NKI_MLIR_RACES", "error")
    with pytest.warns(RaceWarning) as shown:
        np.testing.assert_array_equal(run(on, nki.jit(kernel), X, grid=3), X * 2)
    assert [str(w.message) for w in shown] == [
        "3 programs write the same values to out here [NKI-SAME-WRITES]; divide the work by program_id(0), or launch the "
        "kernel on one program"]
    assert ProgramsRepeat.why.format(what="program_id(0)") == "the values that they write do not depend on program_id(0)"


def test_programs_of_straight_code_on_different_rows_run_without_a_warning(on):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        rows = nl.ds(nl.program_id(0) * 64, 64)
        nl.store(out[rows, :], nl.load(x[rows, :]) * 2)
        return out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(run(on, nki.jit(kernel), X, grid=2), X * 2)


def test_programs_that_do_the_same_to_what_they_read_race(on):
    def kernel(x: nt.mutable_tensor):
        nl.store(x, nl.load(x) + 1)
        return x
    with pytest.warns(RaceWarning, match=r"x\[0, 0\] is written by program 0 here, and read by program 1"):
        run(on, nki.jit(kernel), X, grid=2)


def test_an_axis_that_nothing_asks_for(on):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        part = nl.ds(nl.program_id(0) * 52, 52)
        nl.store(out[:, part], nl.load(x[:, part]))
        return out
    with pytest.warns(RaceWarning, match=r"2 programs write the same values to out here.* program_id\(1\)"):
        np.testing.assert_array_equal(run(on, nki.jit(kernel), X, grid=(2, 2)), X)


def silent(on, kernel, expected, *arguments, grid=None):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RaceWarning)
        np.testing.assert_array_equal(run(on, nki.jit(kernel), *arguments, grid=grid), expected)


def test_what_accumulates_is_no_race(on):
    def kernel(x):
        out, total = nl.ndarray((ROWS, 8), x.dtype, buffer=nl.shared_hbm), nl.zeros((ROWS, 8), x.dtype)
        product, least = nl.zeros((8, 8), nl.float32, buffer=nl.psum), nl.ndarray((ROWS, 8), x.dtype)
        for k in nl.affine_range(13):
            tile = nl.load(x[:, k * 8:k * 8 + 8])
            total += tile
            product += nisa.nc_matmul(tile * 0, tile)
            least[...] = nl.loop_reduce(tile, np.minimum, [k])
        copied = nl.copy(product)
        nl.store(out, nl.add(total, nl.multiply(least, copied[0:1, 0:8].broadcast_to((ROWS, 8)))))
        return out
    silent(on, kernel, X.reshape(ROWS, 13, 8).sum(1), X)


def test_programs_that_add_to_one_place(on):
    def kernel(x, rows):
        out = nl.ndarray((4, COLUMNS), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.zeros((4, COLUMNS), x.dtype), mask=nl.program_id(0) < 0)
        index = nl.load(rows)
        nl.atomic_rmw(out[index, nl.arange(COLUMNS)[None, :]], nl.load(x[nl.ds(nl.program_id(0) * 4, 4)]), op=np.add)
        return out
    silent(on, kernel, X[:8].reshape(2, 4, COLUMNS).sum(0), X, np.arange(4, dtype=np.int32)[:, None], grid=2)


def test_memory_of_an_iteration_is_its_own(on):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for k in nl.affine_range(13):
            sums = nl.zeros((ROWS, 9), x.dtype)
            for j in nl.sequential_range(8):
                sums[:, j + 1:j + 2] = sums[:, j:j + 1] + nl.load(x[:, nl.ds(k * 8 + j, 1)])
            nl.store(out[:, nl.ds(k * 8, 8)], sums[:, 1:9])
        return out
    silent(on, kernel, X.reshape(ROWS, 13, 8).cumsum(2).reshape(X.shape), X)


def test_quotients_and_remainders(on):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for k in nl.affine_range(26):
            part = nl.ds(k // 2 * 8 + k % 2 * 4, 4)
            nl.store(out[:, part], nl.load(x[:, part]))
        return out
    silent(on, kernel, X, X)


def test_a_loop_with_a_step__has_the_iterations_that_it_runs(on):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for k in nl.affine_range(0, 52, 4):
            nl.store(out[:, k:k + 4], nl.load(x[:, k:k + 4]))
            nl.store(out[:, 100 - k:104 - k], nl.load(x[:, 100 - k:104 - k]))
        return out
    silent(on, kernel, X, X)


def test_quotients_that_meet(on):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for k in nl.affine_range(24):
            part = nl.ds(k // 3 * 12, 12)
            nl.store(out[:, part], nl.load(x[:, part]))
        return out
    with pytest.warns(RaceWarning, match=r"out\[0, 0\] is written by iteration 0 .* by iteration 1 "):
        run(on, nki.jit(kernel), X)


# -- addresses that data give ------------------------------------------------------------------------------------------
def scattered_by_programs(x, order):
    out = nl.ndarray((64, COLUMNS), x.dtype, buffer=nl.shared_hbm)
    p = nl.program_id(0)
    rows = nl.load(order[nl.ds(p * 8, 8)])
    nl.store(out[rows, nl.arange(COLUMNS)[None, :]], nl.load(x[nl.ds(p * 8, 8)]))           # here
    return out


def scattered_by_iterations(x, order):
    out = nl.ndarray((64, COLUMNS), x.dtype, buffer=nl.shared_hbm)
    for k in nl.affine_range(3):
        rows = nl.load(order[nl.ds(k * 8, 8)])
        nl.store(out[rows, nl.arange(COLUMNS)[None, :]], nl.load(x[nl.ds(k * 8, 8)]))       # here
    return out


def gathered_by_programs(x: nt.mutable_tensor, order):
    p = nl.program_id(0)
    rows = nl.load(order[nl.ds(p * 8, 8)])
    tile = nl.load(x[rows, nl.arange(COLUMNS)[None, :]])
    nl.store(x[nl.ds(p * 8, 8)], tile)                                                      # here
    return x


def columns_by_iterations(x, order):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.zeros(x.shape, x.dtype)
    for k in nl.affine_range(3):
        at = nl.load(order[nl.ds(k * 8, 1)])
        nisa.tensor_copy_dynamic_dst(dst=tile[nl.arange(ROWS)[:, None], at + nl.arange(2)[None, :]],      # here
                                     src=nl.load(x[:, nl.ds(k * 2, 2)]))
    nl.store(out, tile)
    return out


APART = np.random.default_rng(0).permutation(64).astype(np.int32)[:24, None] % 64
TWICE = APART.copy()
TWICE[17] = TWICE[3]
OWN = np.arange(24, dtype=np.int32)[::-1].reshape(3, 8)[::-1].reshape(24, 1).copy()
OTHERS = OWN.copy()
OTHERS[20] = 2
MEMBERS = np.zeros((24, 1), np.int32)
MEMBERS[::8, 0] = 4, 30, 6
OVERLAP = MEMBERS.copy()
OVERLAP[16] = 31


@pytest.mark.parametrize("function, grid, apart, meeting, where", [
    (scattered_by_programs, 3, APART, TWICE, rf"out\[{APART[3, 0]}, 0\] is written by program 0 here, and written by program 2"),
    (scattered_by_iterations, None, APART, TWICE, rf"out\[{APART[3, 0]}, 0\] is written by iteration 0 .* by iteration 2"),
    (gathered_by_programs, 3, OWN, OTHERS, r"x\[2, 0\] is written by program 0 here, and read by program 2"),
    (columns_by_iterations, None, MEMBERS, OVERLAP, r"tile\[0, 31\] is written by iteration 1 .* by iteration 2"),
], ids=lambda v: getattr(v, "__name__", ""))
def test_what_data_decide_is_checked_when_it_runs(on, function, grid, apart, meeting, where, monkeypatch):
    kernel = nki.jit(function)
    for level in ("warn", "error"):
        monkeypatch.setenv("NKI_MLIR_RACES", level)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RaceWarning)
            expected = run("interpreter", kernel, X, apart, grid=grid)
            np.testing.assert_array_equal(run(on, kernel, X, apart, grid=grid), expected)
            if on == "jit":                     # takes the kernel's word
                run(on, kernel, X, meeting, grid=grid)
                continue
        with pytest.warns(RaceWarning, match=where) if level == "warn" else pytest.raises(
                (IterationsMeet, ProgramsMeet), match=where):
            run(on, kernel, X, meeting, grid=grid)


def test_a_check_prints_nothing(capfd):
    def kernel(x, order):
        tile = nl.load(x[0:1, 0:1])
        nl.device_print("x", tile)
        return scattered_by_programs(x, order)
    run("interpreter", nki.jit(kernel), X, APART, grid=3)
    assert capfd.readouterr().out.count("x") == 3
