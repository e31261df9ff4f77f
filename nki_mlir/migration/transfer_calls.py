# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites loads and stores of ``nl`` for the current generation: one recipe for each function."""

import ast
from collections.abc import Callable, Collection
from dataclasses import replace

import libcst as cst

from nki_mlir.migration import terms
from nki_mlir.migration.added_functions import ROWS
from nki_mlir.migration.calls import Arguments, Calls, Recipe
from nki_mlir.migration.creation_calls import LANGUAGE, dtype_argument, recipe, shape_items
from nki_mlir.migration.engine_rows import is_between
from nki_mlir.migration.expressions import LeftForAPerson
from nki_mlir.migration.facts import PSUM, SBUF, Fact, MaskBound, MaskFact, NumberFact, TensorFact, Unknown
from nki_mlir.migration.language_calls import copy
from nki_mlir.migration.operation_text import OperationText
from nki_mlir.migration.reversed_axes import forwards, only_rows_backwards, reversed_tile, reverses_rows
from nki_mlir.migration.view_parts import part_of
from nki_mlir.migration.views import Integer, SubscriptText, bound_of, extents_of, is_backwards, render, span


def rows_first(text: str, tensor: TensorFact) -> tuple[str, TensorFact]:
    """Return an HBM view of one dimension as a column."""
    if tensor.shape is not None and len(tensor.shape) == 1:
        rows = f"{text}.shape[0]" if tensor.shape[0] == "?" else tensor.shape[0]
        return f"{text}.reshape(({rows}, 1))", tensor.like((rows, "1"))
    return text, tensor


def one_element(calls: Calls, a: Arguments) -> tuple[str, TensorFact] | None:
    """Return the view of one element of a tensor of unknown rank as a tile of one row and column. None for other
    views."""
    node = a.nodes.get("src")
    view = calls.views.get(id(node)) if node is not None else None
    if view is None or view.tensor.shape is not None or view.tensor.on_chip or a.mask is not None or not all(
            isinstance(item, Integer) for item in view.items):
        return None
    spans = [span(item.text, "1").replace("nl.ds(", f"{calls.nl}.ds(") for item in view.items
             if isinstance(item, Integer)]
    tile = view.tensor.like(("1", "1"))
    text = f"{view.text}[{', '.join(spans)}]"
    return (text if len(spans) == 2 else f"{text}.reshape((1, 1))"), tile


def may_have_one_dimension(calls: Calls, a: Arguments, source: TensorFact) -> bool:
    """Return whether a load reads a tensor of unknown rank of which an integer selects a position, of which the
    function shows only rows, or of whose tile the function reads only the first column."""
    if source.shape is not None or source.on_chip:
        return False
    view, parts = calls.views.get(id(a.nodes["src"])), calls.scope.parts
    if calls.assigned in parts.first_columns and (view is None or len(view.items) == 1):
        return True
    if view is None:
        return False
    is_rows = len(view.items) == 1 and view.text in parts.only_rows
    return is_rows or any(isinstance(item, Integer) for item in view.items)


def repeated_in_hbm(calls: Calls, text: str, source: TensorFact, shape: cst.BaseExpression) -> tuple[str, TensorFact]:
    """Return the text and the fact of a view that repeats elements in HBM, which transfers alone can read."""
    items, _, shown = shape_items(calls, shape)
    if items is None and source.shape is not None and shown.isidentifier() | shown.endswith(".shape"):
        items = [f"{shown}[{k}]" for k in range(len(source.shape))]
    if not calls.broadcasts or source.shape is None or items is None or len(items) != len(source.shape):
        raise LeftForAPerson("broadcast_to of a tensor in HBM whose shape the text does not show")
    sizes = [f"{shown}[{k}]" if n == "?" else n for k, n in enumerate(items)]
    repeats = [f".broadcast({k}, {n})" for k, (extent, n) in enumerate(zip(source.shape, sizes)) if extent == "1" != n]
    return terms.factor(text) + "".join(repeats), replace(source.like(tuple(items)), part=True)


@recipe("load")
def load(calls: Calls, a: Arguments) -> "OperationText | cst.BaseExpression":
    """Return a new tile from HBM."""
    if (flipped := forwards(calls.views.get(id(a.nodes.get("src"))), a.mask)) is not None and "mode" not in a:
        return _loaded_backwards(calls, a, *flipped)
    if (view := calls.views.get(id(a.nodes.get("src")))) is not None and reverses_rows(view, a.mask) and (
            "mode" not in a):
        return _loaded_row_by_row(calls, a, view)
    element = one_element(calls, a) if calls.assigned in calls.scope.parts.single_elements else None
    text, source = element or rows_first(*a.tensor("src"))
    if source.on_chip and isinstance(a.fact("src"), TensorFact):
        return copy(calls, a)
    if may_have_one_dimension(calls, a, source):
        calls.report.changed(calls.line, f"{ROWS} of a view that may have one dimension: its elements are rows")
        text = f"{ROWS}({text})"
    fact = TensorFact(SBUF, source.shape, a.dtype_meaning or source.dtype, base=True)

    def write_to(dst: str, target: TensorFact) -> list[str]:
        if target.memory == PSUM or is_backwards(dst):
            return [f"{calls.nisa}.tensor_copy(dst={dst}, src={calls.nl}.load({text}))"]
        mode = f", oob_mode={a.text('mode')}" if "mode" in a else ""
        return [f"{calls.nisa}.dma_copy(dst={dst}, src={text}{mode})"]
    expression = "" if "mode" in a else f"{calls.nl}.load({text}{dtype_argument(a)})"
    dtype = a.dtype or (source.dtype if source.dtype.endswith(".dtype") else terms.dtype_of(text))
    return OperationText(fact, expression, write_to, calls.shape_text(fact, text), dtype, "loaded")


def _loaded_backwards(calls: Calls, a: Arguments, view: SubscriptText, axes: Collection[int]) -> OperationText:
    """Return a copy of a tile that is loaded forwards."""
    text, source = render(view)
    if source.shape is None or "?" in source.shape or len(source.shape) <= max(axes):
        raise LeftForAPerson("an index that steps backwards")
    loaded = calls.named(f"{calls.nl}.load({text}{dtype_argument(a)})", "loaded")
    fact = TensorFact(SBUF, source.shape, a.dtype_meaning or source.dtype, base=True)
    part = reversed_tile(loaded, fact, axes)
    calls.report.changed(calls.line, "the tile is loaded forwards and copied backwards: no DMA steps backwards")

    def write_to(dst: str, target: TensorFact) -> list[str]:
        return [f"{calls.nisa}.tensor_copy(dst={dst}, src={part})"]
    shape = calls.shape_text(fact, loaded)
    return OperationText(fact, f"{calls.nl}.copy({part})", write_to, shape, f"{loaded}.dtype", "tile")


def _loaded_row_by_row(calls: Calls, a: Arguments, view: SubscriptText) -> OperationText:
    """Return a tile whose rows a loop loads backwards, and which is then copied where a tile exists."""
    if a.selects_no_box or any((terms.number(b.high) or 0) < 1 for b in (a.mask.bounds if a.mask is not None else ())):
        raise LeftForAPerson("an index that steps backwards")
    view, columns = only_rows_backwards(view, a.mask)
    shape = tuple(extents_of(view.items))
    row, rank = calls.fresh_name("row"), len(shape)
    source, _ = render(view, MaskFact((MaskBound(-rank, row, "1", rank),)))
    fact = TensorFact(SBUF, shape, a.dtype_meaning or view.tensor.dtype, base=True)
    calls.report.changed(calls.line, "the tile is loaded row by row, because no DMA steps backwards")
    dtype = a.dtype or (view.tensor.dtype if view.tensor.dtype.endswith(".dtype") else terms.dtype_of(source))

    def by_rows(dst: str, target: TensorFact) -> list[str]:
        text = f"dst={dst}[{span(row, '1')}], src={source}".replace("nl.ds(", f"{calls.nl}.ds(")
        return [f"for {row} in range({shape[0]}):\n    {calls.nisa}.dma_copy({text})"]
    shape_text = calls.shape_text(fact, "")
    loaded = OperationText(fact, "", by_rows, shape_text, dtype, "loaded")
    result = OperationText(fact, "", None, shape_text, dtype, "loaded")

    def write_to(dst: str, target: TensorFact) -> list[str]:
        if target is result.fact and not columns:
            return by_rows(dst, target)
        tile = calls.fresh_name("loaded")
        part = reversed_tile(tile, fact, columns) if columns else tile
        return [*calls.allocated(tile, loaded), f"{calls.nisa}.tensor_copy(dst={dst}, src={part})"]
    result.write_to = write_to
    return result


@recipe("load_transpose2d")
def load_transposed(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return a new tile from HBM, transposed."""
    text, source = a.tensor("src")
    shape = source.shape[::-1] if source.shape is not None else None
    return calls.new(f"{calls.nl}.load_transpose2d({text}{dtype_argument(a)})",
                     TensorFact(SBUF, shape, a.dtype_meaning or source.dtype, base=True))


@recipe("store")
def store(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return the store of a tile to HBM: a tile in PSUM, or a number, goes through SBUF."""
    if a.mask is not None and not a.mask.alternatives and not a.selects_no_box:
        a.condition = " and ".join(filter(None, (a.condition, *_named_ends(a.mask))))
    return _stored(calls, a)


def _named_ends(mask: MaskFact) -> list[str]:
    """Return the conditions that a mask selects elements, for the axes on which it leaves out a number of first
    elements that the text does not show."""
    return [f"{bound.high} > 0" for bound in mask.bounds if bound.low and not bound.extent
            and terms.number(bound.low) is None and terms.number(bound.high) is None]


def _stored(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return the store of the elements of a mask, or one for each of its parts or rows."""
    view = calls.views.get(id(a.nodes.get("dst")))
    if a.mask is not None and a.mask.alternatives:
        return _stored_twice(calls, a, a.mask)
    if view is not None and "value" in a and reverses_rows(view, a.mask):
        return _stored_row_by_row(calls, a, view)
    flipped = forwards(view, a.mask)
    if flipped is not None and not a.selects_no_box:
        dst, target = render(flipped[0])
    elif view is not None and flipped is None and (reverses_rows(view, None) or forwards(view, None)):  # one element
        dst, target = render(view, a.mask)
    else:
        dst, target = a.tensor("dst")
    if a.mask is not None and a.selects_no_box:
        return _stored_by_rows(calls, a, a.mask, target)
    if (value := a.nodes.get("value")) is None:
        raise LeftForAPerson("nl.store without a value")
    fact = calls.fact(value)
    if isinstance(fact, Unknown):
        return _copied_and_stored(calls, a.mask, dst, calls.text(value))
    if isinstance(fact, NumberFact):
        shape = calls.shape_text(target, dst)
        return calls.new(f"{calls.nl}.store({dst}, {calls.nl}.full({shape}, {calls.text(value)}, "
                         f"dtype={terms.tensor_of(dst)}.dtype))", Fact())
    result = calls.result(value)
    if result is not None and result.narrow[1] == target.dtype != "":
        result.expression = result.narrow[0]
    text, source = _selected_columns(calls, *a.tensor("value"), target, a.mask)
    if flipped is not None:
        if source.shape is None or "?" in source.shape or source.shape != target.shape:
            raise LeftForAPerson("an index that steps backwards")
        calls.report.changed(calls.line, "the tile is copied backwards and stored forwards: no DMA steps backwards")
        text, source = calls.operand(text, source)
        text = reversed_tile(calls.named(text, "stored"), source, flipped[1])
    if source.memory == PSUM or is_backwards(text):
        calls.report.changed(calls.line, "the tile is copied to SBUF: DMA can read neither PSUM nor a reversed view")
        text = _copied(calls, text, source)
    wide, narrow = target.shape, source.shape
    if wide is not None and narrow is not None and len(wide) == len(narrow):
        if any(n == "1" != w for n, w in zip(narrow, wide)):
            text = calls.stretched(text, source, wide, dst)
        is_less = any(1 < (terms.number(n) or 0) < (terms.number(w) or 0) for n, w in zip(narrow, wide))
        if is_less or not calls.counts().isdisjoint(narrow) or (
                isinstance(value, cst.Name) and calls.masked.masks.get(value.value)):
            dst, target = calls.shortened(dst, target, source)          # a mask has left a smaller tile
    if "mode" in a:
        return calls.new(f"{calls.nisa}.dma_copy(dst={dst}, src={text}, oob_mode={a.text('mode')})", Fact())
    return calls.new(f"{calls.nl}.store({dst}, {text})", Fact())


def _copied_and_stored(calls: Calls, mask: MaskFact | None, dst: str, text: str) -> cst.BaseExpression:
    """Return the store of a copy of the elements that a mask selects, of a tile whose memory the text does not show."""
    calls.report.changed(calls.line, "the tile is copied to SBUF, because it may be in PSUM, which DMA cannot read")
    if mask is not None and mask.bounds:
        bounds = [bound_of(mask, axis) for axis in range(-mask.bounds[0].rank, 0)]
        spans = [span(bound.low or "0", bound.high) if bound is not None else ":" for bound in bounds]
        text = f"{terms.factor(text)}[{', '.join(spans)}]".replace("nl.ds(", f"{calls.nl}.ds(")
    return calls.new(f"{calls.nl}.store({dst}, {calls.nl}.copy({text}))", Fact())


def _selected_columns(calls: Calls, text: str, source: TensorFact, target: TensorFact, mask: MaskFact | None
                      ) -> tuple[str, TensorFact]:
    """Return the columns that the mask leaves of the destination, of a tile whose number of columns the text does not
    show."""
    rank = target.rank or 0
    sizes = source.shape or ("?",) * rank
    bounds = [bound_of(mask, axis) if mask is not None and size == "?" else None
              for axis, size in zip(range(1 - rank, 0), sizes[1:])]
    if mask is None or mask.selects_no_box or len(sizes) != rank or not any(bounds) or any(
            b.rank != rank for b in bounds if b is not None):
        return text, source
    spans = [":", *(span(b.low or "0", b.high).replace("nl.ds(", f"{calls.nl}.ds(") if b else ":" for b in bounds)]
    shape = tuple(size if b is None else b.high for size, b in zip(sizes, [None, *bounds]))
    return part_of(text, spans), source.like(shape)


def _copied(calls: Calls, text: str, tensor: TensorFact) -> str:
    """Return the text of a copy of a view in SBUF. If the view begins at a row of PSUM where no engine can start, copy
    the complete tile, and return the rows of the copy."""
    view = ast.parse(text, mode="eval").body
    if tensor.memory == PSUM and isinstance(view, ast.Subscript) and is_between(text, tensor):
        tile = ast.get_source_segment(text, view.value) or ""
        return f"{calls.named(f'{calls.nl}.copy({tile})', 'stored')}{text.removeprefix(tile)}"
    return f"{calls.nl}.copy({text})"


def _named_value(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return the value of a store that is written several times: an expression is first assigned to a name."""
    value = a.nodes["value"]
    fact, text = calls.fact(value), calls.text(value)
    if isinstance(fact, NumberFact) or id(value) in calls.views or terms.SIMPLE.match(text):
        return value
    return calls.new(calls.named(text, "stored"), fact)


def _stored_twice(calls: Calls, a: Arguments, mask: MaskFact) -> cst.BaseExpression:
    """Return a store for each of the comparisons of which one selects an element, except those that select none."""
    value, texts = _named_value(calls, a), list[str]()
    for comparison in mask.alternatives:
        a.mask, condition = calls.executed(calls.mask_of(comparison.operator, comparison.index), "", in_one=False)
        if a.mask is None:
            continue
        a.nodes["value"] = value
        ends = [] if a.selects_no_box else _named_ends(a.mask)
        stored = _stored(calls, a)
        assert isinstance(stored, cst.BaseExpression)
        texts += calls.run_if(" and ".join(filter(None, (condition, *ends))),
                              [calls.loops.get(id(stored)) or calls.text(stored)])
    if not texts:
        a.condition = "False"
    expression = calls.new(calls.text(a.nodes["dst"]), Fact())
    calls.loops[id(expression)] = "\n".join(texts)
    return expression


def _stored_by_rows(calls: Calls, a: Arguments, mask: MaskFact, target: TensorFact) -> cst.BaseExpression:
    """Return a loop that stores, for each row, the elements that a mask selects. An expression is first assigned to a
    name."""
    if not isinstance(a.fact("value"), NumberFact) and a.tensor("value")[1].shape != target.shape:
        raise LeftForAPerson("a store of another shape under a mask that does not select a box of elements")
    return _loop(calls, calls.by_rows(mask, target.shape or (), _store_of_box(calls, a, _named_value(calls, a))))


def _store_of_box(calls: Calls, a: Arguments, value: cst.BaseExpression) -> Callable[[MaskFact], str]:
    """Return a function that writes the store of the elements of a value that a box selects."""
    def write(box: MaskFact) -> str:
        a.mask, a.nodes["value"] = box, value
        stored = _stored(calls, a)
        assert isinstance(stored, cst.BaseExpression)
        return calls.text(stored)
    return write


def _stored_row_by_row(calls: Calls, a: Arguments, view: SubscriptText) -> cst.BaseExpression:
    """Return a loop that stores the rows of a tile backwards. A copy first reverses other axes."""
    flipped, columns = only_rows_backwards(view, None)
    if columns:
        value, source = a.tensor("value") if isinstance(a.fact("value"), TensorFact) else ("", TensorFact(SBUF))
        if a.mask is not None or source.shape != tuple(extents_of(view.items)):
            raise LeftForAPerson("an index that steps backwards")
        part = reversed_tile(calls.named(value, "stored"), source, columns)
        a.nodes["value"] = calls.new(calls.named(f"{calls.nl}.copy({part})", "stored"), replace(source, memory=SBUF))
        calls.views[id(a.nodes["dst"])] = flipped
    shape, mask = tuple(extents_of(view.items)), a.mask or MaskFact(())
    write = _store_of_box(calls, a, _named_value(calls, a))
    return _loop(calls, calls.by_rows(mask, shape, write, "no DMA steps backwards"))


def _loop(calls: Calls, text: str) -> cst.BaseExpression:
    expression = calls.new("loop", Fact())
    calls.loops[id(expression)] = text
    return expression


@recipe("atomic_rmw")
def atomic(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return a loop that adds the rows of a tile one after the other: a DMA requires that the rows that it updates
    differ, and the beta generation adds to equal rows, too."""
    mask, a.mask, value = a.mask or MaskFact(()), None, _named_value(calls, a)
    target, source = a.tensor("dst")[1], calls.fact(value)
    if isinstance(source, TensorFact) and source.shape is not None and source.rank == target.rank:
        _, target = calls.shortened("dst", target, source)                   # an earlier mask has cut the value
    shape = target.shape
    if shape is None or "?" in shape:
        raise LeftForAPerson("nl.atomic_rmw of rows whose number the text does not show")
    updated = calls.fresh_name("updated")

    def write(box: MaskFact) -> str:
        a.mask, a.nodes["value"] = box, value
        return (f"{updated} = {a.tensor('dst')[0]}\n{calls.nisa}.dma_compute(dst={updated}, "
                f"srcs=[{a.tensor('value')[0]}, {updated}], reduce_op={a.token('op')})")
    return _loop(calls, calls.by_rows(mask, shape, write, "one DMA may not update the same row twice"))


TRANSFERS: dict[str, Recipe] = {f"nl.{name}": LANGUAGE[f"nl.{name}"]
                                for name in ("load", "load_transpose2d", "store", "atomic_rmw")}
