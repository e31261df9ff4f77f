# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of one 16-bit float in a nest, and their tables: a value for each of the 65,536 arguments.

Compiled code of the function computes the table, so that a lookup returns the same bits as the function.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from nki_mlir.dialects.access import Linear
from nki_mlir.scalar.dtypes import DType
from nki_mlir.targets.cpu.addressed_nest import AddressedNest
from nki_mlir.targets.cpu.code_forms import with_instructions
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.native_nodes import CONSTANTS
from nki_mlir.targets.cpu.routines import compiled
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.overlap import ByteRegion

COUNT = 1 << 16                     # arguments of 16 bits
LENGTH = COUNT + 1                  # elements of a table: a gather may read one more
FUNCTIONS = frozenset({"activation", "math"})


@dataclass(frozen=True)
class TabulatedFunction:
    """A function in a nest: ``steps`` compute the value ``result`` only from the value ``argument`` and constants.

    Both are 16-bit floats. ``steps`` are numbers of values, in order, and end with ``result``.
    """

    nest: Nest
    argument: int
    result: int
    steps: tuple[int, ...]

    @property
    def name(self) -> str:
        """Return the name of the lookup, after the function."""
        return "tabulated_" + self.function

    @property
    def function(self) -> str:
        """Return the name of the last scalar function that the steps call."""
        return [step.name for step in self._steps() if step.kind in FUNCTIONS][-1]

    @property
    def alone(self) -> Nest:
        """Return the function as a nest over all arguments, in the order of their bits."""
        return self.over(COUNT)

    def over(self, count: int) -> Nest:
        """Return the function as a nest over ``count`` arguments."""
        number = {self.argument: 0, **{value: 2 + k for k, value in enumerate(self.steps)}}
        steps = [replace(step, operands=tuple([number[v] for v in step.operands])) for step in self._steps()]
        source, target = (Operand(self.nest.dtype_of(v), (1,)) for v in (self.argument, self.result))
        return Nest((count,), frozenset(), (source,), 0, (target,), tuple(steps), (number[self.result],))

    def lookups(self, count: int) -> Nest:
        """Return a nest that looks up ``count`` arguments in the table, its second input."""
        source, target = (self.nest.dtype_of(v) for v in (self.argument, self.result))
        return Nest((count,), frozenset(), (Operand(source, (1,)), Operand(target, (0,))), 0, (Operand(target, (1,)),),
                    (Step("lookup", target, (0, 1), self.name),), (3,))

    def replaced(self, name: str = "") -> Nest:
        """Return the nest with a lookup in a table, its last input, in place of the function."""
        nest, table = self.nest, len(self.nest.inputs)
        operand = Operand(nest.dtype_of(self.result), (0,) * len(nest.extents))
        inner = frozenset(self.steps[:-1]) - self._shared_constants()
        remaining = [k for k in range(len(nest.steps)) if nest.first_step + k not in inner]
        first = nest.first_step + 1
        number = {value: value + (value >= table) for value in range(nest.first_step)}
        number |= {nest.first_step + k: first + position for position, k in enumerate(remaining)}
        steps = [Step("lookup", operand.dtype, (number[self.argument], table), name or self.name)
                 if nest.first_step + k == self.result else
                 replace(nest.steps[k], operands=tuple([number[v] for v in nest.steps[k].operands])) for k in remaining]
        return replace(nest, inputs=(*nest.inputs, operand), steps=tuple(steps),
                       results=tuple([number[v] for v in nest.results]))

    def _shared_constants(self) -> set[int]:
        """Return the constants of the function that other steps, or results, also read."""
        nest = self.nest
        read = {v for k, step in enumerate(nest.steps) if nest.first_step + k not in self.steps for v in step.operands}
        return {v for v, step in zip(self.steps, self._steps()) if step.kind == "constant"} & {*read, *nest.results}

    def _steps(self) -> Iterator[Step]:
        for value in self.steps:
            step = self.nest.step(value)
            assert step is not None
            yield step


def tabulated_functions(nest: Nest) -> Iterator[TabulatedFunction]:
    """Yield the functions of a nest that call a function of the scalar library; functions with the most steps come
    first."""
    for argument in range(nest.first_step + len(nest.steps)):
        if not _is_narrow(nest.dtype_of(argument)) or nest.first_output <= argument < nest.first_step:
            continue
        following = _computed_from(nest, argument)
        for result in sorted(following, reverse=True):
            steps = _needed_for(nest, result, argument)
            if _is_narrow(nest.dtype_of(result)) and _are_private(nest, steps) and any(
                    nest.steps[value - nest.first_step].kind in FUNCTIONS for value in steps):
                yield TabulatedFunction(nest, argument, result, steps)


def _is_narrow(dtype: DType) -> bool:
    return dtype.is_float and dtype.itemsize == 2


def _computed_from(nest: Nest, argument: int) -> set[int]:
    """Return the steps, other than constants, that read only the argument, constants and each other."""
    constants = {nest.first_step + k for k, step in enumerate(nest.steps) if step.kind == "constant"}
    following: set[int] = set()
    for k, step in enumerate(nest.steps):
        if any(v == argument or v in following for v in step.operands) and all(
                v == argument or v in following or v in constants for v in step.operands):
            following.add(nest.first_step + k)
    return following


def _needed_for(nest: Nest, result: int, argument: int) -> tuple[int, ...]:
    """Return the steps that compute a value from an argument, in order."""
    needed, pending = set[int](), [result]
    while pending:
        value = pending.pop()
        step = nest.step(value)
        if value != argument and value not in needed and step is not None:
            needed.add(value)
            pending += step.operands
    return tuple(sorted(needed))


def _are_private(nest: Nest, steps: tuple[int, ...]) -> bool:
    """Return whether other steps read only the last one of these steps, and their constants."""
    inner = {v for v in steps[:-1] if nest.steps[v - nest.first_step].kind != "constant"}
    other_steps = [step for k, step in enumerate(nest.steps) if nest.first_step + k not in steps]
    return not inner.intersection(nest.results) and not any(inner.intersection(step.operands) for step in other_steps)


@lru_cache(1 << 6)
def table_of(function: Nest) -> np.ndarray:
    """Compute the table of a function over all arguments. It has one more element, which a gather may read."""
    source, target = (operand.dtype.numpy for operand in function.operands)
    arguments = np.arange(COUNT, dtype=np.uint16).view(source)
    table = np.zeros(LENGTH, target)
    call(function, [arguments, table])
    table.flags.writeable = False
    return table


def table_region(code: NativeFunction, function: Nest) -> ByteRegion:
    """Return the table of a function as a constant of a kernel."""
    table = table_of(function)
    return ByteRegion("constants", keep_table(code, function, table), table.nbytes, Linear())


def keep_table(code: NativeFunction, function: Nest, table: np.ndarray) -> Linear:
    """Add a table to the constants of a kernel, record its function, and return its address."""
    address = code.constant(table)
    code.tables[CONSTANTS - address.symbols[0][0]] = function
    return address


def call(nest: Nest | AddressedNest, arrays: list[np.ndarray]) -> None:
    """Run the compiled code of a nest on arrays, with the instructions that passes choose."""
    routine = with_instructions(nest) if isinstance(nest, Nest) else nest
    batch, number = compiled([routine])[routine]
    words = (ctypes.c_int64 * len(arrays))(*(array.ctypes.data for array in arrays))
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(batch.addresses[number])(ctypes.addressof(words))
