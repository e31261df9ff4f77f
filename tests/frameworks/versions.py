# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Differences between versions of JAX that tests see: 0.6 is the last one for Python 3.10."""

import re
from typing import Any

import jax

JAX = jax.__version_info__

if JAX >= (0, 7):
    from jax import enable_x64 as enable_x64
else:
    from jax.experimental import enable_x64 as enable_x64


def hlo_text(lowered: Any) -> str:
    """The program as text of HLO, with what its custom calls are given."""
    computation = lowered.compiler_ir("hlo")
    if JAX >= (0, 7):
        return computation.as_hlo_text()
    return re.sub(r"metadata=\{[^}]*\}, ", "", computation.as_hlo_module().to_string())
