# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Documented signatures as tables, and signatures of functions in the form of the documents."""

import enum
import inspect
import re
from collections.abc import Callable
from typing import Any


def table(text: str) -> dict[str, str]:
    """Name -> parameters, of lines ``name(parameters)`` or ``one|other(parameters)``."""
    matches = re.findall(r"^\s*([\w|]+)\(((?:[^()]|\([^()]*\))*)\)$", text, re.MULTILINE)
    return {name: " ".join(parameters.split()) for names, parameters in matches for name in names.split("|")}


def written(default: Any) -> str:
    """A default as documents write it."""
    if isinstance(default, enum.Enum):
        return str(default)
    return getattr(default, "__name__", None) or str(getattr(default, "name", None) or repr(default))


def parameters(function: Callable) -> tuple[list[str], set[str]]:
    """(positional in order, keyword-only) parameters, each with its default; ``**ignored`` is left out."""
    positional, keyword = [], set()
    for p in inspect.signature(function).parameters.values():
        text = p.name if p.default is p.empty else f"{p.name}={written(p.default)}"
        if p.kind is p.KEYWORD_ONLY:
            keyword.add(text)
        elif p.kind is p.POSITIONAL_OR_KEYWORD:
            positional.append(text)
        else:
            assert p.kind is p.VAR_KEYWORD, p
    return positional, keyword


def documented(text: str) -> tuple[list[str], set[str]]:
    """A documented parameter list in the same form."""
    before, _, after = text.partition("*")
    parts = [[p.strip() for p in re.findall(r"(?:[^,()\[\]]|\([^()]*\)|\[[^\[\]]*\])+", half) if p.strip()]
             for half in (before, after)]
    return parts[0], set(parts[1])
