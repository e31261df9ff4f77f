# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which elements have been written: what a matmul without ``accumulate=``, or a transfer that sums, adds to.

And of PSUM which have been read since, so that a second sum on the first one's elements shows, and which of them a
product or a zero wrote last, which the hardware adds to as documented.

Loops of the kernel's Python are unrolled, so that this history is known when an instruction is emitted.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from nki_mlir.capture.builder import active
from nki_mlir.capture.strides import Dim
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.language.current.memory import Storage
from nki_mlir.language.current.pairing import box_of

READ, PRODUCT, ZERO = "read_psum", "product_psum", "zero_psum"


def _flags(view: View, kind: str = "written_psum") -> np.ndarray:
    """The flags of a view's elements, of its shape."""
    history = active().properties.setdefault(kind, {})
    if view.buffer not in history:
        history[view.buffer] = _no_flags(view.buffer)
    return _elements(view.buffer, history[view.buffer], *_elements_of(view))


def _no_flags(buffer: Buffer) -> np.ndarray:
    shape = buffer.physical_shape
    return np.zeros((shape[0], int(np.prod(shape[1:]))), np.bool_)


def _elements_of(view: View) -> tuple[int, int, int, tuple[Dim, ...]]:
    """Which elements of its buffer a view has, in a form that keeps no buffer."""
    return view.dtype.itemsize, view.partition.const, view.free.const, view.dims


def _elements(buffer: Buffer, flags: np.ndarray, itemsize: int, partition: int, free: int, dims: tuple[Dim, ...]
              ) -> np.ndarray:
    """The flags of those elements; views of another item size share those of whole partitions."""
    if itemsize != buffer.dtype.itemsize:
        return flags[partition:partition + dims[0].count] if buffer.on_chip else flags
    strides = [d.partition * flags.shape[1] + d.free for d in dims]
    start = partition * flags.shape[1] + free
    seen: np.ndarray = np.ndarray(tuple(d.count for d in dims), np.bool_, flags, start, strides)
    return seen


def note(view: View) -> None:
    """An instruction writes the view."""
    if view.buffer.space == "psum":
        _flags(view)[...] = True
        for kind in (READ, PRODUCT, ZERO):
            if view.buffer in active().properties.get(kind, ()):
                _flags(view, kind)[...] = False


def note_writer(view: View, kind: str) -> None:
    """What has just been noted as written is the result of a product, or zeros."""
    if view.buffer.space == "psum":
        _flags(view, kind)[...] = True


def all_of(view: View, *kinds: str) -> bool:
    """Whether each element was last written by one of these."""
    return bool(np.logical_or.reduce([_flags(view, kind) for kind in kinds]).all())


def mark(storage: Storage, view: View) -> None:
    """An instruction writes the view of the storage, in any memory."""
    storage.written_elements.add(_elements_of(view))


def touched(storage: Storage, view: View) -> bool:
    """Whether some element of the view has been written; inputs were before the kernel began."""
    buffer = view.buffer
    if buffer.role == "input" or not storage.written_elements:    # what other instructions wrote is known by its buffer
        return buffer.role == "input" or buffer in active().first_writes
    flags = _no_flags(buffer)
    for place in storage.written_elements:
        _elements(buffer, flags, *place)[...] = True
    return bool(_elements(buffer, flags, *_elements_of(view)).any())


def note_read(view: View) -> None:
    """An instruction other than a matmul reads the view, which is in PSUM."""
    _flags(view, READ)[...] = True


def was_read(view: View) -> bool:
    """Whether some element has been read since it was written."""
    return view.buffer in active().properties.get(READ, ()) and bool(_flags(view, READ).any())


def state(view: View) -> str:
    """``none``, ``all`` or ``some`` of the elements have been written."""
    flags = _flags(view)
    return "all" if flags.all() else "some" if flags.any() else "none"


def count_written(view: View) -> int:
    """How many elements have been."""
    return int(np.count_nonzero(_flags(view)))


def unwritten(view: View) -> Iterator[View]:
    """The elements that have not been written, as views."""
    for box in _boxes(~_flags(view)):
        yield box_of(view, box)


def _boxes(mask: np.ndarray) -> Iterator[list[tuple[int, int]]]:
    """Boxes that cover the true elements, each once."""
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
