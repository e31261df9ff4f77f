# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keywords that a function ignores: some are known from kernels in use, others are reported."""

import warnings
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

from nki_mlir.frontend.locations import user_location

# Undocumented ones that kernels pass; none of them changes a value, or the function reads it.
ACCEPTED = {"name", "buffer", "engine", "mode", "oob_mode", "dge_mode", "perf_mode", "lazy_initialization",
            "max_free_vec_size", "directives", "precise_schedule"}


class UnknownKeywordWarning(UserWarning):
    """A keyword that a function does not have is ignored."""


def warn_of(function: str, keyword: str, parameters: Collection[str]) -> None:
    near = get_close_matches(keyword, parameters, 1)
    hint = f"did you mean '{near[0]}'?" if near else f"it takes {', '.join(sorted(parameters))}"
    at = user_location()
    warnings.warn_explicit(f"{function} has no parameter '{keyword}', which is ignored; {hint}", UnknownKeywordWarning,
                           at.file, at.line, registry=_warned)


_warned: dict[Any, Any] = {}
