# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads buffers in IR: the parts of their types, and the values of globals."""

import re

import numpy as np

from nki_mlir.bindings import Attribute, Operation, Type, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.attributes import memoized
from nki_mlir.scalar.dtypes import BY_MLIR, DType


@memoized
def memref_parts(kind: Type) -> tuple[tuple[int, ...], DType, str]:
    """Return shape, element type and memory of a memref type; the shape must be static."""
    memref = ir.MemRefType(kind)
    if not memref.has_static_shape:
        raise Unsupported(feature=f"a buffer of type {kind}", instead="give it a static shape")
    space = memref.memory_space.value if isinstance(memref.memory_space, ir.StringAttr) else ""
    return tuple(memref.shape), element_dtype(memref.element_type), space


def element_dtype(kind: Type) -> DType:
    if str(kind) not in BY_MLIR:
        raise Unsupported(feature=f"the element type {kind}", instead=f"use one of {', '.join(BY_MLIR)}")
    return BY_MLIR[str(kind)]


def global_array(op: Operation) -> np.ndarray:
    """Return the values of the global that a ``memref.get_global`` names."""
    name = op.attributes["name"].value
    module = op
    while module.name != "builtin.module":
        module = module.parent.operation
    for other in module.regions[0].blocks[0].operations:
        if other.operation.name == "memref.global" and other.operation.attributes["sym_name"].value == name:
            shape, dtype, _ = memref_parts(op.results[0].type)
            return elements(other.operation.attributes["initial_value"], shape, dtype)
    raise Unsupported(feature=f"the global @{name}, which is not defined", instead="define it with memref.global")


def elements(attribute: Attribute, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Return a dense elements attribute as an array."""
    try:
        array = np.array(attribute)
    except (TypeError, ValueError, BufferError, NotImplementedError):
        array = printed_elements(str(attribute), dtype)         # element types that Python's buffers do not have
    if array.dtype.itemsize == dtype.itemsize and array.dtype != dtype.numpy and array.dtype.kind in "uV":
        return array.view(dtype.numpy).reshape(shape)
    array = array.astype(dtype.numpy)
    return np.ascontiguousarray(np.broadcast_to(array, shape)) if array.size == 1 else array.reshape(shape)


def printed_elements(text: str, dtype: DType) -> np.ndarray:
    """Parse the elements of ``dense<"0x...">``, which are all bytes, or of ``dense<[1.0, 0x7F]>``, numbers and bit
    patterns."""
    values = text[text.index("<") + 1:text.rindex("> : ")]
    if values.startswith('"'):
        return np.frombuffer(bytes.fromhex(values[3:-1]), dtype.numpy)
    word = np.dtype(f"u{dtype.itemsize}")
    return np.array([np.array(int(n, 16), word).view(dtype.numpy) if n.startswith("0x") else
                     np.array(float(n)).astype(dtype.numpy) for n in re.findall(r"[^\s,\[\]]+", values)], dtype.numpy)
