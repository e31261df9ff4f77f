# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run test files with each of many mutants, in forks of processes that have imported what the tests need.

A process collects the tests and runs them once without a change; then the short ones run first. For a mutant in the
body of a function it forks, and the fork replaces the function's code. The body of a function that ran during the
imports, and code outside of functions, may have left their results in other modules: such mutants are loaded in a fork
of a process that has imported the libraries alone. Files do not change, so processes that a test starts run without the
mutant; FileCheck tests run their commands in the fork (``filecheck_tests``).
"""

import ast
import gc
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from math import ceil, log10
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest

from .seeding import PACKAGE, ROOT, Change, edited

PYTEST = ["-q", "-x", "-s", "-p", "no:cacheprovider", "-p", "tools.filecheck_tests", "--rootdir", str(ROOT),
          "-c", str(ROOT / "pyproject.toml")]
FACTOR, LEAST = 10, 2       # a fork may take FACTOR times the processor time of the tests, plus LEAST seconds
IN_PLACE = 99               # the status of a fork that cannot replace the function's code
LOADED = "loaded"           # the outcome of a mutant that a new process must load


class FailingTests(SystemExit):
    """The error of tests that fail without a change."""


def outcomes(changes: list[Change], files: list[str], jobs: int, select: str = "") -> Iterator[tuple[Change, str]]:
    """Yield each change with the test that fails with it, or "". ``select`` is an expression of names, as pytest's
    ``-k``."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"                # which does not reduce failing examples
    os.environ["NKI_MLIR_CACHE"] = "off"                        # a cache takes the package's files for its sources
    arguments = [*PYTEST, "-k", select, *(str(Path(file).resolve()) for file in files)]
    for change in changes:
        _source(change.file)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        reader, writer = os.pipe()
        collector = os.fork()
        if not collector:
            os.close(reader)
            _redirect(directory / "output")
            with os.fdopen(writer, "w", buffering=1) as pipe:
                status = pytest.main(arguments, plugins=[_Collected(changes, directory, jobs, pipe.write)])
            os._exit(int(status))
        os.close(writer)
        with os.fdopen(reader) as pipe:
            lines = (json.loads(line) for line in pipe)
            loaded, environment = [], next(lines, None)
            for number, test in lines:
                if test == LOADED:
                    loaded.append(number)
                else:
                    yield changes[number], test
        os.waitpid(collector, 0)
        if environment is None:
            raise FailingTests(f"{(directory / 'output').read_text()}\nthe tests fail without a change")
        for library in environment["libraries"]:
            _import(library)

        def run(number: int) -> int:
            sys.meta_path.insert(0, _Finder(changes[number]))
            plugins = [_FirstFailure(directory / f"{number}"), _ShortFirst(directory / "seconds")]
            return int(pytest.main(arguments, plugins=plugins))
        for number, test in _forked(run, loaded, directory, environment["limit with imports"], jobs):
            yield changes[number], test


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
def _forked(run: Callable[[int], int], numbers: Iterable[int], directory: Path, limit: int, jobs: int,
            ) -> Iterator[tuple[int, str]]:
    """Run a function with each number in a fork, and yield the number and the test that failed, or ""."""
    waiting, running = iter(numbers), dict[int, tuple[int, float]]()
    while True:
        while len(running) < jobs and (number := next(waiting, None)) is not None:
            if not (process := os.fork()):
                _run_in_fork(run, number, directory, limit)
            running[process] = number, time.monotonic() + 6 * limit
        if not running:
            return
        for process, (number, end) in [*running.items()]:
            ended, status = os.waitpid(process, os.WNOHANG)
            if not ended and time.monotonic() > end:            # it waits, and takes no processor time
                os.killpg(process, signal.SIGKILL)
                ended, status = os.waitpid(process, 0)
            if ended:
                del running[process]
                with suppress(ProcessLookupError):              # processes that tests left
                    os.killpg(process, signal.SIGKILL)
                yield number, _failing_test(os.waitstatus_to_exitcode(status), directory / str(number))
        time.sleep(0.005)


def _run_in_fork(run: Callable[[int], int], number: int, directory: Path, limit: int) -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    status = 1
    try:
        _redirect(Path(os.devnull))
        status = run(number)
    finally:
        os._exit(status)


def _failing_test(status: int, failed: Path) -> str:
    if status == 0:
        return ""
    if status == IN_PLACE:
        return LOADED
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return "does not end"
    return failed.read_text() if failed.exists() else f"status {status}"


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


class _Seconds:
    """A pytest plugin that writes the seconds of each test to a file."""

    def __init__(self, file: Path) -> None:
        self.file, self.seconds = file, dict[str, float]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
        self.file.write_text(json.dumps(self.seconds))


class _ShortFirst:
    """A pytest plugin that orders tests by the seconds that a file says. Tests of about the same seconds keep their
    order, so that they share fixtures."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        seconds = json.loads(self.file.read_text())
        items.sort(key=lambda item: ceil(log10(max(seconds.get(item.nodeid, 1), 0.001)) * 2))


class _Collected:
    """A pytest plugin that runs the collected tests without a change and then with each, in forks."""

    def __init__(self, changes: list[Change], directory: Path, jobs: int, write: Callable[[str], object]) -> None:
        self.changes, self.directory, self.jobs = changes, directory, jobs
        self.write = write
        self.codes: dict[int, CodeType] = {}                    # what runs before the tests
        self.functions: dict[str, list[FunctionType]] = {}      # the functions of each changed file
        sys.setprofile(self.note)

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.codes[id(frame.f_code)] = frame.f_code

    def find_functions(self) -> None:
        self.functions = {_path(change): [] for change in self.changes}
        gc.unfreeze()
        for function in gc.get_objects():
            if isinstance(function, FunctionType) and function.__code__.co_filename in self.functions:
                self.functions[function.__code__.co_filename].append(function)
        gc.freeze()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.setprofile(None)
        if session.testsfailed:
            return True
        start = resource.getrusage(resource.RUSAGE_CHILDREN)

        def first_run(number: int) -> int:
            session.config.pluginmanager.register(_Seconds(self.directory / "seconds"))
            return _run(session)
        (_, failed), = _forked(first_run, [-1], self.directory, 600, 1)
        if failed:
            _run(session)                                       # once more, to print the failure
            return True
        _ShortFirst(self.directory / "seconds").pytest_collection_modifyitems(session.items)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        limit = LEAST + ceil(FACTOR * (end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime))
        slower = limit + ceil(FACTOR * time.process_time())
        self.write(json.dumps({"libraries": _libraries(), "limit with imports": slower}) + "\n")
        self.find_functions()
        before = {(code.co_filename, code.co_name, code.co_firstlineno) for code in self.codes.values()}
        replaced = []
        for number, change in enumerate(self.changes):
            function = function_of(change)
            if _is_loaded(change) and (function is None or (_path(change), *function) in before):
                self.write(json.dumps([number, LOADED]) + "\n")
            else:
                replaced.append(number)

        def run(number: int) -> int:
            change = self.changes[number]
            if not _is_loaded(change):                          # a test imports it
                sys.meta_path.insert(0, _Finder(change))
            elif not _replace_code(change, self.functions[_path(change)]):
                return IN_PLACE
            session.config.pluginmanager.register(_FirstFailure(self.directory / str(number)))
            return _run(session)
        for outcome in _forked(run, replaced, self.directory, limit, self.jobs):
            self.write(json.dumps(outcome) + "\n")
        return True


def _run(session: pytest.Session) -> int:
    """Run the collected tests up to the first failure."""
    for item, following in zip(session.items, [*session.items[1:], None]):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            return 1
    return 0


def _libraries() -> list[str]:
    """Return the modules that this process has imported from outside of the project, in that order."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items() if name != "__main__"}
    return [name for name, file in files.items()
            if file and ("site-packages" in file or not Path(file).is_relative_to(ROOT))]


# -- mutants -----------------------------------------------------------------------------------------------------------
def _path(change: Change) -> str:
    return str(ROOT / PACKAGE / change.file)


def _name(change: Change) -> str:
    return f"{PACKAGE}/{change.file}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _is_loaded(change: Change) -> bool:
    return _name(change) in sys.modules


@cache
def _source(file: str) -> str:
    """Return the text of a file as it is when the mutants are drawn, whatever is written to it later."""
    return (ROOT / PACKAGE / file).read_text()


def _text(change: Change) -> str:
    return edited(_source(change.file), change)


def function_of(change: Change) -> tuple[str, int] | None:
    """Return the name and first line of the outermost function whose body contains a change, or None."""
    text = _source(change.file)
    first = text.count("\n", 0, change.start) + 1
    last = text.count("\n", 0, change.end) + 1

    def search(body: list[ast.stmt]) -> tuple[str, int] | None:
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.body[0].lineno <= first and last <= (node.end_lineno or 0):
                lines = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
                return None if node.lineno == node.body[0].lineno else (node.name, min(lines))
            if isinstance(node, ast.ClassDef) and (function := search(node.body)):
                return function
        return None
    return search(ast.parse(text).body)


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Yield the codes of a module's functions and methods."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            if not constant.co_flags & 0x2:                     # a class, whose locals are not in fast slots
                yield from _functions(constant)


def _replace_code(change: Change, functions: list[FunctionType]) -> bool:
    """Replace the code of the changed function, and return whether that is possible."""
    codes = {(code.co_name, code.co_firstlineno): code
             for code in _functions(compile(_text(change), _path(change), "exec", dont_inherit=True))}
    key = function_of(change)
    changed = [f for f in functions if (f.__code__.co_name, f.__code__.co_firstlineno) == key]
    if key not in codes or any(len(f.__code__.co_freevars) != len(codes[key].co_freevars) for f in changed):
        return False
    for function in changed:
        function.__code__ = codes[key]
    return bool(changed)


class _Finder:
    """Finds a module and loads it with a change."""

    def __init__(self, change: Change) -> None:
        self.change = change

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name != _name(self.change):
            return None
        file = _path(self.change)
        return spec_from_file_location(name, file, loader=_Loader(name, file, self.change))


class _Loader(SourceFileLoader):
    def __init__(self, name: str, file: str, change: Change) -> None:
        super().__init__(name, file)
        self.change = change

    def get_code(self, fullname: str) -> CodeType:
        return compile(_text(self.change), self.path, "exec", dont_inherit=True)
