# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of ``nl`` in both generations: operators, composed functions, random numbers, gathers, the grid,
limits.

Functions that emit several operations compute in float32 and round once, at the end.
"""

import math
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import ml_dtypes
import numpy as np

from nki_mlir.capture.builder import active, current
from nki_mlir.capture.errors import UnsupportedMask, unknown
from nki_mlir.capture.index import Mask
from nki_mlir.capture.tensor import View
from nki_mlir.diagnostics import KernelError, NkiMlirError
from nki_mlir.dialects.access import SBUF
from nki_mlir.dialects.launch_members import PROGRAMS
from nki_mlir.dialects.nisa import movement
from nki_mlir.dialects.nki.movement import CopyOp
from nki_mlir.language import creation
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import Tensor, as_operand, emit, filled, integer, located_dtype, new_tensor
from nki_mlir.language.instructions import operand
from nki_mlir.machine import DEFAULT_TARGET, Machine, machine_named
from nki_mlir.scalar.alu import AluOperator
from nki_mlir.scalar.dtypes import FLOAT32, INT32, UINT32, DType, convert, dtype_of
from nki_mlir.scalar.tokens import alu_token

F = TypeVar("F", bound=Callable[..., object])

# Functions that are also operators: elementwise ones, and reductions, by the operator that combines their elements.
ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
MODULI = ("mod", "fmod")
SIMULATED = ("divide", *MODULI)         # devices do not have them, as the reference of the current generation says
VERDICTS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or",
            "logical_xor")
UNARY = ("invert", "negative", "logical_not", "exp", "log", "sin", "cos", "tan", "tanh", "arctan", "sqrt", "rsqrt",
         "sigmoid", "relu", "gelu", "gelu_dx", "gelu_apprx_tanh", "gelu_apprx_sigmoid", "silu", "silu_dx", "erf",
         "erf_dx", "softplus", "mish", "square", "sign", "abs", "reciprocal", "floor", "ceil", "trunc")
REDUCTIONS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


def summary(name: str) -> str:
    """Return the first sentence of the documentation of an elementwise function of two operands."""
    if name.startswith("logical_"):
        return f"Compute the logical {name.removeprefix('logical_')} of x and y elementwise"
    return "Compare x and y elementwise" if name in VERDICTS else f"Compute ``{name}(x, y)`` elementwise"


def token(operator: str, name: str = "", does: str = "") -> Callable[[F], F]:
    """Return a decorator that makes a function stand for an operator, too. ``name`` and ``does`` name and document a
    generated function."""
    def mark(function: F) -> F:
        function.nki_token = operator           # type: ignore[attr-defined]
        if name:
            function.__name__, function.__qualname__, function.__doc__ = name, name, does
        return function
    return mark


token("copy")(ops.copy)


# -- composed of several operations ------------------------------------------------------------------------------------
def _float(x: Any) -> DType:
    """Return the result's dtype if the kernel names none: the operand's if it is a float, else float32."""
    return x.dtype if x.dtype.is_float else FLOAT32


def _count(x: View, axis: object, mask: object) -> object:
    """Return the number of elements that a reduction combines, or a tile of numbers if the mask leaves out parts of
    rows."""
    axes = ops.free_axes(x.ndim, axis)
    if isinstance(mask, Mask) and any(e.axes[a] for e, _ in mask.spread(x.shape).terms for a in axes):
        ones = creation.filled(x.shape, 1.0, FLOAT32)
        return ops.binary("maximum", ops.reduce("add", ones, axis, mask=mask, keepdims=True), 1.0)
    return math.prod(x.shape[a] for a in axes)


def mean(x: object, axis: object, *, dtype: object = None, mask: object = None, keepdims: bool = False) -> Tensor:
    """Return the mean over free axes; integer input gives float32. Elements that are masked out do not count."""
    x = creation.as_operand(x, "nl.mean")
    if x.mask is not None:
        mask = x.mask if mask is None else mask & x.mask
    count = _count(x, axis, mask)
    total = ops.reduce("add", x, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    rows = active("nl.mean").properties["last_result"].where_written()
    divided = ("multiply", total, 1.0 / count) if isinstance(count, int) else ("divide", total, count)
    result = ops.binary(*divided, mask=rows, dtype=dtype or _float(x))
    return ops.drop_axes(result, ops.free_axes(x.ndim, axis), keepdims)


def var(x: object, axis: object, *, dtype: object = None, mask: Mask | None = None, keepdims: bool = False) -> Tensor:
    """Return the population variance over free axes."""
    center = mean(x, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    deviation = ops.binary("subtract", x, center, dtype=FLOAT32, mask=mask)
    squares = ops.unary("square", deviation, mask=mask)
    return mean(squares, axis, mask=mask, dtype=dtype or _float(x), keepdims=keepdims)


def softmax(x: object, axis: object, *, dtype: object = None, compute_dtype: object = None, mask: object = None
            ) -> Tensor:
    """Return exp(x - max(x)) divided by its sum over free axes."""
    x = creation.as_operand(x, "nl.softmax")
    kind = compute_dtype or FLOAT32
    highest = ops.reduce("maximum", x, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    shifted = ops.binary("subtract", x, highest, mask=mask, dtype=kind)
    powers = ops.unary("exp", shifted, mask=mask, dtype=kind)
    total = ops.reduce("add", powers, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    return ops.binary("divide", powers, total, mask=mask, dtype=dtype or compute_dtype or _float(x))


def rms_norm(x: object, w: object, axis: object, n: float, epsilon: float = 1e-6, *, dtype: object = None,
             compute_dtype: object = None, mask: object = None) -> Tensor:
    """Return x / sqrt(sum of x squared over ``axis`` / n + epsilon) * w."""
    x = creation.as_operand(x, "nl.rms_norm")
    squares = ops.unary("square", x, mask=mask, dtype=FLOAT32)
    total = ops.reduce("add", squares, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    scaled = ops.binary("add", ops.binary("multiply", total, 1.0 / n), epsilon)
    normal = ops.binary("multiply", x, ops.unary("rsqrt", scaled), mask=mask, dtype=compute_dtype or FLOAT32)
    return ops.binary("multiply", normal, w, mask=mask, dtype=dtype or compute_dtype or _float(x))


# -- no loop nest over tiles -------------------------------------------------------------------------------------------
def gather_flattened(data: View, indices: object, *, mask: object = None, dtype: object = None) -> Tensor:
    """Gather elements of ``data`` per partition: ``indices`` index its flattened free elements."""
    source, index_tile = creation.as_operand(data), creation.as_operand(indices)
    gathered = ops.compute(movement.GatherFlattenedOp, index_tile.shape, data.dtype,
                           {"src": source, "index": index_tile}, mask,
                       explicit_dtype=data.dtype)
    return gathered if dtype is None else ops.copy(gathered, dtype=dtype)


def generator_state() -> Tensor:
    return creation.tensor_of(active().state("random_state", (1, 2), UINT32))


def random_seed(seed: View | float, *, mask: object = None) -> None:
    """Seed the generator with a number or a [1, 1] tile; the same seed gives the same numbers."""
    from nki_mlir.dialects.nisa.random import RandomSeedOp  # start-up: few kernels draw random numbers
    if not isinstance(seed, View):
        seed = creation.filled((1, 1), float(int(seed) & 0x7FFFFFFF), INT32)
    emit(RandomSeedOp, {"state": generator_state(), "seed": seed}, mask)


def rand(shape: object, dtype: object) -> Tensor:
    """Return a tile of uniform random numbers in [0, 1)."""
    from nki_mlir.dialects.nisa.random import RandOp  # start-up: few kernels draw random numbers
    extents, _ = creation.plain_shape(shape)
    return ops.compute(RandOp, extents, dtype, {"state": generator_state()}, explicit_dtype=dtype)


def dropout(data: View, prob: object, *, dtype: object = None, mask: object = None) -> Tensor:
    """Return data with elements set to zero with a probability, a number or a [P, 1] tile; nothing is rescaled."""
    from nki_mlir.dialects.nisa.random import DropoutOp  # start-up: few kernels draw random numbers
    source = creation.as_operand(data)
    tile, number = operand(prob)
    if tile is not None and tile.shape[0] != source.shape[0]:
        tile = tile.broadcast_to((source.shape[0], 1))
    return ops.compute(DropoutOp, source.shape, data.dtype,
                       {"state": generator_state(), "src": source, "prob": tile}, mask, explicit_dtype=dtype,
                       imm=number)


# -- limits, and conversions outside of kernels ------------------------------------------------------------------------
class FixedLimit(NkiMlirError, AttributeError):                                         # type: ignore[misc]
    code = "NKI-ATTRIBUTE"
    message = "nl.tile_size.{name} is a limit of the target, and cannot be assigned"
    fix = "keep the size of your tiles in a variable"


class TileSize:
    """The limits of one instruction (``nl.tile_size``)."""

    pmax = Machine.partitions
    psum_fmax: Any = Machine.psum_free_max
    gemm_stationary_fmax = Machine.stationary_free_max
    gemm_moving_fmax = Machine.moving_free_max
    bn_stats_fmax = Machine.bn_stats_max
    psum_min_align = Machine.address_alignment
    sbuf_min_align = 1

    def __getattr__(self, name: str) -> NoReturn:
        raise unknown("nl.tile_size", name, dir(type(self)), {})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FixedLimit(name=name).here()

    @property
    def total_available_sbuf_size(self) -> int:
        """Bytes per partition that kernels may use on the kernel's target."""
        builder = current.get()
        return machine_named(builder.target if builder is not None else DEFAULT_TARGET).sbuf_bytes_per_partition


class finfo:
    """The least and greatest finite value of a float dtype."""

    def __init__(self, dtype: object) -> None:
        limits = ml_dtypes.finfo(located_dtype(dtype).numpy)
        self.min, self.max, self.eps = float(limits.min), float(limits.max), float(limits.eps)


class fp32:
    """Constants of float32: ``min`` is its least finite number."""

    min = float(np.finfo(np.float32).min)


class bfp16:
    """Constants of bfloat16: ``min`` is its least finite number."""

    min = float(ml_dtypes.finfo(ml_dtypes.bfloat16).min)


def static_cast(input_data: object, dtype: object) -> np.ndarray | np.generic:
    """Convert a number or array to another dtype, in a kernel or outside."""
    kind, values = dtype_of(dtype), np.asarray(input_data)
    if values.dtype == np.float64:
        with np.errstate(over="ignore"):        # such numbers become infinite
            values = values.astype(np.float32)
    converted = convert(values, kind)
    return converted if isinstance(input_data, np.ndarray) else converted[()]


# -- the launch grid ---------------------------------------------------------------------------------------------------
# The grid as a kernel sees it: the program's index, reductions over programs, and markers of its dimensions.

class BadGridAxis(KernelError, IndexError):
    code = "NKI-GRID-AXIS"
    message = "a launch grid of {rank} dimensions has no axis {axis}"
    fix = "launch the kernel with a grid that has the axis, kernel[g0, g1, ...], or use another axis"


class RepeatedGridAxis(KernelError):
    code = "NKI-GRID-AXIS"
    message = "program_axes {axes} name an axis of the grid twice"
    fix = "name each axis once"


def _axes_of(axes_argument: Any, rank: int) -> list[int]:
    """Return one axis or several as a list, and check that the grid has them."""
    axes = list(axes_argument) if isinstance(axes_argument, (list, tuple)) else [axes_argument]
    for axis in axes:
        if not 0 <= axis < rank:
            raise BadGridAxis(axis=axis, rank=rank, last=rank - 1).here()
    if len(set(axes)) < len(axes):
        raise RepeatedGridAxis(axes=axes).here()
    return axes


def program_id(axis: int) -> Any:
    """Return the index of this program along an axis of the grid."""
    builder = active("nl.program_id")
    axis, = _axes_of(axis, len(builder.grid))
    return builder.program_id(axis)


def num_programs(axes: object = None) -> int:
    """Return the number of programs along one axis or several, or of the complete grid."""
    grid = active("nl.num_programs").grid
    if axes is None:
        return math.prod(grid)
    return math.prod(grid[a] for a in _axes_of(axes, len(grid)))


def program_ndim() -> int:
    """Return the number of dimensions of the grid; 0 outside of a kernel."""
    builder = current.get()
    return 0 if builder is None else len(builder.grid)


def all_reduce(x: object, op: object, program_axes: object, *, dtype: object = None, mask: Mask | None = None
               ) -> Tensor:
    """Reduce x by ``op`` over all programs along axes of the grid; each of them gets the result."""
    from nki_mlir.dialects.nisa.collectives import AllReduceOp, text_of  # start-up: few kernels have collectives
    grid = active("nl.all_reduce").grid
    axes = _axes_of(program_axes, len(grid))
    source = as_operand(x, "nl.all_reduce")
    if mask is not None:
        source = neutral_outside(source, alu_token(op), mask)
    elif source.buffer.space != SBUF:
        source = ops.copy(source)
    result = new_tensor(source.shape, dtype_of(dtype) if dtype is not None else source.dtype)
    numbers = np.moveaxis(np.arange(math.prod(grid)).reshape(grid), axes, range(len(axes)))
    groups = numbers.reshape(math.prod(grid[a] for a in axes), -1).T.tolist()
    emit(AllReduceOp, {"dst": result, "src": source}, op=alu_token(op).name, groups=text_of(groups), over=PROGRAMS)
    return result if mask is None else ops.copy(result, mask=mask)


def neutral_outside(source: View, op: AluOperator, mask: object) -> Tensor:
    """Return the tile with the operator's identity at elements that a mask leaves out, which then change no result."""
    neutral = op.identity(FLOAT32 if source.dtype.is_float else source.dtype)
    if neutral is None:
        raise UnsupportedMask(what=f"nl.all_reduce has a mask, and {op.name} has no identity for masked-off elements",
                              instead="leave the mask out, or reduce with an operator such as np.add").here()
    result = filled(source.shape, neutral, source.dtype)
    ops.compute(CopyOp, source.shape, source.dtype, {"src": source}, mask, destination=result)
    return result


class nc:
    """``nc(n)``: an extent of the grid with a program on each of n physical cores. ``nc(n) * m`` has m on each."""

    def __init__(self, extent: int) -> None:
        self.extent = integer(extent, "the extent of nl.nc")

    def __int__(self) -> int:
        return self.extent

    __index__ = __int__

    def __mul__(self, inner: int) -> "spmd_dim":
        return spmd_dim(self, inner)

    def __rmul__(self, outer: int) -> "spmd_dim":
        return spmd_dim(outer, self)


class spmd_dim:
    """``spmd_dim(outer, inner)``: one grid axis of outer * inner programs, numbered ``outer_id * inner + inner_id``."""

    def __init__(self, outer: "int | nc | spmd_dim", inner: "int | nc | spmd_dim") -> None:
        integer(outer, "outer of nl.spmd_dim")
        integer(inner, "inner of nl.spmd_dim")
        self.outer, self.inner = outer, inner

    def __int__(self) -> int:
        return int(self.outer) * int(self.inner)

    __index__ = __int__

    def core_of(self, program: int) -> int:
        """Return the physical core that a program runs on; 0 if no dimension is a core dimension."""
        outer, inner = divmod(program, int(self.inner))
        return outer if isinstance(self.outer, nc) else inner if isinstance(self.inner, nc) else 0
