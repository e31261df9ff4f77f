# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs of ``tools/mutation.py`` that stop continue: results of mutants, and the record of the lines that tests run."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import recording
from tools.mutant_results import Outcome, Ran, Results
from tools.recording import BEFORE, Part
from tools.seeding import PACKAGE, replacing

CHANGES = [replacing("scalar/sums.py", "total += np", "total -= np"),
           replacing("scalar/sums.py", "if not in_device_order()", "if in_device_order()")]


def test_results__are_read_as_they_were_written(tmp_path: Path) -> None:
    """Another process reads each line; other tests, mutants or sources begin anew."""
    file = tmp_path / "results"
    results = Results.read(file, CHANGES, ["tests/a"])
    entries = [Ran("a::short", 0.5, [1]), Ran("a::long", 2.0, []), Ran("a::failing", None, [0]),
               Outcome(1, "a::long", 3)]
    for entry in entries:
        results.append(entry)
    with open(file, "a") as stopped:
        stopped.write('{"number": 0, "te')
    again = Results.read(file, CHANGES, ["tests/a"])
    assert again == results
    again.append(Outcome(0, "a::short"))
    assert Results.read(file, CHANGES, ["tests/a"]).outcomes == {1: entries[-1], 0: Outcome(0, "a::short")}
    del again.outcomes[0]
    assert [*again.tests.values(), *again.outcomes.values()] == entries
    assert Results.read(file, CHANGES[:1], ["tests/a"]).tests == {}
    assert Results.read(file, CHANGES, ["tests/a"]).tests == {}


def test_tests_of_a_mutant__are_those_of_its_line_first(tmp_path: Path) -> None:
    """Then come the others; short ones first; at least one, and no more than the seconds allow."""
    results = Results(tmp_path / "results", {
        test: Ran(test, seconds, reached) for test, seconds, reached in
        [("a", 3, []), ("b", 1, [0]), ("c", 2, [1]), ("d", None, [0]), ("e", 0.5, [0, 1])]})
    assert results.sound_tests() == {"a", "b", "c", "e"}
    assert results.ordered(0, 100) == ["e", "b", "c", "a"]
    assert results.ordered(1, 100) == ["e", "c", "b", "a"]
    assert results.ordered(1, 3.5) == ["e", "c", "b"]
    assert results.ordered(1, 0) == ["e"]


def test_recorded_tests_of_a_mutant__are_those_of_its_line_and_their_files(tmp_path: Path) -> None:
    results = Results(tmp_path / "results", {
        test: Ran(test, seconds, reached) for test, seconds, reached in
        [("a.py::one", 3, []), ("a.py::two", 2, [0]), ("b.py::one", 2, [1]), ("b.py::two", None, [0]),
         ("c.py::one", 0.5, [0, 1]), ("c.py::two", 1, [])]}, recorded={"a.py::one"})
    assert results.ordered(0, 100) == ["c.py::one", "a.py::two", "c.py::two", "b.py::one", "a.py::one"]
    assert results.ordered(1, 100) == ["c.py::one", "b.py::one", "c.py::two"]
    assert len(results.ordered(2, 100)) == 5            # no recorded test ran its lines


def test_tests_of_a_mutant__of_its_folder_come_first(tmp_path: Path) -> None:
    """If they ran its line, and no file is named after the module."""
    tests = {test: Ran(test, seconds, [0]) for test, seconds in
             [("tests/cli/test_a.py::a", 1), ("tests/scalar/test_b.py::b", 2)]}
    results = Results(tmp_path / "results", tests, modules=["sums"], folders=["tests/scalar/"])
    assert results.ordered(0, 100) == ["tests/scalar/test_b.py::b", "tests/cli/test_a.py::a"]
    assert Results.read(tmp_path / "others", CHANGES, []).folders == ["tests/scalar/"] * 2


def test_tests_of_a_mutant__begin_with_those_named_after_its_module(tmp_path: Path) -> None:
    """If they ran its line: an optimizer's module runs in many tests, of which few look at what it does."""
    results = Results(tmp_path / "results", {
        test: Ran(test, seconds, reached) for test, seconds, reached in
        [("tests/test_a.py::sums", 3, []), ("tests/test_b.py::sums", 1, [0]), ("lit_tests/cpu/fuse-sums.mlir", 2, [0, 1]),
         ("tests/test_sums.py::b", 3, [0]), ("tests/test_sums.py::a", 0.5, [])]}, modules=["sums", "fuse_sums"])
    assert results.ordered(0, 7) == ["lit_tests/cpu/fuse-sums.mlir", "tests/test_sums.py::b", "tests/test_b.py::sums",
                                     "tests/test_sums.py::a"]
    assert results.ordered(1, 2) == ["lit_tests/cpu/fuse-sums.mlir"]
    assert Results.read(tmp_path / "others", CHANGES, []).modules == ["sums", "sums"]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    memos = recording._parts, recording.seconds_of_tests, recording.tests_by_line
    monkeypatch.setattr(recording, "RECORDING", tmp_path)
    for memo in memos:
        memo.cache_clear()
    yield tmp_path
    for memo in memos:
        memo.cache_clear()


def write(files: list[str], sums: int, seconds: dict[str, float | None], names: list[str],
          runs: list[tuple[list[int], list[int]]]) -> None:
    checksums = {**{file: recording.checksum(file) for file in files}, f"{PACKAGE}/scalar/sums.py": sums}
    part = Part(files, checksums, seconds, names, {"scalar/sums.py": runs})
    recording.part_file(files).write_bytes(pickle.dumps(part))


def test_lines_of_tests__are_those_of_parts_with_the_module_as_it_is(record: Path) -> None:
    """A part that recorded another text of a module tells which tests ran it, but not where."""
    now = recording.checksum(f"{PACKAGE}/scalar/sums.py")
    write(["tests/a.py"], now, {"a": 1.0, "failed": None}, [BEFORE, "a", "failed"],
          [([1, 2], [0, 1]), ([4], [2]), ([6], [1])])
    write(["tests/b.py"], now, {"b": 2.0}, ["b"], [([1, 2], [0]), ([4], []), ([6], [])])
    write(["tests/c.py"], now + 1, {"c": 3.0, "d": 1.0}, [BEFORE, "c", "d"], [([9], [0, 1])])
    assert recording.seconds_of_tests() == {"a": 1.0, "failed": None, "b": 2.0, "c": 3.0, "d": 1.0}
    assert recording.recorded_files() == {"tests/a.py", "tests/b.py", "tests/c.py"}
    assert recording.tests_by_line("scalar/sums.py") == (
        {1: {BEFORE, "a", "b"}, 2: {BEFORE, "a", "b"}, 4: set(), 6: {"a"}}, {"c"})
    assert recording.tests_by_line("scalar/tokens.py") == ({}, set())


def test_parts__have_files_of_one_folder() -> None:
    """All test files are in one part each; a part that is not recorded, or whose tests have changed, runs again."""
    parts = recording.parts_of(["tests"])
    files = [file for part in parts for file in part]
    assert len(files) == len({*files}) and "tests/waist/test_rows.py" in files
    assert all(len({Path(file).parent for file in part}) == 1 and len(part) <= recording.MOST for part in parts)
    assert recording.parts_of(["tests/waist/test_rows.py"]) == [["tests/waist/test_rows.py"]]


def test_part__is_recorded_until_its_tests_change(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of a module does not make its tests run again."""
    files = ["tests/waist/test_rows.py"]
    assert not recording._is_recorded(files)
    write(files, 0, {}, [], [])
    assert recording._is_recorded(files)
    monkeypatch.setattr(recording, "checksum", lambda file: 1)
    assert not recording._is_recorded(files)


def test_record__runs_the_parts_of_its_tests_or_what_has_none(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is recorded stays, whichever of its files was named."""
    ran: list[list[str]] = []

    def recorded(files: list[str], directory: Path, folder: Path, jobs: int) -> Part:
        ran.append(files)
        return Part(files, {file: recording.checksum(file) for file in files}, {}, [], {})
    monkeypatch.setattr(recording, "copy_project", lambda directory: None)
    monkeypatch.setattr(recording, "_recorded", recorded)
    parts = recording.parts_of(["tests"])
    recording.record(1, ["tests/waist/test_rows.py"])
    assert ran == [part for part in parts if "tests/waist/test_rows.py" in part]
    recording.record(1)
    assert sorted(ran) == sorted(parts) and recording.recorded_files() == {file for part in parts for file in part}
    recording.record(1)
    assert len(ran) == len(parts)


def test_tests_of_a_mutant__of_an_operation_begin_with_the_facts(tmp_path: Path) -> None:
    """They compare the rules of all operations, which few other tests of their folder break."""
    facts = "tests/dialects/test_facts.py::test_facts_of_all_operations"
    tests = {test: Ran(test, seconds, [0]) for test, seconds in [(facts, 9), ("tests/dialects/test_nop.py::a", 1)]}
    dialect = Results(tmp_path / "results", tests, modules=["nop"], folders=["tests/dialects/"])
    assert dialect.ordered(0, 100) == [facts, "tests/dialects/test_nop.py::a"]
    other = Results(tmp_path / "results", tests, modules=["sums"], folders=["tests/scalar/"])
    assert other.ordered(0, 100) == ["tests/dialects/test_nop.py::a", facts]
