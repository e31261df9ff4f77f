# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the names that Python code may look up in globals, modules and objects, from its bytecode."""

import re
from functools import cache
from types import CodeType

BY_TEXT = frozenset("__dict__ __import__ attrgetter eval exec getattr globals hasattr import_module methodcaller "
                    "modules vars".split())


@cache
def global_names(code: CodeType) -> tuple[str, ...]:
    """Return the names that code may look up, also by texts in it if it has functions for that."""
    names = {*code.co_names}.union(*(global_names(c) for c in code.co_consts if isinstance(c, CodeType)))
    if not BY_TEXT.isdisjoint(names):
        for text in code.co_consts:
            if isinstance(text, str):
                names.update((text, *re.findall(r"[^\W\d]\w*", text)))
    return tuple(sorted(names))
