# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the variable or attribute that the value of a call is assigned to, from the bytecode of the calling code.

    rows = nl.ndarray(...)              "rows"
    def zeros():
        return nl.ndarray(...)
    total = zeros()                     "total"
    left, right = zeros(), zeros()      "left", "right"

The beta generation names tensors where wrapped code assigns them; the current generation runs code as it is.
"""

import ast
import dis
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

from nki_mlir.capture.locations import is_passed, user_frame
from nki_mlir.capture.source_text import shared_definition, statements_below

PASSED = ("COPY", "DUP_TOP", "EXTENDED_ARG")    # copies come from ``a = b = call()`` and ``(a := call())``
STORES = ("STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL", "STORE_ATTR")
RETURNED = ""                                   # the value goes to the caller

# By the ``id`` of the code, which the entry keeps alive: the variable, or ``RETURNED``, of each instruction whose value
# is assigned or returned.
_known: dict[int, tuple[CodeType, dict[int, str]]] = {}


def assigned_name() -> str:
    """Return the variable to which user code assigns the value of the current call; "" if it assigns the value to
    none."""
    frame: FrameType | None = user_frame(2)
    while frame is not None and not is_passed[frame.f_code.co_filename]:
        name = destinations(frame.f_code).get(frame.f_lasti)
        if name != RETURNED:
            return name or ""
        frame = frame.f_back
    return ""


def destinations(code: CodeType) -> dict[int, str]:
    """Map each instruction whose value is assigned or returned to its variable (or ``RETURNED``). The keys are the
    offsets of the instruction and of its caches."""
    if id(code) not in _known:
        names: dict[int, str] = {}
        earlier = before = 0
        instructions = list(dis.get_instructions(code))
        for instruction in instructions:
            if instruction.opname in PASSED:
                continue
            target: str | None = None
            if instruction.opname == "STORE_ATTR":          # the load of the object is in between
                before = earlier
            if instruction.opname.startswith(STORES):
                target = instruction.argval[0] if isinstance(instruction.argval, tuple) else instruction.argval
            elif instruction.opname == "RETURN_VALUE":
                target = RETURNED
            if target is not None:                  # a frame that calls a Python function is at the caches that follow
                names |= {at: target for at in range(before, instruction.offset, 2)}
            earlier, before = before, instruction.offset
        if any([i.opname.startswith("STORE_") for i in instructions]):
            names |= _of_tuples(code)
        _known[id(code)] = code, names
    return _known[id(code)][1]


def _of_tuples(code: CodeType) -> dict[int, str]:
    """Map the offsets of the calls in ``a, b = f(), g()``, and of their caches, to the variables. Bytecode stores the
    values in another order, so the source decides which variable gets which value."""
    if sys.version_info < (3, 11):
        return {}                                   # their instructions have no columns
    targets = dict(_tuple_targets(code))
    if not targets:
        return {}
    names: dict[int, str] = {}
    for number, position in enumerate(code.co_positions()):
        if position in targets:
            names[2 * number] = targets[position]
    return names


def _tuple_targets(code: CodeType) -> Iterator[tuple[tuple[int | None, ...], str]]:
    """Yield the position and the variable of each call in ``a, b = f(), g()``: a tuple assigned to a tuple of equal
    length."""
    parsed = shared_definition(code, {})
    for node in statements_below(parsed.function) if parsed is not None else ():
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(
                    values):
                for target, value in zip(targets, values):
                    if isinstance(target, ast.Name) and isinstance(value, ast.Call):
                        yield (value.lineno, value.end_lineno, value.col_offset, value.end_col_offset), target.id
