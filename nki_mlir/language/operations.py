# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of the tile language, shared by both generations: argument rules, then builder calls.

Each allocates its result tile (unless it has a destination), determines the result's dtype, and emits one operation or
a few. They do not depend on which builder runs.
"""

import math
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

from nki_mlir.capture.broadcasting import repeats_behind
from nki_mlir.capture.builder import active
from nki_mlir.capture.errors import TooManyDimensions
from nki_mlir.capture.index import Index, Mask
from nki_mlir.capture.operands import Views, lift_to, plain_mask
from nki_mlir.capture.strides import same_extents
from nki_mlir.capture.tensor import Buffer, View, tile_of
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects import verifier
from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.dialects.nki import elementwise, movement, reduction
from nki_mlir.dialects.nki import matmul as products
from nki_mlir.dialects.op import Op
from nki_mlir.language import creation
from nki_mlir.language.direct_allocation import HiddenBias, HiddenTranspose, refuse_hidden
from nki_mlir.language.framework_tensors import HostArray
from nki_mlir.machine import Machine
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BOOL, FLOAT32, INT32, NUMBER_CLASSES, UINT8, UINT32, DType, operand_dtype, promote
from nki_mlir.scalar.tokens import activation_token, alu_token, token_name


# -- moving data -------------------------------------------------------------------------------------------------------
def load(src: View, *, mask: object = None, dtype: object = None) -> creation.Tensor:
    """Load a tensor in HBM to a new SBUF tile."""
    require_space("load", "src", src, HBM)
    source = creation.as_operand(src)
    return compute(movement.LoadOp, source.shape, src.dtype, {"src": source}, mask, explicit_dtype=dtype)


@contextmanager
def stated_transpose() -> Iterator[None]:
    """Mark the loads inside as transposes that the kernel states."""
    properties = active("nl.load_transpose2d").properties
    properties["transposes"] = True
    try:
        yield
    finally:
        del properties["transposes"]


def store(dst: View, value: object, *, mask: object = None) -> None:
    """Store an SBUF (or PSUM) tile, or a number, to HBM."""
    require_space("store", "dst", dst, HBM)
    value = plain_number(value)
    if isinstance(value, (*NUMBER_CLASSES, Index)):
        value = as_tile(value, creation.as_operand(dst), dst.dtype)
    if dst.ndim == 1 and isinstance(value, View) and value.shape == (1, dst.shape[0]):
        dst = dst.with_unit_dims([0], 2)            # so that a tile's row is a row of the tensor
    target = creation.as_operand(dst)
    require_space("store", "value", value, SBUF, PSUM)
    value = creation.located(match_destination, value, target.shape, "store")
    creation.emit(movement.StoreOp, {"dst": target, "src": value}, mask)


def stored(buffer: Buffer) -> creation.Tensor | None:
    """Return the tensor that a store returns to the kernel; None for a parameter, which it updates in place."""
    return None if buffer.role == "input" else creation.tensor_of(buffer)


class DestinationTooSmall(verifier.OverlappingWrite):
    message = "the destination of '{op}' has shape {target}, but the value has shape {value}"
    fix = "assign a part of the value that has the destination's shape"


class DestinationDiffers(verifier.ShapeMismatch):
    message = DestinationTooSmall.message
    fix = "give both the same shape, or extents of 1 where elements of the value repeat"


class SpreadByOperator(verifier.ShapeMismatch):
    message = "operator {op} on tiles of {lhs} and {rhs} partitions"
    why = "operators do not broadcast the partition dimension; functions do"
    fix = "call nl.{op}(x, y)"


def match_destination(value: View, shape: Sequence[int], op: str) -> View:
    """Return the value if it fits the target. It may repeat into a larger target, but it is never cut."""
    if same_extents(value.shape, shape):
        return value
    if math.prod(value.shape) > math.prod(shape):
        raise DestinationTooSmall(op=op, target=list(shape), value=list(value.shape))
    missing = len(shape) - value.ndim
    if missing < 0 or any(n not in (1, extent) for n, extent in zip(value.shape, shape[missing:])):
        raise DestinationDiffers(op=op, target=list(shape), value=list(value.shape))
    return value


def copy(src: View, *, mask: object = None, dtype: object = None) -> creation.Tensor:
    """Copy a tile to a new SBUF tile of the same layout."""
    source = creation.as_operand(src)
    return compute(movement.CopyOp, source.shape, src.dtype, {"src": source}, mask, explicit_dtype=dtype)


def compute(cls: type[Op], shape: tuple[int, ...], dtype: object, views: Views, mask: object = None, *,
            space: str = SBUF, explicit_dtype: object = None, destination: Any = None,
            **attributes: object) -> creation.Tensor:
    """Emit an operation that writes a new tile ``dst``, or ``destination``, and return it; ``explicit_dtype`` is the
    dtype that the kernel names."""
    dtype = dtype if explicit_dtype is None else explicit_dtype
    if destination is not None:
        creation.emit_with(cls, {"dst": destination, **views}, mask, attributes)
        written: creation.Tensor = destination
        return written
    if 0 in shape:
        return empty_tile(shape, dtype, space)
    result = creation.result_tensor(shape, dtype, space)
    happens = creation.emit_with(cls, {"dst": result, **views}, mask, attributes) is not None
    builder = active()
    builder.properties["last_result"] = LastResult(result, result, builder.last, cls, views, mask if happens else False,
                                            attributes, explicit_dtype is not None,
                                            states_transpose="transposes" in builder.properties)
    return result


class LastResult(NamedTuple):
    """The operation that computed the last result, so that an assignment that follows at once can redirect it.

    ``result`` is the tensor that the kernel got: ``operand`` without the axes ``dropped``.
    """

    result: View
    operand: View
    op: Op | None                  # the last emitted one; an earlier one if the mask is False
    cls: type[Op]
    views: Views
    mask: object                 # False: it selects no element
    attributes: dict[str, object]
    explicit_dtype: bool
    dropped: tuple[int, ...] = ()
    states_transpose: bool = False

    @property
    def writes_more(self) -> bool:
        """Return whether the operation has other results."""
        return len(self.cls.outputs) > 1 and any(
            name != "dst" and self.views.get(name) is not None for name in self.cls.outputs)

    @property
    def is_masked(self) -> bool:
        """Return whether some elements of the result are not written."""
        for view in self.views.values():
            if view is not None and view.mask is not None:
                return True
        return self.mask is not None or self.attributes.get("mode") == "skip"

    def where_written(self) -> Mask | Literal[False] | None:
        """Return the mask on the axes of ``operand`` that leaves out results without input elements."""
        mask = plain_mask(self.mask)
        if self.op is None or mask is False or (mask is not None and mask.negated) or not self.is_masked:
            return mask
        iteration = self.op.iteration()
        terms = list(mask.spread(iteration.extents).terms) if mask is not None else []
        for name, view in self.views.items():
            if view is not None and view.mask is not None:
                lift = lift_to(iteration, name)
                terms += [(lift(e), equal) for e, equal in view.mask.terms]
        dst_axes = iteration.axes["dst"]
        kept_axes = {k for k, n in zip(dst_axes, self.operand.shape)
                     if k not in iteration.reduced or n == iteration.extents[k]}
        written = Mask(tuple(terms))
        for axis in range(len(iteration.extents)):
            if axis not in kept_axes and written.terms:
                written = written.anywhere_along(axis)
        terms = [(e.with_axes(tuple(e.axes[k] for k in dst_axes), self.operand.shape), equal)
                 for e, equal in written.terms]
        return Mask(tuple(terms)) if terms else None


def empty_tile(shape: tuple[int, ...], dtype: object, space: str) -> creation.Tensor:
    """Return the result for an empty part of a tensor."""
    tile = creation.new_tensor(tuple(max(n, 1) for n in shape), dtype, space)
    return tile.like(dims=tuple(d._replace(count=n) for d, n in zip(tile.dims, shape)))


# -- computing ---------------------------------------------------------------------------------------------------------
def as_tile(value: Any, like: View, dtype: DType | None = None) -> creation.Tensor:
    """Return a number or index expression as a tile that broadcasts against ``like``."""
    shape = (like.shape[0], *(1 for _ in like.shape[1:]))
    if isinstance(value, Index) and not value.is_constant:
        index = tile_index(value) if value.shape else value.spread(shape)
        if index.shape[0] == 1:         # the same value in each partition
            index = index.spread((like.shape[0], *index.shape[1:]))
        tile = creation.new_tensor(index.shape, dtype or dtype_of_number(0))
        creation.emit(movement.IotaOp, {"dst": tile}, expression=index)
        return tile
    return creation.filled(shape, value, dtype or dtype_of_number(value))


def dtype_of_number(value: object) -> DType:
    return operand_dtype(value.const if isinstance(value, Index) else value)


def broadcast_shape(*shapes: tuple[int, ...], subject: str) -> tuple[int, ...]:
    """Return the shape by NumPy's rules. Unlike in NumPy, one value per partition also repeats over several free
    axes."""
    first_shape = shapes[0]
    if all([same_extents(shape, first_shape) for shape in shapes]):
        return first_shape
    longest = max(shapes, key=len)
    try:
        return np.broadcast_shapes(*(s + (1,) * (len(longest) - len(s)) if repeats_behind(s, longest) else s
                                     for s in shapes))
    except ValueError:
        text = f"{subject}: shapes {' and '.join(map(str, shapes))} do not broadcast"
        raise verifier.ShapeMismatch(what=text, fix=verifier.agreement(*shapes[:2])).here() from None


def result_dtype(op: str, left: object, right: object, dtype: object, boolean: bool) -> DType:
    """Return the dtype of a binary operation's result: ``dtype``, else bool for comparisons, float32 for integer
    quotients."""
    if dtype is not None:
        return creation.located_dtype(dtype)
    if boolean:
        return BOOL
    a = left.dtype if isinstance(left, View) else (0 if isinstance(left, Index) else left)
    b = right.dtype if isinstance(right, View) else (0 if isinstance(right, Index) else right)
    if op == "divide" and _is_integer(a) and _is_integer(b):
        return FLOAT32
    promoted = promote(a, b)
    if (promoted is FLOAT32 and a is not promoted and b is not promoted and ALU[op].on_bits
            and _is_integer(a) and _is_integer(b)):
        return UINT32               # which has all bits of both operands
    return UINT8 if promoted is BOOL else promoted


def of_one_kind(op: str, left: View, right: View) -> dict[str, View]:
    """Return the two operands, both as unsigned if one is signed and the other has 32 unsigned bits, because a
    conversion would change these bits."""
    is_word = left.dtype is UINT32 or right.dtype is UINT32
    if is_word and ALU[op].on_bits and promote(left.dtype, right.dtype) is FLOAT32:
        left, right = (t if t.dtype is UINT32 else without_sign(t) for t in (left, right))
    return {"lhs": left, "rhs": right}


def without_sign(tile: View) -> View:
    """Return the 32 bits of signed integers as unsigned ones."""
    return (tile if tile.dtype is INT32 else copy(tile, dtype=INT32)).reinterpreted(UINT32)


def _is_integer(kind: object) -> bool:
    return kind.is_integer if isinstance(kind, DType) else isinstance(kind, (int, np.integer, np.bool_))


def binary(op: object, left: Any, right: Any, *, mask: object = None, dtype: object = None, boolean: bool = False,
           destination: View | None = None, partition_broadcast: bool = True) -> creation.Tensor:
    """Emit ``left (op) right``, each a tile or a number, with NumPy broadcasting."""
    op = op if type(op) is str and op in ALU else alu_token(op).name
    left, right = plain_number(left), plain_number(right)
    if isinstance(left, Index):
        left = as_tile(left, right if isinstance(right, View) else one_element())
    if isinstance(right, Index):
        right = as_tile(right, left if isinstance(left, View) else one_element())
    if not isinstance(left, View) and not isinstance(right, View):
        active(f"nl.{op}")
        check_number(op, left)
        left = as_tile(left, one_element())
    tensors = [x if x._tile is not None else creation.as_operand(x) for x in (left, right) if isinstance(x, View)]
    lhs, rhs = tensors[0], tensors[-1]
    if lhs.buffer.space == HBM or rhs.buffer.space == HBM:
        for label, t in zip(("x", "y"), tensors):
            require_space(op, label, t, PSUM, SBUF)
    shape: tuple[int, ...] = lhs.shape
    if not same_extents(shape, rhs.shape):
        shape = broadcast_shape(shape, rhs.shape, subject=op)
        if not partition_broadcast and lhs.shape[0] != rhs.shape[0]:
            raise SpreadByOperator(op=op, lhs=lhs.shape[0], rhs=rhs.shape[0]).here()
    scalar, reverse = (left, True) if isinstance(right, View) else (right, False)
    if len(tensors) == 1:
        check_number(op, scalar)
    kind = result_dtype(op, left, right, dtype, boolean)
    if len(tensors) == 2:
        return compute(elementwise.BinaryOp, shape, kind, of_one_kind(op, lhs, rhs), mask, explicit_dtype=dtype,
                       destination=destination, op=op)
    return compute(elementwise.BinaryScalarOp, shape, kind, {"src": lhs}, mask, explicit_dtype=dtype,
                   destination=destination, op=op, scalar=float(scalar), reverse=reverse)


def one_element() -> creation.Tensor:
    """Allocate a tile of one element, for an operation whose operands are all numbers."""
    return creation.new_tensor((1, 1), FLOAT32)


def plain_number(value: object) -> object:
    """Convert a constant index or an array of no dimensions to a number, a tile plus an index to a tile; else return
    the value."""
    if isinstance(value, View) or type(value) is float:
        return value
    if hasattr(value, "as_sum"):
        return value.as_sum()
    if isinstance(value, Index):
        return value.const if value.is_constant else value
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


LARGEST = int(np.finfo(np.float64).max)


def check_number(op: str, value: Any) -> None:
    if isinstance(value, np.ndarray):
        raise HostArray.of(value).here()
    if not isinstance(value, NUMBER_CLASSES):
        subject = value.described if isinstance(value, Mask) else type(value).__name__
        raise verifier.BrokenRule(op=op, what=f"takes tiles and numbers, got {subject}",
                                  fix=getattr(type(value), "pass_instead", "give it a tile or a number")).here()
    if isinstance(value, int) and (bits := value.bit_length()) > LARGEST.bit_length():
        raise verifier.BrokenRule(op=op, what=f"takes numbers that a float can hold, got an integer of {bits} bits",
                                  fix=f"give it an integer of at most {LARGEST.bit_length()} bits").here()
    if op in ALU and not ALU[op].floats and float(value) % 1:     # type: ignore[arg-type]
        raise verifier.BrokenRule(op=op, what=f"takes integers, got {value}", fix="round the number").here()


def unary(fn: object, x: Any, *, mask: object = None, dtype: object = None) -> creation.Tensor:
    """Emit ``fn(x)`` for every element; the result keeps x's dtype."""
    name = token_name(fn)
    if name not in ALU or ALU[name].arity != 1:
        name = activation_token(fn).name
    if isinstance(x, NUMBER_CLASSES):
        x = as_tile(x, one_element(), FLOAT32)
    source = creation.as_operand(x)
    require_space(name, "x", source, PSUM, SBUF)
    if name not in ALU:
        refuse_hidden(HiddenBias, name, source)
    return compute(elementwise.UnaryOp, source.shape, x.dtype, {"src": source}, mask, explicit_dtype=dtype, fn=name)


def select(condition: object, x: object, y: object, *, dtype: object = None, mask: object = None) -> creation.Tensor:
    """Select x where ``condition`` is not 0, else y."""
    values = (condition, x, y) = [plain_number(v) for v in (condition, x, y)]
    for value in values:
        if not isinstance(value, (View, Index)):
            check_number("where", value)
    like = next((v for v in values if isinstance(v, View)), None)
    if like is None:
        like = creation.as_operand(condition, "nl.where")
    kind = result_dtype("add", x, y, dtype, False)
    parts = [creation.as_operand(v) if isinstance(v, View) else as_tile(v, like) for v in values]
    if parts[0].dtype.is_float and elementwise.holding_integer(parts[1].dtype, parts[2].dtype):
        parts[0] = binary("not_equal", parts[0], 0, mask=mask, dtype=UINT8)     # values stay integers beside it
    shape = broadcast_shape(*(p.shape for p in parts), subject="where")
    views = dict(zip(("condition", "on_true", "on_false"), parts))
    return compute(elementwise.SelectOp, shape, kind, views, mask, explicit_dtype=dtype)


class PartitionAxis(KernelError, IndexError):
    code = "NKI-AXIS"
    message = "axis {axis} is the partition axis, along which the engines do not reduce"
    fix = "use nisa.tensor_partition_reduce, or a product with a tile of ones; or transpose the tile"


class BadAxis(KernelError, IndexError):
    code = "NKI-AXIS"
    message = "a tile of {rank} dimensions has no axis {axis}"
    fix = "use the free axes 1 to {last}, or -1 to -{last}"

    @property
    def advice(self) -> tuple[str, str]:
        return ("", "use the free axis 1, or -1") if self.values["last"] == 1 else super().advice


class RepeatedAxis(KernelError):
    code = "NKI-AXIS"
    message = "axis {axis} names an axis twice"
    fix = "name each axis once"


def free_axes(rank: int, axis: Any) -> tuple[int, ...]:
    """Return the axes of a reduction, in order, counted from the front."""
    axes = [operator.index(a) for a in (axis if isinstance(axis, (list, tuple)) else [axis])]
    for a in axes:
        if a in (0, -rank):
            raise PartitionAxis(axis=a).here()
        if not -rank <= a < rank:
            raise BadAxis(axis=a, rank=rank, last=rank - 1).here()
    if len({a % rank for a in axes}) < len(axes):
        raise RepeatedAxis(axis=axes).here()
    return tuple(sorted(a % rank for a in axes))


def reduce(op: object, x: View, axis: object, *, mask: object = None, dtype: object = None, keepdims: bool = False
           ) -> creation.Tensor:
    """Reduce x over free axes; a result of rank 1 keeps a trailing axis of 1."""
    name = alu_token(op).name
    source = creation.as_operand(x)
    require_space(name, "x", source, PSUM, SBUF)
    axes = free_axes(source.ndim, axis)
    reduced = reduction.reduced_shape(source.shape, axes)
    result = compute(reduction.ReduceOp, reduced, x.dtype, {"src": source}, mask, explicit_dtype=dtype, op=name,
                     axes=axes)
    return drop_axes(result, axes, keepdims)


def drop_axes(result: creation.Tensor, axes: tuple[int, ...], keepdims: bool) -> creation.Tensor:
    """Return a view without the reduced axes, but with two dimensions at least."""
    if keepdims:
        return result
    dims = tuple(d for k, d in enumerate(result.dims) if k not in axes)
    if len(dims) < 2:
        dims += (result.dims[axes[0]],)
    view = result.like(dims=dims)
    properties = active().properties
    producer: LastResult = properties["last_result"]
    if producer.result is result:
        properties["last_result"] = producer._replace(result=view, dropped=axes if view.shape != result.shape else ())
    return view


def matmul(x: object, y: object, *, transpose_x: bool = False, mask: object = None) -> creation.Tensor:
    """Compute x @ y, or x.T @ y with ``transpose_x``, as a float32 tile in PSUM."""
    stationary, moving = creation.as_operand(x, "nl.matmul"), creation.as_operand(y, "nl.matmul", "y")
    if not transpose_x:
        require_space("matmul", "x", stationary, PSUM, SBUF)
        shapes = list(stationary.shape), list(moving.shape)
        if stationary.ndim == 2 and shapes[0][1] != shapes[1][0]:
            raise verifier.BrokenRule(
                op="matmul", what="contracts axis 1 of x with axis 0 of y, got {} and {}".format(*shapes),
                fix="give x as [M, K] and y as [K, N], or x as [K, M] with transpose_x=True").here()
        refuse_hidden(HiddenTranspose, "matmul", stationary)
        stationary = transpose(stationary)
    from nki_mlir.language.product_rules import product_shape  # start-up: only products need it
    shape = product_shape("matmul", stationary, moving, mask)
    return compute(products.MatmulOp, shape, FLOAT32, {"stationary": to_sbuf(stationary), "moving": to_sbuf(moving)},
                   mask, space=PSUM, accumulate=False)


def to_sbuf(x: View) -> View:
    """Return a tile in SBUF, the only memory that the tensor engine reads."""
    return x if x.buffer.space == SBUF else copy(x)


def transpose(x: View, *, mask: object = None, dtype: DType | None = None) -> creation.Tensor:
    """Transpose a 2-D tile: exchange its partition and free axis."""
    source = creation.as_operand(x)
    if source.ndim != 2:
        raise TooManyDimensions(op="transpose", rank=source.ndim, limit=2).here()
    if source.shape[1] > Machine.partitions:
        raise verifier.TooLarge(dim=1, tile=f"x{list(source.shape)}", op="transpose", limit=Machine.partitions).here()
    if max(source.shape) > Machine.transpose_vector_max:                      # the Vector engine takes smaller ones
        refuse_hidden(HiddenTranspose, "transpose", source)
    return compute(movement.TransposeOp, source.shape[::-1], x.dtype, {"src": source}, mask, explicit_dtype=dtype)


def tile_index(expression: object) -> Index:
    """Return an index expression with the shape of a tile: two dimensions at least."""
    index = Index.of(expression)
    if len(index.shape) == 1:
        return index[:, None]
    return index if index.shape else index.spread((1, 1))


def device_print(prefix: str, x: View, *, mask: object = None) -> None:
    """Print a complete tile, with 0 where the mask does not hold. Conditions on loop variables decide whether it is
    printed."""
    x = creation.as_operand(x, "nl.device_print")
    if isinstance(mask, Mask) and mask.on_tiles:
        symbol_terms = () if mask.negated else tuple(term for term in mask.terms if not any(term[0].axes))
        shown = creation.filled(x.shape, 0, x.dtype)
        creation.emit(movement.CopyOp, {"dst": shown, "src": x}, mask)
        x, mask = shown, Mask(symbol_terms) if symbol_terms else None
    creation.emit(movement.DevicePrintOp, {"src": x}, mask, prefix=str(prefix))


def require_space(op: str, operand: str, view: object, *allowed: str) -> None:
    if not isinstance(view, View):
        active(f"nl.{op}")
        creation.refuse_other_generation(f"nl.{op}", view)
        raise creation.host_operand(view, operand, op, "|".join(allowed))
    if view.buffer.space not in allowed:
        raise verifier.WrongMemory(operand=operand, op=op, expected="|".join(allowed), found=view.buffer.space).here()


def concrete_value(view: View) -> np.ndarray | None:
    """Return the elements if the running builder executes at once; None during capture."""
    handle = view.buffer.handle
    if not isinstance(handle, np.ndarray) or view.partition.symbols or view.free.symbols:
        return None
    from nki_mlir.targets.interpreter.execute import Pattern  # start-up: most kernels are compiled
    elements: np.ndarray = Pattern(tile_of(view.as_tile(), {})).at(handle, ()).copy()
    return elements.reshape(view.shape)

