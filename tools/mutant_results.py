# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a direct run of tests with mutants has found so far, in a file of JSON lines, so that a stopped run continues.

The first line identifies the mutants and the tests. Then each test that ran without a change has a line with its
seconds and the numbers of the mutants whose lines it ran, and each mutant one with the test that failed.
"""

import json
import os
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .seeding import PACKAGE, ROOT, Change

FACTS = {"tests/dialects/": "tests/dialects/test_facts.py"}     # folders with a test that compares all rules at once


@dataclass(frozen=True)
class Ran:
    """A test without a change: its seconds, None if it failed, and the numbers of the mutants whose lines it ran."""

    test: str
    seconds: float | None
    reached: list[int]


@dataclass(frozen=True)
class Outcome:
    """A mutant: the test that fails with it, or "", and how many of the tests did not run."""

    number: int
    test: str
    left: int = 0


@dataclass
class Results:
    """The lines of a file. Processes append to it side by side."""

    file: Path
    tests: dict[str, Ran] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    modules: Sequence[str] = ()             # the name of the module of each mutant
    folders: Sequence[str] = ()             # the folder of the tests of each mutant's module
    recorded: Collection[str] = ()          # the tests to choose from: those that ran a mutant's lines, if any did

    @classmethod
    def read(cls, file: Path, changes: list[Change], arguments: list[str]) -> "Results":
        """Return the results of these mutants and tests that a file has, which begins anew if it has others."""
        sources = [(ROOT / PACKAGE / name).read_text() for name in sorted({change.file for change in changes})]
        run = {"run": zlib.crc32(json.dumps([[asdict(c) for c in changes], sources, arguments]).encode())}
        results = cls(file, modules=[Path(change.file).stem for change in changes],
                      folders=[folder_of_tests(change.file) for change in changes])
        if not file.exists() or [*entries_of(file)][:1] != [run]:
            file.write_text(json.dumps(run) + "\n")
            return results
        text = file.read_text()
        file.write_text(text[:text.rindex("\n") + 1])           # drop the entry that a stopped run has begun
        for entry in [*entries_of(file)][1:]:
            if "number" in entry:
                results.outcomes[entry["number"]] = Outcome(**entry)
            else:
                results.tests[entry["test"]] = Ran(**entry)
        return results

    def append(self, entry: Ran | Outcome) -> None:
        """Write a line at once, whatever ends this process afterwards."""
        descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, (json.dumps(asdict(entry)) + "\n").encode())
        os.close(descriptor)
        if isinstance(entry, Ran):
            self.tests[entry.test] = entry
        else:
            self.outcomes[entry.number] = entry

    def reread(self) -> None:
        """Read what other processes have appended about tests."""
        for entry in entries_of(self.file):
            if "reached" in entry:
                self.tests[entry["test"]] = Ran(**entry)

    def sound_tests(self) -> set[str]:
        """Return the tests that passed without a change."""
        return {test for test, ran in self.tests.items() if ran.seconds is not None}

    def ordered(self, number: int, most: float) -> list[str]:
        """Return the tests of a mutant: first those that ran its lines, of these the one of ``FACTS``, then the ones in
        a file named after its module, then in the module's folder, of these the short ones; as many as take ``most``
        seconds together. Of a recording only tests that ran its lines count, and others of their files: a fixture of a
        file runs once."""
        module = self.modules[number] if self.modules else ""
        folder = self.folders[number] if self.folders else ""
        files = {file_of(test) for test, ran in self.tests.items() if number in ran.reached or not self.recorded}

        def is_of_module(test: str) -> bool:
            return module in Path(file_of(test)).stem.replace("-", "_")
        ranked = sorted(
            (number not in ran.reached, file_of(test) != FACTS.get(folder), not is_of_module(test),
             not test.startswith(folder), ran.seconds, test)
            for test, ran in self.tests.items() if ran.seconds is not None and file_of(test) in files)
        if not ranked and self.recorded:            # code outside of functions, which the import runs
            return replace(self, recorded=()).ordered(number, most)
        chosen, total = [], 0.0
        for *_, seconds, test in ranked:
            total += seconds
            if chosen and total > most:
                break
            chosen.append(test)
        return chosen


def file_of(test: str) -> str:
    return test.partition("::")[0]


def folder_of_tests(file: str) -> str:
    """Return the nearest folder of tests for a file of the package."""
    return next(f"{f.relative_to(ROOT)}/" for f in (ROOT / "tests" / file).parents if f.is_dir())


def entries_of(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a file. One that is not written to its end is left out."""
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
