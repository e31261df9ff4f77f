# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Searches packages for modules of passes. The registry is below them, so ``nki_mlir`` itself names them.

Plugins name their packages as extensions.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import nki_mlir
from nki_mlir import extensions


def plugin_files() -> Iterator[tuple[extensions.Extension, Path]]:
    """Yield (module, file) for each module in the packages of plugins, without importing them."""
    for extension in extensions.of("passes").values():
        yield from ((extension, file) for _, file in _files(extension.module))


def files(name: str = "") -> Iterator[tuple[str, Path]]:
    """Yield (module, file) for each module in these packages, or for those of one name, without importing
    them."""
    for package in (*nki_mlir.PASS_PACKAGES, *(extension.module for extension in extensions.of("passes").values())):
        yield from _files(package, name)


def _files(package: str, name: str = "") -> Iterator[tuple[str, Path]]:
    top, *inner = package.split(".")
    spec = importlib.util.find_spec(top)
    for root in (spec and spec.submodule_search_locations) or ():
        folder = Path(root, *inner)
        named = folder / f"{name}.py"
        for file in sorted(folder.glob("*.py")) if not name else [named] if named.is_file() else []:
            yield f"{package}.{file.stem}", file
