# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What was read of types and attributes: a context has equal ones once, however many operations use them.

Kept is what belongs to the context that was asked for last. A process has one for its kernels, a tool one for its file.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

_latest: tuple[Any, dict[Any, Any]] = (None, {})

T = TypeVar("T")


def table_of(context: Any) -> dict[Any, Any]:
    """What has been read in a context."""
    global _latest
    latest = _latest                # another thread may change it from here on
    if latest[0] is not context:
        latest = _latest = context, {}
    return latest[1]


def remembered(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """A function of one type or attribute, asked once for equal ones."""
    @wraps(read)
    def ask(of: Any) -> T:
        table = table_of(of.context)
        key = read, of
        if key not in table:
            table[key] = read(of)
        return table[key]
    return ask
