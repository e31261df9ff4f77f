# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files to migrate: their texts before and after, formatted, with a report of each."""

import ast
import os
import re
import subprocess
from codecs import BOM_UTF8
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import libcst as cst

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.input_limits import TEXT_BYTES, InputTooLarge
from nki_mlir.language.signatures.older_releases import OF_CURRENT, TENSOR
from nki_mlir.language.signatures.table import releases_with
from nki_mlir.migration.beta_forms import functions_in_beta_form
from nki_mlir.migration.equal_names import NamedTwice, with_old_names, with_unique_names
from nki_mlir.migration.import_graph import files_of_packages_beside
from nki_mlir.migration.modules import SourceModule
from nki_mlir.migration.names import Names, imported_words, lines_of_unresolved, with_named_imports
from nki_mlir.migration.neighbors import absent_helpers, imported_files, rewrite_together
from nki_mlir.migration.nesting import NestsTooDeeply, check_syntax, deepest
from nki_mlir.migration.older_texts import older
from nki_mlir.migration.python_trees import python_tree, walked
from nki_mlir.migration.releases import newest
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.spare_addresses import without_address_functions
from nki_mlir.migration.spare_methods import without_spare_methods
from nki_mlir.python_commands import format_command


class MigrationError(NkiMlirError):
    code = "NKI-MIGRATE"
    message = "{what}"
    fix = "{how}"


@dataclass
class Migrated:
    """A file with its old and its new text."""

    path: Path
    old: str
    new: str
    report: MigrationReport

    @property
    def new_lines(self) -> str:
        """The new text with the line ends of the file."""
        return self.new.replace("\n", "\r\n") if b"\r\n" in self.path.read_bytes() else self.new


def migrated(path: Path, release: str, only: Collection[Path] | None = None, exact_quotients: bool = False
             ) -> list[Migrated]:
    """Migrate a file, or all Python files of a directory together, so that a call finds the new form of a kernel in
    another file. With ``only``, migrate just these files of the directory. ``exact_quotients`` stay ``nl.divide``,
    which no device has."""
    try:
        return _migrated(path, release, only, exact_quotients)
    except (RecursionError, KeyError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, RecursionError):
            cause = cause.__context__       # the syntax library raises KeyErrors while it handles a RecursionError
        if cause is None:
            raise
        files = [path] if path.is_file() else [p for p in path.rglob("*.py") if p.is_file() and readable_text(p)]
        _, line, file = max((*deepest(ast.parse(readable_text(p))), p) for p in files)
        raise MigrationError(what="an expression or statement nests too deeply to be rewritten",
                             how="assign its parts to variables").located(Location(str(file), line, 0)) from None


def _report_beta_imports(old: str, new: str, neighbors: Mapping[Path, str], report: MigrationReport) -> None:
    """Report the imports of beta files that are not migrated, if the new text still has them."""
    still_read = {imported for _, imported in _beta_imports(new, neighbors)}
    for line, imported in _beta_imports(old, neighbors):
        if imported in still_read:
            report.add_manual(line, f"{imported} is of the beta generation, too: migrate the directory")


def _files_below(path: Path, only: Collection[Path] | None) -> list[Path]:
    """Return the files to migrate: the file, or those of the directory."""
    if not os.path.exists(path):           # Path's methods raise errors for names that are too long
        raise MigrationError(what=f"cannot read {path}: no such file or directory", how="give a file or a directory")
    if not os.path.isdir(path) and not os.path.isfile(path):        # reading a FIFO would wait for a writer
        raise MigrationError(what=f"cannot read {path}: it is not a regular file", how="give a file or a directory")
    files = sorted(only if only is not None else (p for p in path.rglob("*.py") if p.is_file() and not any(
        part.startswith(".") for part in p.parts))) if path.is_dir() else [path]
    if not files and only is None:
        raise MigrationError(what=f"{path} has no Python files", how="give a file or a directory of kernels")
    return files


def _migrated(path: Path, release: str, only: Collection[Path] | None, exact_quotients: bool) -> list[Migrated]:
    if release not in OF_CURRENT:
        raise MigrationError(what=f"there is no release {release} to migrate to",
                             how=f"choose one of {', '.join(OF_CURRENT)}")
    files = _files_below(path, only)
    texts = {file: _read(file) for file in files}
    neighbors = dict(texts)
    if path.is_file():
        neighbors |= _files_read_by(path, texts[path])
    gridded = {}
    for file, text in neighbors.items():
        if "program_id" in text and (Names(text).is_beta or functions_in_beta_form(text)) and any(
                file.stem in imported_words(other_text) for path, other_text in texts.items() if path != file):
            gridded[file.stem] = gridded_kernels(file, text)
    reports = {file: MigrationReport(str(file)) for file in files}
    beta = [file for file in files if Names(texts[file]).is_beta or functions_in_beta_form(texts[file])]
    modules, old_names = {}, {}
    for file in sorted({*beta, *imported_files(beta, neighbors)} | {f for f in files if _launched(f, texts, gridded)}):
        if file in beta:
            _refuse_texts(file, texts[file])
        report = reports.get(file) or MigrationReport(str(file), muted=1)
        text, old_names[file] = _with_unique_names(file, with_named_imports(neighbors[file]), file in texts)
        modules[file] = SourceModule(text, report, _launched(file, neighbors, gridded))
        modules[file].kernels.is_written = file in texts
        modules[file].kernels.exact_quotients = exact_quotients
        modules[file].kernels.broadcasts = release in releases_with(f"{TENSOR}.broadcast")
    rewrite_together(modules)
    results = []
    for file in files:
        new, report = texts[file], reports[file]
        if file in beta or (file in modules and (
                modules[file].kernels.rewrites or modules[file].handed_on or _launched(file, texts, gridded))):
            other_texts = [text for path, text in neighbors.items() if path != file]
            replaced = modules[file].kernels.replaced_methods
            new = with_old_names(modules[file].text(), old_names[file])
            new = without_spare_methods(new, texts[file], replaced, other_texts, report)
            report.entries = [replace(e, text=with_old_names(e.text, old_names[file])) for e in report.entries]
            new = without_address_functions(new, modules[file].kernels.address_functions, other_texts)
            functions = {with_old_names(name, old_names[file]) for name in modules[file].kernels.functions}
            _report_unresolved(with_named_imports(texts[file]), functions, report)
            for line, name in absent_helpers(file, modules[file], neighbors):
                report.add_manual(line,
                                  f"{name} is neither beside the file nor installed: migrate the directory that has it")
            _report_beta_imports(texts[file], new, {p: t for p, t in neighbors.items() if p not in texts}, report)
        before = Names(texts[file])
        new = newest(new, report, release, is_current=before.imports_nki and not before.is_beta)
        new = older(new, texts[file], report, release)
        if new != texts[file]:
            new = formatted(new, file, report)
        results.append(Migrated(file, texts[file], new, report))
    return results


def _with_unique_names(file: Path, text: str, is_written: bool) -> tuple[str, dict[str, str]]:
    """Return the text of a file whose kernels all have different names, and the old names by the new ones."""
    try:
        return with_unique_names(text)
    except NamedTwice as error:
        if not is_written:
            return text, {}
        raise MigrationError(what=str(error), how="give each kernel its own name").located(
            Location(str(file), error.line, 0)) from None


def _report_unresolved(text: str, functions: Collection[str], report: MigrationReport) -> None:
    """Report the names that nothing defines: those that kernels, and functions that they call, read are left."""
    rewritten = [range(node.lineno, (node.end_lineno or 0) + 1) for node in walked(python_tree(text)) if isinstance(
        node, ast.FunctionDef) and any(node.name == name.rpartition(".")[2] for name in functions)]
    for name, lines in sorted(lines_of_unresolved(text).items()):
        in_kernels = [line for line in lines if any(line in body for body in rewritten)]
        if in_kernels:
            report.add_manual(min(in_kernels),
                              f"the name {name}, which nothing in the file defines: import or define it")
        else:
            report.changed(min(lines), f"the name {name} stays, which nothing in the file defines; no kernel reads it")


def _launched(file: Path, texts: Mapping[Path, str], gridded: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return the kernels of other files that a file imports and whose grid becomes an argument."""
    return {name: rank for module, kernels in gridded.items() if module != file.stem
            for name, rank in kernels.items() if _imports(texts[file], module, name)}


def _read(file: Path) -> str:
    TEXT_BYTES.check(file.stat().st_size, "the file", str(file))
    if file.suffix == ".ipynb":
        raise MigrationError(what=f"{file} is a notebook", how="export its cells as Python first: jupyter nbconvert "
                                                               "--to script")
    try:
        text = file.read_text(encoding="utf-8-sig")
        check_syntax(text, str(file))
        cst.parse_module(text)
    except OSError as error:
        raise MigrationError(what=f"cannot read {file}: {error.strerror}", how="make it readable first") from None
    except UnicodeDecodeError as error:
        data = file.read_bytes()
        before = data[:error.start + len(BOM_UTF8) * data.startswith(BOM_UTF8)]
        at = Location(str(file), before.count(b"\n") + 1, len(before) - before.rfind(b"\n") - 1)
        raise MigrationError(what=f"byte 0x{data[len(before)]:02x} is not UTF-8", how="save the file as UTF-8").located(
            at) from None
    except cst.ParserSyntaxError as error:
        raise MigrationError(what=f"the file does not parse: {error.message}", how="correct its syntax first").located(
            Location(str(file), error.raw_line, error.raw_column)) from None
    except NestsTooDeeply as error:
        raise MigrationError(what=str(error), how="assign its parts to variables, or write functions for them").located(
            Location(str(file), error.line, 0)) from None
    except SyntaxError as error:
        raise MigrationError(what=f"the file does not parse: {error.msg}", how="correct its syntax first").located(
            Location(str(file), error.lineno or 1, max(0, (error.offset or 1) - 1))) from None
    return text


def _refuse_texts(file: Path, text: str) -> None:
    """Raise an error if the file executes a text that may contain a kernel, since migration does not rewrite the text.
    """
    tree = ast.parse(text)
    constants = {target.id: node.value.value for node in tree.body if isinstance(node, ast.Assign)
                 and isinstance(node.value, ast.Constant) for target in node.targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("exec", "eval")
                and node.args):
            continue
        first = node.args[0]
        executed = first.value if isinstance(first, ast.Constant) else constants.get(
            first.id) if isinstance(first, ast.Name) else None
        if not isinstance(executed, str) or re.search(r"\bn(l|isa|ki)\.", executed):
            raise MigrationError(what=f"a text that {node.func.id} runs may contain a kernel, which stays as it is",
                                 how="write its definitions into a file, and migrate that").located(
                Location(str(file), node.lineno, node.col_offset))


def _files_read_by(path: Path, text: str) -> dict[Path, str]:
    """Return the texts of the files beside the migrated one that it imports, directly or through others: all whose name
    is a word of an import. The other files of the directory are not read."""
    files = {*path.parent.glob("*.py"), *_relative_imports(path, text), *files_of_packages_beside(path, text)} - {path}
    remaining = {file for file in files if file.is_file()}
    texts: dict[Path, str] = {}
    waiting = [text]
    while waiting:
        words = {"__init__", *imported_words(waiting.pop())}
        named = sorted(file for file in remaining if file.stem in words)
        remaining.difference_update(named)
        readable = {file: other_text for file in named if (other_text := readable_text(file))}
        texts |= readable
        waiting += readable.values()
    return texts


def readable_text(file: Path) -> str:
    """Return the text of a file beside the migrated one, or "" if it cannot be read or does not parse."""
    try:
        TEXT_BYTES.check(file.stat().st_size, "the file", str(file))
        text = file.read_text(encoding="utf-8")
        check_syntax(text, str(file))
        cst.parse_module(text)
    except (InputTooLarge, OSError, UnicodeDecodeError, SyntaxError, NestsTooDeeply, cst.ParserSyntaxError):
        return ""
    return text


def gridded_kernels(file: Path, text: str) -> dict[str, int]:
    """Return the kernels of a file whose grid becomes an argument."""
    module = SourceModule(text, MigrationReport(str(file), muted=1), {})
    module.find_grids()
    return module.gridded


def _beta_imports(text: str, neighbors: Mapping[Path, str]) -> list[tuple[int, str]]:
    """Return (line, file) of each import of a file beside the migrated one that is written in the beta generation."""
    beta = {p.stem: p.name for p, neighbor in neighbors.items() if Names(neighbor).is_beta}
    lines: dict[str, int] = {}
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for module in [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]:
            if (stem := module.rpartition(".")[2]) in beta:
                lines.setdefault(beta[stem], node.lineno)
    return [(line, neighbor) for neighbor, line in lines.items()]


def _relative_imports(file: Path, text: str) -> list[Path]:
    """Return the files of other folders of its package that a file imports."""
    modules = [(node.level, (node.module or "").split("."), [a.name for a in node.names])
               for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.level > 1]
    folders = [(file.parent.joinpath(*[".."] * (level - 1), *filter(None, parts)), names)
               for level, parts, names in modules]
    return [path for folder, names in folders
            for path in (folder.with_suffix(".py"), *((folder / name).with_suffix(".py") for name in names))]


def _imports(text: str, module: str, name: str) -> bool:
    path = Names(text).paths.get(name, "")
    return path == f"{module}.{name}" or path.endswith(f".{module}.{name}")


def formatted(text: str, file: Path, report: MigrationReport) -> str:
    """Return the text as ``ruff format`` writes it with the settings of the file."""
    formatter = subprocess.run(format_command(file), input=text, capture_output=True, encoding="utf-8", check=False)
    if formatter.returncode:
        report.changed(0, "the text is not formatted, because ruff is not installed"
                       if "No module named" in formatter.stderr else f"the text is not formatted: "
                                                                     f"{formatter.stderr.strip()}")
        return text
    return formatter.stdout
