# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``NKI_PRECISE_FP=0``: what low-precision tensors hold in a simulation whose writes do not round.

Memory stays as it is, in its own types: whoever looks at it, through a view of any dtype, sees rounded values. Beside
it are float32 values, which instructions read and write in its place wherever they access it as a low-precision type.
After each instruction memory gets what was written, rounded; and what was written as one type is taken from memory for
all others.
"""

import os
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import Op, changed
from nki_mlir.language.current.errors import invalid, require
from nki_mlir.scalar.dtypes import (
    BFLOAT16,
    FLOAT8_E4M3,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    TFLOAT32,
    DType,
    convert,
)
from nki_mlir.targets.interpreter.execute import Arrays, Pattern, Values, compile_op, flat_view

VARIABLE = "NKI_PRECISE_FP"
LOW = (BFLOAT16, FLOAT16, FLOAT8_E4M3, FLOAT8_E4M3FN, FLOAT8_E5M2)


def rounds() -> bool:
    """Whether the environment lets simulations round what they write."""
    value = os.environ.get(VARIABLE) or "1"
    require(value in ("0", "1"), f"{VARIABLE} is {value!r}",
            why="1 (the default): simulated writes round to the type of their tensor; 0: they keep float32 values",
            fix=f"set {VARIABLE} to 0 or 1, or unset it")
    return value == "1"


# -- values ------------------------------------------------------------------------------------------------------------
# A NaN has the bits it came from in its lowest 16, so that integers that are moved as floats arrive as they were.
QUIET, ORIGIN = 0x7FC00000, 0xFFFF


def widened(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The float32 values of low-precision elements."""
    values = convert(array, FLOAT32, dtype)
    nan = np.isnan(values)
    if nan.any():
        values.view(np.uint32)[nan] = QUIET | array[nan].view(f"u{dtype.itemsize}").astype(np.uint32)
    return values


def rounded(values: np.ndarray, dtype: DType) -> np.ndarray:
    """The low-precision elements nearest to float32 values; those that ``widened`` made are what it got."""
    made = np.ascontiguousarray(convert(values, dtype, FLOAT32))
    nan = np.isnan(values)
    if nan.any():
        unsigned = f"u{dtype.itemsize}"
        origin = np.ascontiguousarray(values[nan]).view(np.uint32) & ORIGIN
        bits = origin.astype(unsigned)
        valid = np.isnan(bits.view(dtype.numpy).astype(np.float32)) & (bits == origin)
        made.view(unsigned)[nan] = np.where(valid, bits, made[nan].view(unsigned))
    return made


# -- memory ------------------------------------------------------------------------------------------------------------
class UnroundedStep:
    """An operation on the float32 values of its low-precision tiles, and where it writes."""

    def __init__(self, op: Op) -> None:
        operands = op.operands()
        self.run = compile_op(changed(op, exact_tile))
        self.low = [tile.dtype if tile.dtype in LOW else None for _, tile in operands]
        self.targets = [(k, tile.dtype, Pattern(tile), Pattern(exact_tile(tile)))
                        for k, (field, tile) in enumerate(operands) if field.writes]


def exact_tile(tile: Tile) -> Tile:
    """A low-precision tile in the float32 values of its memory; a tfloat32 is one where it is."""
    if tile.dtype not in (*LOW, TFLOAT32):
        return tile
    shape = (tile.base_shape[0], tile.row) if tile.on_chip else (tile.row,)
    return Tile(tile.handle, tile.space, shape, FLOAT32, replace(tile.access, dtype=FLOAT32), tile.label)


class ExactMemory:
    """The float32 values beside the memory of a launch."""

    def __init__(self) -> None:
        self.held: dict[int, dict[DType, np.ndarray]] = {}          # by address: all elements, read as a dtype
        self.ends: dict[int, weakref.ref[np.ndarray]] = {}

    def beside(self, memory: np.ndarray) -> dict[DType, np.ndarray]:
        """The values of an array's memory by dtype, for as long as there is the array."""
        at = address(memory)
        if at not in self.held:
            self.held[at] = {}
            self.ends[at] = weakref.ref(memory, partial(self.held.pop, at))
        return self.held[at]

    def values(self, memory: np.ndarray, dtype: DType) -> np.ndarray:
        known = self.beside(memory)
        if dtype not in known:
            known[dtype] = widened(flat_view(memory, dtype.numpy), dtype)
        return known[dtype]

    def perform(self, step: UnroundedStep, arrays: Arrays, values: Values = ()) -> None:
        step.run([a if low is None else self.values(a, low) for a, low in zip(arrays, step.low)], values)
        for k, dtype, pattern, exact in step.targets:
            memory, known = arrays[k], self.beside(arrays[k])
            target = pattern.at(memory, values)
            if dtype in LOW:
                target[...] = rounded(exact.at(known[dtype], values), dtype)
            for other in known:
                if other is not dtype:
                    anew = touched(target, memory, other.itemsize)
                    known[other][anew] = widened(flat_view(memory, other.numpy)[anew], other)


def address(array: np.ndarray) -> int:
    start: int = array.__array_interface__["data"][0]
    return start


def touched(view: np.ndarray, memory: np.ndarray, size: int) -> np.ndarray:
    """Which elements of ``size`` bytes the view of the memory has a byte of."""
    found: np.ndarray = np.zeros(memory.nbytes, np.bool_)
    np.ndarray((*view.shape, view.itemsize), np.bool_, found, address(view) - address(memory),
               (*view.strides, 1))[...] = True
    any_byte: np.ndarray = found.reshape(-1, size).max(1)
    return any_byte


def check_apart(arrays: Sequence[np.ndarray]) -> None:
    """Arguments share all of their memory or none of it: values are kept for each by itself."""
    for a, b in combinations(arrays, 2):
        same = address(a) == address(b) and a.nbytes == b.nbytes
        if not same and np.may_share_memory(a, b):
            invalid(f"two arguments, {list(a.shape)} {a.dtype} and {list(b.shape)} {b.dtype}, share a part of their "
                    f"memory", why=f"with {VARIABLE}=0 the simulator keeps float32 values for each by itself",
                    fix="pass copies")
