# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which elements of PSUM tensors have been written: what a matmul without ``accumulate=`` overwrites and adds to.

And which have been read since, so that a second sum on the first one's elements shows.

Loops of the kernel's Python are unrolled, so that this history is known when an instruction is emitted.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from nki_mlir.frontend.builder import active
from nki_mlir.frontend.tensor import View

READ = "read_psum"


def _flags(view: View, kind: str = "written_psum") -> np.ndarray:
    """The flags of a view's elements, of its shape; views of another item size share those of whole partitions."""
    history: dict[Any, np.ndarray] = active().properties.setdefault(kind, {})
    buffer = view.buffer
    if buffer not in history:
        shape = buffer.physical_shape
        history[buffer] = np.zeros((shape[0], int(np.prod(shape[1:]))), np.bool_)
    flags = history[buffer]
    first = view.dims[0]
    if view.dtype.itemsize != buffer.dtype.itemsize:
        return flags[view.partition.const:view.partition.const + first.count]
    start = view.partition.const * flags.shape[1] + view.free.const
    strides = [d.partition * flags.shape[1] + d.free for d in view.dims]
    return np.ndarray(view.shape, np.bool_, flags, start, strides)


def note(view: View) -> None:
    """An instruction writes the view."""
    if view.buffer.space == "psum":
        _flags(view)[...] = True
        if view.buffer in active().properties.get(READ, ()):
            _flags(view, READ)[...] = False


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


def unwritten(view: View) -> Iterator[View]:
    """The elements that have not been written, as views."""
    for box in _boxes(~_flags(view)):
        partition, free, dims = view.partition, view.free, []
        for (start, count), dim in zip(box, view.dims):
            partition, free = partition + start * dim.partition, free + start * dim.free
            dims.append(dim._replace(count=count))
        yield view.like(partition=partition, free=free, dims=tuple(dims))


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
