# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads arrays from ``.npy`` files of any content, without running code that is stored in them."""

import os
import stat
from tokenize import TokenError
from typing import Literal
from zipfile import BadZipFile

import numpy as np

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.input_limits import ARRAY_BYTES

REASON = 200                        # characters of NumPy's reason, which may quote the whole header
DAMAGES = (OSError, ValueError, EOFError, MemoryError, OverflowError, TypeError, SyntaxError, RecursionError,
           TokenError, BadZipFile)  # the exceptions that NumPy raises for damaged files


class UnreadableArray(ValueError):
    """The error of a file that is not an array. Its text is a reason of one line."""


def read_array(path: str | os.PathLike[str], mmap_mode: Literal["r"] | None = None) -> np.ndarray:
    """Return the array in a ``.npy`` file, in this machine's byte order. Raise ``UnreadableArray``, or
    ``InputTooLarge`` for a file that is larger than the limit of memory.

    With ``mmap_mode`` the values stay in the file, in the file's byte order. Pipes and devices are refused: to open a
    pipe would wait for a writer, and NumPy reads only files in which it can move.
    """
    try:
        status = os.stat(path)
        if stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise UnreadableArray("cannot be read: it is not a regular file")
        if mmap_mode is None:
            ARRAY_BYTES.check(status.st_size, "the file of the array", os.fspath(path))
        array: object = np.load(path, mmap_mode, allow_pickle=False)
    except (UnreadableArray, NkiMlirError):
        raise
    except DAMAGES as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if "allow_pickle" in reason:            # NumPy's advice would run code of the file
            reason = "it is not an array of numbers in the format of numpy.save"
        reason = " ".join(reason.split())
        raise UnreadableArray("cannot be read: " + (
            reason if len(reason) <= REASON else f"{reason[:REASON]}...")) from None
    if not isinstance(array, np.ndarray):                       # an archive, which NumPy recognizes by its content
        raise UnreadableArray("the file is not an array, but an archive of arrays; write one of them with numpy.save")
    return array if mmap_mode else array.astype(array.dtype.newbyteorder("="), copy=False)
