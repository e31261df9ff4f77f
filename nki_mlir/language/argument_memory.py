# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepares the memory of a call's arrays: C-contiguous copies where executors need them, and checks for overlaps.

Executors take C-contiguous arrays, and update those that the kernel writes. Any other array is copied, and copied back
if it was written. There is one copy for each array, so that an array passed for two parameters stays one. Copies of two
arrays that overlap with a shift would not overlap: such a call is an error if the kernel writes one of them.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.language.arguments import BadArgument

MOST_WORK = 1 << 20         # limit of NumPy's search for a shared element; beyond it two arrays count as overlapping


class ReadOnlyArgument(BadArgument):
    message = "the kernel writes its parameter {name}, and the array passed for it is read-only"
    fix = "pass a copy: np.array(x)"


class RepeatedElements(BadArgument):
    message = ("the kernel writes its parameter {name}, but elements of the array passed for it share memory "
               "(shape {shape}, strides {strides})")
    fix = "pass an array that has memory for each element: np.array(x)"


class RepeatedInTensor(RepeatedElements):
    message = ("the kernel writes its parameter {name}, but elements of the tensor passed for it share memory "
               "(shape {shape}, strides {strides})")
    why = "expand and as_strided return tensors whose elements share memory"
    fix = "pass a tensor that has memory for each element: x.contiguous(), which has the new values after the call"


class OverlappingArguments(BadArgument):
    message = ("the kernel writes its parameter {name}, whose array overlaps the array of {other} with a shift, "
               "and at least one of the two is not C-contiguous")
    fix = "pass a copy of one of them, or C-contiguous arrays"


class StridedMemory(NamedTuple):
    """Elements in memory: the address of the first, the extents, and the strides in bytes along each axis."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "data": (self.address, False), "shape": self.shape, "strides": self.strides,
                "typestr": f"|V{self.itemsize}"}

    def overlaps(self, other: "StridedMemory") -> bool:
        """Return whether two arguments may have a byte in common. The method does not touch their memory."""
        try:
            return np.shares_memory(np.asarray(self), np.asarray(other), max_work=MOST_WORK)  # type: ignore[arg-type]
        except np.exceptions.TooHardError:
            return True

    @property
    def repeats(self) -> bool:
        """Return whether two of the elements share memory."""
        axes = sorted((abs(step), extent) for step, extent in zip(self.strides, self.shape) if extent > 1)
        reach = self.itemsize
        for step, extent in axes:
            if step < reach:
                break
            reach += step * (extent - 1)
        else:
            return False
        starts = np.zeros(1, np.int64)
        for step, extent in axes:
            starts = np.add.outer(starts, step * np.arange(extent)).ravel()
        starts.sort()
        return bool((np.diff(starts) < self.itemsize).any())


def memory_of(array: np.ndarray) -> StridedMemory:
    return StridedMemory(array.__array_interface__["data"][0], array.shape, array.strides, array.itemsize)


def is_contiguous(array: np.ndarray) -> bool:
    return array.flags.c_contiguous


class ArgumentMemory:
    """The arrays that the executor gets (``arrays``) for the arrays of a call. ``fits`` says whether it can use an
    array without a copy, ``of_torch`` has the numbers of the arrays that view tensors of PyTorch."""

    def __init__(self, originals: Sequence[np.ndarray], names: Sequence[str],
                 fits: Callable[[np.ndarray], bool] = is_contiguous, of_torch: Collection[int] = ()) -> None:
        self.originals, self.names, self.of_torch = originals, names, of_torch
        self.overlaps: list[tuple[int, int]] = []
        self.copied = not all(map(fits, originals))
        if not self.copied:
            self.arrays = [np.asarray(a) for a in originals]
            return
        memory = [memory_of(a) for a in originals]
        copied = {m for m, a in zip(memory, originals) if not fits(a)}
        pairs = [(a, b) for a, b in combinations(range(len(originals)), 2)
                 if memory[a] != memory[b] and memory[a].overlaps(memory[b])]
        while new_pairs := [(a, b) for a, b in pairs if (a, b) not in self.overlaps
                            and not copied.isdisjoint((memory[a], memory[b]))]:
            self.overlaps += new_pairs
            # Both arrays of a pair are copied, so that a call that ``check`` refuses changes nothing.
            copied |= {memory[k] for pair in new_pairs for k in pair}
        copies = {m: np.array(a, order="C", subok=False) for m, a in zip(memory, originals) if m in copied}
        self.arrays = [copies[m].view(a.dtype) if m in copied else np.asarray(a) for m, a in zip(memory, originals)]

    def check(self, updated: Collection[int]) -> None:
        """Raise an error if an array with one of these numbers cannot be updated."""
        for number in updated:
            array, name = self.originals[number], self.names[number]
            if not array.flags.writeable:
                raise ReadOnlyArgument(name=name).here()
            if not array.flags.c_contiguous and memory_of(array).repeats:
                if number in self.of_torch:             # PyTorch counts strides in elements
                    strides = tuple([step // array.itemsize for step in array.strides])
                    raise RepeatedInTensor(name=name, shape=array.shape, strides=strides).here()
                raise RepeatedElements(name=name, shape=array.shape, strides=array.strides).here()
        for pair in self.overlaps:
            for number, other in (pair, pair[::-1]):
                if number in updated:
                    raise OverlappingArguments(name=self.names[number], other=self.names[other]).here()

    def changed(self) -> list[int]:
        """Return the numbers of the writable arrays that were copied and whose copy has other bits now."""
        return [k for k, (array, used) in enumerate(zip(self.originals, self.arrays)) if array.flags.writeable
                and not np.may_share_memory(array, used) and not np.array_equal(bits_of(array), bits_of(used))]

    def write_back(self, updated: Collection[int] = ()) -> None:
        """Copy values back to the caller's arrays: from the copies with these numbers, and from others that the kernel
        changed."""
        if self.copied:
            updated = {*updated, *self.changed()}
            self.check(updated)
            for k in sorted(updated):
                if not np.may_share_memory(self.originals[k], self.arrays[k]):
                    self.originals[k][...] = self.arrays[k]


def bits_of(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")
