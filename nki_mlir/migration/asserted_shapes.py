# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the shapes of tensors that a kernel asserts, because the names of the sizes read better than ``k.shape[1]``.

    b, h, d, s = q.shape                            q: (b, h, d, s)
    assert tuple(k.shape) == (b, h, d, s)           k: (b, h, d, s)
    assert v.shape == k.shape and w.ndim == 2       v: (b, h, d, s)
"""

import ast
from collections.abc import Iterator, Mapping

import libcst as cst

from nki_mlir.migration.calls import Calls
from nki_mlir.migration.facts import Fact, TensorFact
from nki_mlir.migration.functions import named_shape


def asserted_shapes(test: cst.BaseExpression, calls: Calls) -> dict[str, tuple[str, ...]]:
    """Return the shapes that a condition gives tensors if it holds, by the tensors' names."""
    shapes: dict[str, tuple[str, ...]] = {}
    for comparison in _conditions(ast.parse(calls.code(test), mode="eval").body):
        match comparison:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                for tensor, other in ((left, right), (right, left)):
                    name, sizes = _tensor_of(tensor), _sizes(other, calls)
                    if name and sizes and (shape := named_shape(name, sizes, calls)) is not None:
                        shapes[name] = shape
    return shapes


def _conditions(node: ast.expr) -> Iterator[ast.expr]:
    """Return the conditions all of which hold if ``node`` does."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values:
            yield from _conditions(value)
    else:
        yield node


def _tensor_of(node: ast.expr) -> str:
    """Return the name of the tensor whose shape an expression is: ``x.shape``, ``tuple(x.shape)``; else ""."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr="shape"):
            return name
        case ast.Call(func=ast.Name(id="tuple" | "list"), args=[inner], keywords=[]):
            return _tensor_of(inner)
    return ""


def _sizes(node: ast.expr, calls: Calls) -> tuple[str, ...]:
    """Return the texts of the sizes in a shape, empty if the text does not show them."""
    facts: Mapping[str, Fact] = calls.scope.facts
    match node:
        case ast.Call(func=ast.Name(id="tuple" | "list"), args=[inner], keywords=[]):
            return _sizes(inner, calls)
        case ast.Tuple(elts=items) | ast.List(elts=items) if not any(isinstance(i, ast.Starred) for i in items):
            texts = tuple(map(ast.unparse, items))
            return texts if all(map(calls.stable, texts)) else ()
        case ast.Attribute(value=ast.Name(id=name), attr="shape") if isinstance(
                tensor := facts.get(name), TensorFact) and not tensor.blocks:
            return tuple(size if "?" not in size else "?" for size in tensor.shape or ())
    return ()
