# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tensor class of kernels: a view with operators, methods and assignment."""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np

from nki_mlir.capture import errors
from nki_mlir.capture.index import Index
from nki_mlir.capture.strides import first_lanes
from nki_mlir.capture.tensor import View
from nki_mlir.capture.view_rules import check_order, check_unit
from nki_mlir.diagnostics import KernelError
from nki_mlir.language import assignment, creation, indirect, tensor_object
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import MemoryRegion, region_of
from nki_mlir.language.indirect import DynamicIndex
from nki_mlir.language.loop_reductions import LoopReduction
from nki_mlir.language.signatures.table import BETA, language_functions
from nki_mlir.scalar.dtypes import FLOAT32, NUMBER_CLASSES


class NoProductOperator(KernelError, TypeError):
    code = "NKI-TYPE"
    message = "tiles have no operator @"
    fix = "use nl.matmul(a, b), or nisa.nc_matmul(stationary, moving)"


class BadNewAxis(KernelError, IndexError):
    code = "NKI-AXIS"
    message = "the new view has {rank} dimensions, and no axis {axis}"
    fix = "give each new dimension a different axis of the new view"


# The reflected method for a NumPy operation with a number on its left; the names of NumPy's reductions are below.
OF_NUMPY = {"add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__",
            "floor_divide": "__rfloordiv__", "remainder": "__rmod__", "power": "__rpow__", "less": "__gt__",
            "less_equal": "__ge__", "greater": "__lt__", "greater_equal": "__le__", "equal": "__eq__",
            "not_equal": "__ne__", "left_shift": "__rlshift__", "right_shift": "__rrshift__", "bitwise_and": "__rand__",
            "bitwise_or": "__ror__", "bitwise_xor": "__rxor__"}
REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all"}


class Tensor(tensor_object.TensorObject, View):
    """A tensor or a view of one. Arithmetic creates new tiles; ``t[...] = value`` and ``t += value`` write in place.

    Example:
        @nki.jit
        def shifted(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            assert isinstance(x, nki.tensor) and x.shape == (4, 8)
            tile = nl.load(x) * 2
            tile += 1
            nl.store(out, tile)
            return out
        assert np.array_equal(shifted(np.ones((4, 8), np.float32)), np.full((4, 8), 3.0))
    """

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__

    # -- attributes that a kernel reads --------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def region(self) -> MemoryRegion:
        """The memory that the kernel sees as ``buffer``."""
        return region_of(self.buffer)

    def __bool__(self) -> bool:
        """Return True for a parameter, so that kernels can test an optional one; raise an error for a tile, whose value
        only the device knows."""
        if self.buffer.role == "input" and self.shape == self.buffer.shape:
            return True
        error = errors.DynamicControlFlow() if all(n == 1 for n in self.shape) else errors.TensorTruth()
        raise error.here()

    def __index__(self) -> int:
        tensor_object.refuse_math()
        raise errors.DeviceValue().here()

    __int__ = __float__ = __index__

    def _no_array(self) -> NoReturn:
        raise errors.DeviceValue().here()

    def _values(self) -> np.ndarray | None:
        return ops.concrete_value(self)

    def _is_part_of(self, other: object) -> bool:
        return isinstance(other, View) and other.buffer is self.buffer

    def _addresses(self) -> tuple[tuple[int, int], ...]:
        return getattr(self.buffer.live_range, "blocks", ()) or ()

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(self.shape[0]))

    def __repr__(self) -> str:
        return self._text(self.buffer.space, ops.concrete_value(self))

    def _repr_html_(self) -> str:
        return self._table(self.buffer.space, ops.concrete_value(self))

    def assert_shape(self, shape: Sequence[int]) -> "Tensor":
        """Return the tensor if it has this shape, else raise an error."""
        if self.shape != (expected := creation.plain_shape(shape)[0]):
            raise errors.AnnotationMismatch(annotated=expected, shape=self.shape).here()
        return self

    # -- views ---------------------------------------------------------------------------------------------------------
    def __getitem__(self, items: object) -> Any:
        """Return a view. With a tile in the subscript it is an indirect view, for operations that accept these."""
        try:
            if (part := self.numbered(items)) is not None:
                return part
            return indirect.subscript(self, items) if indirect.is_indirect(items) else self.unnumbered(items)
        except KernelError as error:
            raise error.here() from None

    def reshape(self, *shape: object, **keywords: object) -> "Tensor":
        """Return a view with another shape of the same elements, or of their bits as ``dtype``; no data moves.

        ``par_dim(n)`` marks the partition dimension.
        """
        if keywords.get("dtype") is not None:
            return self.view(keywords.pop("dtype")).reshape(*shape, **keywords)
        new_shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        new_shape = keywords.get("shape", keywords.get("new_shape", new_shape))
        extents, partition_dim = creation.plain_shape(new_shape)
        product = -prod(extents)
        if product > 0:                                       # one extent was -1
            extents = tuple(prod(self.shape) // product if n == -1 else n for n in extents)
        return creation.located(super().reshape, extents, partition_dim)

    def broadcast_to(self, *shape: object, **keywords: object) -> "Tensor":
        new_shape = keywords.get("shape", shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        return creation.located(super().broadcast_to, creation.plain_shape(new_shape)[0])

    def expand_dims(self, axis: int | Sequence[int]) -> "Tensor":
        """Return a view with dimensions of extent 1 inserted at ``axis``."""
        axes = [creation.integer(a, "an axis") for a in (axis if isinstance(axis, (tuple, list)) else [axis])]
        rank = self.ndim + len(axes)
        positions = sorted({a % rank for a in axes if -rank <= a < rank})
        if len(positions) < len(axes):
            raise BadNewAxis(axis=axis, rank=rank).here()
        return self.with_unit_dims(positions, rank)

    def view(self, dtype: object, shape: object = None) -> "Tensor":
        """Return a view of the same bytes as another dtype. The last dimension scales with the item sizes; ``shape``
        reshapes the view."""
        view = creation.located(self.reinterpreted, creation.located_dtype(dtype))
        return view if shape is None else view.reshape(shape)

    def astype(self, dtype: object) -> View:
        """Return a copy in another dtype."""
        return ops.copy(self, dtype=creation.located_dtype(dtype))

    # -- views by the names of their dimensions, as the current generation has them ------------------------------------
    def permute(self, *dims: object) -> "Tensor":
        """Return a view with the dimensions in another order. On chip the partition dimension keeps its position."""
        order = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
        order = [creation.integer(d, "a dimension") % self.ndim for d in order]
        check_order(order, self.shape, first_lanes(self.dims) if self.buffer.on_chip else None)
        return self.permuted(order)

    def transpose(self, *axes: object) -> "Tensor":
        """Return ``permute(*axes)``; without axes the dimensions in reverse order."""
        return self.permute(*axes) if axes else self.permute(tuple(range(self.ndim))[::-1])

    def slice(self, dim: int, start: object, end: object, step: int = 1) -> "Tensor":
        """Return ``t[..., start:end:step, ...]``."""
        return self._indexed(dim, slice(start, end, step))

    def select(self, dim: int, index: object) -> "Tensor":
        """Return ``t[..., index, ...]``."""
        return self._indexed(dim, index)

    def _indexed(self, dim: int, item: object) -> "Tensor":
        position = creation.integer(dim, "a dimension") % self.ndim
        part: Tensor = self[tuple(item if k == position else slice(None) for k in range(self.ndim))]
        return part

    def expand_dim(self, dim: int) -> "Tensor":
        """Return a view with a dimension of extent 1 inserted."""
        return self.expand_dims(dim)

    def squeeze_dim(self, dim: int) -> "Tensor":
        """Return a view without a dimension of extent 1."""
        position = dim % self.ndim
        check_unit(position, self.shape)
        return self.reshape((*self.shape[:position], *self.shape[position + 1:]))

    def flatten_dims(self, start_dim: int, end_dim: int) -> "Tensor":
        """Return a view with the dimensions from start to end, inclusive, as one."""
        start, end = start_dim % self.ndim, end_dim % self.ndim
        return self.reshape((*self.shape[:start], prod(self.shape[start:end + 1]), *self.shape[end + 1:]))

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> "Tensor":
        """Return a view with one dimension split into several; one of them may be -1."""
        position = dim % self.ndim
        return self.reshape((*self.shape[:position], *shape, *self.shape[position + 1:]))

    # -- assignment ----------------------------------------------------------------------------------------------------
    def __setitem__(self, items: object, value: object) -> None:
        target = self if items is Ellipsis and self._tile is not None else self[items]
        if isinstance(target, indirect.ADDRESSED) and not target.buffer.on_chip:
            return indirect.scatter(target, value)
        if isinstance(value, LoopReduction):
            return value.write(target)
        for view in (target, value):
            if isinstance(view, indirect.ADDRESSED):
                view.as_sum()
        # ``t[...] += v`` has written in place; Python then assigns the result to the subscript.
        if not (isinstance(value, View) and target.same_elements(value)):
            assignment.assign(target, value)

    def __getattr__(self, name: str) -> NoReturn:
        raise errors.unknown("a tile", name, dir(type(self)), {}, language_functions(BETA))

    def __array_ufunc__(self, function: np.ufunc, method: str, *operands: object, **keywords: object) -> Any:
        """Apply an operator with a NumPy number on its left; other functions of NumPy compute on tiles at a prompt
        only."""
        if (at_prompt := self._at_prompt(function, method, operands, keywords)) is not None:
            return at_prompt
        operator = OF_NUMPY.get(function.__name__)
        if operator is None or method != "__call__" or isinstance(operands[0], View):
            name = function.__name__ if method == "__call__" else REDUCTIONS.get(function.__name__, function.__name__)
            raise tensor_object.host_function("NumPy", name)
        result: Tensor = getattr(self, operator)(operands[0])
        return result

    def _no_product(self, other: object) -> NoReturn:
        raise NoProductOperator().here()

    __matmul__ = __rmatmul__ = _no_product

    # -- equality with None, text and lists is Python's ----------------------------------------------------------------
    def __eq__(self, other: object) -> Any:
        return False if isinstance(other, tensor_object.OF_PYTHON) else _operator("equal")(self, other)

    def __ne__(self, other: object) -> Any:
        return True if isinstance(other, tensor_object.OF_PYTHON) else _operator("not_equal")(self, other)


class _OpenTensor(Tensor):
    __slots__ = ()
    __setattr__, __delattr__ = object.__setattr__, object.__delattr__                   # type: ignore[assignment]


Tensor.opened, Tensor.closed = _OpenTensor, Tensor

NUMBERS = (Index, *NUMBER_CLASSES, np.ndarray)      # arrays of no dimensions; others are refused
OPERANDS = (View, DynamicIndex, *NUMBERS)
COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or")
_COMPARING = {"gt": "greater", "ge": "greater_equal", "lt": "less", "le": "less_equal"}


def _tile_operator(op: str, left: object, right: object) -> View:
    if op == "floor_divide":
        quotient = ops.binary("divide", left, right, dtype=FLOAT32, partition_broadcast=False)
        return ops.unary("floor", quotient, dtype=ops.result_dtype("add", left, right, None, False))
    return ops.binary(op, left, right, boolean=op in COMPARISONS, partition_broadcast=False)


def _of_sum(method: str) -> object:
    return lambda self, other: getattr(self.as_sum(), method)(other)


def _operator(op: str) -> Callable[..., object]:
    def operate(self: Tensor, other: object, *modulus: object) -> DynamicIndex | View:
        if modulus:
            raise tensor_object.power_modulo()
        if op in ("add", "subtract") and isinstance(other, Index) and other.shape:     # an index from the tile's value
            return DynamicIndex(self, other if op == "add" else -other)
        return _tile_operator(op, self, other) if isinstance(other, OPERANDS) else tensor_object.not_implemented(other)
    return operate


def _reflected(op: str) -> Callable[..., object]:
    def operate(self: Tensor, other: object) -> DynamicIndex | View:
        if op == "add" and isinstance(other, Index) and other.shape:
            return DynamicIndex(self, other)
        return _tile_operator(op, other, self) if isinstance(other, NUMBERS) else tensor_object.not_implemented(other)
    return operate


def _in_place(op: str) -> Callable[..., object]:
    def operate(self: Tensor, other: object) -> object:
        if not isinstance(other, OPERANDS):
            return tensor_object.not_implemented(other)
        match op:
            case "add":
                return assignment.accumulate(self, other)
            case "floor_divide":
                with assignment.accumulating():
                    assignment.assign(self, _tile_operator(op, self, other))
                return self
        return assignment.combine(op, self, other)
    return operate


def _unary(name: str) -> object:
    return lambda self: ops.unary(name, self)


for _method, _op in (tensor_object.BINARY | _COMPARING).items():
    setattr(Tensor, f"__{_method}__", _operator(_op))
for _method, _op in tensor_object.BINARY.items():
    setattr(Tensor, f"__r{_method}__", _reflected(_op))
    setattr(Tensor, f"__i{_method}__", _in_place(_op))
for _method, _op in tensor_object.UNARY.items():
    setattr(Tensor, f"__{_method}__", _unary(_op))
for _method in (*tensor_object.BINARY, *_COMPARING, *(f"r{_m}" for _m in tensor_object.BINARY)):
    if _method not in ("add", "radd", "sub"):
        setattr(DynamicIndex, f"__{_method}__", _of_sum(f"__{_method}__"))
Tensor.__pos__ = lambda self: self                                      # type: ignore[operator]

creation.register_tensor_class(Tensor)
