# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What was read of types and attributes: a context has equal ones once, however many operations use them.

Kept is what belongs to the context that was asked for last. A process has one for its kernels, a tool one for its file.
"""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from nki_mlir.bindings import Attribute, Context, Type

_latest: tuple[object, dict[object, object]] = (None, {})

T = TypeVar("T")
K = TypeVar("K", bound="Type | Attribute")


def table_of(context: "Context") -> dict[object, Any]:
    """What has been read in a context."""
    global _latest
    latest = _latest                # another thread may change it from here on
    if latest[0] is not context:
        latest = _latest = context, {}
    return latest[1]


def memoized(read: Callable[[K], T]) -> Callable[[K], T]:
    """A function of one type or attribute, asked once for equal ones."""
    @wraps(read)
    def ask(of: K) -> T:
        table: dict[object, T] = table_of(of.context)
        key = read, of
        if key not in table:
            table[key] = read(of)
        return table[key]
    return ask
