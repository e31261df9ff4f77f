# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Links files that import functions from each other: all calls decide how a function is rewritten."""

import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

import libcst as cst

from nki_mlir.migration.expressions import MODULE
from nki_mlir.migration.facts import NumberFact, TileClass
from nki_mlir.migration.import_graph import module_of
from nki_mlir.migration.modules import SourceModule
from nki_mlir.migration.names import Names, nodes_of

KNOWN = {"neuronxcc", "nki", "__main__", *sys.stdlib_module_names}      # packages that never count as absent


def stem(path: Path) -> str:
    """Return the name by which other files import a file."""
    return path.parent.name if path.stem == "__init__" else path.stem


def by_stem(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the files by the names by which others import them: folders of a package may have files of one name."""
    files: dict[str, list[Path]] = {}
    for path in paths:
        files.setdefault(stem(path), []).append(path)
    return files


def imported_files(files: list[Path], texts: Mapping[Path, str]) -> set[Path]:
    """Return the files that some of the files with texts import, directly or by way of others."""
    stems = by_stem(texts)
    imported, pending = set[Path](), list(files)
    while pending:
        importer = pending.pop()
        owners = {name for path in Names(texts[importer]).imports.values() for name in (path, path.rpartition(".")[0])}
        new = {file for name in owners if name and (file := module_of(name, importer, stems)) is not None} - imported
        imported |= new
        pending += sorted(new)
    return imported


def absent_helpers(importer: Path, module: SourceModule, texts: Mapping[Path, str]) -> list[tuple[int, str]]:
    """Return (line, path) of the first call, in a function on tiles, of each function whose module is neither among the
    files with texts nor installed."""
    stems, absent = by_stem(texts), dict[str, int]()
    for function in module.kernels.functions.values():
        for call in nodes_of(function, cst.Call):
            name, dot, members = MODULE.code_for_node(call.func).partition(".")
            path = module.names.imports.get(name, "")
            package = path.partition(".")[0]
            owners = [owner for owner in (path, path.rpartition(".")[0]) if owner]
            if not package or package in KNOWN or find_spec(package) is not None or any(
                    module_of(owner, importer, stems) for owner in owners):
                continue
            absent.setdefault(path + dot + members, module.line_of.get(id(call), 0))
    return [(line, path) for path, line in absent.items()]


def link(modules: Mapping[Path, SourceModule]) -> None:
    """Tell the functions of each file which functions it imports from other files."""
    stems = by_stem(modules)
    for importer, module in modules.items():
        for name, path in _imports(module, importer, modules, stems).items():
            owner, _, imported = path.rpartition(".")
            defined = _definition(owner, imported, importer, modules, stems)
            file = module_of(path, importer, stems)
            package = modules[file] if file is not None else None
            if defined is not None and defined[0] is not module:
                source, imported = defined
                constant = source.kernels.globals.get(imported)
                if imported in source.functions and imported not in source.entries:
                    if importer.stem == "__init__" and not module.is_read(name):
                        module.handed_on[name] = source, imported
                    else:
                        _share(module, name, source, imported)
                elif isinstance(constant, NumberFact):
                    module.kernels.globals[name] = constant
                elif imported in source.classes:
                    if imported in source.kernels.tile_classes:
                        _share_class(module, name, source, imported)
                    module.kernels.host_methods.add(
                        source.classes[imported], source.kernels.literals, module.names.paths)
            elif package is not None and package is not module:
                for function in package.functions:
                    if function not in package.entries:
                        _share(module, f"{name}.{function}", package, function)


def _imports(module: SourceModule, importer: Path, modules: Mapping[Path, SourceModule],
             stems: Mapping[str, list[Path]], passed: frozenset[Path] = frozenset()) -> dict[str, str]:
    """Return what each name refers to that a file imports, also by ``from module import *``."""
    paths = {name: path for name, path in module.names.imports.items() if name != "*"}
    for owner in module.names.starred:
        file = module_of(owner, importer, stems)
        if file is None or file in passed | {importer}:
            continue
        names = {*modules[file].functions, *_imports(modules[file], file, modules, stems, passed | {importer})}
        for name in sorted(names - module.functions.keys()):
            if not name.startswith("_") and "." not in name:
                paths.setdefault(name, f"{owner}.{name}")
    return paths


def _definition(owner: str, name: str, importer: Path, modules: Mapping[Path, SourceModule],
                stems: Mapping[str, list[Path]]) -> tuple[SourceModule, str] | None:
    """Return the file that defines a name of a module, and the name there. The module may import the name from another
    file, as the ``__init__.py`` of a package does. Return None if no file of ``modules`` defines the name."""
    passed = set[Path]()
    while owner and (file := module_of(owner, importer, stems)) is not None and file not in passed:
        passed.add(file)
        source = modules[file]
        if name in source.functions or name in source.kernels.globals:
            return source, name
        importer = file
        owner, _, name = _imports(source, file, modules, stems).get(name, "").rpartition(".")
    return None


def _share(module: SourceModule, name: str, source: SourceModule, function: str) -> None:
    """Let a file know a function of another file by a name."""
    source.shared.setdefault(function, []).append((module, name))
    module.kernels.imported[name] = source.kernels, function
    module.kernels.parameters.imported[name] = source.kernels.parameters, function


def _share_class(module: SourceModule, name: str, source: SourceModule, class_name: str) -> None:
    """Let a file know a class of another file, whose methods compute on tiles, by a name."""
    module.kernels.globals[name] = TileClass(name)
    module.kernels.imported_classes[name] = source.kernels, class_name
    for method in source.kernels.methods:
        if method.startswith(f"{class_name}."):
            _share(module, f"{name}.{method.partition('.')[2]}", source, method)


def rewrite_together(modules: Mapping[Path, SourceModule]) -> None:
    """Rewrite the functions of all files: first the kernels, which show the arguments of the functions that they
    call."""
    link(modules)
    for module in modules.values():
        module.prepare()
    if any(module.kernels.imported_classes for module in modules.values()):     # several files may set their attributes
        for module in modules.values():
            module.note_attributes()
        for module in modules.values():
            module.kernels.forget_rewrites()
    for step in (SourceModule.rewrite_kernels, SourceModule.rewrite_others):
        for module in modules.values():
            step(module)
