# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seed random faults in a copy of the compiler, its executors and checkers, and run the tests that run these lines.

``python -m tools.mutation [--count N] [--seed N] [--only TEXT] [--jobs N] [--table FILE]`` changes each module in turn.
The first run runs all tests once and stores in ``.mutation`` which lines each of them runs (``recording.py``).
``--record`` runs the tests without a record, or which have changed since, and ends; a stopped one continues.
``--record TEST...`` runs these files and folders. With a change, the tests that run its line run until one fails, short
ones first.
If all pass, the mutant survives, and its line and change are printed. ``tools/mutation_survivors.txt`` gives the reason
of each survivor that needs no test: the program is equal, or the difference is not an error.

``--direct TESTFILE...`` runs these files alone (pytest or FileCheck) with all mutants of the modules that ``--only``
names, or with ``--count`` of them, and needs no record. ``--select`` is an expression of names of tests, as pytest's
``-k``. Without a file, the recorded tests that run a line run with its mutants, and FileCheck tests. A mutant takes the
seconds of the tests, or two more if it changes what runs at the import. ``--seconds N`` runs N seconds of tests with
each mutant, those that run its line first. ``--results FILE`` keeps each result as it comes, with and without
``--direct``: the same command continues a run that was stopped.
"""

import argparse
import ast
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from math import ceil, inf
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.table import Table

from .direct_mutants import outcomes
from .mutant_results import Outcome, Ran, Results, folder_of_tests
from .recording import BEFORE, PYTEST, RECORDING, record, recorded_files, seconds_of_tests, tests_by_line
from .seeding import PACKAGE, ROOT, Change, copy_project, mutants_of, restore, seed

AREAS = {               # a module belongs to the area that names it, or else the nearest folder around it
    "passes": ("transforms", "conversion", "selection", "waist", "graph", "analysis", "passes",
               "targets/neuron/codegen", "targets/cpu/passes"),
    "executors": ("capture/eager.py", "targets", "scalar"),
    "operations": ("dialects", "custom_form", "printing"),
    "checkers": ("targets/neuron/checker", "targets/neuron/validate.py", "dialects/verifier.py",
                 "dialects/verification.py", "dialects/target_rules.py", "dialects/target_findings.py",
                 "passes/safety.py", "text_limits.py", "capture/races", "capture/unwritten_reads.py", "checking"),
    "times": ("targets/neuron/profile", "targets/neuron/timing", "calibration", "machine"),
    "front end": ("capture", "language"),
    "migration": ("migration",),
    "frameworks": ("frameworks", "customop", "compat"),
    "commands": ("cli", "stepping", "tuning", "scoring", "grading"),
    "process": ("__init__.py", "__main__.py", "alone.py", "array_files.py", "autoload.py", "bindings.py",
                "cache_entries.py", "diagnostics.py", "display.py", "environment.py", "extensions.py", "files.py",
                "input_limits.py", "plain_text.py", "plugin.py", "progress.py", "python_commands.py",
                "result_memory.py", "similar_names.py", "version.py"),
}
FIRST, OTHERS = 30, 600             # seconds of the first tests, and of those that run the module but not the line
NEW = 1.0                           # seconds of a test without a record
LIT = [str(Path(sys.executable).parent / "lit"), "-q", "-j1", "--max-failures=1"]
FILECHECK = ["lit_tests"]
SHORT = 8                           # characters of a text that is described by its line as well
REASONS = Path(__file__).with_name("mutation_survivors.txt")


@dataclass(frozen=True)
class Verdict:
    """The outcome of a mutant: ``killer`` is the test that failed, or ""."""

    change: Change
    killer: str
    seconds: float
    reason: str = ""


def area_of(file: str) -> str:
    """Return the area of a module, or "" for a module that no area names."""
    parts = {part: area for area, parts in AREAS.items() for part in parts}
    around = [file, *map(str, Path(file).parents)]
    return next((parts[part] for part in around if part in parts), "")


def modules() -> list[str]:
    """Return the files to change, relative to the package."""
    candidates = {str(f.relative_to(ROOT / PACKAGE)) for f in (ROOT / PACKAGE).rglob("*.py")}
    return sorted(f for f in candidates if area_of(f))


def sample(count: int, rng: random.Random, only: list[str]) -> Iterator[Change]:
    """Yield mutants, one of each module in turn, up to a number, of modules whose path has one of the texts."""
    sources = {file: mutants_of(file, rng) for file in modules() if any(text in file for text in only)}
    while sources and count:
        for file in rng.sample(sorted(sources), len(sources)):
            change = next(sources[file], None)
            if change is None:
                del sources[file]
            else:
                yield change
                count -= 1
            if not count:
                return


# -- choosing tests ----------------------------------------------------------------------------------------------------
def statement_of(change: Change) -> range:
    """Return the lines from the start of the statement with the change to the change's end."""
    last = change.line + change.old.count("\n")
    starts = [node.lineno for node in ast.walk(parsed(change.file))
              if isinstance(node, ast.stmt) and node.lineno <= change.line and last <= (node.end_lineno or 0)]
    return range(max(starts), last + 1)


def recorded_tests(change: Change) -> tuple[set[str], set[str]]:
    """Return the recorded tests that run the line of a change, and those that run its module. A line that runs at the
    import, or outside of functions, counts as run by all of the module's."""
    by_line, of_older = tests_by_line(change.file)
    of_module = of_older.union(*by_line.values()) - {BEFORE}
    lines = [by_line[line] for line in statement_of(change) if line in by_line]
    of_line = of_older.union(*lines)
    return of_module if not lines or BEFORE in of_line else of_line, of_module


def recorded_runs(changes: list[Change]) -> list[Ran]:
    """Return the recorded tests that run the lines of changes, each with the numbers of the changes."""
    reached: dict[str, list[int]] = defaultdict(list)
    for number, change in enumerate(changes):
        for test in recorded_tests(change)[0]:
            reached[test].append(number)
    return [Ran(test, seconds_of_tests()[test], numbers) for test, numbers in sorted(reached.items())]


def rings(change: Change) -> Iterator[list[str]]:
    """Yield the tests of a change, from the nearest outwards: the short ones that run its line, above all those of the
    module's folder; the FileCheck tests; all others that run its line, and new files; the short ones that run the
    module, because a line that fills a memo or a table runs in the first test that needs it."""
    seconds = {test: time for test, time in seconds_of_tests().items() if time is not None}
    of_line, of_module = recorded_tests(change)
    folder = folder_of_tests(change.file)

    def shortest(tests: set[str], limit: float) -> list[str]:
        ordered = sorted(tests, key=lambda test: (not test.startswith(folder), seconds[test], test))
        return [test for test, total in zip(ordered, accumulate(map(seconds.__getitem__, ordered))) if total <= limit]

    first = shortest(of_line, FIRST)
    yield first or shortest(of_module, FIRST)
    yield FILECHECK
    new = {str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py")}
    yield sorted(of_line.difference(first) | (new - recorded_files()))
    yield shortest(of_module - of_line, OTHERS)


# -- running them ------------------------------------------------------------------------------------------------------
def run(tests: list[str], directory: Path) -> str:
    """Run tests and return the one that failed, or "". Their limit is processor time, whatever else runs."""
    files = sorted({test.partition("::")[0] for test in tests})
    times = {**dict.fromkeys(seconds_of_tests()), **{test: seconds_of_tests().get(test, NEW) for test in tests}}
    chosen, failed = directory / "chosen.json", directory / "failed"
    chosen.write_text(json.dumps(times))
    failed.unlink(missing_ok=True)
    command = [*(LIT if tests == FILECHECK else [*PYTEST, "-x", "-p", "tools.chosen_tests"]), *files]
    limit = 300 + ceil(10 * sum(times[test] or 0 for test in tests))
    limited = ["sh", "-c", 'ulimit -c 0; ulimit -t "$0"; exec "$@"', str(limit), *command]
    environment = {**os.environ, "PYTHONPATH": str(directory), "NKI_MLIR_TESTS": str(chosen),
                   "NKI_MLIR_FAILED": str(failed), "HYPOTHESIS_STORAGE_DIRECTORY": str(directory / ".hypothesis")}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(limited, cwd=directory, stdout=output, stderr=subprocess.STDOUT, env=environment,
                                   start_new_session=True)
        try:
            status = process.wait(6 * limit)                # for tests that wait and use no processor time
        except subprocess.TimeoutExpired:
            status = -signal.SIGALRM
        with suppress(ProcessLookupError):                  # processes that tests left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        lines = output.read().splitlines()
    if status in (0, 5):                                    # 5: the tests are no longer in the files
        return ""
    if status in (-signal.SIGKILL, -signal.SIGXCPU, -signal.SIGALRM):
        return "does not end"
    if failed.exists():
        return failed.read_text()
    errors = [line for line in lines if line.startswith(("ERROR tests/", "  nki_mlir ::"))]
    return (errors[0].removeprefix("ERROR ").partition(" - ")[0] if errors else f"status {status}").strip()


class Bench:
    """Copies of the project, one for each job."""

    def __init__(self, directory: Path, jobs: int) -> None:
        self.unstable: set[str] = set()                     # tests that failed without a change
        self.free: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            copy_project(directory / str(number))
            self.free.put(directory / str(number))

    def judge(self, change: Change) -> Verdict:
        directory, started = self.free.get(), time.monotonic()
        try:
            return Verdict(change, self.first_failure(change, directory), time.monotonic() - started,
                           reasons().get(key(change), ""))
        finally:
            self.free.put(directory)

    def first_failure(self, change: Change, directory: Path) -> str:
        """Return the first test that fails with the change and passes without it."""
        for tests in rings(change):
            # without tests that were written after the copy
            known = [test for test in tests if (directory / test.partition("::")[0]).exists()]
            while remaining := [test for test in known if test not in self.unstable]:
                seed(change, directory)
                failed = run(remaining, directory)
                restore(change, directory)
                if not failed:
                    break
                again = run([failed] if failed.startswith("tests/") else remaining[:1], directory)
                if not again:
                    return failed
                if "::" not in failed:
                    raise SystemExit(f"{again} fails without a change")
                self.unstable.add(failed)
        return ""


# -- survivors that need no test ---------------------------------------------------------------------------------------
def key(change: Change) -> str:
    """Describe a change by its function and texts, which do not depend on line numbers. A short text, which may occur
    often, is described by its line as well."""
    line = (ROOT / PACKAGE / change.file).read_text().splitlines()[change.line - 1].strip()
    scope = f"::{scope_of(change)}".removesuffix("::")
    return (f"{change.file}{scope}: {' '.join(change.old.split())} -> {' '.join(change.new.split())}"
            + (f" in {line}" if len(change.old) < SHORT else ""))


def scope_of(change: Change) -> str:
    """Return the names of the classes and functions around a change; "" for code of the module."""
    names, body = [], parsed(change.file).body
    while inner := next((node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)
                         and node.lineno <= change.line <= (node.end_lineno or 0)), None):
        names.append(inner.name)
        body = [node for statement in inner.body for node in ast.walk(statement)
                if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return ".".join(names)


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / PACKAGE / file).read_text())


@cache
def reasons() -> dict[str, str]:
    """Read ``mutation_survivors.txt``: a line with the change, then a line with the reason."""
    if not REASONS.is_file():
        return {}
    lines = [line for line in REASONS.read_text().splitlines() if line and not line.startswith("#")]
    return dict(zip(lines[::2], (line.strip() for line in lines[1::2]), strict=True))


def is_current(change: str) -> bool:
    """Return whether the file has the text of a change as ``mutation_survivors.txt`` describes it."""
    head, _, texts = change.partition(": ")
    file, _, scope = head.partition("::")
    path = ROOT / PACKAGE / file
    source = path.read_text() if path.is_file() else ""
    old, _, new = texts.partition(" -> ")
    has_line = len(old) >= SHORT or " in " not in new or any(
        new.endswith(f" in {line.strip()}") for line in source.splitlines() if line)
    return has_line and scope.rpartition(".")[2] in source and old in " ".join(source.split())


def table_of(verdicts: list[Verdict]) -> str:
    """Return the table in Markdown, by area and for each module with a survivor."""
    lines = ["| area | modules | mutants | found | survivors with a reason | other survivors |",
             "|---|---|---|---|---|---|"]
    for area in AREAS:
        these = [v for v in verdicts if area_of(v.change.file) == area]
        kinds = Counter("found" if v.killer else "reason" if v.reason else "other" for v in these)
        lines.append(f"| {area} | {len({v.change.file for v in these})} | {len(these)} | {kinds['found']} | "
                     f"{kinds['reason']} | {kinds['other']} |")
    return "\n".join(lines) + "\n"


def direct(changes: list[Change], files: list[str], jobs: int, select: str, results: Path | None, most: float) -> int:
    """Run test files with each change, or the recorded tests that run its line and all FileCheck tests. Print the
    survivors, and return 1 if one has no reason."""
    verdicts: list[Verdict] = []
    ordered = sorted(changes, key=lambda change: (change.file, change.start, change.end, change.new))
    recorded = [] if files else recorded_runs(ordered)
    files = files or [*dict.fromkeys(ran.test.partition("::")[0] for ran in recorded), *FILECHECK]
    for change, outcome in outcomes(ordered, files, jobs, select, results, most, recorded):
        verdicts.append(Verdict(change, outcome.test, 0, reasons().get(key(change), "")))
        if not outcome.test:
            text = verdicts[-1].reason or "SURVIVES" + (f" all but {outcome.left} tests" if outcome.left else "")
            print(f"{change.file}:{change.line}: {change.kind}: {text}\n    {key(change)}", flush=True)
    for file in sorted({change.file for change in changes}):
        of_file = [v for v in verdicts if v.change.file == file]
        killed, explained = (sum(map(bool, part)) for part in
                             ([v.killer for v in of_file], [v.reason for v in of_file if not v.killer]))
        print(f"{file}: {killed} of {len(of_file)} are found, {explained} survive for a reason")
    return int(any(not (v.killer or v.reason) for v in verdicts))


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, help="the number of mutants (1000, with --direct all)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the random choice of mutants (0)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT",
                        help="change only modules whose path has one of these texts")
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants are tested at a time (2)")
    parser.add_argument("--table", type=Path, help="the file to write the table to")
    parser.add_argument("--record", nargs="*", metavar="TEST",
                        help="record which lines these tests run (all), and seed no faults")
    parser.add_argument("--direct", nargs="*", metavar="TESTFILE",
                        help="run these test files alone with all mutants of the modules; without a file, the recorded "
                             "tests that run their lines")
    parser.add_argument("--select", default="", metavar="EXPRESSION",
                        help="with --direct: run only the tests whose names match, as in pytest -k")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep each result as it comes, and continue")
    parser.add_argument("--seconds", type=float, default=inf,
                        help="with --direct: run tests for so many seconds with each mutant (all tests)")
    return parser


def judged(changes: list[Change], jobs: int, results: Path | None) -> list[Verdict]:
    """Run the tests that a recording names for each change, and print each verdict as it comes."""
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(jobs) as pool:
        bench = Bench(Path(name), jobs)
        known = Results.read(results or Path(name) / "results", changes, [])

        def judge(number: int) -> Verdict:
            if outcome := known.outcomes.get(number):
                return Verdict(changes[number], outcome.test, 0, reasons().get(key(changes[number]), ""))
            verdict = bench.judge(changes[number])
            known.append(Outcome(number, verdict.killer))
            return verdict
        for verdict in pool.map(judge, range(len(changes))):
            verdicts.append(verdict)
            outcome = verdict.killer or ("survives, for a reason" if verdict.reason else "SURVIVES")
            print(f"{len(verdicts)} of {len(changes)}: {verdict.change.file}:{verdict.change.line}: "
                  f"{verdict.change.kind}: {outcome} ({verdict.seconds:.0f} s)", flush=True)
            if not verdict.killer:
                print(f"    {key(verdict.change)}", flush=True)
    return verdicts


def print_verdicts(verdicts: list[Verdict]) -> None:
    table = Table("module", "line", "change", "found by", "s")
    for v in verdicts:
        table.add_row(v.change.file, str(v.change.line), f"{v.change.kind}: {' '.join(v.change.new.split())[:40]}",
                      v.killer or v.reason or "nothing", f"{v.seconds:.0f}")
    Console().print(table)
    print(table_of(verdicts))


def main(arguments: list[str] | None = None) -> int:
    options = command_line().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))          # ends what it has started
    if options.direct is not None:
        drawn = sample(options.count or sys.maxsize, random.Random(options.seed), options.only)
        return direct([*drawn], options.direct, options.jobs, options.select, options.results, options.seconds)
    if options.record is not None or not RECORDING.exists():
        record(options.jobs, options.record or [])
        if options.record is not None:
            return 0
    changes = [*sample(options.count or 1000, random.Random(options.seed), options.only)]
    verdicts = judged(changes, options.jobs, options.results)
    print_verdicts(verdicts)
    if options.table:
        options.table.write_text(table_of(verdicts))
    detected = sum(bool(v.killer or v.reason) for v in verdicts)
    print(f"{detected} of {len(verdicts)} are found or have a reason: {detected / max(1, len(verdicts)):.0%}")
    return int(detected < 0.95 * len(verdicts))


if __name__ == "__main__":
    sys.exit(main())
