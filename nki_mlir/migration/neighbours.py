# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that import functions from each other: the arguments of all calls decide how a function is rewritten."""

from collections.abc import Mapping
from pathlib import Path

from nki_mlir.migration.facts import NumberFact
from nki_mlir.migration.modules import SourceModule
from nki_mlir.migration.names import Names


def stem(path: Path) -> str:
    """Return the name by which other files import a file."""
    return path.parent.name if path.stem == "__init__" else path.stem


def imported_files(files: list[Path], texts: Mapping[Path, str]) -> set[Path]:
    """Return those of the files with texts that some of them import, directly or by way of others."""
    by_stem = {stem(path): path for path in texts}
    imported, pending = set[Path](), list(files)
    while pending:
        parts = {part for path in Names(texts[pending.pop()]).imports.values() for part in path.split(".")[-2:]}
        new = {by_stem[part] for part in parts if part in by_stem} - imported
        imported |= new
        pending += sorted(new)
    return imported


def link(modules: Mapping[Path, SourceModule]) -> None:
    """Let the functions of each file know those that it imports from other files."""
    by_stem = {stem(path): module for path, module in modules.items()}
    for module in modules.values():
        for name, path in module.names.imports.items():
            owner, _, imported = path.rpartition(".")
            source, package = by_stem.get(owner.rpartition(".")[2]), by_stem.get(imported)
            if source is not None and source is not module:
                constant = source.kernels.globals.get(imported)
                if imported in source.functions and imported not in source.entries:
                    _share(module, name, source, imported)
                elif isinstance(constant, NumberFact):
                    module.kernels.globals[name] = constant
            elif package is not None and package is not module:
                for function in package.functions:
                    if function not in package.entries:
                        _share(module, f"{name}.{function}", package, function)


def _share(module: SourceModule, name: str, source: SourceModule, function: str) -> None:
    """Let a file know a function of another file by a name."""
    source.shared.add(function)
    module.kernels.imported[name] = source.kernels, function
    module.kernels.parameters.imported[name] = source.kernels.parameters, function


def rewrite_together(modules: Mapping[Path, SourceModule]) -> None:
    """Rewrite the functions of all files: kernels first, which show what the functions that they call get."""
    link(modules)
    for step in (SourceModule.prepare, SourceModule.rewrite_kernels, SourceModule.rewrite_others):
        for module in modules.values():
            step(module)
