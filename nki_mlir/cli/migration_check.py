# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compare a kernel before and after its migration: both run on every executor with the same arguments."""

import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nki_mlir import extensions
from nki_mlir.cli.agreement import TOLERANCE, largest_error, orders_explain
from nki_mlir.cli.arguments import parse_arguments
from nki_mlir.cli.command import KernelRaised, raised_at
from nki_mlir.cli.migrated_package import MigratedPackage
from nki_mlir.cli.named_values import with_values
from nki_mlir.cli.packages import package_folders
from nki_mlir.cli.source import load_kernel, run_file
from nki_mlir.diagnostics import Location, NkiMlirError, text_of
from nki_mlir.language.python_errors import fix_of
from nki_mlir.language.signatures.table import RELEASES
from nki_mlir.migration.beta_forms import as_beta, functions_in_beta_form
from nki_mlir.migration.elementwise import INVERTED
from nki_mlir.migration.files import Migrated, MigrationError, gridded_kernels, migrated, readable_text
from nki_mlir.migration.import_graph import files_of_packages_beside
from nki_mlir.migration.names import Names
from nki_mlir.migration.neighbors import imported_files

if TYPE_CHECKING:
    from nki_mlir.language.kernel import Kernel
    from nki_mlir.printing.errors import Unprintable

DIFFERS = "DIFFERS"
NARROWEST = 0.125           # the relative distance of neighboring values of float8_e4m3
DIFFERENCE = re.compile(rf"{DIFFERS}: (\w+ on \w+) by (\S+)")
CASES = ("let it return a list of (kernel, arguments) or (kernel, arguments, {name: argument}), each also with "
         "answer, tolerance at its end")


@contextmanager
def new_text_as_file(file: Migrated) -> Iterator[Path]:
    """Write the new text to a temporary file and yield its path. The modules that the file imports from its package or
    folder are migrated for it."""
    folder, packages = str(file.path.resolve().parent), package_folders(file.path)
    with tempfile.TemporaryDirectory() as directory:
        new = Path(directory) / f"{file.path.stem}_migrated.py"
        finder = MigratedPackage(packages[0], Path(directory)) if packages else None
        if finder is not None:
            new = finder.migrate(file.path.resolve(), file.new)
            sys.meta_path.insert(0, finder)
        neighbors = [] if packages else _migrated_neighbors(file, Path(directory))
        if not packages:
            new.write_text(file.new, encoding="utf-8")
        hidden = {name: sys.modules.pop(name) for name in neighbors if name in sys.modules}
        sys.path[:0] = [directory, folder]
        try:
            yield new
        finally:
            sys.path.remove(folder)
            sys.path.remove(directory)
            if finder is not None:
                sys.meta_path.remove(finder)
                for name in [n for n in sys.modules if n.split(".")[0] == finder.name]:
                    del sys.modules[name]
            for name in neighbors:
                sys.modules.pop(name, None)
            sys.modules.update(hidden)


@contextmanager
def old_file(path: Path, text: str) -> Iterator[Path]:
    """Yield the path of the old text. If its kernels have the form of the beta generation but import the current one,
    this is a temporary file that imports beta."""
    in_beta = as_beta(text) if functions_in_beta_form(text) and not package_folders(path) else ""
    if not in_beta:
        yield path
        return
    folder = str(path.resolve().parent)
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / f"{path.stem}_beta.py"
        copy.write_text(in_beta, encoding="utf-8")
        sys.path.insert(0, folder)
        try:
            yield copy
        finally:
            sys.path.remove(folder)


def _write(files: list[Migrated], old: Path, new: Path) -> None:
    """Write the new texts of a folder's files to another folder."""
    for file in files:
        copy = new / file.path.relative_to(old)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(file.new, encoding="utf-8")


def _migrated_neighbors(file: Migrated, directory: Path) -> list[str]:
    """Migrate the modules of a file's folder that it imports and that are of the beta generation, into a directory.
    Return their names."""
    folder, packages = file.path.resolve().parent, files_of_packages_beside(file.path, file.old)
    texts = {path: text for path in (*folder.glob("*.py"), *packages) if path != file.path.resolve() and path.is_file()
             and (text := readable_text(path))}
    imported = imported_files([file.path.resolve()], {**texts, file.path.resolve(): file.old})
    if not any(Names(texts.get(path, "")).is_beta for path in imported):
        return []
    copied_files = {path for path in imported if Names(texts.get(path, "")).is_beta} | {*packages}
    old = directory / "old"
    for path in (*copied_files, file.path.resolve()):
        copy = old / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(texts.get(path, "" if path in copied_files else file.old), encoding="utf-8")
    _write([m for m in migrated(old, RELEASES[-1]) if m.path.name != file.path.name], old, directory)
    parts = [path.relative_to(folder).with_suffix("").parts for path in copied_files]
    return sorted({".".join(names[:k + 1]) for names in parts for k in range(len(names))})


def check(file: Migrated, name: str, texts: list[str], grid: tuple[object, ...]) -> list[str]:
    """Compare the old and the new kernel on each executor. Return a line for each, which begins with ``DIFFERS`` if
    values differ and with ``FAILS`` if a kernel raises an error."""
    suffix = f":{name}" if name else ""
    with old_file(file.path, file.old) as old_path:
        old = load_kernel(f"{old_path}{suffix}", grid=grid)
        with new_text_as_file(file) as path:
            new = load_kernel(f"{path}:{old.__name__}")
            parsed = parse_arguments(texts)
            (positional, keywords), (again, new_keywords) = (with_values(k, *parsed) for k in (old, new))
            grid_argument: dict[str, object] = {"grid": grid} if grid and takes_grid(file, old.__name__) else {}
            if grid and not grid_argument:
                new = new[grid]
            return on_all_executors(old, new, positional, keywords, {**new_keywords, **grid_argument}, again)


def printed_kernel(file: Migrated, name: str, texts: list[str], grid: tuple[object, ...], release: str
                   ) -> tuple[str, str]:
    """Return the name of a file's kernel, and its text printed from the IR that such arguments capture."""
    from nki_mlir.printing.kernel import kernel_text  # start-up: needed where lines are left
    with old_file(file.path, file.old) as path:
        kernel = load_kernel(f"{path}:{name}" if name else str(path), grid=grid)
        positional, keywords = with_values(kernel, *parse_arguments(texts))
        specialization = kernel.lower(*positional, **keywords).specialization
    return kernel.__name__, kernel_text(specialization.program_modules, release=release, file=file.path)


def printed_cases(file: Migrated, names: Collection[str], release: str) -> "dict[str, str | Unprintable]":
    """Return the texts of a file's kernels, by name, printed from the IR that the arguments of ``cases()`` capture; an
    error instead of the text of a kernel that is not printable, or whose texts differ from case to case. A kernel that
    raises an error in a case has no text: the check reports the error."""
    from nki_mlir.printing.errors import Unprintable  # start-up: needed where lines are left
    from nki_mlir.printing.kernel import kernel_text  # start-up: needed where lines are left
    texts: dict[str, str | Unprintable] = {}
    failing = set[str]()
    with old_file(file.path, file.old) as path:         # a capture reads the source
        for kernel, positional, keywords in cases_of(run_file(path), file.path):
            if (name := kernel.__name__) in names:
                try:
                    specialization = kernel.lower(*copied(positional), **keywords).specialization
                except Exception as error:
                    if not isinstance(error, NkiMlirError) and raised_at(error) is None:
                        raise                       # a defect of the toolchain
                    failing.add(name)
                    continue
                try:
                    text = kernel_text(specialization.program_modules, release=release, file=file.path)
                except Unprintable as error:
                    texts[name] = error
                    continue
                if (first := texts.setdefault(name, text)) != text and isinstance(first, str):
                    refusal = Unprintable(what=f"one text of {name} for the several arguments of cases()",
                                          fix="give the arguments of one call after --check")
                    texts[name] = refusal
                    refusal.located(Location(str(file.path), kernel.func.__code__.co_firstlineno, 0))
    return {name: text for name, text in texts.items() if name not in failing}


def takes_grid(file: Migrated, name: str) -> bool:
    """Return whether the migrated kernel takes its grid as an argument."""
    return name in gridded_kernels(file.path, file.old)


def check_cases(file: Migrated) -> list[str]:
    """Compare each kernel that ``cases()`` of the file returns, with its arguments. Return a line for each kernel and
    executor."""
    with old_file(file.path, file.old) as old_path:
        old = run_file(old_path)
        with new_text_as_file(file) as path:
            new = run_file(path)
            cases = list(zip(cases_of(old, file.path), cases_of(new, path), strict=True))
            return [line for (kernel, positional, keywords), (migrated, again, new_keywords) in cases
                    for line in on_all_executors(
                        kernel, migrated, positional, keywords,
                        {n: with_arrays_of(keywords.get(n, value), value) for n, value in new_keywords.items()},
                        with_arrays_of(positional, again))]


def with_explained_quotients(file: Migrated, lines: list[str], compare: Callable[[Migrated], list[str]]) -> list[str]:
    """Return the lines of a check. A difference of at most one step of 8-bit floats counts as equal if the kernel has
    the same values with quotients in the place of products with reciprocals, whose last bit may decide how a narrow
    dtype rounds."""
    if not any(line.startswith(DIFFERS) for line in lines) or all(e.text != INVERTED for e in file.report.entries):
        return lines
    exact_file, = migrated(file.path, RELEASES[-1], exact_quotients=True)
    return [_explained(line, exact) for line, exact in zip(lines, compare(exact_file), strict=True)]


def _explained(line: str, exact: str) -> str:
    """Return a line of a check, given that of the same run with exact quotients."""
    match = DIFFERENCE.fullmatch(line)
    if match is None or float(match[2]) > NARROWEST or exact != f"{match[1]}: the same values":
        return line
    return f"{match[1]}: the same values within {match[2]}; with nl.divide for the reciprocals they are equal"


def cases_of(names: dict[str, object], path: Path) -> list[tuple[Any, list[object], dict[str, object]]]:
    """Return the cases that ``cases()`` of a file returns, in the form of ``case_of``. Raise MigrationError if they are
    not a list."""
    function = names.get("cases")
    if not callable(function):
        raise MigrationError(what=f"{path} has no function cases", how="give the arguments after --check")
    cases = function()
    if not isinstance(cases, (list, tuple)) or not cases:
        raise MigrationError(what=f"cases() of {path} returns {'no case' if cases in ([], ()) else f'{cases!r:.80}'}",
                             how=CASES)
    return [case_of(case, path) for case in cases]


def case_of(case: object, path: Path) -> tuple[Any, list[object], dict[str, object]]:
    """Return the kernel of a case, its positional and its keyword arguments. They include arguments that the case's
    ``functools.partial`` binds, such as the grid of a migrated kernel. The answer and the tolerance of a case of the
    examples do not count. Raise MigrationError for any other form."""
    from nki_mlir.language.current.kernel import Simulation  # start-up: needed for a check
    from nki_mlir.language.kernel import Kernel
    kernel: Any
    kernel, positional, keywords = case[:3] if isinstance(case, tuple) and len(case) in (3, 5) else (
        *case[:2], {}) if isinstance(case, tuple) and len(case) in (2, 4) else (None, None, None)
    first: tuple[object, ...] = ()
    bound: dict[str, object] = {}
    if isinstance(kernel, partial):
        kernel, first, bound = kernel.func, kernel.args, kernel.keywords
    if isinstance(kernel, Simulation):          # the new form of a kernel with mode="simulation"
        kernel = kernel.kernel
    if not isinstance(kernel, Kernel) or not isinstance(positional, (tuple, list)) or not isinstance(keywords, dict):
        raise MigrationError(what=f"cases() of {path} returns {case!r:.80}", how=CASES)
    return kernel, [*first, *positional], {**bound, **keywords}


def with_arrays_of(old: Any, new: Any) -> Any:
    """Return the arguments of a case of the new file, but with the old file's arrays, because arrays may be random.
    Functions, enums and objects stay the new file's."""
    if isinstance(old, (list, tuple)) and type(old) is type(new) and len(old) == len(new) and not hasattr(
            old, "_fields"):
        return type(old)(map(with_arrays_of, old, new))
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return {name: with_arrays_of(value, new[name]) for name, value in old.items()}
    return old if isinstance(old, (np.ndarray, int, float)) or hasattr(old, "__array__") else new


def copied(values: list[object]) -> tuple[object, ...]:
    """Copy the arrays, so that a kernel's writes stay in the copies."""
    return tuple(v.copy() if isinstance(v, np.ndarray) else v for v in values)


def flat(result: object) -> list[np.ndarray]:
    """Return the arrays of a result, flattened."""
    parts = result if isinstance(result, (tuple, list)) else [result]
    return [a for part in parts for a in (flat(part) if isinstance(part, (tuple, list)) else [np.asarray(part)])]


def on_all_executors(old: "Kernel", new: "Kernel", positional: list[object], keywords: dict[str, object],
                     new_keywords: dict[str, object], again: list[object] | None = None) -> list[str]:
    """Compare the results of two kernels on each executor and return a line for each. An error that an earlier executor
    raised is not repeated."""
    lines: list[str] = []
    errors: dict[str, str] = {}             # the text of an error, and the first executor that raised it
    for on in extensions.EXECUTORS:
        head, mark, error = compared(old, new, positional, keywords, new_keywords, on, again).partition(" kernel: ")
        first = errors.setdefault(error, on) if mark else on
        lines.append(f"{head}{mark}{error}" if first == on else f"{head}{mark}the same error as on {first}")
    return lines


def compared(old: "Kernel", new: "Kernel", positional: list[object], keywords: dict[str, object],
             new_keywords: dict[str, object], on: str, again: list[object] | None = None) -> str:
    """Compare the results of two kernels on an executor and return a line about them, or the error of one of them. The
    new kernel gets the arguments ``again``, if there are any."""
    label, version = f"{old.__name__} on {on}", "old"
    try:
        before = flat(old.run(copied(positional), keywords, on))
        version = "new"
        after = flat(new.run(copied(positional if again is None else again), new_keywords, on))
    except Exception as error:
        if not isinstance(error, NkiMlirError) and (at := raised_at(error)) is None:
            raise                               # a defect of the toolchain
        shown = error if isinstance(error, NkiMlirError) else KernelRaised(
            kind=type(error).__name__, text=text_of(error), instead=fix_of(error)).located(at)
        return f"FAILS: {label}, the {version} kernel: {shown}"
    if [(a.shape, a.dtype) for a in before] != [(a.shape, a.dtype) for a in after]:
        return (f"{DIFFERS}: {label} gives {', '.join(f'{a.dtype}{list(a.shape)}' for a in after)}, "
                f"not {', '.join(f'{a.dtype}{list(a.shape)}' for a in before)}")
    worst = largest_error(before, after)
    if worst > TOLERANCE and on == "jit" and orders_explain(before, after):
        return f"{label}: the same values within {worst:.1g}; native code adds in another order"
    if worst > TOLERANCE:
        return f"{DIFFERS}: {label} by {worst:.3g}"
    return f"{label}: {'the same values' if not worst else f'the same values within {worst:.1g}'}"
