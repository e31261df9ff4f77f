# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes tiles as the beta generation does: as slices, or as index vectors where a pattern is not a box."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import Protocol

from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.tile_text import shape_text, subscript_text
from nki_mlir.scalar.dtypes import BY_NAME, DType


class NamedHandle(Protocol):
    """The tensor that a name in a line refers to."""

    shape: tuple[int, ...]
    dtype: DType
    region: str

    @property
    def definition(self) -> str: ...


Tensors = Mapping[str, NamedHandle]


@dataclass(frozen=True)
class BetaOperand:
    """A tile in a line, with its shape and dtype."""

    text: str
    shape: tuple[int, ...]
    dtype: DType
    in_hbm: bool
    in_psum: bool = False
    indexed: bool = False               # ends with a subscript, which can be assigned
    name: str = ""                      # the name of a tensor, if the tile has all its elements
    table: str = ""                     # the tensor that a box slices
    box: tuple[tuple[str, int, int, str], ...] = ()     # start, count, step and text of each axis

    def __str__(self) -> str:
        return self.text

    @property
    def squeezed(self) -> tuple[int, ...]:
        """The shape without the axes of one element that a number in the subscript picks."""
        first = 0 if self.in_hbm else 1
        extents = tuple(n for k, n in enumerate(self.shape) if n > 1 or k < first)
        return extents if len(extents) > 1 else (self.shape[0], 1) if not self.in_hbm else self.shape[-2:]

    def shaped(self, shape: tuple[int, ...]) -> "BetaOperand | None":
        """Return the same elements in another shape, or None if neither numbers in the subscript nor a reshape give
        that shape."""
        if shape == self.shape:
            return self
        if not self.in_hbm and shape[0] != self.shape[0]:       # partitions stay the first axis
            return None
        if self.box:
            return self._regrouped(shape)
        if self.name and prod(shape) == prod(self.shape) and (self.in_hbm or shape[0] == self.shape[0]):
            return replace(self, text=f"{self}.reshape({shape_text(shape)})", shape=shape, indexed=False, name="")
        return None

    def _regrouped(self, shape: tuple[int, ...]) -> "BetaOperand | None":
        """Return a box whose axes are single axes of the shape or groups of them; axes of one element become numbers.
        """
        shown = self._squeezed_text(shape)
        if shown is None:
            remaining_axes = [(k, n) for k, n in enumerate(shape) if n > 1]
            parts = []
            for start, count, step, _ in self.box:
                steps, covered = [0] * len(shape), count
                while covered > 1 and remaining_axes and covered % remaining_axes[0][1] == 0:
                    axis, n = remaining_axes.pop(0)
                    covered //= n
                    steps[axis] = covered * step
                if covered > 1:
                    return None
                parts.append((start, steps))
            last = len(parts) - 1
            vectors = [index_vector(start, steps, shape) for start, steps in parts]
            if any(n == 1 for n in shape):              # vectors of all axes, too, that have one element
                start, steps = parts[last]
                vectors[last] = index_vector(start, steps, shape, keep_all=True)
            if remaining_axes:
                return None
            shown = ", ".join(vectors)
        return replace(self, text=f"{self.table}[{shown}]", shape=shape, indexed=True, box=())

    def _squeezed_text(self, shape: tuple[int, ...]) -> str | None:
        """Return the subscript where numbers pick axes of one element that the shape has not: rather those of a
        position than complete ones, and never partitions."""
        single = [k for k, (_, count, _, _) in enumerate(self.box) if count == 1 and (k or self.in_hbm)]
        picked_axes = [axes for axes in combinations(single, max(0, len(self.box) - len(shape)))
                       if tuple(count for k, (_, count, _, _) in enumerate(self.box) if k not in axes) == shape]
        if not picked_axes:
            return None
        picked = min(picked_axes, key=lambda axes: sum(self.box[k][3] == ":" for k in axes))
        parts = [start if k in picked else text for k, (start, _, _, text) in enumerate(self.box)]
        return subscript_text(parts, picked)

    @property
    def assigned(self) -> str:
        """The text on the left of an assignment."""
        return self.text if self.indexed else f"{self.text}[...]"


def is_tile(node: ast.expr, tensors: Tensors) -> bool:
    """Return whether an expression is a tensor or a view of one."""
    return any(isinstance(inner, ast.Name) and inner.id in tensors for inner in ast.walk(node))


def _unprintable(description: str) -> Unprintable:
    return Unprintable(what=f"{description} in the beta generation", fix="print for the current generation")


def operand(node: ast.expr, tensors: Tensors) -> BetaOperand:
    """Return a tile of the current generation in the form of the beta generation."""
    match node:
        case ast.Name(id=name) if name in tensors:
            tensor = tensors[name]
            in_hbm = "hbm" in tensor.region or (not tensor.region and "nl.shared_constant" in tensor.definition)
            return BetaOperand(name, tuple(tensor.shape), tensor.dtype, in_hbm, "psum" in tensor.region, name=name)
        case ast.Subscript(value=value, slice=items) if not _is_pattern(value):
            return _sliced(operand(value, tensors), items.elts if isinstance(items, ast.Tuple) else [items])
        case ast.Subscript(value=ast.Call(func=ast.Attribute(value=value), args=[pattern], keywords=keywords),
                           slice=ast.Tuple(elts=[index, *_])) if not isinstance(index, ast.Slice):
            return _rows(operand(value, tensors), ast.literal_eval(pattern), _offset(keywords), operand(index, tensors))
        case ast.Call(func=ast.Attribute(value=value, attr="broadcast"), args=[axis, count]):
            base = operand(value, tensors)
            shape = list(base.shape)
            shape[ast.literal_eval(axis)] = ast.literal_eval(count)
            text = base.text[:base.text.rindex(".broadcast_to(")] if _repeats(value) else base.text
            return replace(base, text=f"{text}.broadcast_to({shape_text(shape)})", shape=tuple(shape), indexed=False,
                           name="", box=())
        case ast.Call(func=ast.Attribute(value=value, attr="reshape"), args=[shape]):
            base = operand(value, tensors)
            return replace(base, text=f"{base}.reshape({ast.unparse(shape)})", shape=ast.literal_eval(shape),
                           indexed=False)
        case ast.Call(func=ast.Attribute(value=value, attr="view"), args=[ast.Attribute(attr=name)]):
            base, dtype = operand(value, tensors), BY_NAME[name]
            last = base.shape[-1] * base.dtype.itemsize // dtype.itemsize
            return replace(base, text=f"{base}.view(nl.{name})", shape=(*base.shape[:-1], last), dtype=dtype,
                           indexed=False)
        case ast.Call(func=ast.Attribute(value=value, attr="ap"), args=[pattern], keywords=keywords):
            base, dims = operand(value, tensors), ast.literal_eval(pattern)
            options = {k.arg: k.value for k in keywords}
            if "vector_offset" in options:
                return _rows(base, dims, _offset(keywords), operand(options["vector_offset"], tensors))
            if "scalar_offset" in options:
                raise _unprintable("an address that a run-time number moves")
            return _patterned(base, dims, _offset(keywords))
    raise _unprintable(f"{ast.unparse(node)}")


def _is_pattern(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "ap"


def _repeats(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "broadcast"


def _offset(keywords: Sequence[ast.keyword]) -> ast.expr:
    return next((k.value for k in keywords if k.arg == "offset"), ast.Constant(0))


# -- slices ------------------------------------------------------------------------------------------------------------
def _sliced(base: BetaOperand, items: Sequence[ast.expr]) -> BetaOperand:
    """Return a box as slices, or as index vectors if a slice with a step begins at a loop's variable."""
    parts = [_span(item, extent) for item, extent in zip(items, base.shape)]
    counts = tuple(count for _, count, _ in parts)
    if any(step > 1 and not start.isdigit() for start, _, step in parts):
        shown = [index_vector(start, [step if k == axis else 0 for k in range(len(parts))], counts)
                 for axis, (start, _, step) in enumerate(parts)]
    else:
        shown = [ast.unparse(item).removeprefix("(").removesuffix(")") if isinstance(item, ast.Slice) else
                 ast.unparse(item) for item in items]
        box = tuple((start, count, step, text) for (start, count, step), text in zip(parts, shown))
        return replace(base, text=f"{base}[{', '.join(shown)}]", shape=counts, indexed=True, name="", table=str(base),
                       box=box)
    return replace(base, text=f"{base}[{', '.join(shown)}]", shape=counts, indexed=True, name="")


def _span(item: ast.expr, extent: int) -> tuple[str, int, int]:
    """Return the start, the count and the step of a slice."""
    match item:
        case ast.Call(args=[start, count]):
            return ast.unparse(start), ast.literal_eval(count), 1
        case ast.Slice(upper=None, lower=lower, step=step):
            first = 0 if lower is None else ast.literal_eval(lower)
            step_number = 1 if step is None else ast.literal_eval(step)
            return str(first), -(-(extent - first) // step_number), step_number
        case ast.Slice(lower=ast.expr() as lower, upper=ast.expr() as upper, step=step):
            step_number = ast.literal_eval(step) if step is not None else 1
            low, high = linear(lower), linear(upper)
            span = high.pop("", 0) - low.pop("", 0)
            if low == high:
                return ast.unparse(lower), -(-span // step_number), step_number
    raise _unprintable(f"the subscript {ast.unparse(item)}")


def linear(node: ast.expr) -> dict[str, int]:
    """Return a linear expression as the coefficient of each factor, by the factor's text. The constant has the empty
    text."""
    match node:
        case ast.Constant(value=int(number)):
            return {"": number} if number else {}
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            total, sign = linear(left), 1 if isinstance(op, ast.Add) else -1
            for factor, c in linear(right).items():
                total[factor] = total.get(factor, 0) + sign * c
            return {factor: c for factor, c in total.items() if c}
        case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int(number))):
            return {factor: c * number for factor, c in linear(left).items()}
        case ast.BinOp(left=ast.Constant(value=int(number)), op=ast.Mult(), right=right):
            return {factor: c * number for factor, c in linear(right).items()}
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return {factor: -c for factor, c in linear(inner).items()}
    return {ast.unparse(node): 1}


def linear_text(form: Mapping[str, int]) -> str:
    parts = [f"{factor} * {c}" if factor and c != 1 else factor or str(c) for factor, c in form.items()]
    return " + ".join(parts) or "0"


# -- index vectors -----------------------------------------------------------------------------------------------------
def index_vector(start: str, steps: Sequence[int], counts: Sequence[int], keep_all: bool = False) -> str:
    """Return an index vector along each axis that steps, such as ``start + nl.arange(128)[:, None] * 2``.

    With ``keep_all``, the vector has the complete shape: axes without a step are added as zeros, those of one element
    only if there is no other, since any axis gives the vector its rank.
    """
    axes = [axis for axis, (step, count) in enumerate(zip(steps, counts)) if step or (keep_all and count > 1)]
    parts = [] if start == "0" else [start]
    for axis in axes or ([len(counts) - 1] if keep_all else []):
        around, step = ", ".join(":" if k == axis else "None" for k in range(len(counts))), steps[axis]
        is_factor_shown = step != 1 and counts[axis] > 1
        parts.append(f"nl.arange({counts[axis]})[{around}]" + (f" * {step}" if is_factor_shown else ""))
    return " + ".join(parts) or "0"


def _split(offset: ast.expr, row: int) -> tuple[str, str]:
    """Return an offset in elements as an offset in rows and an offset within a row."""
    rows, remainders = {}, {}
    for factor, c in linear(offset).items():
        quotient, remainder = divmod(c, row) if not factor or c % row == 0 else (0, c)
        rows[factor], remainders[factor] = quotient, remainder
    return tuple(linear_text({f: c for f, c in form.items() if c}) for form in (rows, remainders))       # type: ignore[return-value]


def _in_shape(base: BetaOperand, shape: tuple[int, ...]) -> str:
    """Return the text of a tensor in a shape."""
    return str(base) if base.shape == shape else f"{base}.reshape({shape_text(shape)})"


def _patterned(base: BetaOperand, dims: Sequence[Sequence[int]], offset: ast.expr) -> BetaOperand:
    counts = tuple(count for _, count in dims)
    steps = [step if count > 1 else 0 for step, count in dims]
    if base.in_hbm:
        total = prod(base.shape)
        shown = [index_vector(ast.unparse(offset), steps, counts, keep_all=True)]
        text = f"{_in_shape(base, (total,))}[{shown[0]}]"
    else:
        row = prod(base.shape[1:])
        if steps[0] % row:
            raise _unprintable("a pattern that steps along partitions and columns at once")
        first, within_row = _split(offset, row)
        flat = str(base) if len(base.shape) == 2 else f"{base}.reshape(({base.shape[0]}, {row}))"
        rows = index_vector(first, [steps[0] // row], counts[:1], keep_all=True)
        rows = index_vector(first, [steps[0] // row, *[0] * (len(counts) - 1)], counts) if steps[0] else rows
        columns = index_vector(within_row, [0, *steps[1:]], counts)
        if not steps[0]:
            rows = index_vector(first, [0] * len(counts), counts)
        missing = [k for k, step in enumerate(steps) if not step]
        if missing:                     # every axis is one of the tile
            columns = index_vector(within_row, [0, *steps[1:]], counts, keep_all=True)
        text = f"{flat}[{rows}, {columns}]"
    return replace(base, text=text, shape=counts, indexed=True, name="", box=())


def _rows(base: BetaOperand, dims: Sequence[Sequence[int]], offset: ast.expr, index: BetaOperand) -> BetaOperand:
    """Return the rows of a table in HBM that a tile of indices picks."""
    scale, counts = dims[0][0], (index.shape[0], *(count for _, count in dims[1:]))
    steps = [0, *(step if count > 1 else 0 for step, count in dims[1:])]
    total = prod(base.shape)
    if not base.in_hbm or not scale or total % scale:
        raise _unprintable("columns or partitions that an index picks")
    first, within_row = _split(offset, scale)
    if first != "0":
        raise _unprintable("rows of a part of a table")
    if linear(ast.parse(within_row, mode="eval").body).get("", 0) + sum(
            step * (count - 1) for step, count in zip(steps, counts)) >= scale:
        raise _unprintable("rows that begin at any element of a table")
    columns = index_vector(within_row, steps, counts, keep_all=len(dims) == 2 and dims[1][1] == 1)
    return replace(base, text=f"{_in_shape(base, (total // scale, scale))}[{index}, {columns}]", shape=counts,
                   indexed=True, name="", box=())
