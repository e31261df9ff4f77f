# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The variable or attribute that the value of a call is assigned to, read from the bytecode of the calling code.

    rows = nl.ndarray(...)              "rows"
    def zeros():
        return nl.ndarray(...)
    total = zeros()                     "total"

The beta generation names tensors where wrapped code assigns them; the current generation runs code as it is.
"""

import dis
from types import CodeType, FrameType

from nki_mlir.capture.locations import is_passed, user_frame

PASSED = ("COPY", "DUP_TOP", "EXTENDED_ARG")    # copies are of ``a = b = call()`` and ``(a := call())``
STORES = ("STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL", "STORE_ATTR")
RETURNED = ""                                   # the value goes to the caller

# By ``id``, which nothing else gets while the code is here. Of each instruction that something follows: the variable,
# ``RETURNED``, or nothing where the value goes elsewhere.
_known: dict[int, tuple[CodeType, dict[int, str]]] = {}


def assigned_name(skip: int = 1) -> str:
    """The variable for the call that user code makes now; an empty text where its value is not assigned to one."""
    frame: FrameType | None = user_frame(skip + 1)
    while frame is not None and not is_passed[frame.f_code.co_filename]:
        name = destinations(frame.f_code).get(frame.f_lasti)
        if name != RETURNED:
            return name or ""
        frame = frame.f_back
    return ""


def destinations(code: CodeType) -> dict[int, str]:
    """Where the value of each instruction goes, by its offset and those of its caches."""
    if id(code) not in _known:
        goes: dict[int, str] = {}
        earlier = before = 0
        for one in dis.get_instructions(code):
            if one.opname in PASSED:
                continue
            target: str | None = None
            if one.opname == "STORE_ATTR":          # the load of the object stands between
                before = earlier
            if one.opname.startswith(STORES):
                target = one.argval[0] if isinstance(one.argval, tuple) else one.argval
            elif one.opname == "RETURN_VALUE":
                target = RETURNED
            if target is not None:                  # a frame that calls a Python function stands at the caches behind
                goes |= {at: target for at in range(before, one.offset, 2)}
            earlier, before = before, one.offset
        _known[id(code)] = code, goes
    return _known[id(code)][1]
