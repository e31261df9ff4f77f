# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the packages of a file: a file that imports from its package runs as a module of the package."""

import ast
from importlib import import_module
from pathlib import Path


def package_folders(file: Path) -> list[Path]:
    """Return the folders of the packages around a file that imports from them, from the outermost on; [] for a file
    without relative imports and without imports from the outermost package, or one that does not parse. Raise
    ``OSError`` if the file cannot be read."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    depth = max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)
    folders: list[Path] = []
    folder = file.resolve().parent
    while folder.name and (len(folders) < depth or (folder / "__init__.py").is_file()):
        folders.insert(0, folder)
        folder = folder.parent
    return folders if depth or (folders and any(_names_package(n, folders[0].name) for n in ast.walk(tree))) else []


def _names_package(node: ast.AST, package: str) -> bool:
    """Return whether a node imports from a package, also by a name that the run has."""
    match node:
        case ast.Import(names=names):
            return any(item.name.split(".")[0] == package for item in names)
        case ast.ImportFrom(level=0, module=str(module)):
            return module.split(".")[0] == package
        case ast.Call(args=[ast.Constant(value=str(module)), *_]) if ast.unparse(node.func).endswith("import_module"):
            return module.startswith((".", f"{package}."))
    return False


def module_name(file: Path, folders: list[Path]) -> str:
    """Return the name of a file as a module of these packages, and import the packages."""
    name = ".".join(folder.name for folder in folders)
    if name:
        import_module(name)
    return f"{name}.{file.stem}" if name else file.stem
