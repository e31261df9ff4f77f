# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``NkiTensor``: a strided view (shape, strides, offset) of an allocation. Making a view emits no instruction."""

from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import Any, ClassVar, NoReturn

import numpy as np

from nki_mlir.capture.errors import BadBroadcast, BadReshape
from nki_mlir.capture.part_forms import dense_shape
from nki_mlir.capture.strides import Shape, known_extents, reshaped
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.capture.view_rules import check_bits, check_order, check_unit
from nki_mlir.dialects.access import dense, is_row_major
from nki_mlir.dialects.verifier import WrongDtype
from nki_mlir.language.current.calls import CURRENT, dtype_argument, reported
from nki_mlir.language.current.dimension_patterns import dimension_pattern
from nki_mlir.language.current.errors import (
    aligned_byte,
    core_rule,
    dimension,
    integer,
    integers,
    invalid,
    not_a_tensor,
    of_core,
    older,
    pairs,
    require,
    step_fix,
    unknown_name,
)
from nki_mlir.language.current.memory import Indirection, MemoryRegion, Storage, VirtualRegister, shared_hbm
from nki_mlir.language.current.older_methods import Address, OlderMethods
from nki_mlir.language.current.reach import check_reach
from nki_mlir.language.signatures.table import language_functions
from nki_mlir.machine import Machine
from nki_mlir.scalar.dtypes import DType


class NkiTensor(OlderMethods):
    """A tensor, or a view of one: memory with a shape, strides and a dtype.

    Element ``(i, j, ...)`` is the storage's element ``offset + i * strides[0] + j * strides[1] + ...``, row-major. On
    chip dimension 0 is the partition; ``strides[0]`` then counts the elements of a complete partition.

    ``NkiTensor(name=, shape=, dtype=)`` without a storage describes an array, for compilation outside a kernel.
    """

    __slots__ = ("__weakref__", "base", "core", "dtype", "form", "indirection", "offset", "shape", "storage", "strides")

    opened: ClassVar[type["NkiTensor"]]         # a subclass that accepts assignments to attributes until all are set

    def __new__(cls, *arguments: object, **keywords: object) -> "NkiTensor":
        return object.__new__(cls.opened)

    def __init__(self, storage: Storage | None = None, shape: Sequence[int] = (), strides: Sequence[int] | None = None,
                 offset: int = 0, dtype: Any = None, base: Sequence[int] | None = None,
                 indirection: Indirection | None = None, *, name: str = "", buffer: MemoryRegion = shared_hbm) -> None:
        if storage is None:
            dtype = dtype_argument(dtype)
            storage = Storage(Buffer(tuple(shape), dtype, buffer.space, name), buffer, dtype)
        self.storage, self.dtype, self.offset, self.indirection = storage, dtype, offset, indirection
        self.shape, self.strides = Shape(shape), tuple(dense(shape) if strides is None else strides)
        self.base = tuple(base if base is not None else shape)      # the shape that run-time offsets are scaled by
        self.core: View | None = None                               # cached by ``core_view``
        self.form: object = None                                    # cached by ``repeated_calls.form_of``
        if type(self) is not NkiTensor:                             # NkiTensor refuses assignments
            self.__class__ = NkiTensor

    @classmethod
    def full(cls, storage: Storage) -> "NkiTensor":
        shape, strides = dense_shape(storage.buffer.shape)
        return cls.opened.of_parts(storage, shape, strides, 0, storage.dtype, shape)

    @classmethod
    def of_parts(cls, storage: Storage, shape: Shape, strides: tuple[int, ...], offset: int, dtype: DType,
                 base: tuple[int, ...]) -> "NkiTensor":
        """Return a tensor of these parts; ``cls`` is ``opened``."""
        tensor = object.__new__(cls)
        tensor.storage, tensor.shape, tensor.strides, tensor.offset = storage, shape, strides, offset
        tensor.dtype, tensor.base, tensor.core, tensor.form, tensor.indirection = dtype, base, None, None, None
        if cls is not NkiTensor:
            tensor.__class__ = NkiTensor
        return tensor

    @classmethod
    def of_view(cls, view: View, region: MemoryRegion, verdict: bool = False) -> "NkiTensor":
        """Wrap a view of the capture core in a tensor. The start of the view is a constant."""
        storage = Storage(view.buffer, region, view.buffer.dtype, verdict=verdict)
        row = storage.row(view.dtype) if storage.on_chip else 0
        strides = [d.partition * row + d.free for d in view.dims]
        return cls(storage, view.shape, strides, view.partition.const * row + view.free.const, view.dtype)

    def like(self, **changes: object) -> "NkiTensor":
        parts = {"storage": self.storage, "shape": self.shape, "strides": self.strides, "offset": self.offset,
                 "dtype": self.dtype, "base": self.base, "indirection": self.indirection} | changes
        return NkiTensor(**parts)

    def of_pattern(self, shape: Sequence[int], strides: Sequence[int], offset: int) -> "NkiTensor":
        """Return a view of other elements of the same storage."""
        return NkiTensor(self.storage, shape, strides, offset, self.dtype, self.base, self.indirection)

    # -- attributes ----------------------------------------------------------------------------------------------------
    @property
    def buffer(self) -> MemoryRegion:
        return self.storage.region

    @property
    def on_chip(self) -> bool:
        return self.storage.on_chip

    @property
    def name(self) -> str:
        return self.storage.buffer.name

    @property
    def address(self) -> tuple[object, ...]:
        """The (partition, byte) address that the kernel chose for the tensor, or () if it chose none."""
        return Address.of(self)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def sim_value(self) -> np.ndarray | None:
        """The elements while the kernel is simulated; None while it is captured."""
        if self.indirection is not None or not isinstance(self.storage.buffer.handle, np.ndarray):
            return None
        self.check_reach()
        flat = self.storage.buffer.handle.reshape(-1).view(self.dtype.numpy)
        size = self.itemsize
        view = np.ndarray(tuple(self.shape), self.dtype.numpy, flat, self.offset * size,
                          tuple(s * size for s in self.strides))
        return np.array(view)

    def is_contiguous(self) -> bool:
        """Return whether the elements are dense and row-major; on chip within each partition."""
        first_free = 1 if self.on_chip else 0
        return is_row_major(self.shape[first_free:], self.strides[first_free:])

    def is_indirect(self) -> bool:
        return self.indirection is not None

    def get_pattern(self) -> list[list[int]]:
        """Return ``[stride, count]`` for each dimension."""
        return [[s, n] for s, n in zip(self.strides, self.shape)]

    # -- views ---------------------------------------------------------------------------------------------------------
    def _dim(self, dim: int, upto: int | None = None) -> int:
        limit = self.ndim if upto is None else upto
        dimension(dim, -limit, limit, self.ndim)
        return dim % limit

    @property
    def _has_rows(self) -> bool:
        """Return whether dimension 0 has a row for each element of an index tensor."""
        return self.indirection is not None and self.indirection.kind == "vector"

    @property
    def _head(self) -> int:
        """The number of leading dimensions that views keep: 1 where dimension 0 is the partition or is gathered."""
        return int(self.on_chip or self._has_rows)

    def _replaced(self, start: int, end: int, shape: Sequence[int], strides: Sequence[int]) -> "NkiTensor":
        """Return a view in which ``shape`` and ``strides`` replace the dimensions ``start`` to ``end - 1``."""
        return self.like(shape=(*self.shape[:start], *shape, *self.shape[end:]),
                         strides=(*self.strides[:start], *strides, *self.strides[end:]))

    @reported
    def slice(self, dim: int, start: int, end: int, step: int = 1) -> "NkiTensor":
        """Return a view of the elements ``start, start + step, ...`` below ``end`` of dimension ``dim``."""
        dim = self._dim(dim)
        require(0 <= start < end <= self.shape[dim],
                f"slice {start}:{end} of dimension {dim} with size {self.shape[dim]}: "
                "index out of range of tensor dimension", fix=f"end it at {self.shape[dim]}")
        require(step >= 1, "slice step cannot be zero or negative", fix=step_fix(step), code="NKI-SLICE-STEP")
        return self.part(dim, start, end, step)

    def part(self, dim: int, start: int, end: int, step: int = 1) -> "NkiTensor":
        """Return a slice of dimension ``dim``, which may be empty. The caller has checked the bounds."""
        if dim == 0:
            self.check_sliceable()
        shape, strides = [*self.shape], [*self.strides]
        shape[dim], strides[dim] = ceil((end - start) / step), self.strides[dim] * step
        return self.of_pattern(shape, strides, self.offset + start * self.strides[dim])

    @reported
    def select(self, dim: int, index: object) -> "NkiTensor":
        """Return a view at ``index`` of dimension ``dim``, which is dropped. ``index`` may be a run-time value."""
        dim = self._dim(dim)
        if not isinstance(index, (NkiTensor, VirtualRegister)):
            index = integer(index, "select index")
            require(0 <= index < self.shape[dim], f"index {index} of dimension {dim} with size {self.shape[dim]}: "
                                                  "index out of range of tensor dimension",
                    fix=f"use -{self.shape[dim]} to {self.shape[dim] - 1}")
            picked = self.slice(dim, index, index + 1)
            return picked if self.on_chip and dim == 0 else picked._dropped(dim)
        self.check_direct(f"select({dim}, ...)")
        one_index(index, "select")
        self.check_steps(dim, "selected")
        indirection = Indirection("scalar", index, self.strides[dim], self.shape[dim], dim)
        if self.on_chip and dim == 0:
            return self.like(shape=(1, *self.shape[1:]), indirection=indirection)
        unit = [1] if self.on_chip and self.ndim < 3 else []
        return self._replaced(dim, dim + 1, unit, unit).like(indirection=indirection)

    def _dropped(self, dim: int) -> "NkiTensor":
        return self if self.ndim <= (2 if self.on_chip else 1) else self._replaced(dim, dim + 1, (), ())

    @reported
    def vector_select(self, dim: int, vector_offset: "NkiTensor") -> "NkiTensor":
        """Return a gather view of an HBM tensor: one row for each value of ``vector_offset``."""
        self.check_rows(dim, vector_offset, "vector_select takes dimension 0", "put that dimension first with permute")
        require(self.strides[0] == max(self.strides) and self.strides[0] != 0,
                f"vector_select needs the largest stride in dimension 0, got strides {list(self.strides)}",
                fix="copy the tensor in the order of its shape first")
        indirection = Indirection("vector", vector_offset, self.strides[0], self.shape[0])
        return self.like(shape=(vector_offset.shape[0], *self.shape[1:]), indirection=indirection)

    @reported
    def permute(self, dims: Sequence[int]) -> "NkiTensor":
        """Return a view with the dimensions in the order ``dims``. Dimension 0 of an on-chip tensor stays first."""
        check_order(dims, self.shape, 0 if self._head else None)
        return self.like(shape=[self.shape[k] for k in dims], strides=[self.strides[k] for k in dims])

    @reported
    def broadcast(self, dim: int, size: int) -> "NkiTensor":
        """Return a view that repeats dimension ``dim`` of size 1 ``size`` times, with stride 0."""
        dim = self._dim(dim)
        core_rule(self.shape[dim] == 1, BadBroadcast, shape=self.shape,
                  wanted=(*self.shape[:dim], size, *self.shape[dim + 1:]))
        require(not (self.on_chip and dim == 0), "the partition dimension cannot be broadcast by a view",
                fix=f"copy the row to {size} partitions with nl.broadcast_to(row, shape=...)")
        require(size >= 1, f"a dimension cannot be broadcast to {size} elements", fix="give 1 or more")
        return self._replaced(dim, dim + 1, [size], [0])

    @reported
    def expand_dim(self, dim: int) -> "NkiTensor":
        """Return a view with a dimension of size 1 inserted before dimension ``dim``."""
        dim = self._dim(dim, self.ndim + 1)
        self._free_dim(dim)
        step = self.shape[dim] * self.strides[dim] if dim < self.ndim else 1
        return self._replaced(dim, dim, [1], [step])

    def _free_dim(self, dim: int) -> None:
        require(dim >= self._head, "dimension 0 is the partition and stays as it is",
                fix="copy it to a tile of another shape, with nisa.dma_copy")

    @reported
    def squeeze_dim(self, dim: int) -> "NkiTensor":
        """Return a view without dimension ``dim``, which has size 1."""
        dim = self._dim(dim)
        check_unit(dim, self.shape)
        self._free_dim(dim)
        return self._dropped(dim)

    @reported
    def reshape_dim(self, dim: int, shape: Sequence[int]) -> "NkiTensor":
        """Return a view with dimension ``dim`` split into the extents ``shape``; one of them may be -1."""
        dim = self._dim(dim)
        extents = known_extents(shape, self.shape[dim])
        if extents is None:
            invalid(f"dimension {dim} of size {self.shape[dim]} does not split into {list(shape)}",
                    fix="give extents whose product is the size")
        if len(extents) > 1:
            self._free_dim(dim)
        return self._replaced(dim, dim + 1, extents, [n * self.strides[dim] for n in dense(extents)])

    @reported
    def flatten_dims(self, start_dim: int, end_dim: int) -> "NkiTensor":
        """Return a view with the contiguous dimensions ``start_dim`` to ``end_dim`` (inclusive) merged into one."""
        a, b = self._dim(start_dim), self._dim(end_dim)
        require(a < b, f"flatten_dims({start_dim}, {end_dim}) names no range of dimensions",
                fix=f"give dimensions from 0 to {self.ndim - 1}, the first not after the last")
        self._free_dim(a)
        core_rule(all(self.strides[k] == self.shape[k + 1] * self.strides[k + 1] for k in range(a, b)), BadReshape,
                  what=f"dimensions {a} to {b} with strides {list(self.strides[a:b + 1])} are not contiguous")
        return self._replaced(a, b + 1, [prod(self.shape[a:b + 1])], [self.strides[b]])

    @reported
    def reshape(self, shape: "Sequence[int] | int | None" = None, *more: int, new_shape: Any = None,
                dtype: object = None, name: str = "") -> "NkiTensor":
        """Return a view with another shape, after reinterpreting the bits as ``dtype`` if given. On chip the shape may
        have fewer elements: the view then has the first elements of each partition."""
        if dtype is not None:
            return self.view(dtype, shape if new_shape is None else new_shape)
        requested = new_shape if shape is None else shape
        requested = (requested, *more) if isinstance(requested, (int, np.integer)) else requested
        integers(requested, "reshape")
        extents = known_extents(requested, self.size)
        if extents is None:
            if (part := self.leading_part(requested)) is not None:
                older(f"reshape of {list(self.shape)} to fewer elements: {list(requested)}")
                return part
            size, limit = (abs(prod(n)) * self.itemsize for n in (requested, self.shape))
            reason = f"shape has size {size} (bytes), which is too large for buffer of size {limit} (bytes)"
            invalid(f"cannot reshape {list(self.shape)} with {self.size} elements to {list(requested)}",
                    why=reason if size > limit else "", fix="give a shape of equal size", code="NKI-RESHAPE")
        head = self._head
        require(extents[:head] == self.shape[:head],
                f"reshape of {list(self.shape)} to {list(extents)} changes dimension 0, which is the partition",
                fix="keep dimension 0, or move the elements with nisa.dma_copy", code="NKI-RESHAPE")
        steps = reshaped(self.shape[head:], self.strides[head:], extents[head:])
        if steps is None:
            invalid(f"cannot reshape a complex access pattern: {self.get_pattern()} to {list(extents)} needs a copy",
                    fix="copy it to a separate tile first, with nisa.tensor_copy", code="NKI-RESHAPE")
        strides = (*self.strides[:head], *steps)
        is_complete = self.offset == 0 and self.size == prod(self.base) and is_row_major(self.shape, self.strides)
        return self.like(shape=extents, strides=strides, base=extents if is_complete else self.base)

    @reported
    def rearrange(self, src_pattern: Sequence[object], dst_pattern: Sequence[object],
                  fixed_sizes: dict[str, int] | None = None) -> "NkiTensor":
        """Split dimensions (groups in ``src_pattern``), permute them, and merge them (groups in ``dst_pattern``)."""
        pattern = dimension_pattern(src_pattern, dst_pattern, {} if fixed_sizes is None else fixed_sizes, self.ndim)
        view = self
        for dim, extents in pattern.splits:
            view = view.reshape_dim(dim, extents)
        view = view.permute(pattern.order)
        for first, last in pattern.merges:
            view = view.flatten_dims(first, last)
        return view

    @reported
    def view(self, dtype: object, shape: tuple[int, ...] | None = None) -> "NkiTensor":
        """Reinterpret the bits as another dtype, which scales the last dimension; ``shape`` then reshapes the view."""
        if shape is not None:
            return self.view(dtype).reshape(shape)
        to = dtype_argument(dtype)
        old, new = self.dtype.itemsize, to.itemsize
        if old == new:
            return self.like(dtype=to)
        self.check_direct("view")
        check_bits(self.shape, self.dtype, to, self.strides[-1] == 1 or self.shape[-1] == 1,
                   [*self.strides[:-1], self.offset])
        scaled = [n * old // new for n in (*self.strides[:-1], self.offset, self.shape[-1])]
        return self.like(shape=(*self.shape[:-1], scaled[-1]), strides=(*scaled[:-2], 1), offset=scaled[-2], dtype=to,
                         base=(*self.base[:-1], self.base[-1] * old // new))

    reinterpret_cast = view

    def check_reach(self, free_only: bool = False) -> None:
        check_reach(self.storage, self.shape, self.strides, self.offset, self.dtype, free_only)

    def check_sliceable(self) -> None:
        """Raise an error if dimension 0 cannot be sliced."""
        require(not self._has_rows, "a dimension that a tensor indexes cannot be sliced", fix="slice before indexing")

    def check_direct(self, subject: str) -> None:
        """Raise an error if the tensor has a run-time index already: it can have only one."""
        require(self.indirection is None, f"{subject} cannot address a tensor that is already indexed at run time",
                fix="copy the part to a tile first, and index that")

    def check_steps(self, dim: int, use: str) -> None:
        """Raise an error if ``dim`` is broadcast: a run-time index is scaled by its stride, which is 0."""
        require(self.strides[dim] != 0, f"a broadcast dimension cannot be {use} at run time",
                fix="copy the tensor to a tile of its full shape first")

    def check_rows(self, dim: int, indices: "NkiTensor", text: str, fix: str) -> None:
        """Check that integers ``indices`` gather rows of a tensor in HBM; ``text``, ``fix``: for another dimension."""
        require(dim == 0, text, fix=fix)
        require(not self.on_chip, "vector_offset needs a tensor in HBM",
                fix="move the rows with nisa.dma_copy first, or use .indirect on chip")
        self.check_direct("vector_offset")
        check_integers(indices, "vector_offset")
        require(indices.size == 1 or indices.shape[0] > 1,
                f"a tile of indices must have shape [N, 1], got {indices.shape}",
                fix="give each index a partition: a tile of shape (N, 1)")

    @reported
    def ap(self, pattern: Sequence[Sequence[int]], offset: int | None = None, scalar_offset: object = None,
           vector_offset: "NkiTensor | None" = None, indirect_dim: int = 0, dtype: object = None) -> "NkiTensor":
        """Return a view by an access pattern on the storage: ``[stride, count]`` pairs, outermost first.

        The pattern replaces the shape and strides of the tensor. It begins ``offset`` elements after the start of the
        tensor. An instruction that uses the view checks that the pattern stays inside the storage.
        """
        kind = self.dtype if dtype is None else dtype_argument(dtype)
        strides, counts = zip(*pairs(pattern, "ap"))
        require(all(n >= 1 for n in counts), f"the counts of {list(pattern)} must be positive",
                fix="give counts of 1 or more")
        start_byte = self.offset * self.dtype.itemsize
        aligned_byte(start_byte, kind.itemsize,
                     f"ap: the view starts at byte {start_byte}, which is not aligned to {kind}")
        start = start_byte // kind.itemsize + (offset or 0)
        row = self.storage.row(kind)
        if self.on_chip:
            require(counts[0] == 1 or strides[0] in (row, 0),
                    f"partition stride {strides[0]} of an on-chip pattern; it must be {row}, the elements of a "
                    "partition", fix=f"use {row} as the step of partitions")
        require(scalar_offset is None or vector_offset is None,
                "only one of scalar_offset and vector_offset can be given", fix="leave one of them out")
        if scalar_offset is not None or vector_offset is not None:
            self.check_direct("ap")
        *outer, last = self.base or (1,)                # a tensor without dimensions has one element
        base = *outer, last * self.dtype.itemsize // kind.itemsize
        indirection = None
        if scalar_offset is not None:
            one_index(scalar_offset, "scalar_offset", "ap")
            dimension(indirect_dim, 0, len(base), len(base), "indirect_dim")
            indirection = Indirection("scalar", scalar_offset, prod(base[indirect_dim + 1:]), base[indirect_dim],
                                      indirect_dim)
        elif vector_offset is not None:
            self.check_rows(indirect_dim, vector_offset, "vector_offset needs indirect_dim 0",
                            "use indirect_dim=0, or scalar_offset")
            indirection = Indirection("vector", vector_offset, prod(base[1:]), base[0])
        if indirection is not None and kind is self.dtype:
            indirection.warn_of_steps(self.name, self.shape, self.strides)
        return NkiTensor(self.storage, counts, strides, start, kind, base, indirection)

    @reported
    def indirect(self, index: "NkiTensor", num_elem: int | None = None) -> "NkiTensor":
        """Return a gather view of columns of an on-chip tensor. Groups of partitions share the offsets in ``index``."""
        require(self.on_chip, "indirect needs a tensor on chip", fix="use .ap(vector_offset=...) for tensors in HBM")
        check_integers(index, "indirect index", "nl.uint16 or nl.uint32")
        require(index.shape[0] == self.shape[0], f"index has {index.shape[0]} partitions, the tensor {self.shape[0]}",
                fix="give the index the same number of partitions as the tensor")
        self.check_direct("indirect")
        rows = min(Machine.gpsimd_group, self.shape[0])
        count = rows * prod(index.shape[1:]) if num_elem is None else num_elem
        return self.like(shape=(self.shape[0], count), strides=(self.strides[0], 1),
                         indirection=Indirection("columns", index, source=self))

    # -- subscripts ----------------------------------------------------------------------------------------------------
    # The module ``functions`` assigns them: they need the functions that compute and move tensors.
    __getitem__: ClassVar[Callable[["NkiTensor", object], "NkiTensor"]]
    __setitem__: ClassVar[Callable[["NkiTensor", object, object], None]]

    def same_elements(self, other: "NkiTensor") -> bool:
        """Return whether ``other`` is a view of the same elements in the same order and dtype."""
        return (self.storage is other.storage and self.dtype is other.dtype and self.shape == other.shape
                and (self.strides, self.offset, self.indirection) == (other.strides, other.offset, other.indirection))

    def _values(self) -> np.ndarray | None:
        return self.sim_value

    def _is_part_of(self, other: object) -> bool:
        return isinstance(other, NkiTensor) and other.storage is self.storage

    def _addresses(self) -> tuple[tuple[int, int], ...]:
        return (self.storage.address,) if self.storage.address else ()

    def __repr__(self) -> str:
        return self._text(self.buffer.value, self.sim_value)

    def _repr_html_(self) -> str:
        return self._table(self.buffer.value, self.sim_value)

    def __getattr__(self, name: str) -> NoReturn:
        raise unknown_name("a tensor", name, dir(type(self)), language_functions())


class _OpenNkiTensor(NkiTensor):
    __slots__ = ()
    __setattr__, __delattr__ = object.__setattr__, object.__delattr__                   # type: ignore[assignment]


NkiTensor.opened = _OpenNkiTensor


def check_integers(value: object, subject: str, dtype: str = "nl.int32") -> None:
    """Check that ``value``, which holds run-time indices, is a tensor of integers."""
    if not isinstance(value, NkiTensor):
        not_a_tensor(value, subject)
    require(value.dtype.is_integer, f"{subject} is a tensor of integers", fix=f"create it with dtype={dtype}")


def one_index(value: object, subject: str, method: str = "a subscript") -> None:
    """Check that ``value`` of a method is a scalar run-time index: a register or a tensor of one integer."""
    described = f"a tensor of shape {list(value.shape)}" if isinstance(value, NkiTensor) else type(value).__name__
    require(isinstance(value, VirtualRegister) or (isinstance(value, NkiTensor) and value.size == 1),
            f"{subject} requires scalar argument, got {described}",
            fix="give a register or a tile of one element; add a number to offset=")
    if isinstance(value, NkiTensor) and not value.dtype.is_integer:
        raise of_core(WrongDtype(operand=subject, op=method, found=value.dtype, expected="an integer type"))


CURRENT.values.tiles = (NkiTensor,)
