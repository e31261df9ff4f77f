# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites calls of ``nl`` for the current generation: one recipe for each function."""

import ast
import re
from collections.abc import Iterable
from dataclasses import replace

import libcst as cst
import numpy as np

from nki_mlir.language import functions
from nki_mlir.migration import terms
from nki_mlir.migration.added_functions import COMMON, QUOTIENT
from nki_mlir.migration.calls import Arguments, Calls
from nki_mlir.migration.creation_calls import dtype_argument, recipe, shape_items
from nki_mlir.migration.elementwise import INTEGERS
from nki_mlir.migration.expressions import LeftForAPerson
from nki_mlir.migration.facts import (
    PSUM,
    SBUF,
    Axis,
    Fact,
    IndexFact,
    Many,
    MaskFact,
    NumberFact,
    Span,
    TensorFact,
    promoted,
)
from nki_mlir.migration.operation_text import OperationText
from nki_mlir.migration.product_masks import K, M, N, masked_factors
from nki_mlir.scalar.dtypes import BOOL, BY_NAME, FLOAT32, MICROSCALING, DType

RANGES = ("affine_range", "range", "sequential_range", "static_range")
PREDICATES = ("nl.bool_", "nl.uint8", "nl.uint16", "nl.uint32")
SAME_NAME = ("program_id", "num_programs", "program_ndim")


# -- movement ----------------------------------------------------------------------------------------------------------
@recipe("copy")
def copy(calls: Calls, a: Arguments) -> OperationText:
    """Return a new tile with the elements of another."""
    name = "src" if "src" in a.nodes else next(iter(a.nodes))
    text, source = a.tensor(name)
    fact = calls.on_chip(source.like(source.shape, a.dtype_meaning))
    result = calls.result(a.nodes[name])
    if result is not None and result.name == "transposed" and a.mask is None and not result.condition:
        text = result.expression.removeprefix(f"{calls.nl}.copy(").removesuffix(")") or text    # itself such a copy

    def write_to(dst: str, target: TensorFact) -> list[str]:
        data = f"{calls.nl}.copy({text}{dtype_argument(a)})" if a.dtype and a.dtype_meaning != target.dtype else text
        return [f"{calls.nisa}.tensor_copy(dst={dst}, src={data})"]
    return OperationText(fact, f"{calls.nl}.copy({text}{dtype_argument(a)})", write_to, calls.shape_text(fact, text),
                  a.dtype or terms.dtype_of(text), "copied")


@recipe("transpose")
def transpose(calls: Calls, a: Arguments) -> OperationText:
    """Return a transpose by the Tensor engine, whose result is in PSUM; in the beta generation it is in SBUF."""
    text, source = a.tensor("x")
    shape = source.shape[::-1] if source.shape is not None else None
    fact = TensorFact(SBUF, shape, a.dtype_meaning or source.dtype)
    transposed = f"{calls.nl}.transpose({text}{dtype_argument(a)})"

    def write_to(dst: str, target: TensorFact) -> list[str]:
        return [f"{calls.nisa}.tensor_copy(dst={dst}, src={transposed})"]
    return OperationText(fact, f"{calls.nl}.copy({transposed})", write_to, calls.shape_text(fact, transposed),
                  a.dtype or f"{text}.dtype", "transposed")


@recipe("matmul")
def matmul(calls: Calls, a: Arguments) -> OperationText:
    """Return a product in PSUM."""
    transposed = a.text("transpose_x", "False")
    if transposed not in ("True", "False"):
        raise LeftForAPerson("nl.matmul whose transpose_x is not a constant")
    (x, left), (y, right) = masked_factors(a, {"x": (K, M) if transposed == "True" else (M, K), "y": (K, N)})
    shape = None
    if left.shape is not None and right.shape is not None and len(left.shape) == len(right.shape) == 2:
        shape = left.shape[1 if transposed == "True" else 0], right.shape[1]
    fact = TensorFact(PSUM, shape, "nl.float32")
    stationary = x if transposed == "True" else f"{calls.nl}.copy({calls.nl}.transpose({x}))"
    expression = f"{calls.nl}.matmul({stationary}, {y}, transpose_x=True)"
    if transposed != "True":
        calls.report.changed(calls.line, "nl.matmul gets its first operand transposed, as the tensor engine reads it")
    rows = f"{terms.factor(x)}.shape[{1 if transposed == 'True' else 0}]"

    def accumulated(dst: str, accumulate: str = "") -> list[str]:
        first, second = (f"{calls.nl}.copy({text}, dtype={calls.nl}.float32)" if dtype.startswith("nl.") and (
            dtype != other_dtype == "nl.float32") else text for text, dtype, other_dtype in (
                (stationary, left.dtype, right.dtype), (y, right.dtype, left.dtype)))
        return [f"{calls.nisa}.nc_matmul(dst={dst}, stationary={first}, moving={second}{accumulate})"]

    def write_to(dst: str, target: TensorFact) -> list[str]:
        if target.memory == PSUM:
            return accumulated(dst, ", accumulate=False")
        return [f"{calls.nisa}.tensor_copy(dst={dst}, src={expression})"]
    return OperationText(fact, expression, write_to,
                  calls.shape_text(fact, "") if shape and "?" not in shape else f"({rows}, {terms.factor(y)}.shape[1])",
                  f"{calls.nl}.float32", "product", accumulated)


@recipe("broadcast_to")
def broadcast_to(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return a tile repeated to a shape."""
    name = "src" if "src" in a.nodes else next(iter(a.nodes))
    text, source = a.tensor(name)
    return broadcast(calls, text, source, a.nodes["shape"])


def broadcast(calls: Calls, text: str, source: TensorFact, shape: cst.BaseExpression) -> cst.BaseExpression:
    """Rewrite ``nl.broadcast_to``."""
    items, _, shown = shape_items(calls, shape)
    counts = set(calls.scope.counts.values())           # a mask has left fewer elements than the shape says
    if items is not None and source.shape is not None and len(items) == len(source.shape):
        if not counts.isdisjoint(source.shape):
            items, shown = [extent if extent in counts else size for extent, size in zip(source.shape, items)], ""
        if source.shape[0] == items[0] and all(size in ("1", item) for size, item in zip(source.shape, items)):
            return calls.new(calls.stretched(text, source, tuple(items)), calls.on_chip(source.like(tuple(items))))
    fact = calls.on_chip(source.like(tuple(items) if items else None))
    return calls.new(f"{calls.nl}.broadcast_to({text}, {shown or '(' + ', '.join(items or []) + ')'})", fact)


@recipe("expand_dims")
def expand_dims(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return a view with one more axis."""
    text, source = a.tensor("data" if "data" in a.nodes else next(iter(a.nodes)))
    axis = terms.number(a.text("axis"))
    shape = None
    if source.shape is not None and axis is not None:
        axis = axis + len(source.shape) + 1 if axis < 0 else axis
        shape = (*source.shape[:axis], "1", *source.shape[axis:])
    return calls.new(f"{calls.nl}.expand_dims({text}, {a.text('axis')})", source.like(shape))


# -- composed functions ------------------------------------------------------------------------------------------------
def axes_of(a: Arguments, name: str = "axis") -> list[int] | None:
    """Return the axes of a reduction if they are constants."""
    node = a.nodes.get(name)
    if node is None:
        return None
    if isinstance(node, (cst.Tuple, cst.List)):
        numbers = [terms.number(a.calls.text(e.value)) for e in node.elements]
    else:
        numbers = [terms.number(a.calls.text(node))]
    return None if any(f is None for f in numbers) else [f for f in numbers if f is not None]


def reduced(tensor: TensorFact, axes: list[int] | None, keep: bool) -> tuple[str, ...] | None:
    """Return the shape after a reduction."""
    if tensor.shape is None and axes in ([1], [-1]):
        return "?", "1"                 # assumes a tile with one free axis
    if tensor.shape is None or axes is None:
        return None
    rank = len(tensor.shape)
    reduced_axes = {x % rank for x in axes}
    shape = tuple("1" if k in reduced_axes else s for k, s in enumerate(tensor.shape) if keep or k not in reduced_axes)
    return (*shape, "1") if len(shape) < 2 else shape


def last_axes(calls: Calls, text: str, tensor: TensorFact, axes: list[int] | None, keep: bool) -> tuple[str, str]:
    """Return the tile with the axes of a reduction as its last ones, and these axes."""
    if axes is None:
        return text, ""
    if tensor.shape is None:
        return text, str(axes[0]) if len(axes) == 1 else str(axes)
    rank = len(tensor.shape)
    reduced_axes = sorted(x % rank for x in axes)
    if reduced_axes == list(range(rank - len(reduced_axes), rank)) or keep:
        return text, str(reduced_axes[0]) if len(reduced_axes) == 1 else str(reduced_axes)
    order = [k for k in range(rank) if k not in reduced_axes] + reduced_axes
    calls.report.changed(calls.line, "the view is permuted, because a reduction is along the last axes")
    last = list(range(rank - len(reduced_axes), rank))
    return f"{text}.permute({tuple(order)})", str(last[0]) if len(last) == 1 else str(last)


@recipe("sum", "prod", "max", "min", "mean", "var", "all")
def reduction(calls: Calls, a: Arguments) -> "OperationText | cst.BaseExpression":
    """Return a reduction along the last free axes."""
    name = a.function.partition(".")[2]
    first = "x" if "x" in a.nodes else next(iter(a.nodes))
    text, source = a.tensor(first)
    if a.mask is not None and a.selects_no_box and name in ("mean", "var"):
        return mean_or_variance(calls, a, a.mask, name)
    axes, keep = axes_of(a), a.text("keepdims", "False") == "True"
    any_selected = None
    if a.mask is not None and a.selects_no_box:
        any_selected = calls.some_selected(a.mask, source, lambda tile: largest(calls, a, tile, source))
        text, source = calls.selected(text, source, a.mask, functions.REDUCTIONS.get(name, name))
    data, shown = last_axes(calls, text, source, axes, keep)
    shown = shown or a.text("axis")
    keep_argument = ", keepdims=True" if keep and name not in ("var", "all") else ""
    dtype, meaning = (f"{calls.nl}.bool_", "nl.bool_") if name == "all" and not a.dtype else (a.dtype, a.dtype_meaning)
    if name in ("mean", "var") and not a.dtype and "op" not in a:       # nisa.tensor_reduce keeps its tile's dtype
        data, dtype, meaning = dtype_of_moment(calls, data, source)
    fact = calls.on_chip(source.like(reduced(source, axes, keep), meaning or source.dtype))
    expression = f"{calls.nl}.{name}({data}, axis={shown}{f', dtype={dtype}' if dtype else ''}{keep_argument})"

    def write_to(dst: str, target: TensorFact) -> list[str]:
        if name in functions.REDUCTIONS and not a.dtype:
            return [f"{calls.nisa}.tensor_reduce(dst={dst}, op={calls.nl}.{functions.REDUCTIONS[name]}, data={data}, "
                    f"axis={shown}{keep_argument})"]
        count = terms.product(source.shape[k] for k in axes) if name == "mean" and axes and source.shape else "?"
        if "?" not in count and not a.dtype and source.dtype == target.dtype == "nl.float32":
            total = f"{calls.nl}.sum({data}, axis={shown}{keep_argument})"
            return [f"{calls.nisa}.tensor_scalar(dst={dst}, data={total}, op0={calls.nl}.multiply, "
                    f"operand0={terms.inverse(count)})"]
        return [f"{calls.nisa}.tensor_copy(dst={dst}, src={expression})"]
    return OperationText(fact, expression, write_to, "" if axes is None else calls.shape_text(fact, data),
                         dtype or source.dtype or terms.dtype_of(text), name, some_selected=any_selected)


def largest(calls: Calls, a: Arguments, tile: str, source: TensorFact) -> str:
    """Return the maximum of a tile along the axes of a reduction of ``source``, which has the tile's shape."""
    axes, keep = axes_of(a), a.text("keepdims", "False") == "True"
    data, shown = last_axes(calls, tile, source, axes, keep)
    return f"{calls.nl}.max({data}, axis={shown or a.text('axis')}{', keepdims=True' if keep else ''})"


def dtype_of_moment(calls: Calls, text: str, tile: TensorFact) -> tuple[str, str, str]:
    """Return a tile, which is a variable if the dtype names it, and the text and the meaning of the dtype of its mean
    or variance; both are empty if that is the tile's."""
    if tile.dtype in INTEGERS:
        return text, f"{calls.nl}.float32", "nl.float32"
    if tile.is_float:
        return text, "", ""
    text = calls.named(text, "tile")
    return text, f"{QUOTIENT}({text})", " "


def mean_or_variance(calls: Calls, a: Arguments, mask: MaskFact, name: str) -> OperationText:
    """Return the mean or the variance of the elements that a mask selects: their sum times the reciprocal of
    their number."""
    text, source = a.tensor("x")
    axes, nl = axes_of(a), calls.nl
    if axes not in ([1], [-1]) or source.rank != 2:
        raise LeftForAPerson(f"nl.{name} under a mask that does not select a box, of more than two dimensions")

    def total(of: str) -> str:
        return f"{nl}.sum({of}, axis=1, dtype={nl}.float32, keepdims=True)"
    values, _ = calls.selected(text, source, mask, "add")
    number = f"{nl}.maximum({total(calls.predicate(mask, source))}, 1.0)"
    count = calls.scope.counts.get(number) or calls.named(number, "count")
    calls.scope.counts[number] = count
    if name == "var":
        mean = calls.named(f"{nl}.multiply({total(values)}, {nl}.reciprocal({count}))", "mean")
        wide = calls.stretched(mean, source.like((source.shape or ("?",))[:1] + ("1",)), source.shape or (), text)
        squares = calls.named(f"{nl}.square({nl}.subtract({text}, {wide}, dtype={nl}.float32))", "squares")
        values, _ = calls.selected(squares, TensorFact(SBUF, source.shape, "nl.float32"), mask, "add")
    dtype, meaning = a.dtype, a.dtype_meaning
    if not dtype:
        text, dtype, meaning = dtype_of_moment(calls, text, source)
        if not dtype and source.dtype != "nl.float32":
            dtype = terms.dtype_of(text)
    fact = calls.on_chip(source.like(reduced(source, axes, True), meaning or source.dtype))
    expression = f"{nl}.multiply({total(values)}, {nl}.reciprocal({count}){f', dtype={dtype}' if dtype else ''})"
    any_selected = calls.some_selected(mask, source, lambda tile: f"{nl}.max({tile}, axis=1, keepdims=True)")
    return OperationText(fact, expression, None, calls.shape_text(fact, text), dtype or f"{nl}.float32", name,
                         some_selected=any_selected)


@recipe("softmax")
def softmax(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return a softmax along the last free axes."""
    text, source = a.tensor("x")
    if a.mask is not None and a.selects_no_box:
        text, source = calls.selected(text, source, a.mask, "maximum")
    if "compute_dtype" in a:
        calls.report.changed(calls.line, "nl.softmax computes in float32")
    dtype, meaning = a.dtype, a.dtype_meaning
    if not dtype:
        text, dtype, meaning = dtype_of_moment(calls, text, source)
    shown = f", dtype={dtype}" if dtype else ""
    return calls.new(f"{calls.nl}.softmax({text}, axis={a.text('axis', '-1')}{shown})",
                     calls.on_chip(source.like(source.shape, meaning)))


@recipe("rms_norm")
def rms_norm(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return a normalization along the last free axes."""
    (text, source), (weight, _) = a.tensor("x"), a.tensor("w")
    return calls.new(f"{calls.nl}.rms_norm({text}, {weight}, axis={a.text('axis')}, n={a.text('n')}"
                     f"{a.passed('epsilon')}{dtype_argument(a)}{a.passed('compute_dtype')})",
                     calls.on_chip(source.like(source.shape, a.dtype_meaning)))


@recipe("dropout")
def dropout(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return a tile whose elements are set to 0 at random."""
    text, source = a.tensor("x" if "x" in a.nodes else next(iter(a.nodes)))
    return calls.new(f"{calls.nl}.dropout({text}, rate={a.text('rate')}{dtype_argument(a)})",
                     calls.on_chip(source.like(source.shape, a.dtype_meaning)))


def dtype_of_two(calls: Calls, parts: list[str], tiles: list[TensorFact]) -> tuple[str, str]:
    """Return the text and the meaning of the dtype that an operation of two tiles has in the beta generation; the text
    is empty if it is that of the first. ``parts`` gets a variable for each tile that the text names."""
    first, common = tiles[0].dtype, promoted(*(tile.dtype for tile in tiles))
    if common:
        return "" if common == first else common.replace("nl.", f"{calls.nl}.", 1), common
    parts[:] = [calls.named(part, "tile") for part in parts]
    calls.report.changed(calls.line, f"{COMMON} computes the dtype of the result, which the text does not show")
    return f"{COMMON}({parts[0]}.dtype, {parts[1]}.dtype)", " "


def in_common_shape(calls: Calls, operand: tuple[str, TensorFact], operands: Iterable[tuple[str, TensorFact]]
          ) -> tuple[str, TensorFact]:
    """Return the part of an operand that remains if masks cut other ``operands`` of an operation, in their shape."""
    text, tile = operand
    for _, other in operands:
        if tile.shape is not None and other.shape is not None and len(tile.shape) == len(other.shape):
            text, tile = calls.shortened(text, tile, other)
            shape = tuple(n if size == "1" and n != "?" else size for size, n in zip(tile.shape or (), other.shape))
            text, tile = calls.stretched(text, tile, shape), tile.like(shape)
    return text, tile


@recipe("where")
def where(calls: Calls, a: Arguments) -> OperationText:
    """Return a selection by a tile; its operands have one shape."""
    operands = {n: a.tensor(n) for n in ("condition", "x", "y") if isinstance(a.fact(n), TensorFact)}
    operands = {n: in_common_shape(calls, operand, operands.values()) for n, operand in operands.items()}
    condition, chosen = operands.get("condition") or a.tensor("condition")
    parts, fact = [], chosen
    for name in ("x", "y"):
        if name in operands:
            parts.append(operands[name][0])
            fact = operands[name][1] if fact is chosen else fact
        else:
            parts.append(a.text(name))
    dtype, meaning = a.dtype, a.dtype_meaning
    tiles = [tile for tile in map(a.fact, ("x", "y")) if isinstance(tile, TensorFact)]
    if not dtype and len(tiles) == 2:
        dtype, meaning = dtype_of_two(calls, parts, tiles)
    elif not dtype:
        numbers = [(text, a.fact(n)) for text, n in zip(parts, ("x", "y")) if not isinstance(a.fact(n), TensorFact)]
        at = next((k for k, n in enumerate(("x", "y")) if isinstance(a.fact(n), TensorFact)), None)
        if at is not None:
            parts[at], dtype, meaning = calls.number_dtype((parts[at], fact), numbers[0], "where")
        elif any(isinstance(n, NumberFact) and n.kind == "float" for _, n in numbers) and fact.dtype != "nl.float32":
            dtype = meaning = f"{calls.nl}.float32"
    dtype_argument = f", dtype={dtype}" if dtype else ""
    expression = f"{calls.nl}.where({condition}, {', '.join(parts)}{dtype_argument})"
    result = calls.on_chip(chosen.like(chosen.shape, meaning or dtype or fact.dtype or " "))
    types = {tile.dtype for tile in tiles}

    def write_to(dst: str, target: TensorFact) -> list[str]:
        """Write the values that are not selected, unless the destination has them; then write the rest under the
        predicate."""
        keeps = dst in parts
        on_true, on_false = parts
        reverse = ", reverse_pred=True" if on_true == dst else ""
        selected = on_false if reverse else on_true
        read = f"{condition} {selected}"
        predicate = f"{condition}.view({calls.nl}.uint8)" if chosen.dtype == "nl.bool_" else condition
        converts = bool(types - {target.dtype}) or result.dtype not in ("", target.dtype)
        if converts or chosen.dtype not in PREDICATES or (
                (not keeps or selected == dst) and re.search(rf"\b{re.escape(terms.tensor_of(dst))}\b", read)):
            return [f"{calls.nisa}.tensor_copy(dst={dst}, src={expression})"]
        filled = "memset" if not isinstance(a.fact("y"), TensorFact) else "tensor_copy"
        value = f"{'value' if filled == 'memset' else 'src'}={on_false}"
        return [*([] if keeps else [f"{calls.nisa}.{filled}(dst={dst}, {value})"]),
                f"{calls.nisa}.tensor_copy_predicated(dst={dst}, src={selected}, predicate={predicate}{reverse})"]
    return OperationText(result, expression, write_to, calls.shape_text(result, condition),
                         re.sub(r"^nl\.", f"{calls.nl}.", dtype or fact.dtype), "selected")


@recipe("gather_flattened")
def gather_flattened(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return elements of each partition by their numbers."""
    (data, source), (indices, chosen) = a.tensor("data"), a.tensor("indices")
    return calls.new(f"{calls.nl}.gather_flattened({data}, {indices}{dtype_argument(a)})",
                     calls.on_chip(chosen.like(chosen.shape, a.dtype_meaning or source.dtype or " ")))


@recipe("device_print")
def device_print(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return the call, which prints during simulation: the elements of a box that a mask selects, with 0 instead of
    the others of another mask."""
    prefix, name = list(a.nodes)[:2]
    text = a.text(name)
    if a.mask is not None:
        text, source = a.tensor(name)
        if a.selects_no_box:
            text, _ = calls.selected(text, source, a.mask, "add")
    return calls.new(f"{calls.nl}.device_print({a.text(prefix)}, {text})", Fact())


def constant(text: str) -> float | bool | None:
    """Return the number or bool that a text denotes, or None."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, int | float) else None


def cast_number(number: float, kind: DType) -> str:
    """Return the number that a constant becomes as an element."""
    value = functions.static_cast(number, kind).item()
    return repr(value) if np.isfinite(value) else f'float("{value}")'


def cast_text(number: str, kind: DType) -> str:
    """Return an expression of the host that converts a number as an element: integers are rounded and saturate."""
    if kind is FLOAT32:
        return f"float({number})"
    if not kind.is_integer or kind is BOOL:
        raise LeftForAPerson(f"nl.static_cast of a number that is not a constant to {kind.name}")
    limits = np.iinfo(kind.numpy)
    return f"min(max(round({number}), {limits.min}), {limits.max})"


def cast_array(calls: Calls, array: str, dtype: str, kind: DType | None) -> str:
    """Return an expression of the host that converts an array: integers are rounded and saturate."""
    if kind is None or not kind.is_integer or kind is BOOL:
        return f"{terms.factor(array)}.astype({dtype})"
    limits, np_alias = np.iinfo(kind.numpy), calls.names.alias("np")
    return (f"{np_alias}.clip({np_alias}.rint({np_alias}.float64({array})), {limits.min}, {limits.max})"
            f".astype({dtype})")


@recipe("static_cast")
def static_cast(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return a copy in another dtype."""
    node = next(iter(a.nodes.values()))
    kind = BY_NAME.get(a.dtype_meaning.removeprefix("nl.")) if a.dtype_meaning.startswith("nl.") else None
    number = constant(calls.text(node))
    if kind is not None and kind not in MICROSCALING and (
            number is not None or isinstance(calls.fact(node), NumberFact)):
        return calls.new(cast_text(calls.text(node), kind) if number is None else cast_number(number, kind),
                         NumberFact())
    if not isinstance(calls.fact(node), TensorFact):
        return calls.new(cast_array(calls, calls.text(node), a.dtype, kind), Fact())
    text, source = a.tensor(next(iter(a.nodes)))
    fact = calls.on_chip(source.like(source.shape, a.dtype_meaning))
    return calls.new(f"{calls.nl}.copy({text}{dtype_argument(a)})", fact)


# -- indices, loops and the host ---------------------------------------------------------------------------------------
@recipe("arange")
def arange(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return an index vector."""
    values = [calls.text(n) for n in a.nodes.values()]
    start, stop = ("0", values[0]) if len(values) == 1 else (values[0], values[1])
    extent = terms.difference(stop, start) or terms.subtract(stop, start)
    shown = ", ".join(values)
    return calls.new(f"{calls.nl}.arange({shown})", IndexFact(start, (Axis(extent, "1"),)))


@recipe("ds")
def ds(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Rewrite ``ds(start, size)`` as a slice."""
    start, size = (calls.text(n) for n in a.nodes.values())
    return calls.new(f"{calls.nl}.ds({start}, {size})", Span(start, size if calls.stable(size) else ""))


@recipe("par_dim")
def par_dim(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Rewrite the mark of the partition dimension; functions that create tensors read the old text."""
    text = calls.text(next(iter(a.nodes.values())))
    return calls.new(f"{calls.names.alias('nl')}.par_dim({text})", NumberFact("int"))


@recipe(*RANGES)
def ranges(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return Python's ``range`` for every kind of loop."""
    shown = ", ".join(calls.text(n) for k, n in a.nodes.items() if k not in ("precise_schedule", "directives"))
    calls.report.changed(calls.line, f"{a.function} becomes range: loops unroll, and variables are Python integers")
    return calls.new(f"range({shown})", Many(NumberFact("int")))


@recipe(*SAME_NAME)
def same_name(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Rewrite a query of the launch. In a kernel on a grid, it becomes the variable of a loop."""
    name = a.function.partition(".")[2]
    shown = ", ".join(calls.text(n) for n in a.nodes.values())
    return calls.program(name, shown)


@recipe("loop_reduce")
def loop_reduce(calls: Calls, a: Arguments) -> OperationText:
    """Return an operation that accumulates in its target. If the target has no values, the first iteration copies."""
    text, source = a.tensor("x" if "x" in a.nodes else next(iter(a.nodes)))
    node = a.nodes["loop_indices"]
    loops = [e.value for e in node.elements] if isinstance(node, (cst.List, cst.Tuple)) else [node]
    first = " and ".join(f"{i} == {calls.loop_starts.get(i, '0')}" for i in map(calls.text, loops))
    fact, dtype = replace(calls.on_chip(source)), a.dtype or f"{text}.dtype"

    def write_to(dst: str, target: TensorFact) -> list[str]:
        if target is fact and not operation.is_assigned:
            raise LeftForAPerson("nl.loop_reduce that is not assigned")
        accumulated = f"{calls.nisa}.tensor_tensor(dst={dst}, data1={dst}, data2={text}, op={a.token('op')})"
        return [accumulated if target.filled else
                f"if {first}:\n    {calls.nisa}.tensor_copy(dst={dst}, src={text})\nelse:\n    {accumulated}"]
    operation = OperationText(fact, "", write_to, calls.shape_text(source, text), dtype, "total", first=first)
    return operation
