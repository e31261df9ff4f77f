# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites calls of the functions of ``nl`` that create tensors: one recipe for each function."""

from collections.abc import Callable

import libcst as cst

from nki_mlir.migration import terms
from nki_mlir.migration.calls import Arguments, Calls, Recipe
from nki_mlir.migration.expressions import LeftForAPerson
from nki_mlir.migration.facts import HBM, PSUM, SBUF, BufferFact, Fact, ShapeOf, TensorFact

LANGUAGE: dict[str, Recipe] = {}


def recipe(*names: str) -> Callable[[Recipe], Recipe]:
    """Decorate a function that rewrites calls of these functions of ``nl``."""
    def add(function: Recipe) -> Recipe:
        for name in names:
            LANGUAGE[f"nl.{name}"] = function
        return function
    return add


def dtype_argument(arguments: Arguments) -> str:
    """Return the argument that passes the dtype, or an empty text."""
    return f", dtype={arguments.dtype}" if arguments.dtype else ""


def shape_items(calls: Calls, node: cst.BaseExpression) -> tuple[list[str] | None, int, str]:
    """Return the elements of a shape, the number of block dimensions before the partition, and the shape's
    text."""
    fact = calls.fact(node)
    if isinstance(node, (cst.Tuple, cst.List)):
        if any(isinstance(e, cst.StarredElement) for e in node.elements):
            return None, 0, calls.text(node)
        texts, blocks = [], 0
        for k, element in enumerate(node.elements):
            value = element.value
            if isinstance(value, cst.Call) and calls.names.meaning(value.func) == "nl.par_dim":
                blocks, value = k, value.args[0].value
            elif calls.code(value) in calls.partition_names:
                blocks = k
            texts.append(calls.text(value))
        return texts, blocks, ""
    if isinstance(fact, ShapeOf) and fact.shape is not None:
        return list(fact.shape), 0, calls.text(node)
    return None, 0, calls.text(node)


@recipe("ndarray", "zeros", "ones", "full", "empty_like", "zeros_like")
def create(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return the tensor with block dimensions after the partition, which is the first dimension."""
    name, nl = a.function.partition(".")[2], calls.nl
    if name in ("empty_like", "zeros_like"):
        source = a.nodes.get("a") or a.nodes.get("x")
        if source is None:
            raise LeftForAPerson(f"{a.function} without a tensor")
        fact = calls.fact(source)
        if not isinstance(fact, TensorFact):
            raise LeftForAPerson(f"{a.function} of a value that the text does not show to be a tensor")
        memory = a.fact("buffer")
        tensor = TensorFact(memory.memory if isinstance(memory, BufferFact) else fact.memory, fact.shape,
                      a.dtype_meaning or fact.dtype, fact.blocks, True)
        text = f"{nl}.{name}({calls.text(source)}{dtype_argument(a)}{a.passed('buffer')})"
        return calls.new(text, tensor)
    if "shape" not in a:
        raise LeftForAPerson(f"{a.function} without a shape")
    items, blocks, text = shape_items(calls, a.nodes["shape"])
    memory_name, where = memory_of(calls, a)
    if memory_name == HBM:
        blocks = 0
    if items is not None and blocks:
        items = [items[blocks], *items[:blocks], *items[blocks + 1:]]
        calls.report.changed(calls.line, "block dimensions become free dimensions: the partition axis is first")
    shown = text if items is None or (text and not blocks) else f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    shape = None if items is None else tuple(t if calls.stable(t) else "?" for t in items)
    dtype, meaning = a.dtype or f"{nl}.float32", a.dtype_meaning
    transposed = calls.scope.facts.get(root := calls.scope.transposed.get(calls.assigned, ""))
    if isinstance(transposed, TensorFact) and memory_name == PSUM and transposed.dtype != meaning:
        meaning = transposed.dtype or f"{root}.dtype"
        dtype = meaning.replace("nl.", f"{nl}.", 1) if calls.plain(transposed) else f"{root}.dtype"
        calls.report.changed(calls.line, f"the tile gets the dtype of {root}, because a transpose does not convert")
    fact = TensorFact(memory_name, shape, meaning, blocks, True, fresh=name == "zeros",
                      filled=name != "ndarray")
    value = f", {a.text('fill_value')}" if name == "full" else ""
    tensor_name = a.passed("name")
    if tensor_name and (tensor_name in calls.scope.tensor_names or (calls.scope.repeats and memory_name != HBM)):
        calls.report.changed(calls.line, "the name is left out: several tensors would have it, which the current "
                                         "generation refuses")
        tensor_name = ""
    calls.scope.tensor_names.add(tensor_name)
    return calls.new(f"{nl}.{name}({shown}{value}, dtype={dtype}, buffer={where}{tensor_name})", fact)


def memory_of(calls: Calls, a: Arguments) -> tuple[str, str]:
    """Return the memory that the argument ``buffer`` names, and its text; SBUF without the argument."""
    return _memory(calls, a.nodes["buffer"]) if "buffer" in a else (SBUF, f"{calls.nl}.sbuf")


def _memory(calls: Calls, node: cst.BaseExpression) -> tuple[str, str]:
    """Return the memory that a buffer is in, and its text."""
    if isinstance(node, cst.IfExp) and (first := _memory(calls, node.body)) == _memory(calls, node.orelse):
        return first
    if isinstance(buffer := calls.fact(node), BufferFact):
        return buffer.memory, calls.text(node)
    word = calls.code(node).strip("'\"")
    if word in ("sbuf", "psum", "hbm", "shared_hbm", "private_hbm"):
        return word if word in (SBUF, PSUM) else HBM, f"{calls.nl}.{word}"
    return calls.allocation(node)


@recipe("shared_constant")
def shared_constant(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return a constant of the host in HBM; it has the array's dtype."""
    text = calls.text(next(iter(a.nodes.values())))
    if a.dtype:
        text = f"{terms.factor(text)}.astype({a.dtype})"
    return calls.new(f"{calls.nl}.shared_constant({text})", TensorFact(HBM, None, a.dtype_meaning, base=True))


@recipe("shared_identity_matrix")
def shared_identity(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Rewrite the identity matrix as a tile that a call creates in SBUF."""
    n = calls.text(next(iter(a.nodes.values())))
    calls.report.changed(calls.line, "the identity is created in SBUF instead of loaded")
    dtype = a.dtype or f"{calls.nl}.uint8"
    return calls.new(f"{calls.nl}.shared_identity_matrix({n}, dtype={dtype})",
                     TensorFact(SBUF, (n, n), a.dtype_meaning or "nl.uint8", base=True))


@recipe("rand")
def rand(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return a new tile of random numbers."""
    items, _, text = shape_items(calls, a.nodes["shape"])
    shown = text or f"({', '.join(items or [])})"
    return calls.new(f"{calls.nl}.rand({shown}, dtype={a.dtype or calls.nl + '.float32'})",
                     TensorFact(SBUF, tuple(items) if items else None, a.dtype_meaning or "nl.float32"))


@recipe("random_seed")
def random_seed(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Rewrite the seed as a tile."""
    fact = a.fact("seed")
    text = a.text("seed")
    if not isinstance(fact, TensorFact):
        text = f"{calls.nl}.full((1, 1), {text}, dtype={calls.nl}.int32)"
    return calls.new(f"{calls.nl}.random_seed({text})", Fact())
