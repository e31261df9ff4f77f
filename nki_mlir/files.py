# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads and writes the files that a user names: regular ones are replaced atomically, others are written to.

A rename over a regular file makes the write atomic. It would replace a device, a FIFO or a link by a file.
"""

import errno
import linecache
import os
import re
import stat
import sys
from pathlib import Path

CACHE, CACHE_FOLDER = "NKI_MLIR_CACHE", "NKI_MLIR_CACHE_DIR"
MOST_SHOWN = 16 << 20               # bytes: errors show no lines of larger files
NAME_BYTES = 200                    # of the target's name in the temporary file's, which has at most 255


def shown(file: str | Path) -> str:
    """Return a file's name in its shortest form: relative if it is below the current directory."""
    absolute = os.path.abspath(file)
    try:
        relative = os.path.relpath(absolute)
    except (OSError, ValueError):           # the current directory is gone, or the file is on another drive
        return absolute
    return absolute if relative.startswith("..") else relative


_named: set[str] = set()            # files that the user of this process named as sources


def name_source(file: str | Path) -> None:
    """Let errors and profiles show lines of a file that the user named. To show a line, they read all of the file: a
    device has no end, a pipe waits, and a file of gigabytes fills the memory."""
    if os.path.isfile(file) and os.path.getsize(file) <= MOST_SHOWN:
        _named.add(os.path.abspath(file))


def is_known_source(file: str) -> bool:
    """Return whether lines of a file may be shown: the user named it, or it is Python that runs here. Locations in an
    input name files as well, and a file that only an input names is not opened."""
    if file in linecache.cache:
        return True
    absolute = os.path.abspath(file)
    return absolute in _named or absolute in {os.path.abspath(name) for module in [*sys.modules.values()]
                                        if (name := getattr(module, "__file__", None))}


def cache_folder() -> Path:
    """Return the folder of caches: ``NKI_MLIR_CACHE_DIR``, or the system's. It need not exist.

    Raise ``OSError`` if it is below a home and there is none.
    """
    folder = os.path.expanduser(os.environ.get(CACHE_FOLDER, ""))
    if not folder:
        import platformdirs  # start-up: commands need no cache
        try:
            folder = platformdirs.user_cache_dir("nki_mlir")
        except RuntimeError as error:
            raise FileNotFoundError(errno.ENOENT, str(error)) from None
    if folder.startswith("~"):
        raise FileNotFoundError(errno.ENOENT, "no such home folder", folder)
    return Path(folder)


def private_folder(name: str) -> Path | None:
    """Return a folder of the cache that only this user can write, for compiled code; None if there is none, or if the
    cache is off."""
    return None if os.environ.get(CACHE, "").lower() == "off" else owned_folder(name)


def owned_folder(name: str) -> Path | None:
    """Return a folder of the cache that only this user can write, also if the cache is off; None if there is none."""
    if os.name != "posix":
        return None
    try:
        folder = cache_folder() / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:                             # no home, or a read-only one
        return None
    writable_by_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return None if status.st_uid != os.geteuid() or writable_by_others else folder


def write_file(file: str | Path, data: str | bytes, mode: int = 0o666) -> None:
    """Write a file, through symbolic links. It keeps its mode; a new one gets ``mode`` without the umask's bits."""
    raw, name = data.encode() if isinstance(data, str) else data, os.fspath(file)
    descriptor = descriptor_of(name)
    if descriptor is not None:
        _write_to(os.dup(descriptor), raw)
        return
    status = status_of(name)
    if status is None or stat.S_ISREG(status.st_mode):
        replace(os.path.realpath(name), raw, mode, status)
    else:
        _write_to(os.open(name, os.O_WRONLY), raw)


def descriptor_of(name: str) -> int | None:
    """Return the open descriptor of this process that a name such as ``/dev/stdout`` refers to, else None."""
    for _ in range(40):                                     # Linux follows no more links
        folder, last = os.path.split(os.path.abspath(name))
        if re.fullmatch(rf"/proc/{os.getpid()}(/task/\d+)?/fd|/dev/fd", os.path.realpath(folder)) and last.isdecimal():
            return int(last)
        if not os.path.islink(name):
            return None
        name = os.path.join(folder, os.readlink(name))
    return None


def status_of(name: str) -> os.stat_result | None:
    """Return the status of the file behind links, None without a file; raise ``OSError`` for an impossible name."""
    try:
        return os.stat(name)
    except FileNotFoundError:
        if not name:
            raise
        if name.endswith(os.sep):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name) from None
        return None


def replace(target: str, raw: bytes, mode: int, status: os.stat_result | None) -> None:
    """Replace a regular file by a new one, or create it."""
    if status is not None and not os.access(target, os.W_OK):        # a rename would ignore the file's permissions
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)
    folder, name = os.path.split(target)
    short = os.fsdecode(os.fsencode(name)[:NAME_BYTES])
    temporary = os.path.join(folder, f".{short}.{os.urandom(8).hex()}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        error.filename = target             # the name that the user knows
        raise
    try:
        if status is not None:
            os.fchmod(handle, stat.S_IMODE(status.st_mode))
        _write_to(handle, raw)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _write_to(handle: int, raw: bytes) -> None:
    """Write all bytes, and close the descriptor."""
    with os.fdopen(handle, "wb") as out:
        out.write(raw)
