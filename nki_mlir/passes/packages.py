# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The packages whose modules are searched for passes. The registry is below them, so they are registered by name.

Plugins name their packages as extensions.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from nki_mlir import extensions

PACKAGES: list[str] = []


def register(*packages: str) -> None:
    """Search these packages for passes, too, after those that are registered already."""
    PACKAGES.extend(package for package in packages if package not in PACKAGES)


def plugin_files() -> Iterator[tuple[extensions.Extension, Path]]:
    """Yield (module, file) for each module in the packages of plugins, without importing them."""
    for extension in extensions.of("passes").values():
        yield from ((extension, file) for _, file in _files(extension.module))


def files() -> Iterator[tuple[str, Path]]:
    """Yield (module, file) for each module in the registered packages, without importing them."""
    for package in (*PACKAGES, *(extension.module for extension in extensions.of("passes").values())):
        yield from _files(package)


def _files(package: str) -> Iterator[tuple[str, Path]]:
    top, *inner = package.split(".")
    spec = importlib.util.find_spec(top)
    for root in (spec and spec.submodule_search_locations) or ():
        for file in sorted(Path(root, *inner).glob("*.py")):
            yield f"{package}.{file.stem}", file
