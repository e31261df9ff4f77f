# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run-time indices out of bounds as the documents have them: exactly ``IndexError``, with the text of NumPy's."""

from collections.abc import Iterator
from contextlib import contextmanager

from nki_mlir.dialects.nisa.indirect import IndirectOutOfBounds


@contextmanager
def plain_index_errors() -> Iterator[None]:
    """The error with its place and advice is the cause of the one that is raised."""
    try:
        yield
    except IndirectOutOfBounds as error:
        raise plain(error) from error


def plain(error: IndirectOutOfBounds) -> IndexError:
    made = IndexError(error.headline)
    made.at, made.code = error.at, error.code           # type: ignore[attr-defined]
    return made
