# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The history of writes to memory: it decides whether a matmul without ``accumulate=``, or a summing DMA, adds.

For PSUM it has flags of each element. ``WRITTEN``: an instruction has written it. ``READ``: an instruction has read it
since, so that another sum on it is a second one. ``PRODUCT`` and ``ZERO``: a product, or a fill with zeros, wrote it
last; the hardware accumulates to both as documented. As long as instructions access complete buffers, one truth value
stands for the flags of all elements.

Loops of the kernel's Python are unrolled, so the history is known when an instruction is emitted.
"""

import itertools
from collections.abc import Iterator
from functools import lru_cache
from math import prod

import numpy as np

from nki_mlir.capture.builder import active
from nki_mlir.capture.strides import Dim
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.dialects.access import is_row_major
from nki_mlir.language.current.memory import Storage
from nki_mlir.language.current.pairing import box_of

WRITTEN, READ, PRODUCT, ZERO = range(4)         # kinds of flags
HISTORY = "psum_history"                        # the property of the builder

Flags = list[bool | np.ndarray]                 # of a buffer, by kind; a bool stands for all elements


def _history(buffer: Buffer) -> Flags:
    history: dict[Buffer, Flags] = active().properties.setdefault(HISTORY, {})
    return history.get(buffer) or history.setdefault(buffer, [False, False, False, False])


@lru_cache(4096)
def _is_row_major_buffer(shape: tuple[int, ...], dims: tuple[Dim, ...]) -> bool:
    """Return whether a view with these dimensions from the first element on has each element of its buffer once."""
    (partition, free, count), *inner = dims
    return (partition == 1 or count == 1) and not free and count == shape[0] and is_row_major(
        [d.count for d in inner], [d.free for d in inner]) and prod([d.count for d in inner]) == prod(shape[1:])


def _covers(view: View) -> bool:
    """Return whether a view has all elements of its buffer."""
    buffer = view.buffer
    return not view.partition.const and not view.free.const and view.dtype.itemsize == buffer.dtype.itemsize and (
        _is_row_major_buffer(buffer.physical_shape, view.dims))


def _set(view: View, kind: int, value: bool, flags: Flags) -> None:
    """Set the flags (of one kind) of a view's elements, in the flags of its buffer."""
    if flags[kind] is value:
        return
    if _covers(view):
        flags[kind] = value
    else:
        _array(view, kind, flags)[...] = value


def _array(view: View, kind: int, flags: Flags) -> np.ndarray:
    """Return the flags (of one kind) of a view's elements as an array of its shape, which shares the buffer's flags."""
    of_buffer = flags[kind]
    if isinstance(of_buffer, bool):
        of_buffer = flags[kind] = _no_flags(view.buffer) | of_buffer
    return _elements(view.buffer, of_buffer, *elements_of(view))


def _no_flags(buffer: Buffer) -> np.ndarray:
    shape = buffer.physical_shape
    return np.zeros((shape[0], int(np.prod(shape[1:]))), np.bool_)


def elements_of(view: View) -> tuple[int, int, int, tuple[Dim, ...]]:
    """Return a hashable key of the elements that a view has, without a reference to its buffer."""
    return view.dtype.itemsize, view.partition.const, view.free.const, view.dims


def _elements(buffer: Buffer, flags: np.ndarray, itemsize: int, partition: int, free: int, dims: tuple[Dim, ...]
              ) -> np.ndarray:
    """Return the flags of the elements that a key of ``elements_of`` names. A view of another item size gets the flags
    of complete partitions (in HBM of the complete buffer)."""
    if itemsize != buffer.dtype.itemsize:
        return flags[partition:partition + dims[0].count] if buffer.on_chip else flags
    strides = [d.partition * flags.shape[1] + d.free for d in dims]
    start = partition * flags.shape[1] + free
    view: np.ndarray = np.ndarray(tuple(d.count for d in dims), np.bool_, flags, start, strides)
    return view


def known_flags(buffer: Buffer) -> tuple[bool, ...] | None:
    """Return the flags of a buffer in PSUM if one truth value stands for those of all elements, else None."""
    flags = _history(buffer)
    return tuple(flags) if all([type(flag) is bool for flag in flags]) else None        # type: ignore[arg-type]


def record_write(view: View) -> None:
    """Note that an instruction writes a view, if it is in PSUM: its elements count as written and not yet read."""
    if (recorder := active().recorder) is not None:
        recorder.noted(record_write, None, view)
    if view.buffer.space == "psum":
        flags = _history(view.buffer)
        for kind, value in enumerate((True, False, False, False)):
            _set(view, kind, value, flags)


def note_writer(view: View, kind: int) -> None:
    """Note that the last writer of a view, which has been noted as written, was a product or a zero fill (``kind``)."""
    if (recorder := active().recorder) is not None:
        recorder.noted(note_writer, None, view, kind)
    if view.buffer.space == "psum":
        _set(view, kind, True, _history(view.buffer))


def all_of(view: View, *kinds: int) -> bool:
    """Return whether each element of a view was last written by a writer of one of the kinds."""
    flags = _history(view.buffer)
    if any([flags[kind] is True for kind in kinds]):
        return True
    arrays = [_array(view, kind, flags) for kind in kinds if flags[kind] is not False]
    return bool(arrays) and bool(np.logical_or.reduce(arrays).all())


def mark(storage: Storage, view: View) -> None:
    """Record on ``storage``, in any memory, that an instruction writes a view of it."""
    if (recorder := active().recorder) is not None:
        recorder.noted(mark, storage, view)
    storage.written_elements.add(elements_of(view))


def touched(storage: Storage, view: View) -> bool:
    """Return whether some element of the view has been written. Inputs of the kernel count as written."""
    buffer = view.buffer
    if (recorder := active().recorder) is not None:
        recorder.repeatable = False
    if buffer.role == "input" or not storage.written_elements:    # the buffer alone knows of other writes
        return buffer.role == "input" or buffer in active().first_writes
    flags = _no_flags(buffer)
    for elements in storage.written_elements:
        _elements(buffer, flags, *elements)[...] = True
    return bool(_elements(buffer, flags, *elements_of(view)).any())


def note_read(view: View) -> None:
    """Note that an instruction other than a matmul reads a view in PSUM."""
    if (recorder := active().recorder) is not None:
        recorder.noted(note_read, None, view)
    _set(view, READ, True, _history(view.buffer))


def was_read(view: View) -> bool:
    """Return whether some element of a view has been read since it was written."""
    flags = _history(view.buffer)
    read = flags[READ]
    return read if isinstance(read, bool) else bool(_array(view, READ, flags).any())


def state(view: View) -> str:
    """Return whether ``none``, ``all`` or ``some`` elements of a view in PSUM have been written."""
    flags = _history(view.buffer)
    written = flags[WRITTEN]
    if not isinstance(written, bool):
        part = _array(view, WRITTEN, flags)
        return "all" if part.all() else "some" if part.any() else "none"
    return "all" if written else "none"


def count_written(view: View) -> int:
    """Return how many elements of a view in PSUM have been written."""
    return int(np.count_nonzero(_array(view, WRITTEN, _history(view.buffer))))


def unwritten(view: View) -> Iterator[View]:
    """Yield views that cover the elements of a view in PSUM that have not been written."""
    for box in _boxes(~_array(view, WRITTEN, _history(view.buffer))):
        yield box_of(view, box)


def _boxes(mask: np.ndarray) -> Iterator[list[tuple[int, int]]]:
    """Yield disjoint boxes, as (start, count) per dimension, that cover the true elements of a mask."""
    if not mask.any():
        return
    if mask.all():
        yield [(0, n) for n in mask.shape]
        return
    rows = [mask[k].tobytes() for k in range(mask.shape[0])]
    start = 0
    for _, group in itertools.groupby(rows):
        count = len(list(group))
        if mask.ndim == 1:
            if mask[start]:
                yield [(start, count)]
        else:
            for box in _boxes(mask[start]):
                yield [(start, count), *box]
        start += count
