# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Methods of beta tensors that name dimensions, as the current generation's have them."""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from nki_mlir.frontend.errors import BadReshape
from nki_mlir.frontend.locations import user_location
from nki_mlir.language import creation
from nki_mlir.language.tensor_object import TensorObject

if TYPE_CHECKING:
    from nki_mlir.language.tensor import Tensor


class ViewMethods(TensorObject):
    """Base of tensors; the views are those of subscripts and reshapes."""

    __slots__ = ()
    ndim: Any
    buffer: Any
    permuted: Any
    reshape: Any
    expand_dims: Any
    __getitem__: Any

    def permute(self, *dims: Any) -> Any:
        """The dimensions in another order. On chip the partition stays where it is."""
        order = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
        order = [creation.integer(d, "a dimension") % self.ndim for d in order]
        own: Any = self
        if sorted(order) != list(range(self.ndim)):
            raise BadReshape(what=f"{tuple(order)} is no order of the dimensions of {self.shape}").located(
                user_location())
        if self.buffer.on_chip and order[own.partition_axis()] != own.partition_axis():
            raise BadReshape(what=f"the partition dimension of {self.shape} is moved by {tuple(order)}").located(
                user_location())
        return self.permuted(order)

    def transpose(self, *axes: object) -> Any:
        """``permute``; without axes the dimensions the other way round."""
        return self.permute(*axes) if axes else self.permute(tuple(range(self.ndim))[::-1])

    def slice(self, dim: int, start: object, end: object, step: int = 1) -> "Tensor":
        """``t[..., start:end:step, ...]``."""
        return self._one(dim, slice(start, end, step))

    def select(self, dim: int, index: object) -> Any:
        """``t[..., index, ...]``."""
        return self._one(dim, index)

    def _one(self, dim: int, item: object) -> "Tensor":
        place = creation.integer(dim, "a dimension") % self.ndim
        return self[tuple(item if k == place else slice(None) for k in range(self.ndim))]

    def expand_dim(self, dim: int) -> "Tensor":
        return self.expand_dims(dim)

    def squeeze_dim(self, dim: int) -> "Tensor":
        """Without a dimension of extent 1."""
        place = dim % self.ndim
        if self.shape[place] != 1:
            raise BadReshape(what=f"dimension {dim} of {self.shape} has more than one element").located(user_location())
        return self.reshape((*self.shape[:place], *self.shape[place + 1:]))

    def flatten_dims(self, start_dim: int, end_dim: int) -> "Tensor":
        """Dimensions from start to end, inclusive, as one."""
        first, last = start_dim % self.ndim, end_dim % self.ndim
        return self.reshape((*self.shape[:first], prod(self.shape[first:last + 1]), *self.shape[last + 1:]))

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> "Tensor":
        """One dimension split into several, of which one may be -1."""
        place = dim % self.ndim
        known = prod(n for n in shape if n != -1)
        extents = [self.shape[place] // known if n == -1 else n for n in shape]
        return self.reshape((*self.shape[:place], *extents, *self.shape[place + 1:]))
