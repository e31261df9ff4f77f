# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which functions the scalar engine has at hand together: a set of their tables is loaded before the first of them.

That there are such sets, and how long it takes to load one, profiles show (``ControlCosts.table_load_ns``). Which
functions share one is not published. It is an assumption that what only copies, compares or multiplies needs none, and
that every other function has a set of its own.
"""

WITHOUT = frozenset(("copy", "identity", "sign", "abs", "negative", "square", "relu", "prelu"))


def table_of(function: str) -> str:
    """The set that a function needs, named after it; none: an empty name."""
    return "" if function in WITHOUT else function
