# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moves rows that begin at a partition where no engine can start: a DMA copies them to a separate tile and back.

    both[16:48, :] = nl.exp(x)          rows = nl.ndarray((32, 8), dtype=both.dtype, buffer=nl.sbuf)
                                        nisa.activation(dst=rows, op=nl.exp, data=x)
                                        nisa.dma_copy(dst=both[16:48, :], src=rows)

Functions of ``nl`` take rows from any partition. If the text does not show where rows begin, the function stays:

    both[g * n:(g + 1) * n] = nl.exp(x)         nisa.dma_copy(dst=both[nl.ds(g * n, n)], src=nl.exp(x))
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import gcd

from nki_mlir.language.functions import UNARY
from nki_mlir.machine import Machine
from nki_mlir.migration import terms
from nki_mlir.migration.expressions import MARK, LeftForAPerson
from nki_mlir.migration.facts import PSUM, SBUF, TensorFact
from nki_mlir.migration.names import Names
from nki_mlir.migration.parameters import bound_names, names_read
from nki_mlir.migration.python_trees import parameters_of
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.shifted_parts import SHIFTED, reads_shifted
from nki_mlir.migration.uncut_tiles import UncutTiles
from nki_mlir.migration.views import is_backwards

PARTITIONS = 128
NEW_TILES = {"load", "copy", *UNARY}
TRANSFERS = {"nl.load", "nl.store", "nl.load_transpose2d", "nl.atomic_rmw", "nisa.dma_copy", "nisa.dma_transpose"}
UNKNOWN_ROW = "the text does not show at which row a view begins; engines start only at certain partitions"
REASON = "a DMA moves these rows, because engines start only at certain partitions"


def is_between(text: str, tensor: TensorFact) -> bool:
    """Return whether the numbers of a view prove that its rows begin at a partition where no engine can start."""
    rows = _rows_of(ast.parse(MARK.sub("_", text), mode="eval").body) if tensor.on_chip and "[" in text else None
    return rows is not None and rows[1] > 0 and not Machine.legal_start_partition(*rows)


def _rows_of(node: ast.expr) -> tuple[int, int] | None:
    """Return the first row of a view and the least number of rows that the text shows, which is 0 for all rows of a
    tensor; None if the text does not show the first. No reshape changes rows."""
    match node:
        case ast.Name() | ast.Attribute():
            return 0, 0
        case ast.Call(func=ast.Attribute(value=inner, attr="reshape")):
            return _rows_of(inner)
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr=name)) if name in NEW_TILES:
            return 0, 0
        case ast.Subscript(value=inner, slice=item) if (outer := _rows_of(inner)) is not None:
            match item.elts[0] if isinstance(item, ast.Tuple) and item.elts else item:
                case ast.Slice(lower=None, upper=None, step=None):
                    return outer
                case ast.Slice(lower=None, upper=ast.Constant(value=int(count)), step=None):
                    return outer[0], count
                case ast.Slice(lower=ast.Constant(value=int(first)), upper=ast.Constant(value=int(after)), step=None):
                    return outer[0] + first, after - first
                case ast.Call(func=ast.Attribute(attr="ds"), args=[ast.Constant(value=int(first)), ast.Constant(
                        value=int(count))]):
                    return outer[0] + first, count
                case ast.Slice(lower=None, step=None):
                    return outer[0], 1
                case (ast.Slice(lower=ast.Constant(value=int(first)), upper=ast.expr(), step=None)
                      | ast.Call(func=ast.Attribute(attr="ds"), args=[ast.Constant(value=int(first)), _])):
                    return outer[0] + first, 1
    return None


def values_of(tree: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return the values of the names that a function assigns once and that are not parameters."""
    assigned = bound_names(tree)
    parameters = {a.arg for a in parameters_of(tree.args)}
    pairs = [pair for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets
             for pair in _assignments(target, node.value)]
    return {target.id: value for target, value in pairs
            if isinstance(target, ast.Name) and assigned[target.id] == 1 and target.id not in parameters}


def _assignments(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Return the single assignments of ``a, b = x, y``."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts))
    return [(target, value)]


def divisor(node: ast.expr, values: Mapping[str, ast.expr]) -> int:
    """Return a number that divides an expression, whatever the names without a value are; 0 for 0."""
    match node:
        case ast.Constant(value=int(value)):
            return abs(value)
        case ast.Name(id=name) if name in values:
            return divisor(values[name], {n: value for n, value in values.items() if n != name})
        case ast.Attribute(attr="pmax"):
            return PARTITIONS
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return divisor(left, values) * divisor(right, values)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return gcd(divisor(left, values), divisor(right, values))
    return 1


def integer(node: ast.expr, values: Mapping[str, ast.expr]) -> int | None:
    """Return the number that an expression is, or None if the text does not show it."""
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name) if name in values:
            return integer(values[name], {n: value for n, value in values.items() if n != name})
        case ast.Attribute(attr="pmax"):
            return PARTITIONS
    return None


def _viewed_name(node: ast.expr) -> str:
    """Return the name of the tensor of which nested subscripts and access patterns are a view; "" for other texts."""
    match node:
        case ast.Subscript(value=ast.Name(id=name)) | ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="ap")):
            return name
        case ast.Subscript(value=inner) | ast.Call(func=ast.Attribute(value=inner, attr="ap")):
            return _viewed_name(inner)
    return ""


def _least(offset: str, entries: Sequence[ast.expr]) -> int | None:
    """Return the least element that an access pattern touches in its first row, or None if the text does not show it:
    ``entries`` are the pattern's steps and counts after those of the rows."""
    least = offset
    for entry in entries:
        match entry:
            case ast.List(elts=[ast.UnaryOp(op=ast.USub(), operand=step), count]):
                backward_reach = terms.multiply(terms.add(ast.unparse(count), "-1"), ast.unparse(step))
                least = terms.difference(least, backward_reach) or "?"
            case ast.List(elts=[ast.Constant(), _]):
                pass
            case _:
                return None
    return terms.number(least)


def _rows_and_summands(offset: ast.expr, stride: str) -> tuple[int, list[str]] | None:
    """Return how many rows an offset passes, as a multiple of the ``stride`` of rows, and its other summands; None if
    the text does not show the number."""
    match offset:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = _rows_and_summands(left, stride), _rows_and_summands(right, stride)
            return parts[0] and parts[1] and (parts[0][0] + parts[1][0], parts[0][1] + parts[1][1])
        case ast.BinOp(left=ast.Constant(value=int(count)), op=ast.Mult(), right=right) if ast.unparse(right) == stride:
            return count, []
    text = ast.unparse(offset)
    return (1, []) if text == stride else None if stride in text else (0, [text])


class EngineRows(UncutTiles):
    """The part of the rewriter that copies rows to partitions where engines start, and back."""

    values: Mapping[str, ast.expr] = {}         # values of names of the file and the function

    def __init__(self, names: Names, report: MigrationReport) -> None:
        super().__init__(names, report)
        self.moved: dict[str, tuple[str, tuple[str, ...]]] = {}     # tile of moved rows -> the view, the statements

    def may_start_between(self, texts: Sequence[str]) -> bool:
        """Return whether a statement has a view of a tile whose rows may begin where no engine can start."""
        return any(isinstance(node, ast.Subscript) and self._may_start_between(node)
                   for text in texts for node in ast.walk(ast.parse(MARK.sub("_", text))))

    def _may_start_between(self, view: ast.Subscript) -> bool:
        fact = self.scope.facts.get(ast.unparse(view.value))
        if not isinstance(fact, TensorFact) or not fact.on_chip:
            return False
        match view.slice.elts[0] if isinstance(view.slice, ast.Tuple) and view.slice.elts else view.slice:
            case ast.Call(func=ast.Attribute(attr="ds"), args=[start, count]):
                size = integer(count, self.values)
            case ast.Slice(lower=ast.expr() as start, upper=ast.expr() as stop):
                text = terms.difference(ast.unparse(stop), ast.unparse(start))
                size = integer(ast.parse(text, mode="eval").body, self.values) if text else None
            case _:
                return False
        step = min(divisor(start, self.values) or PARTITIONS, PARTITIONS)
        if size is None:
            return step != PARTITIONS
        return not all(Machine.legal_start_partition(first, size) for first in range(0, PARTITIONS, step))

    def of_expression(self, dst: str, dst_fact: TensorFact, expression: str, dtype: str) -> list[str]:
        """Return the statement that copies the value of an expression to a view."""
        if dst_fact.memory == PSUM or not self.may_start_between([dst]):
            return [f"{self.nisa}.tensor_copy(dst={dst}, src={expression})"]
        self.report.changed(self.line, REASON)
        rows = self._copied_rows(expression)
        if rows:                                # the DMA converts them as well
            expression = rows
        elif dtype != dst_fact.dtype:
            expression = f"{self.nl}.copy({expression}, dtype={dst.partition('[')[0]}.dtype)"
        return [f"{self.nisa}.dma_copy(dst={dst}, src={expression})"]

    def _copied_rows(self, expression: str) -> str:
        """Return the view that ``nl.load(view)`` loads, or that ``nl.copy(view)`` copies in SBUF; "" otherwise. A DMA
        also reads a view of a view and an access pattern, from any rows."""
        view = expression.removeprefix(f"{self.nl}.copy(").removesuffix(")")
        with suppress(SyntaxError):
            match ast.parse(expression, mode="eval").body:
                case ast.Call(func=function, args=[ast.expr()], keywords=[]) if (
                        ast.unparse(function) == f"{self.nl}.load"):
                    return expression.removeprefix(f"{self.nl}.load(").removesuffix(")")
            if expression != f"{self.nl}.copy({view})":
                return ""
            match ast.parse(view, mode="eval").body:
                case ast.Name() if view in self.moved and tuple(self.prelude[-1][-2:]) == self.moved[view][1]:
                    del self.prelude[-1][-2:]
                    return self.moved[view][0]
                case node:
                    fact = self.scope.facts.get(_viewed_name(node))
                    in_sbuf = isinstance(fact, TensorFact) and fact.memory == SBUF and not fact.blocks
                    return view if in_sbuf and not is_backwards(view) else ""
        return ""

    def run_if(self, condition: str, texts: list[str]) -> list[str]:
        """Return statements that run only if a condition holds, with the copies of rows that they alone read, since
        there may be no rows if it does not hold."""
        copies: list[str] = []
        front = self.prelude[-1]
        for rows, (_, statements) in self.moved.items() if condition else ():
            other_statements = [s for s in front if s not in statements]
            is_read = any(rows in names_read(MARK.sub("_", s)) for s in other_statements)
            if len(other_statements) < len(front) and not is_read:
                copies += statements
                front[:] = other_statements
        return super().run_if(condition, [*copies, *texts])

    def shape_text(self, tensor: TensorFact, like: str) -> str:
        """Return the text of a tile's shape."""
        if tensor.shape is not None and "?" not in tensor.shape:
            return self.tuple_text(tensor.shape)
        fact = self.scope.facts.get(like)
        is_same = isinstance(fact, TensorFact) and fact.shape == tensor.shape
        if tensor.shape is not None and like and {*tensor.shape} != {"?"} and not is_same:
            return self.tuple_text([f"{terms.factor(like)}.shape[{k}]" if s == "?" else s
                                    for k, s in enumerate(tensor.shape)])
        return f"{terms.factor(like)}.shape"

    def tuple_text(self, sizes: Sequence[str]) -> str:
        """Return sizes as a tuple, or as the shape of a tensor if they are all of its dimensions."""
        name = sizes[0].removesuffix(".shape[0]") if sizes else ""
        fact = self.scope.facts.get(name)
        is_shape = isinstance(fact, TensorFact) and fact.rank == len(sizes) and not fact.blocks
        if is_shape and list(sizes) == [f"{name}.shape[{k}]" for k in range(len(sizes))]:
            return f"{name}.shape"
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def operand(self, text: str, tensor: TensorFact) -> tuple[str, TensorFact]:
        """Return the operand of an instruction: a copy of the rows if they begin where no engine can start."""
        if (parts := self._rows_of_pattern(text)) is not None:
            return self._with_pattern(self.operand(*parts[:2])[0], parts[2]), tensor
        if not is_between(text, tensor):
            self._report_unknown_row(text)
            return text, tensor
        view = ast.parse(text, mode="eval").body
        match view:
            case ast.Subscript(value=ast.Call(func=ast.Attribute(attr=name)) as call) if name in NEW_TILES:
                tile = ast.get_source_segment(text, call) or ""
                text = self.named(tile, "operand") + text.removeprefix(tile)
        rows = self._rows(text, tensor)
        self.prelude[-1].append(f"{self.nisa}.dma_copy(dst={rows}, src={text})")
        self.moved[rows] = text, tuple(self.prelude[-1][-2:])
        return rows, tensor

    def _report_unknown_row(self, text: str) -> None:
        if self.may_start_between([text]):
            self.report.changed(self.line, UNKNOWN_ROW)

    def updated(self, text: str, tensor: TensorFact) -> tuple[str, list[str]]:
        """Return the view that an instruction updates, and the statements after the instruction: those of a copy of the
        rows if they begin where no engine can start."""
        rows, _ = self.operand(text, tensor)
        return rows, [f"{self.nisa}.dma_copy(dst={text}, src={rows})"] if rows != text else []

    def destination(self, text: str, tensor: TensorFact, write: Callable[[str], Sequence[str]]) -> list[str]:
        """Return the statements that write a view; ``write`` returns those for the text of a destination."""
        texts = list(write(text))
        if all(line.startswith(f"{self.nisa}.dma_") for line in texts):
            return texts
        if (parts := self._rows_of_pattern(text)) is not None:
            view, tile, pattern = parts
            rows, after = self.updated(view, tile)
            return [*write(self._with_pattern(rows, pattern)), *after]
        if not is_between(text, tensor):
            self._report_unknown_row(text)
            return texts
        rows = self._rows(text, tensor)
        return [*write(rows), f"{self.nisa}.dma_copy(dst={text}, src={rows})"]

    @staticmethod
    def _with_pattern(rows: str, pattern: str) -> str:
        """Return an access pattern of a tile, in whose text ``_`` is the tile."""
        return f"{rows}.ap({pattern})".replace("_.strides", f"{rows}.strides")

    def _rows_of_pattern(self, text: str) -> tuple[str, TensorFact, str] | None:
        """Return the rows of a tile that an access pattern touches, and the pattern in these rows, whose tile is ``_``,
        if it begins at a row where no engine can start; None for other texts."""
        with suppress(SyntaxError):
            match ast.parse(text, mode="eval").body:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="ap"), args=[ast.List(elts=[ast.List(
                        elts=[step, ast.Constant(value=int(count))]), *other_dims]) as pattern],
                              keywords=[ast.keyword(arg="offset", value=offset)]):
                    first, start = self._first_row(name, step, other_dims, offset)
                    fact, view = self.scope.facts.get(name), f"{name}[{first}:{first + count}]"
                    if first > 0 and isinstance(fact, TensorFact) and fact.shape is not None and not (
                            fact.blocks) and is_between(view, fact):
                        tile = fact.like((str(count), *fact.shape[1:]))
                        in_rows = f"{ast.unparse(pattern)}, offset={start}"
                        return view, tile, re.sub(rf"\b{name}\.strides\b", "_.strides", in_rows)
        return None

    def _first_row(self, name: str, step: ast.expr, other_dims: Sequence[ast.expr], offset: ast.expr
                   ) -> tuple[int, str]:
        """Return the row at which an access pattern of a tile begins, and the offset in this row; 0 for the row if the
        text does not show it. ``step`` is the pattern's step from row to row."""
        fact, stride = self.scope.facts.get(name), f"{name}.strides[0]"
        if ast.unparse(step) == stride and all(stride not in ast.unparse(dim) for dim in other_dims):
            first, other_summands = _rows_and_summands(offset, stride) or (0, [])
            return first, " + ".join(other_summands) or "0"
        row, least = terms.number(ast.unparse(step)) or 0, _least(ast.unparse(offset), other_dims)
        dims = fact.shape[1:] if isinstance(fact, TensorFact) and fact.shape else ()
        if row <= 0 or least is None or terms.product(dims) != str(row):
            return 0, ""
        return least // row, terms.simplified(f"{ast.unparse(offset)} - {least // row * row}")

    def via_new_tile(self, dst: str, dst_fact: TensorFact, write: Callable[[str], list[str]]) -> list[str]:
        """Return the statements that ``write`` returns for a destination, or for a new tile that is then copied, where
        they would read what they overwrite."""
        texts = write(dst)
        if dst_fact.shape is None or not reads_shifted(dst, texts):
            return texts
        name = self.fresh_name("shifted")
        self.report.changed(self.line, SHIFTED)
        return [f"{name} = {self.nl}.ndarray({self.shape_text(dst_fact, dst)}, dtype={dst.partition('[')[0]}.dtype, "
                f"buffer={self.nl}.sbuf)", *write(name), *self.of_expression(dst, dst_fact, name, dst_fact.dtype)]

    def _rows(self, text: str, tensor: TensorFact) -> str:
        """Return the name of a new tile for the rows of a view."""
        if tensor.memory == PSUM:
            raise LeftForAPerson("rows of PSUM from a partition at which no engine starts")
        rows = self.fresh_name("rows")
        self.prelude[-1].append(f"{rows} = {self.nl}.ndarray({self.shape_text(tensor, text)}, "
                                f"dtype={text.partition('[')[0]}.dtype, buffer={self.nl}.sbuf)")
        self.report.changed(self.line, REASON)
        return rows
