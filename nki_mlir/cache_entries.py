# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entries of caches on disk: files whose first bytes are a digest of their name and of the rest.

An entry is written completely or not at all. One whose digest differs counts as missing: its writer builds the content
again and replaces it.
"""

import hashlib
import os
import stat
from pathlib import Path

from nki_mlir.files import replace

DIGEST = hashlib.sha256().digest_size


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
    return content if digest_of(file, content) == data[:DIGEST] else None


def write_entry(file: Path, content: bytes) -> None:
    """Write an entry; do nothing if the cache cannot be written to. It replaces also a FIFO or a link of that name."""
    try:
        replace(str(file), digest_of(file, content) + content, 0o600, None)
    except OSError:
        pass
