# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entries of caches on disk: files whose first bytes are a digest of their name and of the rest.

An entry is written completely or not at all. One whose digest differs counts as missing: its writer builds the content
again and replaces it. ``make_room`` removes the entries of all caches that were not used for the longest time.
"""

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nki_mlir.diagnostics import warn_once
from nki_mlir.files import replace, shown

DIGEST = hashlib.sha256().digest_size
MOST_BYTES = 256 << 20              # of all entries together
FOLDERS = "objects", "gpsimd"       # of the caches: compiled kernels, and the engine of custom operators
SUFFIX = ".object"
ENGINE = re.compile("[0-9a-f]{16}")     # a folder in which earlier versions kept the objects of one engine


class CacheEntryWarning(UserWarning):
    """The warning that a folder has the name of a cache's entry, which is built again in each process."""


def digest_of(file: Path, content: bytes) -> bytes:
    """Return the digest of an entry. It includes the name, so that a renamed entry is not used."""
    return hashlib.sha256(file.name.encode() + b"\0" + content).digest()


def read_entry(file: Path, most: int) -> bytes | None:
    """Return the content of an entry of at most ``most`` bytes. Return None if there is none, if it is damaged, if it
    cannot be read, and for anything that is not a regular file: a FIFO never ends."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not DIGEST <= status.st_size <= most:
            return None
        with open(descriptor, "rb", closefd=False) as entry:
            data = entry.read()
    except OSError:
        return None
    finally:
        os.close(descriptor)
    content = data[DIGEST:]
    if digest_of(file, content) != data[:DIGEST]:
        return None
    with suppress(OSError):
        os.utime(file)                  # marks the entry as used
    return content


def write_entry(file: Path, content: bytes) -> None:
    """Write an entry; do nothing if the cache cannot be written to. It replaces also a FIFO, a link or an empty folder
    of that name, and warns of a folder with files. About one of 256 new entries makes room."""
    try:
        if file.is_dir() and not file.is_symlink():
            file.rmdir()
        replace(str(file), digest_of(file, content) + content, 0o600, None)
        if file.name[:2] == "00":
            make_room(file.parent.parent)
    except OSError:
        if file.is_dir() and not file.is_symlink():
            warn_once(f"a folder has the name of a cache's entry, {shown(file)}, whose content is built again in each "
                      "process; remove the folder", CacheEntryWarning, None)


def make_room(cache: Path, most: int = MOST_BYTES) -> None:
    """Remove the least recently used entries if those of all caches in a folder are larger than ``most`` bytes
    together."""
    oldest_first = sorted(entry for folder in FOLDERS for entry in entries(cache / folder))
    total = sum(size for _, size, _ in oldest_first)
    for _, size, file in oldest_first:
        if total <= most:
            return
        if file.is_dir():
            shutil.rmtree(file, ignore_errors=True)
        else:
            file.unlink(missing_ok=True)
        total -= size


def entries(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Yield (time of last use, bytes, file) of each entry of a cache, including entries that a process left unfinished,
    and folders of engines.

    Skip entries that another process removes meanwhile, and other folders: they are not the cache's.
    """
    for file in folder.glob("*"):
        is_engine = ENGINE.fullmatch(file.name) is not None
        if not is_engine and SUFFIX not in file.name:
            continue
        try:
            status = file.lstat()
            if stat.S_ISDIR(status.st_mode) != is_engine:
                continue
            size = sum(f.stat().st_size for f in file.iterdir()) if is_engine else status.st_size
        except OSError:
            continue
        yield status.st_mtime_ns, size, file
