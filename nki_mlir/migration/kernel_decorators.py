# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Says in the report why the decorators of a kernel are replaced."""

import libcst as cst


def why_replaced(decorator: cst.Decorator, meaning: str, is_launched: bool) -> str:
    """Return why a kernel's decorator of that public name is replaced, or "" if it stays as it is."""
    if meaning in ("nki.benchmark", "nki.profile"):
        return f"{meaning} is removed: measure kernels with a profiler"
    if meaning.startswith("ncc."):
        return f"{meaning} is removed: the compiler of the current generation has no such directive"
    if not is_launched:
        return f"{meaning} is removed: functions that kernels call have no decorator" if meaning else ""
    if meaning == "nki.jit":
        has_options = isinstance(decorator.decorator, cst.Call) and decorator.decorator.args
        return "nki.jit has no options" if has_options else ""
    return f"{meaning} becomes nki.jit" if meaning else ""
