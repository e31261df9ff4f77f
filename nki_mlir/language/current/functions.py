# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of ``nki.language`` on tiles: each returns a new tile, and carries the name of its operator.

Python's operators are these functions: ``a + b`` is ``nl.add(a, b)``, and so on; ``t += v`` writes in place. The
newest release has no operators: with ``NKI_MLIR_STRICT`` they raise its error. Comparisons always raise it, since a
tensor has no truth value.
"""

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from nki_mlir.capture.errors import BadBroadcast, TooManyDimensions
from nki_mlir.capture.tensor import View
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.nisa.matmul import NcTransposeOp
from nki_mlir.dialects.verifier import ShapeMismatch, TooLarge, WrongMemory
from nki_mlir.environment import is_strict
from nki_mlir.language import functions, tensor_object
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import emit
from nki_mlir.language.current import assignment
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.calls import dtype_argument, reported
from nki_mlir.language.current.errors import NkiTypeError, core_rule, integer, invalid, older, one_of, warn
from nki_mlir.language.current.indexing import subscript
from nki_mlir.language.current.memory import psum
from nki_mlir.language.current.repeated_calls import repeatable
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.functions import ARITHMETIC, BITWISE, MODULI, REDUCTIONS, SIMULATED, UNARY, VERDICTS, token
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, NUMBER_CLASSES, UINT32, DType, promote


def in_hbm(op: str, label: str, value: object) -> None:
    tensor = low.is_tensor(value, op, label)
    core_rule(not tensor.on_chip, WrongMemory, operand=label, op=op, expected=HBM, found=tensor.buffer.space)


def on_chip(op: str, label: str, value: object) -> NkiTensor:
    tensor = low.is_tensor(value, op, label)
    core_rule(tensor.on_chip, WrongMemory, operand=label, op=op, expected="psum|sbuf", found=HBM)
    return low.reading(tensor)


def result_type(dtype: object, *operands: object) -> DType:
    """Return ``dtype`` if it is given, else the promoted dtype of the tiles. Python numbers do not take part."""
    if dtype is not None:
        return dtype_argument(dtype)
    kinds = [x.dtype for x in operands if isinstance(x, NkiTensor)]
    return kinds[0] if len(kinds) == 1 or kinds[0] is kinds[1] else promote(*kinds)


def _binary(name: str) -> Callable[..., object]:
    @reported
    @repeatable
    @token(name, name, f"{functions.summary(name)}; x or y may be a number.")
    def operate(x: float | NkiTensor, y: float | NkiTensor, dtype: object) -> NkiTensor:
        if name in SIMULATED:
            fix = "multiply with nl.reciprocal" if name == "divide" else "compute it from a rounded quotient"
            warn(f"nl.{name} is not portable, since no device has it; {fix}")
        tiles = [on_chip(name, label, t) for label, t in (("x", x), ("y", y)) if isinstance(t, NkiTensor)]
        if not tiles:
            kinds = f"'{type(x).__name__}' and '{type(y).__name__}'"
            raise NkiTypeError(f"{name}: expecting 'tensor', got {kinds}",
                               fix="load arguments in HBM first, with nl.load").here()
        if len(tiles) == 2 and tuple(tiles[0].shape) != tuple(tiles[1].shape):
            broadcast_rule(name, *tiles)
        kind = result_type(dtype, x, y)
        if dtype is None and name == "divide" and kind.is_integer:
            kind = FLOAT32
        if dtype is None and ALU[name].on_bits and kind is FLOAT32:
            kind = UINT32                       # float32 would lose bits of a uint32 operand
        operands = iter(low.core_view(t) for t in tiles)
        left, right = (next(operands) if isinstance(v, NkiTensor) else v for v in (x, y))
        return low.adopt(ops.binary(name, left, right, dtype=kind), name in VERDICTS)
    return operate


def broadcast_rule(op: str, x: NkiTensor, y: NkiTensor) -> None:
    """Raise an error for two tiles of different shapes. A [P, 1] tile with a [P, F] tile only causes a warning."""
    for wide, narrow in ((x, y), (y, x)):
        if wide.shape[0] == narrow.shape[0] and wide.ndim == narrow.ndim and narrow.size == narrow.shape[0]:
            warn(f"{op} broadcasts {list(narrow.shape)} to {list(wide.shape)}, which is not portable; use .broadcast")
            return
    invalid(f"{op} takes tiles of the same shape, got {list(x.shape)} and {list(y.shape)}",
            fix="give both the same shape, for example with nl.broadcast_to", code="NKI-SHAPE")


EVERYWHERE = {"sin": "sin_reduced"}        # variants that first reduce the argument to the range of the instruction


def _unary(name: str) -> Callable[..., object]:
    @reported
    @repeatable
    @token(name, name, f"Compute ``{name}(x)`` of every element.")
    def operate(x: NkiTensor, dtype: object) -> NkiTensor:
        source = on_chip(name, "x", x)
        if name == "rsqrt" and x.buffer is psum:
            older("nl.rsqrt does not read PSUM; use nisa.activation(op=nl.rsqrt)")
        result = ops.unary(EVERYWHERE.get(name, name), low.core_view(source), dtype=result_type(dtype, x))
        return low.adopt(result, name == "logical_not")
    return operate


ELEMENTWISE: dict[str, Any] = {
    n: _binary(n) for n in (*ARITHMETIC, *MODULI, "abs_max", "abs_min", *VERDICTS, *BITWISE)} | {
    n: _unary(n) for n in (*UNARY, "gelu_apprx_sigmoid_dx")}
globals().update(ELEMENTWISE)


# -- data movement -----------------------------------------------------------------------------------------------------
@reported
@repeatable
def load(src: NkiTensor, dtype: object) -> NkiTensor:
    """Load an HBM tensor into a new SBUF tile. A tensor without dimensions is a tile of shape (1, 1)."""
    in_hbm("load", "src", src)
    src = src if src.ndim else src.reshape((1, 1))
    low.check_partitions(src.shape[0], "load", "src")
    tile = low.allocate(src.shape, result_type(dtype, src))
    assignment.dma(tile, src, op="load")
    return tile


@reported
def load_transpose2d(src: NkiTensor, dtype: object) -> NkiTensor:
    """Load a 2-D HBM tensor transposed into a new SBUF tile."""
    in_hbm("load_transpose2d", "src", src)
    core_rule(src.ndim == 2, ShapeMismatch, what=f"load_transpose2d takes a 2-D view, got {tuple(src.shape)}")
    tile = low.allocate(src.shape[::-1], result_type(dtype, src))
    with ops.stated_transpose():
        assignment.dma(tile, src.permute((1, 0)), op="load_transpose2d")
    return tile


@reported
@repeatable
def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Store an SBUF tile to HBM."""
    in_hbm("store", "dst", dst)
    assignment.dma(dst, value, op="store")


@reported
@repeatable
@token("copy")
def copy(x: NkiTensor, dtype: object) -> NkiTensor:
    """Copy an on-chip tile to a new SBUF tile of the same shape."""
    return low.copied(on_chip("copy", "x", x), result_type(dtype, x), op="copy")


@reported
@repeatable
def transpose(x: NkiTensor, dtype: object) -> NkiTensor:
    """Transpose a 2-D tile (exchange partition and free axis) into a new PSUM tile."""
    source = on_chip("transpose", "x", x)
    core_rule(source.ndim == 2, TooManyDimensions, op="transpose", limit=2, rank=source.ndim)
    core_rule(source.shape[1] <= low.PARTITIONS, TooLarge, dim=1, tile=f"x{list(x.shape)}", op="transpose",
              limit=low.PARTITIONS)
    if source.buffer is psum:
        source = copy(source)
    result = low.allocate(source.shape[::-1], source.dtype, psum)
    with low.writing(result, "transpose") as out:
        emit(NcTransposeOp, {"dst": low.core_view(out), "src": low.core_view(source)}, engine="tensor")
    kind = result_type(dtype, x)
    return result if kind is result.dtype else low.copied(result, kind, psum, "transpose")


@reported
@repeatable
def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool) -> NkiTensor:
    """Compute x @ y, or x.T @ y with ``transpose_x``, as a float32 tile in PSUM."""
    left, right = on_chip("matmul", "x", x), on_chip("matmul", "y", y)
    return low.adopt(ops.matmul(low.core_view(left), low.core_view(right), transpose_x=transpose_x))


@reported
def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: object, dtype: object) -> NkiTensor:
    """Gather elements of ``data`` per partition: ``indices`` index its flattened free elements."""
    op = "gather_flattened"
    one_of(axis, (0,), f"{op} axis")
    source, index_tile = low.flat_tile(op, "data", data), low.flat_tile(op, "indices", indices)
    result = low.adopt(functions.gather_flattened(source, index_tile, dtype=result_type(dtype, data)))
    return result.reshape(indices.shape)


@reported
def broadcast_to(x: NkiTensor, shape: tuple[int, ...], dtype: object) -> NkiTensor:
    """Broadcast x along its dimensions of size 1 into a new tile. Return x itself if it has the shape and dtype."""
    new_shape, kind = tuple(integer(n, "shape") for n in shape), result_type(dtype, x)
    if new_shape == tuple(x.shape) and kind is x.dtype:
        return x
    core_rule(len(new_shape) == x.ndim and builtins.all(n in (1, w) for n, w in zip(x.shape, new_shape)), BadBroadcast,
              shape=tuple(x.shape), wanted=new_shape)
    view = low.core_view(on_chip("broadcast_to", "x", x)).broadcast_to(new_shape)
    return low.adopt(ops.copy(view, dtype=kind))


@reported
def expand_dims(x: NkiTensor, axis: object) -> NkiTensor:
    """Return a view with a dimension of size 1 inserted at ``axis``."""
    return x.expand_dim(axis)


# -- reductions --------------------------------------------------------------------------------------------------------
def tile_and_axes(op: str, x: object, axis: object) -> tuple[View, list[int]]:
    """Return the tile that a function reduces and its reduction axes, which are the last free axes."""
    source = on_chip(op, "x", x)
    axes = low.free_axes(op, source, axis)
    return low.core_view(source), list(axes)


def _reduction(name: str, op: str) -> Callable[..., object]:
    @reported
    @repeatable
    @token(op, name, f"Compute ``{name}`` over the last free axes, accumulated in float32.")
    def operate(x: object, axis: int | Sequence[int], dtype: object, keepdims: bool) -> NkiTensor:
        return low.adopt(ops.reduce(op, *tile_and_axes(name, x, axis), dtype=result_type(dtype, x), keepdims=keepdims))
    return operate


globals().update({name: _reduction(name, op) for name, op in REDUCTIONS.items()})


@reported
@token("logical_and")
def all(x: NkiTensor, axis: object, dtype: object) -> NkiTensor:
    """Reduce the last free axes with logical and: 1 where all elements are nonzero, else 0."""
    result = ops.reduce("logical_and", *tile_and_axes("all", x, axis), dtype=result_type(dtype, x))
    return low.adopt(result, verdict=True)


@reported
@token("average")
def mean(x: object, axis: int | Sequence[int], dtype: object, keepdims: bool) -> NkiTensor:
    """Compute the mean over the last free axes."""
    return low.adopt(functions.mean(*tile_and_axes("mean", x, axis), dtype=result_type(dtype, x), keepdims=keepdims))


@reported
def var(x: NkiTensor, axis: object, dtype: object, keepdims: object) -> NkiTensor:
    """Compute the population variance over the last free axes, which the result keeps with size 1."""
    return low.adopt(functions.var(*tile_and_axes("var", x, axis), dtype=result_type(dtype, x), keepdims=True))


# -- composites --------------------------------------------------------------------------------------------------------
@reported
def softmax(x: NkiTensor, axis: object, dtype: object) -> NkiTensor:
    """Compute softmax over the last free axes: exp(x - max(x)) divided by its sum."""
    return low.adopt(functions.softmax(*tile_and_axes("softmax", x, axis), dtype=result_type(dtype, x)))


@reported
def rms_norm(x: object, w: NkiTensor, axis: object, n: int, epsilon: float, dtype: object,
             compute_dtype: object) -> NkiTensor:
    """Compute the RMS normalization x / sqrt(sum of x squared / n + epsilon) * w."""
    (source, axes), weight = tile_and_axes("rms_norm", x, axis), low.core_view(on_chip("rms_norm", "w", w))
    return low.adopt(functions.rms_norm(source, weight, axes, n, epsilon, dtype=result_type(dtype, x),
                                         compute_dtype=compute_dtype))


@reported
def dropout(x: NkiTensor, rate: float, dtype: object) -> NkiTensor:
    """Copy x, with each element set to zero with probability ``rate``."""
    view = low.core_view(on_chip("dropout", "x", x))
    return low.adopt(functions.dropout(view, low.scalar("dropout", "rate", rate, view), dtype=result_type(dtype, x)))


@reported
def where(condition: NkiTensor, x: NkiTensor, y: float | NkiTensor, dtype: object) -> NkiTensor:
    """Select x where ``condition`` is nonzero, else y; each is a tile or a number. The result has the dtype of x, or of
    y if x is a number; if both are numbers, it is float32."""
    chosen = low.core_view(on_chip("where", "condition", condition))
    parts = [low.core_view(on_chip("where", label, v)) if isinstance(v, NkiTensor) else v
             for label, v in (("x", x), ("y", y))]
    tiles = [v for v in (x, y) if isinstance(v, NkiTensor)]
    kind = result_type(dtype, *tiles[:1]) if tiles or dtype is not None else FLOAT32
    return low.adopt(ops.select(chosen, *parts, dtype=kind))


@reported
def device_print(print_prefix: str, tensor: object) -> None:
    """Print a tensor when the kernel runs on the CPU instead of the device."""
    ops.device_print(print_prefix, low.core_view(low.reading(low.is_tensor(tensor, "device_print", "tensor"))))


# -- Python's operators and subscripts ---------------------------------------------------------------------------------
def _floor_divide(x: object, y: object) -> NkiTensor:
    quotient = ELEMENTWISE["divide"](x, y, dtype=FLOAT32)
    result: NkiTensor = ELEMENTWISE["floor"](quotient, dtype=result_type(None, x, y))
    return result


def _operator(name: str, swapped: bool = False, writes: bool = False) -> Callable[..., object]:
    compute = ELEMENTWISE.get(name, _floor_divide)

    def operate(self: NkiTensor, *other: object) -> object:
        if is_strict():
            self._no_operator()
        if len(other) > 1:
            raise tensor_object.power_modulo()
        older(f"the newest release refuses Python's operators on tensors; call nl.{name}")
        strange = [o for o in other if not isinstance(o, (NkiTensor, *NUMBER_CLASSES))]
        if strange:
            return tensor_object.not_implemented(strange[0])
        result = compute(*((*other, self) if swapped else (self, *other)))
        if not writes:
            return result
        assignment.assign(self, result)
        return self
    return operate


def set_elements(tensor: NkiTensor, key: object, value: object) -> None:
    """Assign ``value`` to the view ``tensor[key]``, and warn that assignment is not portable."""
    older("updating a tile by assignment is not portable; pass the view as dst of an instruction")
    target = tensor[key]
    if not (isinstance(value, NkiTensor) and target.same_elements(value)):         # t[...] += v has already written
        assignment.assign(target, value)


def copied_as(tensor: NkiTensor, dtype: object) -> NkiTensor:
    """Copy a tensor, converted to another dtype."""
    result: NkiTensor = copy(tensor, dtype)
    return result


for _method, _name in tensor_object.BINARY.items():
    setattr(NkiTensor, f"__{_method}__", _operator(_name))
    setattr(NkiTensor, f"__r{_method}__", _operator(_name, swapped=True))
    setattr(NkiTensor, f"__i{_method}__", _operator(_name, writes=True))
for _method, _name in tensor_object.UNARY.items():
    setattr(NkiTensor, f"__{_method}__", _operator(_name))
NkiTensor.__getitem__, NkiTensor.__setitem__, NkiTensor.astype = subscript, set_elements, copied_as
