# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.typing``: annotations, and ``scalar``, a number in a tile (document: 2.3, 5.3)."""

from typing import Any

from ..memory import View
from .tensors import Tensor

__all__ = ["mutable", "mutable_tensor", "scalar", "tensor"]
tensor = Tensor


class mutable_tensor(Tensor):
    """A parameter that may be updated."""


mutable = mutable_tensor


def scalar(value: Any) -> Any:
    """Return the current value of a [1, 1] tile, or a Python value."""
    return value.read().reshape(-1)[0].item() if isinstance(value, View) else value
