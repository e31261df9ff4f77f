# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of the samples with all optional parts, and the errors that the verifier reports for an operation."""

from functools import cache
from typing import Any

import pytest

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.dialects.verification import verify

from .samples import COLUMN, SAMPLES, column


@cache
def optional_tiles(name: str) -> dict[str, Any]:
    """What the sample leaves out: tiles that are spread over the free axis, or one value a partition."""
    left_out = [f.name for f in REGISTRY[name].tiles if f.optional and f.reads and f.name not in SAMPLES[name].tiles]
    spread = dict.fromkeys(left_out, column())
    try:
        verify(SAMPLES[name].make(**spread))
        return spread
    except KernelError:
        return dict.fromkeys(left_out, COLUMN)


def full(name: str, **changes: Any) -> Op:
    """The sample with its optional tiles, too."""
    return SAMPLES[name].make(**(optional_tiles(name) | changes))


def headline(op: Op) -> str:
    """The finding of an operation; fails where there is none."""
    with pytest.raises(Exception) as caught:
        verify(op)
    return caught.value.headline        # type: ignore[attr-defined]
