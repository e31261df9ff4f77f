# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verdicts on the two cores of a launch, for accesses whose sets of elements are enumerated here."""

import itertools
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

from nki_mlir.capture.races.verdicts import ProgramsMeet, RaceWarning
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.kernel import describe_array, is_array

from .running import numbers, run

ROWS, COLUMNS = 32, 64
X = numbers(ROWS, COLUMNS)


@dataclass(frozen=True)
class Place:
    """Columns of core i in its iteration k, from ``start + by_core * i + by_turn * k`` on, every ``step``-th."""

    start: int
    by_core: int
    by_turn: int
    columns: int
    step: int = 1

    def of(self, i, k):
        first = self.start + self.by_core * i + self.by_turn * k
        return slice(first, first + (self.columns - 1) * self.step + 1, self.step)

    def elements(self, i, turns):
        return {c for k in range(turns) for c in range(*self.of(i, k).indices(COLUMNS))}


@dataclass(frozen=True)
class Case:
    """Each core writes to one place and reads (writes, ``twice``) another; a barrier may be between."""

    write: Place
    other: Place | None = None
    twice: bool = False
    turns: int = 2
    barrier: bool = False

    def meet(self):
        """The columns of the shared tensor where the cores meet."""
        writes = [self.write.elements(i, self.turns) for i in range(2)]
        others = [self.other.elements(i, self.turns) if self.other is not None else set() for i in range(2)]
        between = others if self.twice else [set(), set()]
        if self.barrier:
            return writes[0] & writes[1] | between[0] & between[1]
        return ((writes[0] | between[0]) & (writes[1] | others[1])) | ((writes[0] | others[0]) & (writes[1] | between[1]))

    def kernel(self, x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
        memory = nl.ndarray((ROWS, COLUMNS), x.dtype, buffer=nl.shared_hbm, name="memory")
        i = nl.program_id(0)
        if i == 0:
            nisa.dma_copy(memory, x)
        nisa.core_barrier(memory, (0, 1))
        tile = nl.ndarray((ROWS, COLUMNS), x.dtype)
        nisa.memset(tile, 1.0)
        for k in nl.affine_range(self.turns):
            nisa.dma_copy(memory[:, self.write.of(i, k)], tile[:, :self.write.columns])
        if self.barrier:
            nisa.core_barrier(memory, (0, 1))
        for k in nl.affine_range(self.turns if self.other is not None else 0):
            there, here = memory[:, self.other.of(i, k)], tile[:, :self.other.columns]
            nisa.dma_copy(there, here) if self.twice else nisa.dma_copy(here, there)
        half = slice(i * 16, i * 16 + 16)
        nisa.dma_copy(out[half], tile[half])
        return out


CASES = [Case(Place(0, by_core, by_turn, columns, step))
         for by_core, by_turn, columns, step in itertools.product((1, 8, 16, 17), (0, 8, 16), (1, 8, 9), (1, 2))]
CASES += [Case(Place(0, 16, 8, 8), Place(start, by_core, 8, columns), twice, barrier=barrier)
          for start, by_core, columns, twice, barrier in itertools.product(
              (0, 16, 32), (0, 16, -16), (1, 8), (False, True), (False, True)) if start + by_core >= 0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cores(case):
    kernel, met = nki.jit(case.kernel)[2], case.meet()
    with warnings.catch_warnings(record=True) as captured:
        warnings.simplefilter("always")
        spec = kernel.specialize(kernel.bind((X.copy(),), {}, is_array, describe_array))
    verdict = spec.captured.verdict
    assert not verdict.undecided and bool(verdict.races) == bool(met)
    for race in verdict.races:
        assert isinstance(race, ProgramsMeet) and race.values["tensor"] == "memory"
        assert race.values["element"][1] in met
    with warnings.catch_warnings(record=True) as simulated:
        warnings.simplefilter("always")
        run("eager", case.kernel, X, cores=2)
    kept = [[str(w.message) for w in caught if w.category is RaceWarning] for caught in (captured, simulated)]
    assert kept[0] == kept[1]


def test_there_are_100_cases_of_both_verdicts():
    met = [bool(case.meet()) for case in CASES]
    assert len(met) >= 100 and met.count(True) >= 30 and met.count(False) >= 30


def test_a_race_is_a_warning_or_an_error(on, monkeypatch):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
        i, tile = nl.program_id(0), nl.load(x)
        nisa.dma_copy(out[:, 24 * i:24 * i + 40], tile[:, 24 * i:24 * i + 40])
        return out
    text = (rf"out\[0, 24\] is written by program 0 here, and written by program 1 at {__file__}:\d+:9")
    with pytest.warns(RaceWarning, match=text):
        np.testing.assert_array_equal(run(on, kernel, X, cores=2), X)
    monkeypatch.setenv("NKI_MLIR_RACES", "error")
    with pytest.raises(ProgramsMeet, match=text):
        run(on, kernel, X, cores=2)


def test_cores_that_do_the_same_run_with_a_warning(on, monkeypatch):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
        nisa.dma_copy(out, x)
        return out
    monkeypatch.setenv("NKI_MLIR_RACES", "error")
    with pytest.warns(RaceWarning, match="2 programs write the same values to out here"):
        np.testing.assert_array_equal(run(on, kernel, X, cores=2), X)


def test_cores_that_do_the_same_in_place_race(on):
    def kernel(x):
        nl.store(x, nl.add(nl.load(x), 1.0))
        return x
    with pytest.warns(RaceWarning, match=r"x\[0, 0\] is written by program 0 here, and read by program 1"):
        run(on, kernel, X, cores=2)


def test_cores_that_add_to_one_place(on):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
        if nl.program_id(0) == 0:
            nisa.dma_copy(out, x)
        nisa.core_barrier(out, (0, 1))
        tile = nl.load(x)
        nisa.dma_compute(out, [out, tile], nl.add)
        return out
    with warnings.catch_warnings():
        warnings.simplefilter("error", RaceWarning)
        np.testing.assert_array_equal(run(on, kernel, X, cores=2), 3 * X)


def test_what_data_decide_is_checked_when_it_runs(on):
    def kernel(x, order):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
        i, rows = nl.program_id(0), nl.ndarray((8, 1), nl.int32)
        nisa.dma_copy(rows, order[8 * i:8 * i + 8])
        tile = nl.load(x[8 * i:8 * i + 8])
        nisa.dma_copy(out.ap([[COLUMNS, 8], [1, COLUMNS]], vector_offset=rows, indirect_dim=0), tile)
        return out
    apart = np.random.default_rng(0).permutation(ROWS).astype(np.int32)[:16, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RaceWarning)
        got = run(on, kernel, X, apart, cores=2)
    np.testing.assert_array_equal(got[apart[:, 0]], X[:16])
    meeting = apart.copy()
    meeting[12] = meeting[5]
    if on == "jit":
        return
    with pytest.warns(RaceWarning, match=rf"out\[{apart[5, 0]}, 0\] is written by program 0 here, and written by program 1"):
        run(on, kernel, X, meeting, cores=2)


def shared(shape, name):
    return nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm, name=name)


def with_own_part(make):
    """Return a kernel whose cores write different parts of one result, and ``make(x, i)`` to all of another."""
    def kernel(x):
        halves, both, i = shared(x.shape, "halves"), shared(x.shape, "both"), nl.program_id(0)
        half = slice(16 * i, 16 * i + 16)
        nisa.dma_copy(halves[half], x[half])
        nisa.dma_copy(both, make(x, i))
        return halves, both
    return kernel


def total(x, i):
    return nl.add(nl.load(x), nl.multiply(nl.load(x), 2.0))


def scaled(x, i):
    return nl.multiply(nl.load(x), 1.0 + i)


def of_another_place(x, i):
    tile = nl.load(x)
    nisa.tensor_copy(tile[:, 0:1], tile[:, i + 1:i + 2])
    return tile


def exchanged(x, i):
    tile, got = nl.load(x), nl.ndarray((ROWS, COLUMNS), nl.float32)
    nisa.sendrecv(tile, got, 1 - i, 1 - i, 0)
    return got


def read_at_another_time(x, i):
    memory, tile = shared(x.shape, "memory"), nl.load(x)
    if i == 1:
        nisa.core_barrier(memory, (0, 1))
    nisa.dma_copy(tile, x)
    if i == 0:
        nisa.core_barrier(memory, (0, 1))
    return tile


@pytest.mark.parametrize("make, same", [(total, True), (read_at_another_time, False), (scaled, False), (of_another_place, False), (exchanged, False)],
                         ids=lambda v: getattr(v, "__name__", v))
def test_values_that_do_not_depend_on_the_core(on, make, same, monkeypatch):
    kernel = with_own_part(make)
    text = "2 programs write the same values to both here" if same else r"both\[0, 0\] is written by program 0 here"
    with pytest.warns(RaceWarning, match=text) as shown:
        first = run(on, kernel, X, cores=2)
    assert sum(w.category is RaceWarning for w in shown) == 1
    np.testing.assert_array_equal(first[0], X)
    monkeypatch.setenv("NKI_MLIR_RACES", "error")
    if same:
        np.testing.assert_array_equal(run(on, kernel, X, cores=2)[1], 3 * X)
    else:
        with pytest.raises(ProgramsMeet, match=text):
            run(on, kernel, X, cores=2)


def written_and_read_back(x, both, tile):
    nisa.dma_copy(both, tile)
    nisa.dma_copy(tile, both)


def written_twice(x, both, tile):
    nisa.dma_copy(both, tile)
    nisa.dma_copy(both, tile)


def written_in_two_parts(x, both, tile):
    for part in (slice(0, 32), slice(32, 64)):
        nisa.dma_copy(both[:, part], tile[:, part])
        nisa.dma_copy(tile[:, part], both[:, part])


def written_twice_and_read_back(x, both, tile):
    """The other core may still have the first value when this one reads."""
    nisa.dma_copy(both, tile)
    doubled = nl.multiply(tile, 2.0)
    nisa.dma_copy(both, doubled)
    nisa.dma_copy(both, tile)
    nisa.dma_copy(doubled, both)


def read_before_it_is_written(x, both, tile):
    nisa.dma_copy(tile, both)
    nisa.dma_copy(both, x)


def written_in_another_order(x, both, tile):
    parts = (slice(0, 32), slice(32, 64))
    for part in parts if nl.program_id(0) == 0 else parts[::-1]:
        nisa.dma_copy(both[:, part], tile[:, part])


@pytest.mark.parametrize("access, same", [(written_and_read_back, True), (written_twice, True), (written_in_two_parts, True),
                                          (written_twice_and_read_back, False), (read_before_it_is_written, False),
                                          (written_in_another_order, False)],
                         ids=lambda v: getattr(v, "__name__", None))
def test_equal_writes_of_both_cores__are_no_race_unless_a_core_may_read_another_value(on, access, same, monkeypatch):
    def kernel(x, both):
        halves, i = shared(x.shape, "halves"), nl.program_id(0)
        half = slice(16 * i, 16 * i + 16)
        nisa.dma_copy(halves[half], x[half])
        access(x, both, nl.load(x))
        return halves, both
    text = "2 programs write the same values to both here" if same else r"both\[0, \d+\] is (written|read) by program"
    with pytest.warns(RaceWarning, match=text) as shown:
        halves, both = run(on, kernel, X, np.zeros_like(X), cores=2)
    assert sum(w.category is RaceWarning for w in shown) == 1
    np.testing.assert_array_equal(halves, X)
    if same:
        np.testing.assert_array_equal(both, X)


@pytest.mark.parametrize("cores, race", [((0, 1), False), ((0,), True), ((1,), True)], ids=str)
def test_barrier__orders_the_cores_that_it_names(on, cores, race):
    """A barrier of one core orders nothing between the two."""
    def kernel(x):
        out, i = shared(x.shape, "out"), nl.program_id(0)
        if i == 0:
            nisa.dma_copy(out, x)
        if i in cores:
            nisa.core_barrier(out, cores)
        if i == 1:
            nisa.dma_copy(out, nl.multiply(nl.load(x), 2.0))
        return out
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        result = run(on, kernel, X, cores=2)
    messages = [str(w.message) for w in shown if w.category is RaceWarning]
    assert len(messages) == race
    assert not race or messages[0].startswith("out[0, 0] is written by program 0 here, and written by program 1")
    assert race or np.array_equal(result, 2 * X)


def test_check_of_what_data_decide__prints_nothing(on, capfd):
    """The kernel prints once, although what it scatters to is checked in a run before."""
    def kernel(x, order):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
        i, rows = nl.program_id(0), nl.ndarray((8, 1), nl.int32)
        nisa.dma_copy(rows, order[8 * i:8 * i + 8])
        nl.device_print("rows of a core:", rows)
        tile = nl.load(x[8 * i:8 * i + 8])
        nisa.dma_copy(out.ap([[COLUMNS, 8], [1, COLUMNS]], vector_offset=rows, indirect_dim=0), tile)
        return out
    order = np.arange(16, dtype=np.int32)[::-1, None].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RaceWarning)
        result = run(on, kernel, X, order, cores=2)
    np.testing.assert_array_equal(result[:16], X[15::-1])
    assert capfd.readouterr().out.count("rows of a core:") == 2
    order[12] = order[5]
    if on != "jit":
        with pytest.warns(RaceWarning, match="is written by program 0 here, and written by program 1"):
            run(on, kernel, X, order, cores=2)
