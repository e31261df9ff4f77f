# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.typing`` (``nt``): annotations."""

from typing import Any

from nki_mlir.language.do_while import Unconditional


class tensor:
    """``tensor[d0, d1]``: on a variable, the shape its value must have."""

    def __class_getitem__(cls, dims: Any) -> "tensor":
        made = cls()
        made.annotated_shape = dims if isinstance(dims, tuple) else (dims,)     # type: ignore[attr-defined]
        return made


class mutable_tensor:
    """On a parameter: it may be updated in place."""


mutable = mutable_tensor


class TileIndex:
    """On a parameter of a helper: the index of a tile."""


def scalar(value: Any) -> Any:
    """A run-time scalar of a [1, 1] tile. ``scalar(True)`` is the first condition of a loop of the device."""
    return Unconditional() if value is True else value
