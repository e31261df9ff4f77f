# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The record in ``.mutation`` of the lines that each test runs, and of its seconds.

It has parts: a few test files of one folder, which one run of pytest records (``line_probes.py``,
``record_tests.py``). A part is kept as soon as its run ends, so a stopped recording continues with the next one. Each
part knows the modules and tests of its time. Of a module that has changed since, it tells the tests that ran it, but
not which of its lines.
"""

import json
import os
import pickle
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np

from .line_probes import DIRECTORY, ProbeTable, collected
from .seeding import PACKAGE, ROOT, copy_project

RECORDING = ROOT / ".mutation"
MOST = 16                                           # files of a part
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
INTERRUPTS = "time_limit or take_too_long"          # tests whose alarm would interrupt the recording
BEFORE = "before the tests"                         # imports


@dataclass(frozen=True)
class Part:
    """What the tests of some files ran. ``checksums``: of the package's modules and the tests' files at that time.
    ``seconds``: of each test, None if it did not pass. ``runs``: for each module its runs of lines, with the numbers of
    the tests that ran them; the name of test k is ``names[k]``."""

    files: list[str]
    checksums: dict[str, int]
    seconds: dict[str, float | None]
    names: list[str]
    runs: dict[str, list[tuple[list[int], list[int]]]]


def part_file(files: Sequence[str]) -> Path:
    return RECORDING / f"{zlib.crc32(json.dumps(list(files)).encode()):08x}.pickle"


def checksum(file: str) -> int:
    """Return the checksum of a file of the project, 0 if there is none."""
    path = ROOT / file
    return zlib.crc32(path.read_bytes()) if path.is_file() else 0


def parts_of(tests: Sequence[str]) -> list[list[str]]:
    """Return the test files that some files and folders have, in parts of one folder each."""
    files: set[str] = set()
    for test in tests:
        path = (ROOT / test).resolve()
        files.update(str(f.relative_to(ROOT)) for f in (path.rglob("test_*.py") if path.is_dir() else [path]))
    parts = []
    for _, group in groupby(sorted(files, key=lambda file: (str(Path(file).parent), file)), lambda f: Path(f).parent):
        of_folder = [*group]
        parts += [of_folder[k:k + MOST] for k in range(0, len(of_folder), MOST)]
    return parts


def record(jobs: int, tests: Sequence[str] = ()) -> None:
    """Record the parts that have these tests, or those that have no record or whose files have changed since."""
    RECORDING.mkdir(exist_ok=True)
    parts, selected = parts_of(["tests"]), {file for part in parts_of(tests) for file in part}
    waiting = [files for files in parts if (selected.intersection(files) if tests else not _is_recorded(files))]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if waiting:
            copy_project(directory)
            (directory / "sitecustomize.py").write_text("import tools.line_probes\n\ntools.line_probes.start()\n")
        for number, files in enumerate(waiting):
            recorded = directory / f"recorded{number}"
            recorded.mkdir()
            part = _recorded(files, directory, recorded, jobs)
            new = part_file(files).with_suffix(".new")
            new.write_bytes(pickle.dumps(part))
            new.replace(part_file(files))
            print(f"{number + 1} of {len(waiting)}: {files[0]} and {len(files) - 1} others: {len(part.seconds)} tests",
                  flush=True)
    current = {part_file(files).name for files in parts}
    for file in RECORDING.iterdir():
        if file.name not in current:                   # its folder has other files now
            file.unlink()
    _parts.cache_clear()
    tests_by_line.cache_clear()
    seconds_of_tests.cache_clear()


def _is_recorded(files: list[str]) -> bool:
    """Return whether a part is recorded and its test files have not changed since."""
    if not part_file(files).exists():
        return False
    part: Part = pickle.loads(part_file(files).read_bytes())
    return all(part.checksums[file] == checksum(file) for file in files)


def _recorded(files: list[str], directory: Path, recorded: Path, jobs: int) -> Part:
    """Run test files in a copy of the project, and return what they ran."""
    table = ProbeTable(directory / PACKAGE)
    table.write(recorded, directory / PACKAGE)
    environment = {**os.environ, "PYTHONPATH": str(directory), DIRECTORY: str(recorded),
                   "NKI_MLIR_SECONDS": str(recorded / "seconds.json")}
    workers = ["-n", str(jobs)] if len(files) > 1 else []
    subprocess.run([*PYTEST, *workers, "-p", "tools.record_tests", "-k", f"not ({INTERRUPTS})", *files],
                   cwd=directory, env=environment, stdout=subprocess.DEVNULL, check=False)
    seconds: dict[str, float | None] = json.loads((recorded / "seconds.json").read_text())
    bits = {test or BEFORE: zlib.decompress(run) for test, run in collected(recorded).items()}
    names = sorted(bits)
    ran = np.array([np.frombuffer(bits[test], np.bool_) for test in names])
    runs = {file: [(lines, np.flatnonzero(ran[:, number]).tolist()) for number, lines in enumerate(probed, first)]
            for file, (first, probed) in table.files.items()}
    return Part(files, {file: checksum(file) for file in (*files, *(f"{PACKAGE}/{file}" for file in table.files))},
                seconds, names, {file: probed for file, probed in runs.items() if any(tests for _, tests in probed)})


# -- what is known -----------------------------------------------------------------------------------------------------
@cache
def _parts() -> list[Part]:
    return [pickle.loads(file.read_bytes()) for file in sorted(RECORDING.glob("*.pickle"))]


def recorded_files() -> set[str]:
    """Return the test files that have a record."""
    return {file for part in _parts() for file in part.files}


@cache
def seconds_of_tests() -> dict[str, float | None]:
    """Return the seconds of each recorded test, None if it did not pass."""
    return {test: seconds for part in _parts() for test, seconds in part.seconds.items()}


@cache
def tests_by_line(file: str) -> tuple[dict[int, set[str]], set[str]]:
    """Return the tests that passed and ran each line of a module's functions, ``BEFORE`` for an import before the
    tests, and the tests that ran any line of it before it changed. Lines outside of functions are left out."""
    by_line, of_older = dict[int, set[str]](), set[str]()
    passed = {BEFORE, *(test for test, seconds in seconds_of_tests().items() if seconds is not None)}
    for part in _parts():
        changed = part.checksums.get(f"{PACKAGE}/{file}") != checksum(f"{PACKAGE}/{file}")
        for lines, numbers in part.runs.get(file, []):
            tests = passed.intersection(part.names[number] for number in numbers)
            if changed:
                of_older |= tests - {BEFORE}
            else:
                for line in lines:
                    by_line.setdefault(line, set()).update(tests)
    return by_line, of_older
