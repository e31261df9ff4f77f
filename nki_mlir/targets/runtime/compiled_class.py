# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs methods of a class as machine code if that pays off, else as Python (``class_compiler.py``).

The code is compiled once for a process, unless the cache on disk has it. That takes a few tenths of a second, so small
work runs as Python until the process has done enough of it.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.bindings import Module, ir
from nki_mlir.targets.runtime import jit, object_cache
from nki_mlir.targets.runtime.class_compiler import element_of, fields_of, symbol, translated
from nki_mlir.targets.runtime.object_file import NotLoadable

NUMBERS: dict[Any, Any] = {int: ctypes.c_int64, bool: ctypes.c_int64, float: ctypes.c_double}
NO_BYTES = ctypes.c_char * 0
DTYPES: dict[Any, Any] = {int: np.int64, float: np.float64}     # dtypes of arrays


class CompiledClass:
    """The compiled methods of a class. ``entries``: the methods that Python calls. ``pays_off``: the units of work
    after which the code is compiled if the cache has none."""

    def __init__(self, cls: type, entries: Sequence[str], pays_off: int) -> None:
        self.cls, self.entries, self.missing = cls, entries, pays_off
        self.functions: dict[str, Any] = {}
        self.searched = False

    def is_ready(self, work: int) -> bool:
        """Return whether the next ``work`` units should run as machine code, after compiling it if that pays off."""
        if self.functions:
            return True
        self.missing -= work
        if self.missing < 0 or not self.searched:
            self.searched = True
            self.load(self.missing < 0)
        return bool(self.functions)

    def load(self, compiles: bool) -> None:
        """Load the code from the cache, or compile it."""
        names = [symbol(self.cls, entry) for entry in self.entries]
        description = f"methods of {self.cls.__module__}: {', '.join(names)}"       # keys cover the sources anyway

        def module() -> Module:
            return ir.Module.parse(translated(self.cls, self.entries) + jit.addresses_text([f'"{n}"' for n in names]))
        try:
            batch = (jit.compile_functions(module, names, description) if compiles
                     else jit.find_batch(object_cache.key_of(description.encode()), len(names)))
        except NotLoadable:
            return
        for entry, address in zip(self.entries, batch.addresses):
            hints = getattr(self.cls, entry).__annotations__
            kinds = [NUMBERS[kind] for name, kind in hints.items() if name != "return"]
            self.functions[entry] = ctypes.CFUNCTYPE(NUMBERS.get(hints["return"]), ctypes.c_void_p, *kinds)(address)

    def call(self, entry: str, instance: Any, is_code: bool, *numbers: float) -> None:
        """Run a method of an instance as machine code, or as Python if the instance has lists (``with_lists``)."""
        if not is_code:
            getattr(instance, entry)(*numbers)
            return
        record = InstanceRecord(instance)
        self.functions[entry](record.address, *numbers)
        record.read()


class FieldNumbers(NamedTuple):
    """The names of a class's fields by their type, each with its number among all ``size`` fields: integers, truth
    values, floats, arrays of numbers with their dtype, arrays of other instances, other instances."""

    size: int
    integers: list[tuple[int, str]]
    truths: list[tuple[int, str]]
    floats: list[tuple[int, str]]
    arrays: list[tuple[int, str, Any]]
    lists: list[tuple[int, str]]
    instances: list[tuple[int, str]]


@cache
def field_numbers(cls: type) -> FieldNumbers:
    fields = FieldNumbers(len(fields_of(cls)), [], [], [], [], [], [])
    for at, (name, kind) in enumerate(fields_of(cls).items()):
        element = element_of(kind)
        if kind is float:
            fields.floats.append((at, name))
        elif kind in NUMBERS:
            (fields.truths if kind is bool else fields.integers).append((at, name))
        elif element in NUMBERS:
            fields.arrays.append((at, name, np.dtype(DTYPES.get(element, np.int64))))
        else:
            (fields.instances if element is None else fields.lists).append((at, name))
    return fields


class InstanceRecord:
    """An instance in memory, as compiled methods read and write it. Its arrays are those of the instance."""

    def __init__(self, instance: Any) -> None:
        self.instance, self.fields = instance, field_numbers(instance.__class__)
        self.records: list[InstanceRecord] = []
        self.arrays: list[Any] = []                 # arrays of addresses of records
        values, words = instance.__dict__, [0] * self.fields.size
        for at, name in (*self.fields.integers, *self.fields.truths):
            words[at] = values[name]
        for at, name, dtype in self.fields.arrays:
            array = values[name]
            assert array.dtype is dtype or array.dtype == dtype, f"{name}: {array.dtype}"
            words[at] = address_in_memory(array)
        for at, name in self.fields.lists:
            self.arrays.append(np.array([self.address_of(part) for part in values[name]], np.int64))
            words[at] = address_in_memory(self.arrays[-1])
        for at, name in self.fields.instances:
            words[at] = self.address_of(values[name])
        self.words: Any = np.array(words, np.int64)
        self.floats = self.words.view(np.float64)
        for at, name in self.fields.floats:
            self.floats[at] = values[name]
        self.address = address_in_memory(self.words)

    def address_of(self, part: Any) -> int:
        """Return the address of an instance that belongs to this one."""
        self.records.append(InstanceRecord(part))
        return self.records[-1].address

    def read(self) -> None:
        """Copy the numbers back to the instance."""
        words, floats, values = self.words.tolist(), self.floats, self.instance.__dict__
        for at, name in self.fields.integers:
            values[name] = words[at]
        for at, name in self.fields.truths:
            values[name] = words[at] != 0
        for at, name in self.fields.floats:
            values[name] = float(floats[at])
        for record in self.records:
            record.read()


def address_in_memory(array: Any) -> int:
    """Return the address of the first element of a contiguous array."""
    return ctypes.addressof(NO_BYTES.from_buffer(array))


def with_lists(instance: Any) -> None:
    """Replace the arrays of an instance by lists, which Python accesses faster."""
    for name, kind in fields_of(instance.__class__).items():
        value, element = getattr(instance, name), element_of(kind)
        if element in NUMBERS:
            setattr(instance, name, value.tolist())
        elif kind not in NUMBERS:
            for part in value if element else [value]:
                with_lists(part)


def longer(column: Any, more: Any, is_code: bool) -> Any:
    """Return the array or list of a field with more elements."""
    return np.concatenate([column, more]) if is_code else [*column, *more.tolist()]


def int_array(values: Any) -> Any:
    """Return an array of integers for a field."""
    return np.array(values, np.int64)


def float_array(values: Any) -> Any:
    """Return an array of floats for a field."""
    return np.array(values, np.float64)


def new_array(count: int, fill: int = 0) -> Any:
    """Return an array of equal integers for a field."""
    return np.full(count, fill, np.int64) if fill else np.zeros(count, np.int64)


def unset_array(count: int) -> Any:
    """Return an array of integers for a field, which are written before they are read."""
    return np.empty(count, np.int64)


def new_floats(count: int) -> Any:
    """Return an array of zeros for a field."""
    return np.zeros(count)
