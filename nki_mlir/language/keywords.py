# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keywords that a function ignores: some are known from kernels in use, others are reported."""

import inspect
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any

from nki_mlir.frontend.locations import user_location

# Undocumented ones that kernels pass; none of them changes a value, or the function reads it.
ACCEPTED = {"name", "buffer", "engine", "mode", "oob_mode", "dge_mode", "perf_mode", "lazy_initialization",
            "max_free_vec_size", "directives", "precise_schedule"}


class UnknownKeywordWarning(UserWarning):
    """A keyword that a function does not have is ignored."""


def report_unknown(names: dict[str, Any]) -> None:
    """Let the functions of a module that ignore keywords warn of those that nobody knows."""
    for name, value in names.items():
        if inspect.isfunction(value) and value.__module__ == names["__name__"] and not name.startswith("_"):
            parameters = inspect.signature(value).parameters.values()
            if any(p.kind is p.VAR_KEYWORD for p in parameters):
                names[name] = reporting(value, {p.name for p in parameters if p.kind is not p.VAR_KEYWORD})


def reporting(function: Callable, parameters: set[str]) -> Callable:
    known = parameters | ACCEPTED

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if not keywords.keys() <= known:
            for keyword in keywords.keys() - known:
                warn_of(function.__name__, keyword, parameters)
        return function(*arguments, **keywords)
    return call


def warn_of(function: str, keyword: str, parameters: set[str]) -> None:
    near = get_close_matches(keyword, parameters, 1)
    hint = f"did you mean '{near[0]}'?" if near else f"it takes {', '.join(sorted(parameters))}"
    at = user_location()
    warnings.warn_explicit(f"{function} has no parameter '{keyword}', which is ignored; {hint}", UnknownKeywordWarning,
                           at.file, at.line, registry=_warned)


_warned: dict[Any, Any] = {}
