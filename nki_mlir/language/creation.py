# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Creates tensors and emits operations, for the language's operations and instructions."""

import functools
import inspect
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, Generic, TypeVar

import numpy as np

from nki_mlir.capture.builder import active, current, leave_out_outside_kernels
from nki_mlir.capture.errors import BlockDimensionsWarning, ImmutableParameter
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.operands import Views
from nki_mlir.capture.part_forms import PARTITIONS, check_on_chip_shape
from nki_mlir.capture.strides import Shape
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import KernelError, NkiMlirError, warn_once
from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.dialects.nki import movement
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.scalar_body import constant_value
from nki_mlir.dialects.verifier import UNNAMED, HostOperand, ShapeMismatch
from nki_mlir.input_limits import DIMENSIONS, ELEMENTS
from nki_mlir.language.direct_allocation import Allocation, note_allocated
from nki_mlir.language.signatures.binding import Description
from nki_mlir.machine import Engine
from nki_mlir.scalar.dtypes import DType, convert, dtype_of, finite_range

Tensor = View                   # in annotations: the class of tensors is above the operations

T = TypeVar("T")
_tensor_class: Any = View       # the class of tensors, which ``language.tensor`` registers


def register_tensor_class(cls: type[Tensor]) -> None:
    """Set the class of the tensors that are created. It is above the operations, which only need views."""
    global _tensor_class
    _tensor_class = cls


def tensor_of(buffer: Buffer) -> "Tensor":
    """Return a complete buffer as a tensor of the kernel."""
    tensor: Tensor = _tensor_class.full(buffer)
    return tensor


def located(function: Callable[..., T], *arguments: object) -> T:
    """Call the function; a kernel error gets the source location in the kernel."""
    try:
        return function(*arguments)
    except KernelError as error:
        raise error.here() from None


def as_operand(x: object, name: str = UNNAMED, operand: str = "x") -> View:
    """Return x as a tile, or raise an error that names its type."""
    if isinstance(x, View):
        return x if x._tile is not None else located(x.as_tile)
    if hasattr(x, "as_sum"):
        return as_operand(x.as_sum(), name, operand)
    active(name)
    refuse_other_generation(name, x)
    raise host_operand(x, operand, name, "psum|sbuf")


def host_operand(value: object, operand: str, op: str, expected: str) -> NkiMlirError:
    """Return the error for an operand that is a value of Python."""
    error = HostOperand(operand=operand, op=op, expected=expected, found=type(value).__name__)
    error.operand = value
    return error.here()


class OtherGeneration(KernelError):
    code = "NKI-GENERATIONS"
    message = "{function} of the beta generation (neuronxcc.nki) gets a tensor of the current one (nki)"
    fix = "import it from nki, or migrate the file that calls it: nki-migrate FILE"


def refuse_other_generation(function: str, value: object) -> None:
    """Raise an error if a function of the beta generation gets a tensor of the current one."""
    if type(value).__module__.startswith("nki_mlir.language.current."):
        raise OtherGeneration(function=function).here()


_names = itertools.count()


def unique_name(name: str) -> str:
    """Return the name with a number that makes it unique in the kernel and differs at each call."""
    builder = current.get()
    return f"{name}_{next(builder.names if builder is not None else _names)}"


class EmptyDimension(ShapeMismatch):
    fix = "give each dimension an extent of 1 or more"


class TwoPartitionDimensions(KernelError, ValueError):
    code = "NKI-SHAPE"
    message = "a shape marks its dimensions {first} and {second} with nl.par_dim"
    why = "a tile has one partition dimension; the dimensions before it number tiles"
    fix = "mark only the dimension that lies on the partitions"


class TooLongShape(KernelError, ValueError):
    code = "NKI-SHAPE"
    message = "a shape has {dimensions:,} dimensions; a tensor has at most {most}"
    fix = "join dimensions, or number tiles in the first one"


class TooLargeExtent(KernelError, ValueError):
    code = "NKI-SHAPE"
    message = "dimension {position} of a shape is a number of {bits:,} bits; a tensor has less than {most:,} elements"
    fix = "correct the shape, or work on a part of the tensor at a time"


class NotAnInteger(KernelError, TypeError):
    code = "NKI-INTEGER"
    message = "{value!r} is {what}, which must be an integer{bound}"
    fix = "give an integer"

    @property
    def advice(self) -> tuple[str, str]:
        value = self.values["value"]
        if isinstance(value, float):
            return "", "divide with //, or round with math.ceil or math.floor"
        return "", fix_of_integer(value) or self.fix


def fix_of_integer(value: object) -> str:
    """Return how to mend a tuple or an array where an integer is expected; "" for other values."""
    if isinstance(value, np.ndarray) and value.ndim:
        return "give a tuple of integers, for example tuple(shape), where several are expected"
    return "give one extent of the shape, for example x.shape[0]" if isinstance(value, tuple) else ""


def integer(value: Any, subject: str, least: int | None = None) -> int:
    """Return a value as an integer by Python's rule for lengths and indices, which excludes results of ``/``."""
    try:
        if least is None or operator.index(value) >= least:
            return operator.index(value)
    except KernelError:
        raise
    except TypeError:
        pass
    bound = "" if least is None else f" of at least {least}"
    raise NotAnInteger(value=value, what=subject, bound=bound).here()


class ParDim(int):
    """``par_dim(n)``: the extent n, marked as the partition dimension of a shape."""

    def __new__(cls, n: object) -> "ParDim":
        return super().__new__(cls, integer(n, "the extent of nl.par_dim"))


def result_tensor(shape: tuple[int, ...], dtype: object, space: str) -> "Tensor":
    """Allocate a result for ``operations.compute``, called by a function of the language; fast if the shape is a
    tile's."""
    if type(shape) is not Shape or type(dtype) is not DType or space == HBM:
        return new_tensor(shape, dtype, space)
    if len(shape) < 2 or shape[0] > PARTITIONS:
        located(check_on_chip_shape, shape, 0)
    builder = current.get() or active("a function that creates a tensor")
    tensor: Tensor = _tensor_class.full_tile(builder.allocate(shape, dtype, space, at=user_location(4)))
    return tensor


def plain_shape(shape: Any) -> tuple[tuple[int, ...], int | None]:
    """Return (extents, position of a ``par_dim`` mark or None)."""
    if type(shape) in (tuple, Shape) and len(shape) <= DIMENSIONS and all([type(n) is int and n < ELEMENTS
                                                                           for n in shape]):
        return shape, None
    items = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    marked = [k for k, n in enumerate(items) if isinstance(n, ParDim)]
    if marked[1:]:
        raise TwoPartitionDimensions(first=marked[0], second=marked[1]).here()
    return checked_extents([integer(n, "an extent of a shape") for n in items]), marked[0] if marked else None


def checked_extents(extents: Sequence[int]) -> tuple[int, ...]:
    """Return the extents of a shape; raise an error if it has more dimensions or elements than a tensor can have."""
    if len(extents) > DIMENSIONS:
        raise TooLongShape(dimensions=len(extents), most=DIMENSIONS).here()
    for position, extent in enumerate(extents):
        if extent >= ELEMENTS:
            raise TooLargeExtent(position=position, bits=extent.bit_length(), most=ELEMENTS).here()
    return tuple(extents)


def new_tensor(shape: object, dtype: object, space: str = SBUF, *, shared: bool = False, name: str = "",
               attributes: dict[str, object] | None = None, allocation: Allocation | None = None) -> "Tensor":
    """Allocate a tensor. Block dimensions precede a ``par_dim``; ``allocation`` has their addresses."""
    builder = active("a function that creates a tensor")
    extents, partition_dim = plain_shape(shape)
    if any([n < (space != HBM) for n in extents]):       # empty batches may be in HBM; a tile has elements
        raise EmptyDimension(what=f"a tensor of shape {extents} has an empty dimension").here()
    if space != HBM:
        located(check_on_chip_shape, extents, partition_dim or 0)
        if partition_dim:
            warn_of_block_dimensions(extents)
    if shared:
        builder.check_shared()
    if allocation is not None:
        at = partition_dim or 0
        addresses = allocation.addresses(extents[:at], extents[at], extents[at + 1:], located_dtype(dtype))
        attributes = {**(attributes or {}), "nki.addresses": addresses}
    buffer = builder.allocate(extents, located_dtype(dtype), space, shared=shared, name=name,
                              partition_dim=(partition_dim or 0) if space != HBM else 0, attributes=attributes)
    if allocation is not None:
        note_allocated(buffer)
    if space == HBM:
        buffer.created_at = user_location()
    return tensor_of(buffer)


def warn_of_block_dimensions(shape: tuple[int, ...]) -> None:
    """Warn that newer documents want the partition dimension first; kernels in use have others before it."""
    text = (f"err_leading_dimension_of_tensor_must_be_partition: a tensor of shape {shape} has block dimensions; they "
            "are deprecated, use a list of tiles")
    warn_once(text, BlockDimensionsWarning, user_location())


class UnknownDtype(KernelError, TypeError):
    code = "NKI-DTYPE-UNKNOWN"
    message = "{text}"
    fix = "use a dtype of nki.language, for example nl.float32"


def located_dtype(dtype: object) -> DType:
    try:
        return dtype_of(dtype)
    except TypeError as error:
        raise UnknownDtype(str(error)).here() from None


def filled(shape: object, value: float, dtype: object, space: str = SBUF, *, name: str = "",
           shared: bool = False) -> "Tensor":
    tensor = new_tensor(shape, dtype, space, name=name, shared=shared)
    memset(tensor, value)
    return tensor


class ValueRangeWarning(UserWarning):
    """Warns that the dtype of a tile does not have the value that fills it."""


def fill_value(value: float, kind: DType) -> float:
    """Return the value that fills a tile of this dtype, as a float; warn if it is finite and not rounded to a number of
    the dtype's range."""
    value = float(value)
    least, greatest = finite_range(kind)
    if not least <= value <= greatest and math.isfinite(value) and not (
            abs((becomes := constant_value(value, kind)) - value) <= (0.5 if kind.is_integer else greatest)):
        warn_once(f"a tile of {kind} is filled with {value:.10g}, but its values range from {least:.10g} to "
                  f"{greatest:.10g}: the elements become {becomes:.10g}; fill it with a number of that range, or "
                  "choose a wider dtype", ValueRangeWarning, user_location())
    return value


def memset(target: View, value: float, mask: object = None) -> None:
    """Emit ``target[...] = value``; block dimensions are folded into the free ones."""
    emit(movement.MemsetOp, {"dst": partition_first(target)}, mask, value=fill_value(value, target.dtype))


def partition_first(view: View) -> View:
    """Return a complete block tensor as one tile, with the partition dimension in front."""
    if view.dims and view.dims[0].partition:
        return view
    at = next((k for k, d in enumerate(view.dims) if d.partition), None)
    if at is None or not view.buffer.on_chip:
        return view
    dims = (view.dims[at], *view.dims[:at], *view.dims[at + 1:])
    return view.with_constant_limits("folded").like(dims=dims)


NARROWER = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32}     # the device has no 64-bit types


def constant(constant: object, dtype: object = None) -> "Tensor":
    """Return a NumPy array as an HBM tensor of the program."""
    values = np.asarray(constant)
    if values.dtype.name in NARROWER:
        values = values.astype(NARROWER[values.dtype.name])
    kind = located_dtype(values.dtype if dtype is None else dtype)
    return tensor_of(active("nl.shared_constant").constant(convert(values, kind), kind)).like(dtype=kind)


def emit(cls: type[Op], views: Views, mask: object = None, **attributes: object) -> Op | None:
    """Emit an operation through the running builder, which joins the masks of operands with the operation's."""
    return emit_with(cls, views, mask, attributes)


def emit_with(cls: type[Op], views: Views, mask: object, attributes: dict[str, object]) -> Op | None:
    """Emit an operation as ``emit`` does, with attributes in a dictionary."""
    builder = current.get() or active(f"nki.{cls.name}")
    for name, view in views.items():
        if not isinstance(view, View) and view is not None:
            refuse_other_generation(f"nisa.{cls.name}", view)
            raise host_operand(view, name, cls.name, "psum|sbuf|hbm")
    if builder.recorder is not None:
        builder.recorder.emitted(cls, views, mask, attributes)
    for name in cls.outputs:
        if (view := views.get(name)) is not None and view.buffer.role == "input":
            check_mutable(view)
    if cls.dialect == "nisa" and Engine.SYNC not in cls.engines:
        views = {name: spread_over_lanes(view) for name, view in views.items()}
    try:
        return builder.emit(cls, views, mask, attributes)
    except KernelError as error:
        if not error.fields:
            error.fields = {name: view.buffer for name, view in views.items() if view is not None}
        raise


def has_a_partition_for_each_lane(view: View | None) -> bool:
    """Return whether each lane reads its own partition of an operand on chip."""
    return view is None or not view.buffer.on_chip or not view.dims or view.dims[0].partition != 0 or (
        view.dims[0].count == 1)


def spread_over_lanes(view: View | None) -> View | None:
    """Return an operand in which each lane reads its own partition: one partition that all lanes share is spread by a
    copy."""
    if has_a_partition_for_each_lane(view):
        return view
    assert view is not None
    spread = new_tensor(view.shape, view.dtype)
    active().emit(movement.CopyOp, {"dst": spread, "src": view}, None, {})
    return spread


def check_mutable(view: View) -> None:
    """Raise an error for a write to an input if the kernel's inputs are immutable."""
    properties = active().properties
    if properties.get("immutable_inputs") and view.buffer.name not in properties.get("mutable", ()):
        raise ImmutableParameter(name=view.buffer.name).here()


# -- memories ----------------------------------------------------------------------------------------------------------
# The memories of tensors of the beta generation, and the type that ``nl.ndarray`` stands for.

class MemoryRegion(str):
    """A memory in which tensors are allocated. All programs of a grid see the ``shared`` ones.

    It has no attributes that can be set, so that calls compare it as a constant.
    """

    __slots__ = ()

    @property
    def shared(self) -> bool:
        return self == "shared_hbm"

    @property
    def space(self) -> str:
        return HBM if self.shared else str(self)

    def __reduce__(self) -> str:
        """Make copies the memory itself."""
        return str(self)


sbuf, psum = MemoryRegion(SBUF), MemoryRegion(PSUM)
hbm = private_hbm = MemoryRegion(HBM)
shared_hbm = MemoryRegion("shared_hbm")
REGIONS = {"sbuf": sbuf, "psum": psum, "hbm": hbm, "private_hbm": hbm, "shared_hbm": shared_hbm}


def region_of(buffer: Buffer) -> MemoryRegion:
    """Return the memory that ``tensor.buffer`` is to a kernel."""
    return shared_hbm if buffer.role == "output" else REGIONS[buffer.space]


class MakesTensors(Generic[T]):
    """A function that creates tensors of a class, and stands for that class in annotations and ``isinstance``."""

    def __init__(self, function: Callable[..., T], kind: type[T]) -> None:
        self.kind = kind
        self.copy_documentation(function)

    def copy_documentation(self, function: Callable[..., T]) -> None:
        """Copy a function's name, signature and documentation, so that ``help()`` of the object shows them."""
        functools.update_wrapper(self, function)
        self.function = function
        heading, description = f"{function.__name__}{inspect.signature(function)}\n\n", function.__doc__
        self.__doc__ = description.below(heading) if isinstance(description, Description) else f"{heading}{description}"

    def __call__(self, *arguments: object, **keywords: object) -> T:
        try:
            return self.function(*arguments, **keywords)
        except NkiMlirError as error:
            leave_out_outside_kernels(error)
            raise

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, self.kind)

    def __or__(self, other: type | None) -> UnionType | type[T]:
        return self.kind | other

    def __ror__(self, other: type | None) -> UnionType | type[T]:
        return other | self.kind

    def __repr__(self) -> str:
        return f"nl.{self.__name__}"            # type: ignore[attr-defined]


def makes(kind: type[T]) -> Callable[[Callable[..., T]], MakesTensors[T]]:
    return lambda function: MakesTensors(function, kind)
