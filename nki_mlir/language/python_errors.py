# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fixes for Python's errors that a kernel's code raises, such as ``UnboundLocalError``: Python's text has none.

The error stays the one that Python raised; a note, which tracebacks and commands print, has the fix.
"""

import re
from collections.abc import Sequence

from nki_mlir.capture.tracebacks import is_defect

# The class, Python's text (3.10 and later), and the fix
FIXES: Sequence[tuple[type[Exception], str, str]] = (
    (NameError, r"(?:cannot access (?:local|free) variable|local variable|free variable) '(\w+)'.*",
     "assign {0} on every path that leads here: before the condition or the loop that may assign it"),
    (NameError, r"name '(nl|nisa|nki)' is not defined.*", "import it: {import}"),
    (NameError, r"name 'np' is not defined.*", "import it: import numpy as np"),
    (NameError, r"name '(\w+)' is not defined.*", "assign or import {0}, or write the name that you mean"),
    (TypeError, r"unsupported operand type\(s\) for .*'NoneType'.*|'NoneType' object .*|bad operand type .*'NoneType'"
                r"|.* not supported between instances of .*'NoneType'.*|argument of type 'NoneType' .*"
                r"|cannot unpack non-iterable NoneType object|object of type 'NoneType' has no len\(\)",
     "a value is None here: assign a tensor or a number to it, or pass one for the parameter"),
    (TypeError, r"'(int|float)' object is not iterable", "iterate over a range, for example nl.affine_range(n)"),
    (ZeroDivisionError, r".*", "check the divisor, which is 0 for these shapes or constants; -(-a // b) rounds up"),
    (IndexError, r"tuple index out of range",
     "index a dimension that the shape has: x.shape[k] needs a k below len(x.shape)"),
    (IndexError, r"(list|string|range object) .*index out of range|pop from empty list",
     "use an index below the length, len(...)"),
    (ValueError, r"(?:not enough|too many) values to unpack.*",
     "assign to as many names as there are values: a shape has an extent for each dimension, a tile a row for each "
     "partition"),
    (TypeError, r"can only concatenate (?:list|tuple) .*",
     "compute with each element: [t + 1 for t in tiles]; two lists are joined by +"),
)
IMPORTS = {"nl": "import nki.language as nl", "nisa": "import nki.isa as nisa", "nki": "import nki"}


def fix_of(error: BaseException) -> str:
    """Return the fix of an error of Python that a kernel's code raised; "" if there is none to say."""
    for kind, pattern, fix in FIXES:
        if isinstance(error, kind) and (match := re.fullmatch(pattern, str(error), re.DOTALL)):
            return fix.format(*match.groups(), **{"import": IMPORTS.get(match[1], "") if match.re.groups else ""})
    return ""


def with_fix(error: Exception) -> Exception:
    """Add the fix of an error of Python as a note, and return the error. An error of the toolchain stays unchanged."""
    fix = fix_of(error)
    if fix and hasattr(error, "add_note") and not is_defect(error) and f"fix: {fix}" not in getattr(error, "__notes__",
                                                                                                 ()):
        error.add_note(f"fix: {fix}")
    return error
