# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache of compiled code and images of kernels on disk, so that a later process need not compile them again.

``NKI_MLIR_CACHE_DIR`` names the directory (default: the user's cache directory), ``NKI_MLIR_CACHE=off`` disables the
cache. The name of an entry (``cache_entries``) is a digest of the entry's sources, of this package's sources, of the
bindings and of the host.
"""

import hashlib
import os
import sys
from functools import cache
from pathlib import Path

from nki_mlir.bindings import ir
from nki_mlir.cache_entries import MOST_BYTES, SUFFIX, read_entry, write_entry
from nki_mlir.files import private_folder
from nki_mlir.targets.runtime import host


def folder() -> Path | None:
    """Return the directory of the entries."""
    return private_folder("objects") if sys.platform == "linux" else None


@cache
def fingerprint() -> bytes:
    """Return a text that identifies all that code depends on: sources and libraries by name, size and time of change,
    and the host."""
    package, libraries = Path(__file__).parents[2], Path(ir.__file__).parent / "_mlir_libs"
    listed = [*states_of(str(package), (".py", ".mlir")), *states_of(str(libraries), ("",))]
    return repr((sorted(host.features()), host.lanes(), sorted(listed))).encode()


def states_of(directory: str, kinds: tuple[str, ...]) -> list[tuple[str, int, int]]:
    """Return (name, size, time of change) of the files in a directory, and in those below it, whose names end in one of
    ``kinds``."""
    states, folders = [], [directory]
    for folder in folders:
        with os.scandir(folder) as files:
            for entry in files:
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        folders.append(entry.path)
                elif entry.name.endswith(kinds):
                    status = entry.stat()
                    states.append((entry.path, status.st_size, status.st_mtime_ns))
    return states


def key_of(description: bytes) -> str:
    """Return the key of an entry: a digest of its inputs, without sources and host."""
    return hashlib.sha256(description).hexdigest()


def entry(key: str) -> Path | None:
    cache_folder = folder()
    if cache_folder is None:
        return None
    return cache_folder / (hashlib.sha256(fingerprint() + b"\0" + key.encode()).hexdigest() + SUFFIX)


def find(key: str) -> bytes | None:
    """Return the content of a key, if the cache has it."""
    file = entry(key)
    return None if file is None else read_entry(file, MOST_BYTES)


def store(key: str, content: bytes) -> None:
    """Add an entry. If the cache cannot be written to, nothing happens."""
    file = entry(key)
    if file is not None:
        write_entry(file, content)
