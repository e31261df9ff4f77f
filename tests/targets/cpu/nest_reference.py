# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compute a nest element by element in NumPy, and call its routine: the two sides of the tests."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_mlir.dialects.access import Mask
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, DType, convert
from nki_mlir.targets.cpu.addressed_nest import AddressedNest
from nki_mlir.targets.cpu.code_forms import CODE_FORMS, can_have, with_form
from nki_mlir.targets.cpu.routines import compiled
from nki_mlir.waist.nest import Nest, Operand, Step

LINE = 64
ALL_FORMS = tuple(CODE_FORMS)


class Memory:
    """A buffer with guard bytes around it, and an operand's view of it. Its address is a multiple of ``alignment``."""

    def __init__(self, nest: Nest, operand: Operand, rng: np.random.Generator, low: float = -4, high: float = 4,
                 alignment: int = 16) -> None:
        reach = [step * (extent - 1) for step, extent in zip(operand.strides, nest.extents)]
        self.first = -sum(min(0, r) for r in reach)
        self.size = self.first + sum(max(0, r) for r in reach) + 1
        self.dtype, self.operand, self.extents = operand.dtype, operand, nest.extents
        item = operand.dtype.itemsize
        self.raw = rng.integers(0, 255, 2 * LINE + self.size * item + alignment, np.uint8)
        # 16 bytes align elements, not vectors.
        start = -(self.raw.ctypes.data + LINE) % alignment + LINE
        self.array = self.raw[start:start + self.size * item].view(operand.dtype.numpy)
        self.guarded = self.raw[start - LINE:start + self.size * item + LINE]
        values = rng.uniform(low, high, self.size)
        self.array[:] = convert(values.astype(np.float32), operand.dtype, FLOAT32)

    @property
    def address(self) -> int:
        return self.array.ctypes.data + self.first * self.dtype.itemsize

    def view(self, array: np.ndarray | None = None) -> np.ndarray:
        """Return the operand's array over the complete iteration space."""
        array = self.array if array is None else array
        strides = [s * self.dtype.itemsize for s in self.operand.strides]
        return np.ndarray(self.extents, array.dtype, array, self.first * self.dtype.itemsize, strides)


def run(nest: Nest, memories: Sequence[Memory], symbols: Sequence[int] = (), simplify: bool = True,
        forms: Sequence[str] = ()) -> None:
    """Call the compiled routine on the memories. Its code has those of the forms that it can have."""
    call(with_forms(nest.simplified if simplify else nest, forms), memories, symbols)


def call(routine: Nest | AddressedNest, memories: Sequence[Memory], symbols: Sequence[int] = ()) -> None:
    """Call a compiled routine on the memories."""
    words = [m.address for m in memories] + list(symbols)
    pack = (ctypes.c_int64 * max(1, len(words)))(*words)
    batch, number = compiled([routine])[routine]
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(batch.addresses[number])(ctypes.addressof(pack)) == 0


def with_forms(nest: Nest, forms: Sequence[str] = ALL_FORMS) -> Nest | AddressedNest:
    """Return the nest with those of the forms that its code can have."""
    routine: Nest | AddressedNest = nest
    for form in forms:
        routine = with_form(routine, form) if can_have(routine, form) else routine
    return routine


def reference(nest: Nest, memories: Sequence[Memory], symbols: Sequence[int] = ()) -> list[np.ndarray]:
    """Return the arrays of the outputs after the nest."""
    inputs, outputs = memories[:len(nest.inputs)], memories[len(nest.inputs):]
    after = [m.array.copy() for m in outputs]
    reduced = sorted(nest.reduced)
    for at in np.ndindex(*(nest.extents[a] for a in reduced)):
        step_of = {a: slice(k, k + 1) for a, k in zip(reduced, at)}
        index = (*(step_of.get(a, slice(None)) for a in range(len(nest.extents))), ...)
        values: list[Any] = [m.view()[index] for m in inputs]
        values += [m.view(a)[index].copy() for m, a in zip(outputs, after)]
        active = holds(nest.mask, nest.extents, symbols)[index]
        for step in nest.steps:
            values.append(evaluate(nest, step, values, index, symbols))
        for memory, array, result in zip(outputs, after, nest.results):
            view = memory.view(array)[index]
            np.copyto(view, np.broadcast_to(values[result], view.shape), where=active)
    return after


def evaluate(nest: Nest, step: Step, computed: Sequence[Any], index: tuple, symbols: Sequence[int]) -> Any:
    values = [computed[v] for v in step.operands]
    with np.errstate(all="ignore"):
        match step.kind:
            case "constant":
                return np.asarray(step.number, step.dtype.numpy)            # type: ignore[union-attr]
            case "convert":
                return convert(np.asarray(values[0]), step.dtype, nest.dtype_of(step.operands[0]))
            case "alu":
                return ALU[step.name].numpy(*(np.array(np.broadcast_arrays(*values)[k]) for k in range(len(values))))
            case "activation":
                return ACTIVATIONS[step.name].numpy(np.asarray(values[0]))
            case "position":
                axes, form = np.indices(nest.extents), step.number
                numbers = form.at(symbols) + sum(c * axes[a] for a, c in form.axes)
                return np.broadcast_to(numbers, nest.extents)[index].astype(step.dtype.numpy)
    return np.asarray(values[0]).astype(step.dtype.numpy)                   # type: ignore[union-attr]


def holds(mask: Mask, extents: tuple[int, ...], symbols: Sequence[int]) -> np.ndarray:
    active = np.ones(extents, bool)
    grid = np.indices(extents) if extents else []
    for c in mask:
        value = c.form.const + sum(k * symbols[s] for s, k in c.form.symbols) + sum(k * grid[a] for a, k in c.form.axes)
        active &= (value == 0) if c.equal else (value >= 0)
    return active


def bits(array: np.ndarray) -> np.ndarray:
    """Return bits that compare exactly, with one payload for all NaN."""
    array = array.copy()
    if array.dtype.kind not in "iub":
        array[np.isnan(array.astype(np.float32))] = np.nan
    return array.view(f"u{array.dtype.itemsize}")


def dense(extents: tuple[int, ...], dtype: DType) -> Operand:
    """Return a row-major operand."""
    strides, step = [], 1
    for extent in reversed(extents):
        strides.insert(0, step)
        step *= extent
    return Operand(dtype, tuple(strides))


def converted(inputs: Sequence[DType], output: DType, compute: DType, fn: str, first_step: int
              ) -> tuple[list[Step], int]:
    """Return the steps of ``convert(fn(convert(inputs)))``, and the number of the result."""
    steps: list[Step] = []
    values = []
    for k, dtype in enumerate(inputs):
        if dtype is not compute:
            steps.append(Step("convert", compute, (k,)))
        values.append(k if dtype is compute else first_step + len(steps) - 1)
    if fn in ALU:
        steps.append(Step("alu", compute, tuple(values), fn))
    elif fn:
        steps.append(Step("activation", compute, tuple(values), fn))
    last = first_step + len(steps) - 1 if fn else values[0]
    if output is not compute:
        steps.append(Step("convert", output, (last,)))
        last = first_step + len(steps) - 1
    return steps, last
