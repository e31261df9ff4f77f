# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of attributes: read from the text of the custom form, and written in the generic form."""

import ast
import re
from dataclasses import dataclass
from math import inf, isinf, isnan

import numpy as np

from nki_mlir.custom_form.lexing import NAME

SINGLE = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?f")       # a number that is rounded to float32


# -- values ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RawAttribute:
    """The text of an attribute that is not a plain value of its kind."""

    text: str


def plain_value(text: str, kind: type) -> object:
    """Return the value of an attribute's text."""
    if kind is str:
        return ast.literal_eval(text) if re.fullmatch(r'"[^"\\]*"', text) else (
            text if NAME.fullmatch(text) else RawAttribute(text))
    if kind is bool and text in ("true", "false"):
        return text == "true"
    try:
        if kind is int:
            return int(text)
        if kind is float:
            return float(np.float32(text[:-1])) if SINGLE.fullmatch(text) else float(text)
        if kind is tuple:
            value = ast.literal_eval(text)
            return _as_tuple(value) if isinstance(value, list) else RawAttribute(text)
    except (ValueError, SyntaxError):
        pass
    return RawAttribute(text)


def _as_tuple(value: object) -> object:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def float_text(value: float) -> str:
    """Return the text of a number. A number of float32 is the shortest decimal that rounds to it in float32, with the
    suffix ``f``, if that is shorter: 0.3f, not 0.30000001192092896."""
    text = repr(value)
    with np.errstate(over="ignore"):
        single = np.float32(value)
    short = str(single) + "f"
    return short if len(short) < len(text) and float(single) == value and SINGLE.fullmatch(short) else text


def generic_value(value: object, kind: type) -> str:
    """Return a value as an attribute of the generic form."""
    match value:
        case RawAttribute(text):
            return text
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case _ if kind is float:
            return generic_float(float(value))          # type: ignore[arg-type]
        case int():
            return f"{value} : i64"
        case tuple():
            return "[" + ", ".join(generic_value(v, type(v)) for v in value) + "]"
        case float():
            return generic_float(value)
    return str(value)


def generic_float(value: float) -> str:
    """Return a number as MLIR writes it: with a point, or its bits if it is not finite."""
    if isnan(value):
        return "0x7FF8000000000000 : f64"
    if isinf(value):
        return f"0x{'7FF' if value == inf else 'FFF'}0000000000000 : f64"
    mantissa, exponent = (repr(value).split("e") + [""])[:2]
    return (mantissa if "." in mantissa else mantissa + ".0") + (f"e{exponent}" if exponent else "") + " : f64"


def quoted(text: str) -> str:
    """Return a string as MLIR writes it."""
    return text if text.startswith('"') else f'"{text}"'
