# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run test files with each of many mutants, in forks of a process that has imported all that the tests need.

A process collects the tests and runs them once without a change, with a probe before each changed line. With a
mutant, the tests that ran its line run first, short ones before others. For a mutant in the body of a function the
process forks, and the fork replaces the function's code. The body of a function that ran during the imports, and code
outside of functions, may have left their results in other modules: such mutants are loaded in a fork of a process that
has imported only the libraries. A test that fails with a mutant counts if it passes by itself without one. Files do
not change. A Python process that a test starts loads the mutant if it gets this process's variables
(``child_processes``); FileCheck tests run their commands in the fork (``filecheck_tests``).
"""

import gc
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest

from .changed_functions import (
    add_probes,
    finder_of,
    function_of,
    is_loaded,
    path_of,
    replace_code,
    show_children,
    source_of,
)
from .filecheck_tests import RunLine
from .mutant_results import Outcome, Ran, Results
from .seeding import ROOT, Change

PYTEST = ["-q", "-x", "-s", "-p", "no:cacheprovider", "-p", "tools.filecheck_tests", "--rootdir", str(ROOT),
          "-c", str(ROOT / "pyproject.toml")]
FACTOR, LEAST = 10, 10      # a test may take FACTOR times its processor time without a change, plus LEAST seconds
IN_PLACE = 99               # the status of a fork that cannot replace the function's code
LOADED = "loaded"           # the outcome of a mutant that a new process must load
NO_CHANGE = -1              # the number of a run without a mutant


class FailingTests(SystemExit):
    """The error of tests that fail without a change."""


class Job(NamedTuple):
    """Tests to run with a mutant, in their order."""

    number: int
    tests: list[str]


def outcomes(changes: list[Change], files: list[str], jobs: int, select: str = "", results: Path | None = None,
             most: float = inf, recorded: Sequence[Ran] = ()) -> Iterator[tuple[Change, Outcome]]:
    """Yield each change with its outcome. ``select`` is an expression of names, as pytest's ``-k``. ``results`` is a
    file that keeps what is known if the run stops. Of a mutant's tests run those that take ``most`` seconds.
    ``recorded`` are the tests to choose from if they are known, beside FileCheck tests."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"                # does not reduce failing examples
    os.environ["NKI_MLIR_CACHE"] = "off"                        # a cache takes the package's files for its sources
    paths = [Path(file).resolve() for file in files]
    for change in changes:
        source_of(change.file)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        known = Results.read(results or directory / "results", changes, [*map(str, paths), select])
        known.recorded = {ran.test for ran in recorded}
        for ran in recorded:
            if ran.test not in known.tests:
                known.append(ran)
        for number, outcome in known.outcomes.items():
            yield changes[number], outcome
        if len(known.outcomes) < len(changes):
            for outcome in MutantRun(changes, paths, select, jobs, most, directory, known).outcomes():
                known.append(outcome)
                yield changes[outcome.number], outcome


@dataclass
class MutantRun:
    """A run of test files with all changes that have no known outcome, in forks of this process."""

    changes: list[Change]
    paths: list[Path]
    select: str
    jobs: int
    most: float             # seconds of a mutant's tests
    directory: Path
    known: Results

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes: first of mutants that the collection of the tests finds, then of those that tests find
        or do not."""
        lines = self.collected()
        loaded, libraries = list[int](), next(lines, None)
        for number, test, left in lines:
            if test == LOADED:
                loaded.append(number)
            else:
                yield Outcome(number, test, left)
        if libraries is None:
            raise FailingTests(f"{(self.directory / 'output').read_text()}\nthe tests fail without a change")
        for library in libraries:
            _import(library)
        self.known.reread()
        for test in sorted({*self.known.tests} - self.known.sound_tests()):
            print(f"left out, because it fails without a change: {test}", file=sys.stderr)
        yield from _confirmed(self.test, loaded, self.directory, self.jobs, self.known, self.most)

    def collected(self) -> Iterator[Any]:
        """Collect the tests in a fork, and yield what it writes: the libraries that it imported, then for each mutant
        that its imports find or load, the number, the test and how many tests are left."""
        reader, writer = os.pipe()
        collector = os.fork()
        if not collector:
            os.close(reader)
            _redirect(self.directory / "output")
            signal.signal(signal.SIGTERM, _stop)
            with os.fdopen(writer, "w", buffering=1) as pipe:
                plugin = _Collected(self.changes, self.directory, self.jobs, pipe.write, self.known, self.most)
                status = self.pytest(self.paths, [plugin])
            os._exit(status)
        os.close(writer)
        try:
            with os.fdopen(reader) as pipe:
                yield from map(json.loads, pipe)
            os.waitpid(collector, 0)
        except BaseException:
            os.kill(collector, signal.SIGTERM)
            raise

    def test(self, job: Job) -> int:
        """Run the tests of a job in this process, which is a fork, and return pytest's status."""
        _redirect(Path(os.devnull))
        if job.number != NO_CHANGE:
            sys.meta_path.insert(0, finder_of(self.changes[job.number]))
            show_children(self.changes[job.number], self.directory / f"{job.number}.py")
        chosen = sorted({ROOT / test.partition("::")[0] for test in job.tests})
        if not all(file.is_file() for file in chosen):      # names of tests outside of the project depend on paths
            chosen = self.paths
        return self.pytest(chosen, [_FirstFailure(self.directory / f"{job.number}"), _Order(job.tests, self.known)])

    def pytest(self, paths: list[Path], plugins: list[object]) -> int:
        return int(pytest.main([*PYTEST, "-k", self.select, *map(str, paths)], plugins=plugins))


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(1)


def _redirect(file: Path) -> None:
    """Write all output of this process to a file."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _import(library: str) -> None:
    """Import a library if it can be imported before others."""
    try:
        importlib.import_module(library)
    except Exception:
        sys.modules.pop(library, None)


# -- forks -------------------------------------------------------------------------------------------------------------
def _confirmed(run: Callable[[Job], int], numbers: Iterable[int], directory: Path, jobs: int, known: Results,
               most: float) -> Iterator[Outcome]:
    """Run the tests of mutants, and yield each outcome when the test that failed has passed by itself without it."""
    sound, waiting = known.sound_tests(), [*numbers]
    confirmed = set[str]()
    while waiting:
        again = []
        planned = (Job(number, [test for test in known.ordered(number, most) if test in sound]) for number in waiting)
        for job, test in _forked(run, planned, directory, jobs):
            if test in sound - confirmed:
                (_, alone), = _forked(run, [Job(NO_CHANGE, [test])], directory, 1)
                if alone:
                    sound.remove(test)
                    again.append(job.number)
                    continue
                confirmed.add(test)
            yield Outcome(job.number, test, 0 if test else len(sound) - len(job.tests))
        waiting = again


def _forked(run: Callable[[Job], int], planned: Iterable[Job], directory: Path, jobs: int) -> Iterator[tuple[Job, str]]:
    """Do each job in a fork, and yield it with the test that failed, or ""."""
    waiting, running = iter(planned), dict[int, Job]()
    try:
        while True:
            while len(running) < jobs and (job := next(waiting, None)) is not None:
                (directory / str(job.number)).unlink(missing_ok=True)
                if not (process := os.fork()):
                    _run_in_fork(run, job)
                running[process] = job
            if not running:
                return
            for process, job in [*running.items()]:
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    del running[process]
                    _kill(process)                              # processes that tests left
                    yield job, _failing_test(os.waitstatus_to_exitcode(status), directory / str(job.number))
            time.sleep(0.005)
    finally:
        for process in running:
            _kill(process)


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _run_in_fork(run: Callable[[Job], int], job: Job) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    status = 1
    try:
        if job.number != NO_CHANGE:
            _redirect(Path(os.devnull))
        status = run(job)
    finally:
        os._exit(status)


def _failing_test(status: int, failed: Path) -> str:
    if status == 0:
        return ""
    if status == IN_PLACE:
        return LOADED
    if status in (-signal.SIGXCPU, -signal.SIGALRM, -signal.SIGKILL):
        return "does not end"
    return failed.read_text() if failed.exists() else f"status {status}"


def _limit(seconds: float) -> None:
    """End this process when it takes far more time than a test takes without a change, or waits far longer."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = LEAST + ceil(FACTOR * seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (ceil(used.ru_utime + used.ru_stime) + limit, resource.RLIM_INFINITY))
    signal.alarm(6 * limit + 60)


class _FirstFailure:
    """A pytest plugin that writes the name of a failing test to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.file.write_text(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.file.write_text("the import")


class _Order:
    """A pytest plugin that runs the tests of a list in its order."""

    def __init__(self, tests: list[str], known: Results) -> None:
        self.ranks = {test: rank for rank, test in enumerate(tests)}
        self.known = known

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self.ranks), key=lambda i: self.ranks[i.nodeid])

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        _limit(self.known.tests[item.nodeid].seconds or 0)


class _Collected:
    """A pytest plugin that runs the collected tests without a change and then with each, in forks."""

    def __init__(self, changes: list[Change], directory: Path, jobs: int, write: Callable[[str], object],
                 known: Results, most: float) -> None:
        self.changes, self.directory, self.jobs = changes, directory, jobs
        self.write, self.known, self.most = write, known, most
        self.codes: dict[int, CodeType] = {}                    # code that runs before the tests
        self.functions: dict[str, list[FunctionType]] = {}      # the functions of each changed file
        sys.setprofile(self.note)

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.codes[id(frame.f_code)] = frame.f_code

    def find_functions(self) -> None:
        self.functions = {path_of(change): [] for change in self.changes}
        gc.unfreeze()
        for function in gc.get_objects():
            if type(function) is FunctionType and function.__code__.co_filename in self.functions:
                self.functions[function.__code__.co_filename].append(function)
        gc.freeze()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.setprofile(None)
        if session.testsfailed:
            return True
        if recorded := self.known.recorded:
            session.items[:] = [i for i in session.items if i.nodeid in recorded or isinstance(i, RunLine)]
        self.find_functions()
        self.run_without_change(session)
        if not self.known.sound_tests():
            _run(session, session.items)                        # once more, to print the failure
            return True
        self.write(json.dumps(_libraries()) + "\n")
        before = {(code.co_filename, code.co_name, code.co_firstlineno) for code in self.codes.values()}
        replaced = []
        for number, change in enumerate(self.changes):
            function = function_of(change)
            if number in self.known.outcomes:
                continue
            if is_loaded(change) and (function is None or (path_of(change), *function) in before):
                self.write(json.dumps([number, LOADED, 0]) + "\n")
            else:
                replaced.append(number)
        items = {item.nodeid: item for item in session.items}

        def run(job: Job) -> int:
            if job.number != NO_CHANGE:
                change = self.changes[job.number]
                if not is_loaded(change):                       # a test imports it
                    sys.meta_path.insert(0, finder_of(change))
                elif not replace_code(change, self.functions[path_of(change)]):
                    return IN_PLACE
                show_children(change, self.directory / f"{job.number}.py")
            session.config.pluginmanager.register(_FirstFailure(self.directory / str(job.number)))
            session.config.pluginmanager.register(_Order(job.tests, self.known))
            return _run(session, [items[test] for test in job.tests])
        for outcome in _confirmed(run, replaced, self.directory, self.jobs, self.known, self.most):
            self.write(json.dumps([outcome.number, outcome.test, outcome.left]) + "\n")
        return True

    def run_without_change(self, session: pytest.Session) -> None:
        """Run each test that has no result, and store its seconds and the mutants whose lines it runs. A test that
        ends the process, such as by a crash, has failed."""
        def run(job: Job) -> int:
            session.config.option.maxfail = 0
            session.config.pluginmanager.register(_Reached(self.changes, self.functions, self.known))
            chosen = {*job.tests}
            return _run(session, [item for item in session.items if item.nodeid in chosen])
        while waiting := [item.nodeid for item in session.items if item.nodeid not in self.known.tests]:
            files = sorted({test.partition("::")[0] for test in waiting})
            parts = {file: number % self.jobs for number, file in enumerate(files)}
            planned = [Job(NO_CHANGE, [test for test in waiting if parts[test.partition("::")[0]] == part])
                       for part in range(self.jobs)]
            for job, _ in _forked(run, planned, self.directory, self.jobs):
                self.known.reread()
                missing = [test for test in job.tests if test not in self.known.tests]
                if missing:
                    self.known.append(Ran(missing[0], None, []))


class _Reached:
    """A pytest plugin that stores the seconds of each test and the mutants whose lines it ran."""

    def __init__(self, changes: list[Change], functions: dict[str, list[FunctionType]], known: Results) -> None:
        self.known, self.probes = known, add_probes(changes, functions)
        self.seconds: float | None = 0.0

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.seconds, self.probes[:] = 0.0, bytes(len(self.probes))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        passed = not report.failed and self.seconds is not None
        self.seconds = (self.seconds or 0) + report.duration if passed else None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.known.append(Ran(nodeid, self.seconds, [number for number, ran in enumerate(self.probes) if ran]))


def _run(session: pytest.Session, items: list[pytest.Item]) -> int:
    """Run tests up to the first failure."""
    for item, following in zip(items, [*items[1:], None]):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            return 1
    return 0


def _libraries() -> list[str]:
    """Return the modules that this process has imported from outside of the project, in that order."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items() if name != "__main__"}
    return [name for name, file in files.items()
            if file and ("site-packages" in file or not Path(file).is_relative_to(ROOT))]
