# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory: ``Storage``, bytes with a record of their writer, and ``View``, the element of a storage at each index of a
tensor.

A subscript of any kind is NumPy's indexing of the view's array of element numbers. Numbers outside of the tensor stay
in the array: an access to one is an error, unless a mask excludes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .dtypes import DType, Whole, convert, dtype_of
from .program import Access, OutOfBounds, current, line
from .subscripts import Subscript, is_mask

HBM, SBUF, PSUM, REGISTER = "hbm", "sbuf", "psum", "register"


class Storage:
    """A flat piece of memory. ``writer`` and ``reader`` hold, by grains of bytes, the last access (0: none)."""

    def __init__(self, space: str, dtype: DType, count: int, name: str = "", written: bool = False) -> None:
        self.space, self.dtype, self.count, self.name = space, dtype, count, name
        fill = current().run.fill if dtype.name != "bool" else current().run.fill & 1
        self.bytes = np.full(-(-count * dtype.itemsize // 8) * 8, fill, np.uint8)
        self.grain = dtype.itemsize
        grains = len(self.bytes) // self.grain + 1
        self.written = np.full(grains, written)
        self.writer, self.reader = np.zeros(grains, np.int32), np.zeros(grains, np.int32)
        self.accesses: list[Access | None] = [None]
        self.declared = current().path
        self.shape: tuple[int, ...] = (count,)

    def elements(self, dtype: DType) -> np.ndarray:
        return self.bytes[: len(self.bytes) // dtype.itemsize * dtype.itemsize].view(dtype.numpy)

    def grains(self, index: np.ndarray, dtype: DType) -> np.ndarray:
        """Return the numbers of the grains that contain elements of a type."""
        ratio = dtype.itemsize // self.grain
        return index if ratio == 1 else (index[..., None] * ratio + np.arange(ratio))

    def refine(self, size: int) -> None:
        """Split the grains so that none has more bytes than ``size``."""
        if size < self.grain:
            factor, self.grain = self.grain // size, size
            self.written, self.writer, self.reader = (np.repeat(a, factor) for a in
                                                      (self.written, self.writer, self.reader))

    def index_of(self, element: int, dtype: DType) -> tuple[int, ...]:
        """Return an element's indices in the tensor as declared."""
        return tuple(map(int, np.unravel_index(min(element * dtype.itemsize // self.dtype.itemsize, self.count - 1),
                                               self.shape)))

    def note(self, index: np.ndarray, dtype: DType, writes: bool, accumulates: bool = False) -> None:
        """Record an access to elements, and report earlier accesses whose order with it is undefined."""
        current().actions += 1
        if not index.size:
            return
        access = current().access(accumulates)
        grains = self.grains(index, dtype)
        against = (self.writer, self.reader) if writes else (self.writer,)
        for table in against:
            before = table[grains]
            for number in np.unique(before):
                other = self.accesses[number]
                if other is None or (accumulates and other.accumulates):
                    continue
                if why := access.meets(other, self.declared):
                    at = int(grains[before == number].flat[0]) * self.grain // dtype.itemsize
                    first, second = "write" if table is self.writer else "read", "write" if writes else "read"
                    where = self.index_of(at, dtype)
                    current().run.find("collision", self.name, where, f"{why} {first} (line {other.line}) and {second} "
                                                                     f"(line {access.line}) {self.name}{list(where)}")
        table = self.writer if writes else self.reader
        if self.accesses[-1] != access:
            self.accesses.append(access)
        table[grains] = len(self.accesses) - 1
        if writes:
            self.written[grains] = True

    def check_written(self, index: np.ndarray, dtype: DType) -> None:
        unwritten = ~self.written[self.grains(index, dtype)]
        if unwritten.any():
            missing = unwritten.any(axis=-1) if unwritten.ndim > index.ndim else unwritten
            where = self.index_of(int(index[missing].flat[0]), dtype)
            current().run.find("unwritten", self.name, where, f"{self.name}{list(where)} is read, nothing wrote it")


class View:
    """``index[k]`` is the element of the storage at place k, in units of the view's type; -1 outside of the tensor.

    ``active``: the places that a mask in a subscript left (None: all). ``outside``: for each place the text of what
    is wrong with it is made of (dimension, index), kept where there is such a place.
    """

    __array_ufunc__ = None
    minimum_rank = 0                    # on chip
    blocks = 0                          # dimensions before the partitions
    pending: "Pending | None" = None

    def __init__(self, storage: Storage, index: np.ndarray, dtype: DType, active: np.ndarray | None = None,
                 outside: tuple[np.ndarray, np.ndarray] | None = None) -> None:
        self.storage, self.index, self.dtype, self.active, self.outside = storage, index, dtype, active, outside

    # -- what it is ----------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        return self.index.shape

    @property
    def ndim(self) -> int:
        return self.index.ndim

    @property
    def size(self) -> int:
        return self.index.size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def space(self) -> str:
        return self.storage.space

    @property
    def name(self) -> str:
        return self.storage.name

    def __len__(self) -> int:
        return self.shape[0]

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"{self.storage.name}{list(self.shape)} {self.dtype} in {self.space}"

    # -- views of it ---------------------------------------------------------------------------------------------------
    def like(self, change: Any) -> Any:
        """Return the view whose arrays are those of this view under a NumPy function."""
        return type(self)(self.storage, change(self.index), self.dtype,
                          None if self.active is None else change(self.active),
                          None if self.outside is None else (change(self.outside[0]), change(self.outside[1])))

    def __getitem__(self, key: Any) -> Any:
        if is_mask(key):
            return self.where(key)
        on_chip = self.space in (SBUF, PSUM)
        chosen = Subscript.of(self.shape, key, self.minimum_rank if on_chip else 0, self.blocks)
        result = self.like(chosen.take)
        result.blocks = chosen.leading(self.blocks)
        wrong = chosen.wrong()
        if wrong is not None:
            dimension, value = wrong
            bad = dimension >= 0
            if result.outside is not None:
                dimension = np.where(bad, dimension, result.outside[0])
                value = np.where(bad, value, result.outside[1])
            result.index = np.where(bad, -1, result.index)
            result.outside = (dimension, value)
        return result

    def where(self, condition: Any) -> Any:
        """Return the view of which a mask in its subscript makes elements active (beta 4.5)."""
        condition = np.broadcast_to(np.asarray(condition, bool), self.shape)
        active = condition if self.active is None else condition & self.active
        return type(self)(self.storage, self.index, self.dtype, active, self.outside)

    def reshape(self, *shape: Any, **named: Any) -> Any:
        shape = named.get("shape", shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        return self.like(lambda array: array.reshape(tuple(int(n) for n in shape)))

    def broadcast(self, shape: Sequence[int]) -> Any:
        return self.like(lambda array: np.broadcast_to(array, tuple(int(n) for n in shape)))

    def transpose(self, axes: Sequence[int]) -> Any:
        return self.like(lambda array: np.transpose(array, tuple(axes)))

    def reinterpret(self, dtype: Any) -> Any:
        """Return the same bytes as elements of another dtype: the last dimension scales with its size."""
        dtype = dtype_of(dtype)
        old, new = self.dtype.itemsize, dtype.itemsize
        self.storage.refine(new)
        if old >= new:
            ratio = old // new
            index = (self.index[..., None] * ratio + np.arange(ratio)).reshape(*self.shape[:-1], -1) \
                if self.ndim else self.index * ratio
        else:
            ratio = new // old
            parts = self.index.reshape(*self.shape[:-1], self.shape[-1] // ratio, ratio)
            if (parts != parts[..., :1] + np.arange(ratio)).any() or (parts[..., 0] % ratio).any():
                raise ValueError(f"elements of {self!r} that lie apart cannot be one {dtype}")
            index = parts[..., 0] // ratio
        return type(self)(self.storage, index, dtype)

    # -- its elements --------------------------------------------------------------------------------------------------
    def looked_at(self, mask: Any = None) -> np.ndarray | None:
        """Return which elements an access under a mask touches (None: all)."""
        if mask is None or mask is True or (isinstance(mask, np.bool_) and mask):
            chosen = None
        else:
            chosen = np.broadcast_to(np.asarray(mask, bool), self.shape)
        if self.active is not None:
            chosen = self.active if chosen is None else chosen & self.active
        return chosen

    def check_bounds(self, chosen: np.ndarray | None) -> None:
        if self.outside is None:
            return
        bad = self.index < 0 if chosen is None else (self.index < 0) & chosen
        if bad.any():
            at = tuple(int(n[0]) for n in np.nonzero(bad))
            dimension, value = (int(a[at]) for a in self.outside)
            text = f"index {value} leaves dimension {dimension} of {self.storage.name}"
            current().run.find("outside", self.storage.name, at, text)
            raise OutOfBounds(text)

    def read(self, mask: Any = None, quietly: bool = False, accumulates: bool = False) -> np.ndarray:
        """Return the active elements, and 0 for the others."""
        chosen = self.looked_at(mask)
        self.check_bounds(chosen)
        elements = self.storage.elements(self.dtype)
        index = self.index if chosen is None else self.index[chosen]
        if not quietly:
            self.storage.check_written(index, self.dtype)
        self.storage.note(index, self.dtype, writes=False, accumulates=accumulates)
        if chosen is None:
            return elements[index]
        values = np.zeros(self.shape, self.dtype.numpy)
        values[chosen] = elements[index]
        return values

    def write(self, values: Any, mask: Any = None, accumulates: bool = False) -> None:
        """Write values, converted to the view's dtype, to the active elements."""
        chosen = self.looked_at(mask)
        self.check_bounds(chosen)
        values = np.broadcast_to(convert(values, self.dtype), self.shape)
        index = self.index if chosen is None else self.index[chosen]
        self.storage.elements(self.dtype)[index] = values if chosen is None else values[chosen]
        self.storage.note(index, self.dtype, writes=True, accumulates=accumulates)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Assign to a part. The result of the operation just before is rounded here only; other values are copied."""
        target = self[key]
        if not isinstance(value, View):
            target.write(value)
        elif value.storage is target.storage and np.array_equal(value.index, target.index):
            pass                        # what an update in place gave back
        elif value.pending is not None and value.pending.action == current().actions:
            value.pending.put(target)
        else:
            target.write(stretched(value.read(), target), stretched(value.active, target))

    def written(self) -> np.ndarray:
        """Return which elements have been written."""
        bits = self.storage.written[self.storage.grains(np.maximum(self.index, 0), self.dtype)]
        return bits.all(axis=-1) if bits.ndim > self.ndim else bits


@dataclass
class Pending:
    """A result before it is rounded: what an assignment to a declared tensor writes, where that is the next thing that
    happens (beta 5.4, decisions: ``declared[...] = op(...)``)."""

    values: np.ndarray | Whole
    mask: np.ndarray | None
    combine: Callable[[np.ndarray, np.ndarray], np.ndarray] | None      # with what is there already
    action: int                         # what the program had done when it was made

    def put(self, target: View) -> None:
        values = self.values.to(target.dtype) if isinstance(self.values, Whole) else self.values
        values, mask = stretched(values, target), stretched(self.mask, target)
        if self.combine is not None:
            values = np.where(target.written(), self.combine(target.read(mask, True, True), values), values)
        target.write(values, mask, accumulates=self.combine is not None)


def stretched(values: Any, target: View) -> Any:
    """An array as one of the target's shape: leading dimensions of size 1 may be there or not."""
    if values is None or np.ndim(values) == 0:
        return values
    while values.ndim > target.ndim and values.shape[0] == 1:
        values = values[0]
    if values.shape != target.shape and values.size == target.size:
        small = tuple(n for n in values.shape if n != 1), tuple(n for n in target.shape if n != 1)
        if small[0] == small[1]:
            return values.reshape(target.shape)
    return np.broadcast_to(values, target.shape)


def fresh(kind: type[View], values: Any, dtype: DType, mask: Any = None, explicit: bool = False,
          space: str = SBUF, combine: Any = None) -> Any:
    """A new tile with a result. ``explicit``: the kernel named the type, so that it is rounded to it in any case.

    What a mask left out is undefined, yet reading it is not a mistake (beta 12, row 4): here it is the run's fill.
    """
    rounded = convert(values, dtype)
    mask = None if mask is None else np.broadcast_to(np.asarray(mask, bool), rounded.shape)
    tile = allocate(kind, rounded.shape, dtype, space, f"result of line {line()}")
    tile.write(rounded, mask)
    tile.storage.written[:] = True
    values = values if isinstance(values, Whole) else np.asarray(values)
    tile.pending = Pending(rounded if explicit else values, mask, combine, current().actions)
    return tile


def allocate(kind: type[View], shape: Sequence[int], dtype: Any, space: str, name: str = "", written: bool = False) -> Any:
    """Return a view of all elements of a new storage."""
    shape, dtype = tuple(int(n) for n in shape), dtype_of(dtype)
    storage = Storage(space, dtype, prod(shape), name or space, written)
    storage.shape = shape
    return kind(storage, np.arange(prod(shape), dtype=np.int64).reshape(shape), dtype)
