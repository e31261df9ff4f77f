# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors and their views (language, section 3): an array of the numbers of the elements that a view shows."""

from math import prod
from typing import Any

import numpy as np

from ..dtypes import DType, dtype_of
from ..memory import PSUM, SBUF, Storage, View
from ..program import OutOfBounds, current
from .addresses import Address, Shape, Window
from .registers import VirtualRegister, require


class NkiTensor(View):
    """A view: ``index`` are numbers of elements of the storage in units of ``dtype``, laid out row by row, partition
    first.

    ``base``: the shape whose strides scale addresses of the run time; it is the storage's, or that of a reshape of all.
    """

    def __init__(self, storage: Storage, index: np.ndarray, dtype: DType, base: tuple[int, ...] | None = None,
                 address: Address | None = None, repeats: bool = False) -> None:
        super().__init__(storage, index, dtype)
        self.base = storage.shape if base is None else base
        self.address, self.repeats = address, repeats           # repeats: an element may be at several places
        self.compared = False                                   # whether a comparison made it

    def shows(self, index: np.ndarray, **changes: Any) -> "NkiTensor":
        fields = {"dtype": self.dtype, "base": self.base, "address": self.address, "repeats": self.repeats, **changes}
        return NkiTensor(self.storage, index, **fields)

    # -- what Python sees (3.3) -------------------------------------------------------------------------------------------
    shape = property(lambda self: Shape(self.index.shape))
    offset = property(lambda self: int(self.index.flat[0]))

    @property
    def buffer(self) -> Any:
        from .language import region
        return region(self.storage)

    on_chip = property(lambda self: self.space in (SBUF, PSUM))

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the number of elements from one index of each axis to the next; an axis of one element has the size of
        those behind it."""
        steps: list[int] = []
        for axis in reversed(range(self.ndim)):
            first = np.moveaxis(self.index, axis, 0).reshape(self.shape[axis], -1)[:, 0]
            behind = self.shape[axis + 1] * steps[0] if steps else 1
            steps.insert(0, int(first[1] - first[0]) if len(first) > 1 else behind)
        return tuple(steps)

    def get_pattern(self) -> list[list[int]]:
        return [list(pair) for pair in zip(self.strides, self.shape)]

    def is_contiguous(self) -> bool:
        axes = [(stride, count) for stride, count in self.get_pattern()[1 if self.on_chip else 0:] if count != 1]
        return all(stride == prod(count for _, count in axes[k + 1:]) for k, (stride, _) in enumerate(axes))

    def is_indirect(self) -> bool:
        return self.address is not None

    def __bool__(self) -> bool:
        return bool(np.all(self.read() != 0)) if self.compared else True

    # -- elements ---------------------------------------------------------------------------------------------------------
    def places(self, group: int = 16) -> np.ndarray:
        """Return the elements that the view shows now, with -1 for those outside of the tensor."""
        reached = self.index
        inside: Any = True
        if self.address is not None:
            numbers = self.address.numbers()
            if self.address.kind == "columns":
                return self.columns(numbers, group)
            if self.address.kind == "vector":
                numbers = numbers.T.reshape(-1)[:self.shape[0]].reshape(-1, *(1 for _ in self.shape[1:]))
                reached = self.index[:1] + numbers * self.address.scale
            else:
                numbers = numbers.reshape(())
                reached = self.index + numbers * self.address.scale
            inside = (numbers >= 0) & (numbers < self.address.extent)
            if self.on_chip and self.address.scale % self.row:
                inside = inside & (reached // self.row == self.index // self.row)
        return np.where(inside & (reached >= 0) & (reached < self.count), reached, -1)

    def resolved(self, group: int = 16) -> View:
        """Return the view of the elements that it shows now."""
        places = self.places(group)
        if (places >= 0).all():
            return View(self.storage, places, self.dtype)
        dimension, size, number = 0, self.count, int(np.max(self.index))
        if self.address is not None and self.address.kind != "columns":
            numbers, size = self.address.numbers().reshape(-1), self.address.extent
            dimension = next((k for k, n in enumerate(self.strides) if n == self.address.scale), 0)
            number = int(next((n for n in numbers if not 0 <= n < size), numbers[0]))
        return View(self.storage, places, self.dtype,
                    outside=(np.full(places.shape, dimension), np.full(places.shape, number)))

    def read(self, mask: Any = None, quietly: bool = False, group: int = 16) -> np.ndarray:
        current().state["random"] = current().state.get("random") or self.random
        return self.inside(self.resolved(group), mask).read(mask, quietly)

    def write(self, values: Any, mask: Any = None, accumulates: bool = False) -> None:
        self.random = self.random or current().state.get("random", False)
        target = self.inside(self.resolved(), mask)
        if self.repeats or self.address is not None:
            self.check_once(target.index if mask is None else target.index[np.broadcast_to(mask, target.shape)])
        target.write(values, mask, accumulates)

    def inside(self, view: View, mask: Any) -> View:
        """Return the view, after a check that its elements are in the tensor (3.6: the use of a view raises the error).
        """
        if view.outside is not None and ((view.index < 0) & (True if mask is None else np.broadcast_to(mask, view.shape))).any():
            dimension, number = (int(a.flat[0]) for a in view.outside)
            text = f"index {number} is out of bounds for dimension {dimension} of {self.name}"
            current().run.find("outside", self.name, (number,), text)
            raise OutOfBounds(text)
        return view

    def check_once(self, places: np.ndarray) -> None:
        """Report an element that is written twice: documents do not say which value it gets (instructions 4.5)."""
        elements, counts = np.unique(places[places >= 0], return_counts=True)
        if elements.size and (counts > 1).any():
            index = self.storage.index_of(int(elements[counts.argmax()]), self.dtype)
            current().run.find("collision", self.name, index, f"{self.name}{list(index)} is written more than once")

    @property
    def random(self) -> bool:
        """Return whether the storage has values that depend on random numbers."""
        return getattr(self.storage, "random", False)

    @random.setter
    def random(self, chosen: bool) -> None:
        self.storage.random = chosen

    def columns(self, numbers: np.ndarray, group: int) -> np.ndarray:
        """Return the columns of an indirect view: each group of partitions reads its columns from its own part of the
        index, down the partitions first (3.7)."""
        table, columns = self.address.table, []
        for p, row in enumerate(table):
            first = p // group * group
            at = numbers.reshape(len(table), -1)[first:first + group].T.reshape(-1)[:self.shape[1]]
            columns.append(np.where(at < len(row), row[np.minimum(at, len(row) - 1)], -1))
        return np.stack(columns)

    @property
    def count(self) -> int:
        """Return the number of elements of the storage, in units of the view's dtype."""
        return self.storage.count * self.storage.dtype.itemsize // self.dtype.itemsize

    @property
    def row(self) -> int:
        """Return the number of elements in a partition of the storage."""
        return self.count // self.storage.shape[0]

    # -- views (3.4) --------------------------------------------------------------------------------------------------------
    def slice(self, dim: int, start: int, end: int, step: int = 1) -> "NkiTensor":
        require(0 <= start < end <= self.shape[dim] and step >= 1, "index out of range of tensor dimension")
        return self.shows(np.moveaxis(np.moveaxis(self.index, dim, 0)[start:end:step], 0, dim))

    def select(self, dim: int, index: Any) -> "NkiTensor":
        if isinstance(index, int):
            require(0 <= index < self.shape[dim], "index out of range of tensor dimension", IndexError)
            return self.shows(self.keeping_rank(np.take(self.index, index, dim), dim, index))
        require(self.address is None, "a view has one index of the run time")
        address = Address("scalar", index, self.strides[dim], self.shape[dim])
        return self.shows(self.keeping_rank(np.take(self.index, 0, dim), dim, 0), address=address)

    def window(self, dim: int, window: "Window") -> "NkiTensor":
        """Return the part that ``ds`` with a start of the run selects."""
        require(self.address is None, "a view has one index of the run time")
        address = Address("scalar", window.start, self.strides[dim], self.shape[dim] - window.size + 1)
        part = self.slice(dim, 0, window.size)
        return part.shows(part.index, address=address)

    def rows_by(self, numbers: "NkiTensor") -> "NkiTensor":
        """Return the rows whose numbers a tile contains."""
        require(self.address is None, "a view has one index of the run time")
        indices = np.broadcast_to(self.index[:1], (numbers.size, *self.shape[1:]))
        return self.shows(indices, address=Address("vector", numbers, self.strides[0], self.shape[0]))

    def keeping_rank(self, taken: np.ndarray, dim: int, index: int) -> np.ndarray:
        if self.on_chip and dim == 0:
            return self.index[index:index + 1]
        return taken if taken.ndim > (1 if self.on_chip else 0) else taken[..., None]

    def vector_select(self, dim: int, vector_offset: Any) -> "NkiTensor":
        require(dim == 0 and not self.on_chip, "vector_select takes dimension 0 of HBM")
        return self.rows_by(vector_offset)

    def permute(self, dims: Any) -> "NkiTensor":
        require(sorted(dims) == list(range(self.ndim)), "permute takes each dimension once")
        require(not self.on_chip or dims[0] == 0, "partitions stay first")
        return self.shows(self.index.transpose(dims))

    def broadcast(self, dim: int, size: int) -> "NkiTensor":
        require(self.shape[dim] == 1 and not (self.on_chip and dim == 0), "broadcast takes a free dimension of 1")
        return self.shows(np.broadcast_to(self.index, (*self.shape[:dim], size, *self.shape[dim + 1:])), repeats=True)

    def expand_dim(self, dim: int) -> "NkiTensor":
        require(not (self.on_chip and dim == 0), "partitions stay first")
        return self.shows(np.expand_dims(self.index, dim))

    def squeeze_dim(self, dim: int) -> "NkiTensor":
        require(self.shape[dim] == 1 and not (self.on_chip and dim == 0), "squeeze_dim takes a free dimension of 1")
        return self.shows(self.index.squeeze(dim)) if not self.on_chip or self.ndim > 2 else self

    def reshape_dim(self, dim: int, shape: Any) -> "NkiTensor":
        require(not (self.on_chip and dim == 0) or len(shape) == 1, "partitions are not split")
        return self.shows(self.index.reshape((*self.shape[:dim], *filled(shape, self.shape[dim]), *self.shape[dim + 1:])))

    def flatten_dims(self, start_dim: int, end_dim: int) -> "NkiTensor":
        require(start_dim < end_dim and not (self.on_chip and start_dim == 0), "free dimensions are merged")
        merged = self.shape[start_dim:end_dim + 1]
        view = self.shows(self.index.reshape((*self.shape[:start_dim], prod(merged), *self.shape[end_dim + 1:])))
        return view.affine()

    def reshape(self, shape: Any) -> "NkiTensor":
        shape = filled(shape, self.size)
        require(not self.on_chip or shape[0] == self.shape[0], "partitions stay as they are")
        is_full = self.size == self.count and self.is_contiguous() and self.offset == 0
        view = self.shows(self.index.reshape(shape), base=tuple(shape) if is_full else self.base)
        return view.affine()

    def affine(self) -> "NkiTensor":
        """Return one stride for each axis; a view without such strides must be copied."""
        from_strides = np.full((), self.offset, np.int64)
        for stride, count in self.get_pattern():
            from_strides = from_strides[..., None] + stride * np.arange(count)
        require(bool((from_strides == self.index).all()), "the layout has no such view: it needs a copy")
        return self

    def rearrange(self, src: Any, dst: Any, fixed_sizes: dict[str, int] | None = None) -> "NkiTensor":
        known, view, names = dict(fixed_sizes or {}), self, []
        for group in src:
            parts = group if isinstance(group, (tuple, list)) else (group,)
            if len(parts) > 1:
                view = view.reshape_dim(len(names), tuple(known.get(n, -1) for n in parts))
            names += parts
        order = [n for group in dst for n in (group if isinstance(group, (tuple, list)) else (group,))]
        view = view.permute([names.index(n) for n in order])
        for at, group in enumerate(dst):
            if isinstance(group, (tuple, list)) and len(group) > 1:
                view = view.flatten_dims(at, at + len(group) - 1)
        return view

    def view(self, dtype: Any) -> "NkiTensor":
        """Return the bytes as another dtype, which makes the last dimension longer or shorter."""
        dtype = dtype_of(dtype)
        old, new = self.dtype.itemsize, dtype.itemsize
        require(self.address is None, "a view of another type is taken before an address of the run time")
        require(old == new or self.shape[-1] == 1 or self.strides[-1] == 1, "the last dimension is contiguous")
        base = (*self.base[:-1], self.base[-1] * old // new)
        if new <= old:
            ratio = old // new
            split = self.index[..., None] * ratio + np.arange(ratio)
            return self.shows(split.reshape((*self.shape[:-1], self.shape[-1] * ratio)), dtype=dtype, base=base)
        ratio = new // old
        require(self.shape[-1] % ratio == 0, f"the last dimension is not a multiple of {ratio}")
        first = self.index[..., ::ratio]
        require(bool((first % ratio == 0).all()), f"elements begin at multiples of {ratio}")
        return self.shows(first // ratio, dtype=dtype, base=base)

    reinterpret_cast = view

    def ap(self, pattern: Any, offset: int | None = None, scalar_offset: Any = None, vector_offset: Any = None,
           indirect_dim: int = 0, dtype: Any = None) -> "NkiTensor":
        """Return the elements at offset + the sum of stride * index in the flat storage, in units of the result's dtype
        (3.6)."""
        require(self.address is None, "the view has an address of the run time already")
        require(scalar_offset is None or vector_offset is None, "one of scalar_offset and vector_offset")
        chosen = self.dtype if dtype is None else dtype_of(dtype)
        old, new = self.dtype.itemsize, chosen.itemsize
        require(self.offset * old % new == 0, f"the view does not begin at an element of {chosen}")
        base = self.base if old == new else (*self.base[:-1], self.base[-1] * old // new)
        indices = np.full((), self.offset * old // new + (offset or 0), np.int64)
        for stride, count in pattern:
            indices = indices[..., None] + stride * np.arange(count)
        scale = prod(base[indirect_dim + 1:])
        address = None
        if vector_offset is not None:
            address = Address("vector", vector_offset, prod(base[1:]), base[0])
        elif scalar_offset is not None:
            address = Address("scalar", scalar_offset, scale, base[indirect_dim])
        view = self.shows(indices, dtype=chosen, base=base, address=address, repeats=True)
        if self.on_chip and pattern[0][1] > 1:
            require(pattern[0][0] == view.row, f"partition stride {pattern[0][0]} is not {view.row}")
        return view

    def indirect(self, index: Any, num_elem: int | None = None) -> "NkiTensor":
        """Return the columns whose numbers 16 partitions share, or 32 for products (3.7)."""
        wanted = num_elem or min(16, self.shape[0]) * prod(index.shape[1:])
        table = self.index.reshape(self.shape[0], -1)
        return self.shows(np.broadcast_to(table[:, :1], (self.shape[0], wanted)),
                          address=Address("columns", index, table=table))

    # -- indexing (3.5) ---------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> "NkiTensor":
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            keys[at:at + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
        require(len(keys) <= self.ndim, "too many indexes for shape", IndexError)
        view, kept = self, 0
        for dim, item in enumerate(keys):
            if isinstance(item, VirtualRegister) or (isinstance(item, NkiTensor) and item.size == 1):
                before = view.ndim
                view = view.select(kept, item)
                kept += view.ndim == before
            elif isinstance(item, NkiTensor):
                require(kept == 0, "a tile of numbers names rows")
                view, kept = view.rows_by(item), 1
            elif isinstance(item, Window):
                view, kept = view.window(kept, item), kept + 1
            elif isinstance(item, slice) or item is None:
                start, stop, step = bounds(item or slice(None), self.shape[dim])
                part = slice(start, stop, step)
                view, kept = view.shows(view.index[(slice(None),) * kept + (part,)]), kept + 1
            else:
                at = int(item) + (self.shape[dim] if item < 0 else 0)
                require(0 <= at < self.shape[dim], "index out of range of tensor dimension", IndexError)
                before = view.ndim
                view = view.select(kept, at)
                kept += view.ndim == before
        return view

    def __setitem__(self, key: Any, value: Any) -> None:
        """Open decision 1: a copy of a tensor, or a value everywhere."""
        from . import elementwise, transfers
        target = self[key]
        if not isinstance(value, NkiTensor):
            elementwise.memset(target, value)
        elif self.on_chip and value.on_chip:
            elementwise.tensor_copy(target, value)
        else:
            transfers.dma_copy(target, value)

    def unsupported(self, *_: Any) -> Any:
        raise TypeError("binary operators on tensors not supported. Use nki.isa directly.")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = unsupported


def bounds(key: Any, size: int) -> tuple[int, int, int]:
    start = 0 if key.start is None else int(key.start) + (size if key.start < 0 else 0)
    stop = size if key.stop is None else int(key.stop) + (size if key.stop < 0 else 0)
    require(start >= 0 and stop <= size, "index out of range of tensor dimension", IndexError)
    return start, stop, 1 if key.step is None else int(key.step)


def filled(shape: Any, size: int) -> tuple[int, ...]:
    """Return the shape with the extent that -1 stands for."""
    known = prod(n for n in shape if n != -1)
    extents = tuple(size // known if n == -1 else int(n) for n in shape)
    require(prod(extents) == size, f"a view of {size} elements has no shape {tuple(shape)}")
    return extents
