# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of packages: a file with relative imports runs as a module of the package that it is in."""

import ast
from importlib import import_module
from pathlib import Path


def package_folders(file: Path) -> list[Path]:
    """Return the folders of the packages around a file with relative imports, from the outermost on; [] for a file
    without relative imports, or one that does not parse."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    depth = max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)
    folders: list[Path] = []
    folder = file.resolve().parent
    while depth and folder.name and (len(folders) < depth or (folder / "__init__.py").is_file()):
        folders.insert(0, folder)
        folder = folder.parent
    return folders


def module_name(file: Path, folders: list[Path]) -> str:
    """Return the name of a file as a module of these packages, and import the packages."""
    name = ".".join(folder.name for folder in folders)
    if name:
        import_module(name)
    return f"{name}.{file.stem}" if name else file.stem
