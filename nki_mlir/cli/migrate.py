# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-migrate``: rewrite a kernel's source for the newest release of the current generation.

The report goes to standard error: a line for each change with its reason, then a line for each construct that a
person has to rewrite. If there is one, the exit status is 1.
"""

import argparse
import ast
import difflib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nki_mlir.alone import uncollected
from nki_mlir.cli.command import CommandParser, add_common, command_line, exit_status

if TYPE_CHECKING:
    from nki_mlir.migration.files import Migrated
    from nki_mlir.printing.errors import Unprintable


def parser() -> argparse.ArgumentParser:
    p = CommandParser(
        prog="nki-migrate", description="Rewrite kernels of the beta generation, or of an older release of the current "
        "one, to a release of the current generation. Comments, helper functions and control flow stay.")
    p.add_argument("source",
                   help="rewrite FILE.py, a directory, or FILE.py:KERNEL, for which --check checks only the kernel")
    add_common(p)
    where = p.add_mutually_exclusive_group()
    where.add_argument("-o", dest="output", default="-", metavar="FILE", help="write to FILE, not to standard output")
    where.add_argument("--in-place", action="store_true", help="overwrite the files")
    where.add_argument("--diff", action="store_true", help="print the difference instead of the file")
    p.add_argument("--release", default="2.32", help="write for this release, 2.27 to 2.32 (default)")
    p.add_argument("--check", nargs="+", metavar="ARG",
                   help="run the old and the new kernel on all executors with these arguments (as --arg of nki-run) "
                        "and compare their results; print a kernel from IR if its text cannot be rewritten; with the "
                        "word cases, take kernels and arguments from the function cases() of the file")
    p.add_argument("--grid", default="", metavar="N,M", help="set the launch grid of the kernel that --check runs")
    p.add_argument("--quiet", action="store_true",
                   help="print only the lines that you must rewrite yourself, not the changes")
    return p


def main(arguments: list[str] | None = None) -> int:
    """Run ``nki-migrate`` and return its exit status."""
    options = parser().parse_args(command_line(arguments))
    with uncollected():         # without the lock of ``alone``: a check runs programs that meet on threads
        return exit_status(lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Migrate, report, check and write. Write nothing if a file cannot be read."""
    from nki_mlir.cli.arguments import parse_grid  # start-up: imported on first use
    from nki_mlir.cli.source import SourceError, write_output
    try:
        from nki_mlir.migration import files  # start-up: loads the syntax library, which may be missing
    except ModuleNotFoundError as error:
        raise SourceError(f"nki-migrate needs {error.name}: pip install 'nki_mlir[migrate]'") from None
    path, _, kernel = options.source.rpartition(":") if ".py:" in options.source else (options.source, "", "")
    grid = parse_grid(options.grid)
    migrated_files = files.migrated(Path(path), options.release)
    if kernel and not any(kernel in names_of(file.old) for file in migrated_files):
        raise files.MigrationError(what=f"{path} has no kernel {kernel}", how="give the name of a function of the file")
    if options.check:
        migrated_files = [with_printed(file, kernel, options.check, grid, options.release) for file in migrated_files]
    if len(migrated_files) != 1 and options.output != "-":
        raise files.MigrationError(what="-o takes one file", how="use --in-place for a directory")
    status = 0
    for file in migrated_files:
        changes = [line for line in str(file.report).splitlines()
                   if line and not (options.quiet and "left for a person" not in line)]
        if changes:
            print("\n".join(changes), file=sys.stderr)
        status |= not file.report.is_complete
    if options.check:
        status |= checked(migrated_files, kernel, options.check, grid)
    locked = [f.path for f in migrated_files if f.new != f.old and not os.access(f.path, os.W_OK)]
    if options.in_place and locked:
        raise files.MigrationError(what=f"cannot write {locked[0]}: no file has changed",
                                   how="give yourself the permission to write it")
    for file in migrated_files:
        if options.diff:
            difference = difflib.unified_diff(file.old.splitlines(True), file.new.splitlines(True), str(file.path),
                                         f"{file.path} (new)")
            write_output("-", "".join(difference))
        elif options.in_place:
            if file.new != file.old:
                write_output(str(file.path), file.new_lines)
        else:
            if file.new != file.old and options.output != "-" and Path(options.output).parent != file.path.parent:
                file.new = files.formatted(file.new, Path(options.output), file.report)
            write_output(options.output, file.new_lines)
    return status


def names_of(text: str) -> set[str]:
    """Return the names that the statements of a module bind."""
    statements = ast.parse(text).body
    return {s.name for s in statements if isinstance(s, ast.FunctionDef | ast.ClassDef)} | {
        n.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} | {
        a.asname or a.name for s in statements if isinstance(s, ast.Import | ast.ImportFrom) for a in s.names}


def with_printed(file: "Migrated", kernel: str, arguments: list[str], grid: tuple[object, ...], release: str
                 ) -> "Migrated":
    """Replace a kernel whose text has constructs left by its printed IR for such arguments, or all such kernels if the
    arguments are those of ``cases()``. Return the file unchanged if none is left or a kernel is not printable."""
    from nki_mlir.cli import migration_check as check  # start-up: loads executors
    from nki_mlir.migration.printed_kernel import left_kernels, with_printed_kernel
    from nki_mlir.printing.errors import Unprintable
    unfinished = left_kernels(file)
    if not unfinished or (kernel and kernel not in unfinished) or (arguments == ["cases"] and not has_cases(file)):
        return file
    names = [kernel] if kernel else unfinished
    try:
        if arguments == ["cases"]:
            for name, result in check.printed_cases(file, names, release).items():
                if isinstance(result, Unprintable):
                    report_unprintable(file, result)
                else:
                    file = with_printed_kernel(file, name, result, "the arguments of cases()")
            return file
        name, printed = check.printed_kernel(file, kernel, arguments, grid, release)
    except Unprintable as error:
        report_unprintable(file, error)
        return file
    return with_printed_kernel(file, name, printed, " ".join(arguments)) if name in unfinished else file


def report_unprintable(file: "Migrated", error: "Unprintable") -> None:
    """Report why a kernel with lines that are left is not printed from IR either."""
    file.report.add_manual(error.at.line if error.at is not None else 0, f"it is not printed from IR: {error.headline}")


def has_cases(file: "Migrated") -> bool:
    """Return whether a file defines ``cases()``."""
    return "def cases(" in file.old


def checked(migrated_files: "list[Migrated]", kernel: str, arguments: list[str], grid: tuple[object, ...]) -> int:
    """Compare values before and after, and print a line for each executor. Return 1 if values differ or a kernel raises
    an error."""
    from nki_mlir.cli import migration_check as check  # start-up: loads executors
    if arguments == ["cases"] and len(migrated_files) > 1:
        migrated_files = list(filter(has_cases, migrated_files)) or migrated_files

    def compared(file: "Migrated") -> list[str]:
        return check.check_cases(file) if arguments == ["cases"] else check.check(file, kernel, arguments, grid)
    lines = [line for file in migrated_files for line in check.with_explained_quotients(file, compared(file), compared)]
    print("\n".join(lines), file=sys.stderr)
    return int(any(line.startswith(("DIFFERS", "FAILS")) for line in lines))


if __name__ == "__main__":
    sys.exit(main())
