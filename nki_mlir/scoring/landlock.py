# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Landlock of Linux: restrict a process and its children to the files below some directories.

It also prevents TCP, signals to outside processes and debugging them, if the system's kernel supports that.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446        # system calls, the same on all processors
VERSION_FLAG, PATH_BENEATH, NO_NEW_PRIVILEGES = 1, 1, 38
EXECUTE, READ_FILE, READ_DIRECTORY, WRITE_FILE, TRUNCATE = 1 << 0, 1 << 2, 1 << 3, 1 << 1, 1 << 14
OF_FILES = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | 1 << 15           # the other rights apply to directories
READS = EXECUTE | READ_FILE | READ_DIRECTORY
FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}     # by version
TCP, SCOPES = 3, 3


class RulesetAttributes(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """Return Landlock's version in the system's kernel, or 0 without Landlock."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, VERSION_FLAG)))


def restrict(readable: Sequence[Path], writable: Sequence[Path]) -> bool:
    """Restrict this process to these files and directories. Return False if the system's kernel cannot. Raise
    ``OSError``."""
    supported = version()
    if not supported:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    handled = max(rights for first, rights in FILE_RIGHTS.items() if first <= supported)
    attributes = RulesetAttributes(handled, TCP if supported >= 4 else 0, SCOPES if supported >= 6 else 0)
    size = 24 if supported >= 6 else 16 if supported >= 4 else 8
    ruleset = checked(libc.syscall(CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0))
    for paths, rights in ((readable, READS), (writable, handled & ~EXECUTE)):
        for path in paths:
            try:
                parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            allowed = rights & handled if path.is_dir() else rights & handled & OF_FILES
            rule = PathBeneath(allowed, parent)
            checked(libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0))
            os.close(parent)
    checked(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    checked(libc.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    return True


def checked(result: int) -> int:
    """Return the result of a system call. Raise ``OSError`` if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
