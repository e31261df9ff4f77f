# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Relates PyTorch's element types, and operands and results of its operators, to those of a kernel's call.

It also writes objects among a call's constants as containers, which Dynamo passes on.
"""

import ast
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from nki_mlir.graph.custom_call import KernelRecord
from nki_mlir.language.kernel_object import NKIObject
from nki_mlir.scalar import dtypes

NKI_DTYPE = {torch.float32: dtypes.FLOAT32, torch.float16: dtypes.FLOAT16, torch.bfloat16: dtypes.BFLOAT16,
             torch.float8_e4m3fn: dtypes.FLOAT8_E4M3FN, torch.float8_e5m2: dtypes.FLOAT8_E5M2,
             torch.float8_e8m0fnu: dtypes.FLOAT8_E8M0FNU,
             torch.int8: dtypes.INT8, torch.int16: dtypes.INT16, torch.int32: dtypes.INT32, torch.int64: dtypes.INT64,
             torch.uint8: dtypes.UINT8, torch.uint16: dtypes.UINT16, torch.uint32: dtypes.UINT32,
             torch.uint64: dtypes.UINT64, torch.bool: dtypes.BOOL}
TORCH_DTYPE = {nki: native for native, nki in NKI_DTYPE.items()} | {dtypes.TFLOAT32: torch.float32}


def operands_of(record: KernelRecord, written: Sequence[object], tensors: Sequence[object]) -> list[Any]:
    """Return the operands of the custom call, in its order, from the updated and the other tensors of an operator."""
    updated, plain = dict(zip(record.form.aliases, written)), iter(tensors)
    return [updated[k] if k in updated else next(plain) for k in range(len(record.operands))]


def results_of(record: KernelRecord, results: Sequence[object]) -> list[Any]:
    """Return the custom call's results in the order of the operator's results: updated tensors, then new ones."""
    updated = list(record.form.aliases.values())
    return [results[n] for n in (*updated, *(n for n in range(len(results)) if n not in updated))]


# -- the structure of results ------------------------------------------------------------------------------------------
def structure_of(text: str, count: int) -> object:
    """Parse the text in which ``language.results`` describes the structure of results. Return a number, None, or
    (kind, contents, names) in nested tuples."""
    def tree(node: Any) -> object:
        match node:
            case int() | None:
                return node
            case str():
                index, shape = node.split(":")
                return "view", (int(index),), tuple(int(n) for n in shape.split("x"))
            case dict():
                return "dict", tuple(map(tree, node.values())), tuple(node)
        return type(node).__name__, tuple(map(tree, node)), ()
    return 0 if text == "one" else tree(tuple(range(count)) if text == "tuple" else ast.literal_eval(text))


def in_structure(structure: Any, values: list[torch.Tensor]) -> Any:
    """Return the results in their structure. Dynamo traces this function."""
    if structure is None or isinstance(structure, int):
        return None if structure is None else values[structure]
    kind, contents, names = structure
    parts = [in_structure(part, values) for part in contents]
    if kind == "view":
        return parts[0].reshape(names)
    if kind == "dict":
        return dict(zip(names, parts))
    return parts if kind == "list" else tuple(parts)


# -- objects among constants -------------------------------------------------------------------------------------------
class _ObjectMark:
    """The mark in (_ObjectMark, class, attributes), which stands for a dataclass or ``NKIObject``."""


def in_containers(value: Any) -> Any:
    """Return an argument with its dataclasses and ``NKIObject``s as tuples of their attributes, on which Dynamo guards.
    Dynamo traces this function: among constants it knows only containers."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[in_containers(part) for part in value])
    if isinstance(value, tuple):
        return tuple([in_containers(part) for part in value])
    if isinstance(value, list):
        return [in_containers(part) for part in value]
    if type(value) is dict:
        return {key: in_containers(part) for key, part in value.items()}
    is_object = (dataclasses.is_dataclass(value) or isinstance(value, NKIObject)) and not isinstance(value, type)
    if is_object and hasattr(value, "__dict__"):
        return _ObjectMark, type(value), tuple([(name, in_containers(part)) for name, part in value.__dict__.items()])
    return value


def with_objects(value: Any) -> Any:
    """Return the argument from which ``in_containers`` computed ``value``: tuples that stand for objects become objects
    again."""
    if isinstance(value, tuple) and len(value) == 3 and value[0] is _ObjectMark:
        result = object.__new__(value[1])
        for name, part in value[2]:
            object.__setattr__(result, name, with_objects(part))
        return result
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(with_objects, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(with_objects, value))
    return {key: with_objects(part) for key, part in value.items()} if type(value) is dict else value
