# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How races are reported: as the environment says, one for a source line."""

import itertools
import warnings

import pytest

from nki_mlir import diagnostics
from nki_mlir.capture.races.verdicts import (
    IterationsMeet,
    ProgramsMeet,
    ProgramsRepeat,
    RaceWarning,
    UnknownRaceLevel,
    Verdict,
    checked,
    report,
)
from nki_mlir.diagnostics import Location

HERE, THERE = Location("k.py", 3, 4, 9), Location("k.py", 5, 0, 2)
MEET = {"tensor": "x", "element": "[0, 1]", "done": "written", "first": "program 0", "second": "program 1", "also": "read",
        "location": "k.py:7"}


def races():
    return [ProgramsMeet(**MEET).located(HERE), IterationsMeet(**MEET, loop="i").located(THERE),
            ProgramsRepeat(count=2, tensor="y", what="the program").located(THERE)]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("NKI_MLIR_RACES", "NKI_MLIR_STRICT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(diagnostics, "shown", {})


def reported(hazards):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        report(hazards)
        report(hazards)                                     # once a line
    return [(w.category, w.filename, w.lineno, str(w.message)) for w in caught]


TEXTS = [
    (RaceWarning, "k.py", 3, "x[0, 1] is written by program 0 here, and read by program 1 at k.py:7 [NKI-RACE-PROGRAMS]; let each "
     "program write different elements, or order the programs with a barrier (nki.isa.core_barrier)"),
    (RaceWarning, "k.py", 5, "x[0, 1] is written by iteration program 0 of the loop over i here, and read by iteration program 1 at "
     "k.py:7 [NKI-RACE-ITERATIONS]; let each iteration write different elements, accumulate with +=, or make the loop an "
     "nl.sequential_range"),
    (RaceWarning, "k.py", 5, "2 programs write the same values to y here [NKI-SAME-WRITES]; divide the work by the program, or launch "
     "the kernel on one program")]


@pytest.mark.parametrize("level, strict", itertools.product([None, "", "off", "warn", "error", "loud"], [None, "", "1"]))
def test_levels(level, strict, monkeypatch):
    for name, value in (("NKI_MLIR_RACES", level), ("NKI_MLIR_STRICT", strict)):
        if value is not None:
            monkeypatch.setenv(name, value)
    assert checked() is (level != "off")
    assert reported([]) == []
    if level == "loud":
        with pytest.raises(UnknownRaceLevel, match="NKI_MLIR_RACES cannot be 'loud'") as error:
            report(races())
        assert error.value.advice[1] == "set it to off, warn or error; by default races are warnings"
    elif level == "off":
        assert reported(races()) == []
    elif level == "warn" or not (level or strict):
        assert reported(races()) == TEXTS
    else:
        assert reported(races()[2:]) == TEXTS[2:]           # repeated work is never an error
        for hazards in (races(), races()[1:], races()[::-1][1:]):
            with pytest.raises((ProgramsMeet, IterationsMeet)) as error:
                report(hazards)
            assert type(error.value) is type(hazards[0]) and error.value is not hazards[0]
            assert (error.value.at, error.value.values) == (hazards[0].at, hazards[0].values)


def test_equal_races_are_one():
    verdict = Verdict()
    other = Verdict()
    kinds = [lambda where: ProgramsMeet(**MEET | {"location": where}), lambda where: IterationsMeet(**MEET | {"location": where}, loop="i")]
    cases = list(itertools.product(range(2), ("k.py:7", "k.py:8"), (HERE, THERE)))
    for kind, where, at in [*cases, *cases[::-1]]:
        verdict.add_race(kinds[kind](where), at)
    assert [(type(e), e.values["location"], e.at) for e in verdict.races] == [
        ((ProgramsMeet, IterationsMeet)[kind], where, at) for kind, where, at in cases]
    assert other.races == [] and other.undecided == [] and verdict.races is not other.races
