# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.typing`` (``nt``): annotations."""

from typing import Any

from nki_mlir.diagnostics import KernelError
from nki_mlir.frontend.locations import user_location
from nki_mlir.frontend.tensor import View
from nki_mlir.language.arguments import Described
from nki_mlir.language.beta.calls import shown
from nki_mlir.language.do_while import Unconditional


class tensor(Described):
    """``tensor[d0, d1]``: on a variable, the shape its value must have. ``tensor[[d0, d1], dtype]`` may be an argument.
    """

    def __class_getitem__(cls, dims: Any) -> "tensor":
        made, dims = cls(), dims if isinstance(dims, tuple) else (dims,)
        if isinstance(dims[0], (tuple, list)):
            made.annotated_dtype = dims[1] if len(dims) > 1 else None
            dims = tuple(dims[0])
        made.annotated_shape = dims
        return made


class mutable_tensor:
    """On a parameter: it may be updated in place."""


mutable = mutable_tensor


class TileIndex:
    """On a parameter of a helper: the index of a tile."""


class BadScalar(KernelError, TypeError):
    code = "NKI-SCALAR"
    message = "nt.scalar is given {found}; it takes True, or a tile of one element"
    fix = "set the condition to scalar(True) in front of the loop, and to scalar(tile) at the end of its body"


def scalar(value: Any) -> Any:
    """A run-time scalar of a [1, 1] tile. ``scalar(True)`` is the first condition of a loop of the device."""
    if value is True:
        return Unconditional()
    if not isinstance(value, View) or any(n != 1 for n in value.shape):
        raise BadScalar(found=shown(value)).located(user_location())
    return value
