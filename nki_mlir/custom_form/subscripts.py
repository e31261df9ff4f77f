# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Access patterns as subscripts of their buffer: ``[%i * 128 + 0:128, 0:512]``.

There is one subscript for each axis of the buffer. It is a sum of values times numbers, a number, and ranges. Each
range is a dim of the pattern; ``0:4 * 512`` steps by 512. An axis without a range has no dim. ``x 512`` is a dim that
repeats the elements, and belongs to no axis. Behind it, ``as bf16`` reads the elements as another type. A range may go
beyond its axis: a transposed pattern is ``[0, 0:512 + 0:300 * 512]``. ``[:]`` covers the buffer, too, but dims of one
element step by 0, as those of a view do.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nki_mlir.custom_form.lexing import NUMBER, Cursor, MalformedForm
from nki_mlir.custom_form.linear_text import SIGN, NamedForm, product, read_term
from nki_mlir.dialects.access import HBM, Access, Linear, dense, full_tile
from nki_mlir.scalar.dtypes import BY_MLIR, DType

BUFFER = re.compile(r'memref<((?:\d+x)*)(\w+), "(hbm|sbuf|psum)">')
REPEATED = re.compile(r"x(?=\s*\d)")
DTYPE = re.compile(r"\w+")


@dataclass(frozen=True)
class BufferType:
    """The memory, shape and element type of a memref type."""

    shape: tuple[int, ...]
    dtype: DType
    space: str

    @property
    def on_chip(self) -> bool:
        return self.space != HBM

    def strides(self, dtype: DType) -> tuple[int, ...] | None:
        """Return the distances between neighbors along each axis, in elements of this type; the partition axis is
        counted separately.

        Return None if elements of this type do not divide the buffer's last axis.
        """
        shape = list(self.shape)
        if dtype.itemsize != self.dtype.itemsize:
            if len(shape) <= self.on_chip or shape[-1] * self.dtype.itemsize % dtype.itemsize:
                return None
            shape[-1] = shape[-1] * self.dtype.itemsize // dtype.itemsize
        return (1, *dense(shape[1:])) if self.on_chip else dense(shape)


def buffer_of(kind: str) -> BufferType | None:
    """Return the buffer of a type, or None if the type does not describe a complete buffer of static shape."""
    match = BUFFER.fullmatch(kind)
    if match is None or match[2] not in BY_MLIR or (match[3] != HBM and not match[1]):
        return None
    return BufferType(tuple(map(int, match[1].split("x")[:-1])), BY_MLIR[match[2]], match[3])


def all_of(buffer: BufferType) -> Access:
    """Return the pattern that covers a buffer."""
    return full_tile(None, buffer.shape, buffer.dtype, buffer.space).access


def view_of(buffer: BufferType) -> Access:
    """Return the pattern of a view that covers a buffer: dims of one element step by 0, except that of partitions."""
    access = all_of(buffer)
    dims = tuple((0 if count == 1 and (position or not buffer.on_chip) else step, count)
                 for position, (step, count) in enumerate(access.dims))
    return replace(access, dims=dims)


# -- printed -----------------------------------------------------------------------------------------------------------
def subscripts(access: Access, buffer: BufferType, symbols: Sequence[str]) -> str | None:
    """Return the text after the buffer's name: empty if the pattern covers the buffer, None if it has no subscripts.
    """
    if access == all_of(buffer):
        return ""
    if access == view_of(buffer):
        return "[:]"
    strides = buffer.strides(access.dtype)
    if strides is None or (access.partition is None) == buffer.on_chip:
        return None
    axes = _axes_of(access, strides, buffer)
    if axes is None:
        return None
    starts = _starts(access, strides, buffer, symbols)
    entries: list[str] = []
    waiting = list(zip(axes, access.dims))
    for axis, stride in enumerate(strides):
        ranges: list[tuple[int, int]] = []
        if next((a for a, _ in waiting if a is not None), None) == axis:
            while waiting[0][0] is None:            # before the axis whose dim follows
                entries.append(f"x {waiting.pop(0)[1][1]}")
            while waiting and waiting[0][0] == axis:
                step, count = waiting.pop(0)[1]
                ranges.append((step // stride, count))
        entries.append(_entry(starts[axis], ranges))
    if any(a is not None for a, _ in waiting):
        return None
    entries += [f"x {count}" for _, (_, count) in waiting]
    dtype = "" if access.dtype == buffer.dtype else f" as {access.dtype.mlir}"
    return f"[{', '.join(entries)}]{dtype}"


def _axes_of(access: Access, strides: Sequence[int], buffer: BufferType) -> list[int | None] | None:
    """Return the axis of each dim, None for a repeated dim; return None if the dims are not in the order of the axes.
    """
    axes: list[int | None] = []
    first_axis = 0
    for position, (step, count) in enumerate(access.dims):
        if step == 0:
            axes.append(None)
            continue
        if position == 0 and buffer.on_chip:
            axis: int | None = 0
        else:
            dividing = [a for a in range(max(first_axis, int(buffer.on_chip)), len(strides)) if step % strides[a] == 0]
            in_bounds = [a for a in dividing if abs(step) // strides[a] * (count - 1) < buffer.shape[a]]
            axis = next(iter(in_bounds or dividing), None)
        if axis is None:
            return None
        axes.append(axis)
        first_axis = axis
    return axes


def _starts(access: Access, strides: Sequence[int], buffer: BufferType, symbols: Sequence[str]
            ) -> list[tuple[list[str], int]]:
    """Return the start of each axis: values times numbers, and a number."""
    terms: list[list[str]] = [[] for _ in strides]
    numbers = [0] * len(strides)
    axes = range(len(strides))
    if access.partition is not None:
        terms[0] = [product(symbols[s], c) for s, c in access.partition.symbols]
        numbers[0] = access.partition.const
        axes = range(1, len(strides))
    for s, c in access.free.symbols:
        for axis in axes:
            part = int(c / strides[axis]) if buffer.shape[axis] > 1 or axis == axes[-1] else 0
            if part:
                terms[axis].append(product(symbols[s], part))
            c -= part * strides[axis]
    remaining = access.free.const
    for axis in axes:
        part = int(remaining / strides[axis]) if buffer.shape[axis] > 1 or axis == axes[-1] else 0
        numbers[axis] += part
        remaining -= part * strides[axis]
    return list(zip(terms, numbers))


def _entry(start: tuple[list[str], int], ranges: Sequence[tuple[int, int]]) -> str:
    """Return the subscript of one axis."""
    terms, number = list(start[0]), start[1]
    for step, count in ranges[:-1]:
        terms.append(_range(0, count, step))
    if ranges and ranges[-1][0] == 1:
        terms.append(_range(number, ranges[-1][1], 1))
        return joined_ranges(terms)
    if ranges:
        terms.append(_range(0, ranges[-1][1], ranges[-1][0]))
    if number or not terms:
        terms.append(str(number))
    return joined_ranges(terms)


def joined_ranges(terms: Sequence[str]) -> str:
    """Return a sum in which ranges that begin below zero keep their sign."""
    text = terms[0]
    for term in terms[1:]:
        text += f" + {term}" if ":" in term or not term.startswith("-") else f" - {term[1:]}"
    return text


def _range(start: int, count: int, step: int) -> str:
    return f"{start}:{start + count}" + (f" * {step}" if step != 1 else "")


# -- read --------------------------------------------------------------------------------------------------------------
@dataclass
class Subscript:
    """A subscript: its start, and (step, count) of each dim, or the count alone for a repeated dim."""

    form: NamedForm
    ranges: list[tuple[int, int]]
    repeated: bool = False


@dataclass
class SubscriptPattern:
    """The subscripts of an operand, and the type of its elements if it differs from the buffer's."""

    subscripts: list[Subscript] = field(default_factory=list)
    dtype: DType | None = None
    at: int = 0
    is_view: bool = False       # [:]

    def forms(self) -> list[NamedForm]:
        return [subscript.form for subscript in self.subscripts]

    def access(self, buffer: BufferType, symbols: Sequence[str]) -> Access:
        """Return the access pattern in a buffer."""
        if self.is_view:
            return view_of(buffer)
        dtype = self.dtype or buffer.dtype
        strides = buffer.strides(dtype)
        if strides is None:
            raise MalformedForm(self.at, f"elements of {dtype.mlir} do not divide the buffer's last axis")
        indexing = [s for s in self.subscripts if not s.repeated]
        if len(indexing) != len(strides):
            raise MalformedForm(self.at, f"needs a subscript for each axis of the buffer: {len(strides)}, not "
                                f"{len(indexing)}")
        free, partition = Linear(), Linear()
        dims: list[tuple[int, int]] = []
        axis = 0
        for subscript in self.subscripts:
            if subscript.repeated:
                dims += subscript.ranges
                continue
            form, stride = subscript.form.linear(symbols), strides[axis]
            if buffer.on_chip and axis == 0:
                partition = form
            else:
                free = free.plus(form, stride)
            if subscript.ranges and not dims and buffer.on_chip and axis > 0:
                raise MalformedForm(self.at, "on chip the first range selects partitions: write 0:1 for the first one")
            dims += [(step * stride, count) for step, count in subscript.ranges]
            axis += 1
        if buffer.on_chip and not dims:
            raise MalformedForm(self.at, "on chip a range selects the partitions: write 0:1 for the first one")
        return Access(dtype, partition if buffer.on_chip else None, free, tuple(dims))


def read_subscripts(cursor: Cursor) -> SubscriptPattern:
    """Read the text between brackets, and the element type after it."""
    pattern = SubscriptPattern(at=cursor.skip())
    cursor.expect("[", "before subscripts")
    if cursor.accept(":"):
        cursor.expect("]", "after ':'")
        pattern.is_view = True
        return pattern
    while not cursor.accept("]"):
        if pattern.subscripts:
            cursor.expect(",", "or ']' after a subscript")
        pattern.subscripts.append(_read_subscript(cursor))
    if cursor.word("as") is not None:
        at = cursor.skip()
        name = cursor.match(DTYPE)
        if name not in BY_MLIR:
            raise MalformedForm(at, f"{name!r} is not an element type: {', '.join(BY_MLIR)}")
        pattern.dtype = BY_MLIR[name]
    return pattern


def _read_subscript(cursor: Cursor) -> Subscript:
    if cursor.match(REPEATED) is not None:
        return Subscript(NamedForm(), [(0, _count(cursor))], repeated=True)
    form, ranges, sign = NamedForm(), [], 1
    while True:
        at = cursor.skip()
        name, factor = read_term(cursor, sign)
        if name is None and cursor.accept(":"):
            last = cursor.match(NUMBER)
            if last is None:
                raise cursor.unexpected("the end of the range, a number")
            if int(last) <= factor:
                raise MalformedForm(at, f"the range {factor}:{last} is empty")
            step = _step(cursor)
            ranges.append((step, int(last) - factor))
            form.add(None, factor * step)
        else:
            form.add(name, factor, at)
        sign_token = cursor.match(SIGN)
        if sign_token is None:
            return Subscript(form, ranges)
        sign = -1 if sign_token == "-" else 1


def _step(cursor: Cursor) -> int:
    """Return the step of a range."""
    if not cursor.accept("*"):
        return 1
    number = cursor.match(NUMBER)
    if number is None:
        raise cursor.unexpected("the step of the range, a number")
    return int(number)


def _count(cursor: Cursor) -> int:
    number = cursor.match(NUMBER)
    if number is None or int(number) < 1:
        raise cursor.unexpected("the number of repetitions, at least 1")
    return int(number)
