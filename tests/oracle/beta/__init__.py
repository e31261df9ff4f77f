# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The beta generation, ``neuronxcc.nki``: the modules that its kernels import."""

from typing import Any

from . import language, nki
from .tensors import Tensor

__all__ = ["MODULES", "NAMES", "Tensor"]

MODULES: dict[str, Any] = {"neuronxcc": nki.package, "neuronxcc.nki": nki, "neuronxcc.nki.language": language}
NAMES: dict[str, Any] = {"nki": nki, "nl": language}
