# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Base of tensors: errors for uses as a number or a NumPy array, and the methods that tensors had in older releases."""

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from nki_mlir.capture.errors import BadBroadcast
from nki_mlir.language.current.errors import NkiTypeError, core_rule, integer
from nki_mlir.language.current.memory import Storage
from nki_mlir.language.tensor import OF_NUMPY
from nki_mlir.language.tensor_object import TensorObject, called_name, host_function, refuse_math
from nki_mlir.scalar.dtypes import NUMBER_CLASSES

if TYPE_CHECKING:
    from typing_extensions import Self


OF_BUILTIN = {"max": "maximum", "min": "minimum"}         # function of Python that compares -> function of nl


class OlderMethods(TensorObject):
    """The base class of tensors: their methods of older releases, and errors for operators and conversions."""

    __slots__ = ()
    __hash__ = object.__hash__
    storage: Storage
    strides: tuple[int, ...]
    size: Any
    indirection: Any
    view: "Callable[..., Self]"
    reshape: "Callable[..., Self]"
    part: "Callable[..., Self]"
    on_chip: Any
    like: "Callable[..., Self]"
    permute: "Callable[..., Self]"
    expand_dim: "Callable[..., Self]"

    __bool__: ClassVar[Callable[["OlderMethods"], bool]]            # ``dynamic_loops`` assigns it; it refuses loops
    _loop_instead: ClassVar[Callable[["OlderMethods"], str]]        # assigned there, too: the fix of ``while a < b``

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, (OlderMethods, *NUMBER_CLASSES)):
            self._no_comparison(other)
        return False

    def _no_operator(self, *operands: object) -> NoReturn:
        raise NkiTypeError("binary operators on tensors not supported. Use nki.isa directly.",
                           why="a tensor has no value while Python runs; only the device knows its elements",
                           fix="nisa.tensor_tensor(dst=..., data1=a, data2=b, op=nl.add), or nl.add(a, b)").here()

    def _no_product(self, other: object) -> NoReturn:
        raise NkiTypeError("binary operators on tensors not supported. Use nki.isa directly.",
                           why="a tensor has no value while Python runs; only the device knows its elements",
                           fix="nisa.nc_matmul(dst=..., stationary=a, moving=b), or nl.matmul(a, b)").here()

    def _no_comparison(self, other: object) -> NoReturn:
        instead = OF_BUILTIN.get(called_name())
        raise NkiTypeError("binary operators on tensors not supported. Use nki.isa directly.",
                           why="a tensor has no value while Python runs, so Python cannot branch on it",
                           fix=f"call nl.{instead}" if instead else self._loop_instead() or (
                               "compare with nl.greater(a, b) or its like, and select with nl.where")).here()

    def _no_number(self) -> NoReturn:
        refuse_math()
        raise NkiTypeError("a tensor is not a Python number: only the device knows its elements",
                           fix="read one into a register with nisa.register_load, print it with nl.device_print, or "
                               "pass the number to the kernel", code="NKI-DEVICE-VALUE").here()

    __int__ = __index__ = __float__ = _no_number

    def _no_array(self) -> NoReturn:
        raise NkiTypeError("a tensor is not a NumPy array: only the device knows its elements",
                           fix="return it from the kernel, or print it with nl.device_print",
                           code="NKI-DEVICE-VALUE").here()

    def __array_ufunc__(self, function: np.ufunc, method: str, *operands: object, **keywords: object) -> object:
        """Apply an operator with a NumPy number on its left. NumPy's other functions take tensors only at a prompt."""
        if (result := self._at_prompt(function, method, operands, keywords)) is not None:
            return result
        operator = OF_NUMPY.get(function.__name__)
        if operator is None or method != "__call__" or isinstance(operands[0], (OlderMethods, np.ndarray)):
            raise host_function("NumPy", called_name() or function.__name__)
        return getattr(self, operator)(operands[0])

    __lt__ = __le__ = __gt__ = __ge__ = _no_comparison
    __matmul__ = __rmatmul__ = _no_product

    # -- methods of older releases -------------------------------------------------------------------------------------
    @property
    def pattern(self) -> list[list[int]]:
        """``[stride, count]`` for each dimension."""
        return [[s, n] for s, n in zip(self.strides, self.shape)]

    def as_tile(self) -> "OlderMethods":
        return self

    astype: ClassVar[Callable[[Any, object], Any]]            # ``functions`` assigns it

    def transpose(self, *axes: object) -> "Self":
        """Return a view with the dimensions in the order ``axes``, by default reversed."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        return self.permute(tuple(order) or tuple(range(len(self.shape)))[::-1])

    def expand_dims(self, axis: object) -> Any:
        """Return a view with dimensions of size 1 inserted, which are dimensions ``axis`` of the result."""
        axes = [integer(a, "expand_dims axis") for a in (axis if isinstance(axis, (tuple, list)) else [axis])]
        rank, view = len(self.shape) + len(axes), self
        for position in sorted(a + rank if a < 0 else a for a in axes):
            view = view.expand_dim(position)
        return view

    def broadcast_to(self, *shape: object) -> "Self":
        """Return a view that repeats dimensions of size 1 to ``shape``, with stride 0."""
        new_shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        core_rule(len(new_shape) == len(self.shape) and all(n in (1, w) for n, w in zip(self.shape, new_shape)),
                  BadBroadcast, shape=list(self.shape), wanted=list(new_shape))
        return self.like(shape=new_shape, strides=[s if n == w else 0 for s, n, w in
                                                zip(self.strides, self.shape, new_shape)])

    def leading_part(self, shape: Sequence[int]) -> "Self | None":
        """Return a view of each partition's first elements in a smaller shape, or None if ``shape`` is not smaller."""
        least = self.on_chip and len(shape) > 1 and all(n > 0 for n in shape) and shape[0] == self.shape[0]
        count = prod(shape[1:])
        if not least or count >= self.size // self.shape[0] or self.indirection is not None:
            return None
        row = self.reshape((self.shape[0], self.size // self.shape[0]))
        return row.part(1, 0, count).reshape(shape)


class Address(tuple[int, ...]):
    """The address of a tensor: (partition, byte), or empty if the allocator chooses it."""

    tensor: "OlderMethods"

    @classmethod
    def of(cls, tensor: "OlderMethods") -> "Address":
        address = cls(tensor.storage.address or ())
        address.tensor = tensor
        return address

    def reshape(self, dtype: object, shape: object) -> object:
        """Return a view of the tensor's bits as another dtype and shape."""
        return self.tensor.view(dtype, shape)

    view = reshape
