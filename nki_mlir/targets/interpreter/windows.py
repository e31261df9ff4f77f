# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Windows: the elements of memrefs that the iterations of an operation read or write.

A view of a buffer (a memref with a strided layout) is (array, offset in elements) at run time. The array is the
complete buffer; sizes and strides are static and come from the type. No NumPy view is created before the elements are
accessed, because it could contain elements outside of its buffer that a mask excludes.
"""

from collections.abc import Sequence

import numpy as np

from nki_mlir.bindings import Type
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.waist.nest_reader import layout_of


def buffer_of(value: object) -> tuple[np.ndarray, int]:
    """Return the array and the offset of a memref's run-time value."""
    return value if type(value) is tuple else (value, 0)


class IterationWindow:
    """The access of an iteration space to a memref: an offset and a stride per iteration axis, in elements.

    ``axes`` are those that its subscripts use.
    """

    def __init__(self, kind: Type, label: str, steps: Sequence[int], start: int, axes: frozenset[int]) -> None:
        layout = layout_of(kind)
        self.sizes, self.dtype = layout.sizes, layout.dtype.numpy
        self.label, self.steps, self.start, self.axes = label, steps, start, axes

    def view(self, memref: object, starts: Sequence[int], counts: Sequence[int], axes: Sequence[int]) -> np.ndarray:
        """Return the elements of a box of the iteration space along ``axes``; a negative axis is a dim of extent 1."""
        array, offset = buffer_of(memref)
        offset += self.start
        for s, step in zip(starts, self.steps):
            offset += s * step
        shape = tuple([counts[a] if a >= 0 else 1 for a in axes])
        steps = [self.steps[a] if a >= 0 else 0 for a in axes]
        low = high = offset
        for n, step in zip(shape, steps):
            if step > 0:
                high += (n - 1) * step
            else:
                low += (n - 1) * step
        self.check(array, low, high)
        size = self.dtype.itemsize
        return np.ndarray(shape, self.dtype, array, offset * size, [step * size for step in steps])

    def elements(self, memref: object, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the complete buffer in one dimension, and the indices in it of positions ``[rank, n]``."""
        array, offset = buffer_of(memref)
        indices = offset + self.start + np.dot(self.steps, positions)
        if indices.size:
            self.check(array, int(indices.min()), int(indices.max()))
        return np.ndarray(array.nbytes // self.dtype.itemsize, self.dtype, array), indices

    def check(self, array: np.ndarray, low: int, high: int) -> None:
        extent = array.nbytes // self.dtype.itemsize
        if low < 0 or high >= extent:
            raise OutOfBounds(tensor=self.label, dim="0 (flat)", low=low, high=high, extent=extent)
