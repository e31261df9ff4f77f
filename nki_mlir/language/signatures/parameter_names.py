# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names in the errors of op classes: the parameters that the user wrote instead of the class's fields."""

import copy
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from nki_mlir.capture.builder import Builder
from nki_mlir.capture.locations import user_frame
from nki_mlir.capture.tensor import Buffer
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.verifier import UNNAMED, HostOperand

NOT_ENGLISH = {"src", "lhs", "rhs"}             # fields that are no English words: in sentences they are names
CALLS = str(Path(__file__).with_name("binding.py"))     # its function ``call`` calls the functions of the language


def buffer_of(value: Any) -> object:
    """Return the buffer of a tile of either generation, or None for another value."""
    return getattr(getattr(value, "storage", value), "buffer", None)


def name_parameters(error: KernelError, arguments: Mapping[str, object]) -> None:
    """Replace the fields of an operation's class in its error by the parameters that the user wrote.

    Fields and parameters with the same buffer correspond in their order. In sentences, a field that is also an English
    word (``seed``, ``values``) stays, unless its shape follows.
    """
    parameters: dict[object, list[str]] = {}
    for name, value in arguments.items():
        if name not in error.fields and (buffer := buffer_of(value)) is not None:
            parameters.setdefault(buffer, []).append(name)
    renamed = {field: names.pop(0) for field, buffer in error.fields.items()
               if field not in arguments and (names := parameters.get(buffer))}
    if not renamed:
        return
    terms = "|".join(renamed.keys() & NOT_ENGLISH) or "$^"
    pattern = re.compile(rf"^(?:{'|'.join(renamed)})(?=\[|$)|\b(?:{'|'.join(renamed)})(?=\[|'|=)|\b(?:{terms})\b")
    error.values = {key: pattern.sub(lambda match: renamed[match[0]], value)
                    if isinstance(value, str) and key != "op" else value for key, value in error.values.items()}
    error.fields = {renamed.get(field, field): buffer for field, buffer in error.fields.items()}


def form_of(function: str, signature: inspect.Signature) -> str:
    """Return the call of a function with its parameters, as documents write it."""
    return f"{function}({', '.join(parameter_text(p) for p in signature.parameters.values() if p.name != 'self')})"


def call_of(function: str, signature: inspect.Signature) -> str:
    """Return the call as ``form_of`` does, for the error of a call that does not fit. That call may list the extents of
    a shape one by one."""
    text = form_of(function, signature)
    return f"{text}, where shape is one tuple" if "shape" in signature.parameters else text


def parameter_text(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is parameter.empty:
        return parameter.name
    return f"{parameter.name}={getattr(default, '__name__', None) or (repr(default) if default == '' else default)}"


def name_operand(error: HostOperand, function: str, signature: inspect.Signature, arguments: Mapping[str, object]
                 ) -> None:
    """Name the parameter for which the user passed a value, instead of the operand, in the error for a value that is
    not a tensor."""
    parameter = next((name for name, value in arguments.items() if value is error.operand), None)
    if parameter is not None and error.values["op"] == UNNAMED:
        error.values.update(operand=parameter, op=function, form=form_of(function, signature))


def error_of_call(error: KernelError, buffers: Mapping[str, Buffer]) -> KernelError:
    """Return a copy of an operation's error whose text names the parameters that the user wrote.

    A broken rule may be a warning, which no function of the language sees. So this function reads the arguments from
    the frames of the calls between the kernel and the operation.
    """
    error = copy.copy(error)
    error.fields = buffers
    kernel = user_frame()
    frame: FrameType | None = sys._getframe(1)
    while frame is not kernel and frame is not None:
        if frame.f_code.co_name == "call" and frame.f_code.co_filename == CALLS:
            state = frame.f_locals
            name_parameters(error, state["plan"].forms[0].by_name(state["arguments"][state["skip"]:],
                                                                  state["keywords"]))
        frame = frame.f_back
    return error


Builder.error_of_call = staticmethod(error_of_call)
