# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The files that a user names: regular ones are written whole or not at all, everything else is written to.

A rename over the target is what makes a file whole, and it would take the place of a device, a FIFO or a link as well.
"""

import errno
import linecache
import os
import re
import stat
import sys
from pathlib import Path

CACHE, CACHE_FOLDER = "NKI_MLIR_CACHE", "NKI_MLIR_CACHE_DIR"
NAME_BYTES = 200                    # of the target's name in the temporary file's, of at most 255


def shown(file: str | Path) -> str:
    """A file's name as short as it can be typed: relative where it is below the current directory."""
    absolute = os.path.abspath(file)
    try:
        relative = os.path.relpath(absolute)
    except (OSError, ValueError):           # the directory is gone; another drive
        return absolute
    return absolute if relative.startswith("..") else relative


_named: set[str] = set()            # files that the user of this process named as sources


def name_source(file: str | Path) -> None:
    """Let errors and profiles show lines of a file that the user named."""
    _named.add(os.path.abspath(file))


def is_known_source(file: str) -> bool:
    """Whether lines of a file may be shown: the user named it, or it is Python that runs here. Locations in an input
    name files as well, and what an input names is not opened."""
    if file in linecache.cache:
        return True
    whole = os.path.abspath(file)
    return whole in _named or whole in {os.path.abspath(name) for module in [*sys.modules.values()]
                                        if (name := getattr(module, "__file__", None))}


def cache_folder() -> Path:
    """Where caches are: ``NKI_MLIR_CACHE_DIR``, or what the system has for them. It need not exist.

    Raises ``OSError`` where that is below a home and there is none.
    """
    folder = os.path.expanduser(os.environ.get(CACHE_FOLDER, ""))
    if not folder:
        import platformdirs  # start-up: commands need no cache
        try:
            folder = platformdirs.user_cache_dir("nki_mlir")
        except RuntimeError as error:
            raise FileNotFoundError(errno.ENOENT, str(error)) from None
    if folder.startswith("~"):
        raise FileNotFoundError(errno.ENOENT, "no such home", folder)
    return Path(folder)


def private_folder(name: str) -> Path | None:
    """A directory of the cache that belongs to this user alone, for what is run; None where there is none."""
    if os.environ.get(CACHE, "").lower() == "off" or os.name != "posix":
        return None
    try:
        folder = cache_folder() / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:                             # no home, or a read-only one
        return None
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return None if status.st_uid != os.geteuid() or others else folder


def write_file(file: str | Path, data: str | bytes, mode: int = 0o666) -> None:
    """Write a file, through symbolic links. It keeps its mode; a new one gets ``mode`` without what the umask takes."""
    raw, name = data.encode() if isinstance(data, str) else data, os.fspath(file)
    descriptor = descriptor_of(name)
    if descriptor is not None:
        _write_to(os.dup(descriptor), raw)
        return
    there = status_of(name)
    if there is None or stat.S_ISREG(there.st_mode):
        replace(os.path.realpath(name), raw, mode, there)
    else:
        _write_to(os.open(name, os.O_WRONLY), raw)


def descriptor_of(name: str) -> int | None:
    """The open descriptor of this process that a name such as ``/dev/stdout`` stands for."""
    for _ in range(40):                                     # as many links as Linux follows
        folder, last = os.path.split(os.path.abspath(name))
        if re.fullmatch(rf"/proc/{os.getpid()}(/task/\d+)?/fd|/dev/fd", os.path.realpath(folder)) and last.isdecimal():
            return int(last)
        if not os.path.islink(name):
            return None
        name = os.path.join(folder, os.readlink(name))
    return None


def status_of(name: str) -> os.stat_result | None:
    """The status of the file behind links; a name that no file can have is an error."""
    try:
        return os.stat(name)
    except FileNotFoundError:
        if not name:
            raise
        if name.endswith(os.sep):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name) from None
        return None


def replace(target: str, raw: bytes, mode: int, there: os.stat_result | None) -> None:
    """Put a new file in the place of a regular one, or where nothing is."""
    if there is not None and not os.access(target, os.W_OK):        # a rename would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)
    folder, name = os.path.split(target)
    short = os.fsdecode(os.fsencode(name)[:NAME_BYTES])
    temporary = os.path.join(folder, f".{short}.{os.urandom(8).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        if there is not None:
            os.fchmod(handle, stat.S_IMODE(there.st_mode))
        _write_to(handle, raw)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _write_to(handle: int, raw: bytes) -> None:
    """All of it, and close."""
    with os.fdopen(handle, "wb") as out:
        out.write(raw)
