# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites elementwise operations of beta kernels as functions of ``nl`` or as instructions with a destination.

    nl.divide(x, total)       nl.multiply(x, nl.reciprocal(total).broadcast(1, 512))
    x / 3                     nl.multiply(x, 1 / 3)

``nl.divide`` of the current generation runs only in the simulator.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import libcst as cst

from nki_mlir.language.functions import BITWISE, MODULI, UNARY, VERDICTS
from nki_mlir.migration import terms
from nki_mlir.migration.added_functions import NUMBER, QUOTIENT, ROWS
from nki_mlir.migration.expressions import LeftForAPerson
from nki_mlir.migration.facts import PSUM, SBUF, Fact, IndexFact, MaskFact, NumberFact, TensorFact, Unknown, promoted
from nki_mlir.migration.operand_masks import OperandMasks
from nki_mlir.migration.operation_text import BinaryOperation, EarlierOperation, OperationText, name_of_operand
from nki_mlir.migration.view_parts import part_of
from nki_mlir.migration.views import bound_of, masked

COMMUTE = {"add", "multiply", "maximum", "minimum", "equal", "not_equal", "logical_and", "logical_or", "logical_xor",
           "bitwise_and", "bitwise_or", "bitwise_xor"}
SATURATING = {"add", "subtract", "multiply", "maximum", "minimum"}
SMALL = 1 << 15                 # a product of such a number and a 16-bit integer fits into int32
NO_INSTRUCTION = {"divide", "mod", "fmod", "power"}         # operators that tensor_tensor lacks
FLOAT32 = "nl.float32"
NARROW = {f"nl.{n}" for n in ("bool_", "int8", "uint8", "int16", "uint16")}  # an integer operand turns them into int32
INTEGERS = NARROW | {"nl.int32", "nl.uint32"}
ACTIVATIONS = {"square", "abs", "sign", "relu", "sigmoid", "tanh", "softplus", "mish", "silu", "silu_dx", "gelu",
               "gelu_dx", "gelu_apprx_tanh", "gelu_apprx_sigmoid", "erf", "erf_dx", "exp", "log", "sin", "arctan",
               "sqrt", "rsqrt"}
ROUNDING = {"floor", "ceil", "trunc"}
FLOATING = {*UNARY} - ROUNDING - {"invert", "negative", "logical_not", "relu", "square", "sign", "abs"}
INVERTED = "the quotient becomes a product with a reciprocal, because devices do not divide tiles"
ASSUMED_ALIKE = ("the text does not show the shapes of both tiles, which must be the same: repeat a smaller one by "
                 "nl.broadcast_to")
EXACT = "nl.divide stays, because its quotients are exact; devices do not have it"
Operand = tuple[str, Fact]      # the text of an operand, and the fact about it
WriteTo = Callable[[str, TensorFact], list[str]]


class ElementwiseTexts(OperandMasks):
    """The part of the rewriter for elementwise operations of tiles. ``broadcasts``: tensors have the methods
    ``broadcast`` and ``expand_dim``, as in newer releases. ``exact_quotients``: they stay ``nl.divide``."""

    broadcasts, exact_quotients = True, False

    def in_one_shape(self, left: tuple[str, TensorFact], right: tuple[str, TensorFact]) -> tuple[str, str, TensorFact]:
        """Return the texts of two operands in one shape, and the fact with that shape."""
        (a, first), (b, second) = left, right
        if first.shape is None or second.shape is None:
            for narrow, wide in ((left, right), (right, left)):
                if narrow[1].shape is not None and wide[1].shape is None and narrow[1].rank == 2 and (
                        narrow[1].shape[0] == "1" != narrow[1].shape[1]):
                    return self.row_alike(left, right, narrow is left)
                if narrow[1].shape is not None and wide[1].shape is None and "1" in narrow[1].shape[1:]:
                    text = self.repeated_like(*narrow, named := self.wide_operand(wide[0]))
                    return (text, named, second) if narrow is left else (named, text, first)
                if narrow[1].shape is None and wide[1].shape is not None and "1" not in wide[1].shape:
                    named = self.wide_operand(wide[0]) if "?" in wide[1].shape else wide[0]
                    tile = f"{ROWS}({narrow[0]})" if narrow[1].base and wide[1].rank == 2 else narrow[0]
                    text = f"{self.nl}.broadcast_to({tile}, {self.shape_text(wide[1], named)})"
                    return (text, named, second) if narrow is left else (named, text, first)
            self.report.changed(self.line, ASSUMED_ALIKE)
            return a, b, first if first.shape is not None else second
        a, first = self.column(a, first, len(second.shape))
        b, second = self.column(b, second, len(first.shape or ()))
        assert first.shape is not None and second.shape is not None
        if len(first.shape) != len(second.shape):
            raise LeftForAPerson(f"operands of {len(first.shape)} and {len(second.shape)} dimensions")
        a, first = self.shortened(a, first, second)
        b, second = self.shortened(b, second, first)
        assert first.shape is not None and second.shape is not None
        shape = tuple(y if x == "1" or (x == "?" and y != "1") else x for x, y in zip(first.shape, second.shape))
        if "?" in shape:                        # the text has the shape of the other operand: it is computed once
            a, b = (self.wide_operand(text) if "1" in (other.shape or ()) else text
                    for text, other in ((a, second), (b, first)))
        return self.stretched(a, first, shape, b), self.stretched(b, second, shape, a), first.like(shape)

    def wide_operand(self, text: str) -> str:
        """Return the name of an operand that gives the other operand its shape: a new name for an expression."""
        return self.named(text, name_of_operand(text, self.nl))

    def repeated_like(self, text: str, narrow: TensorFact, wide: str) -> str:
        """Return a tile with axes of one element, repeated to the shape of a tile that the text does not show."""
        if self.broadcasts and narrow.shape is not None and narrow.shape[0] != "1" == narrow.shape[1] and (
                narrow.rank == 2):
            return f"{text}.broadcast(1, {wide}.shape[1])"
        return f"{self.nl}.broadcast_to({text}, {wide}.shape)"

    def row_alike(self, left: tuple[str, TensorFact], right: tuple[str, TensorFact], is_left: bool
                  ) -> tuple[str, str, TensorFact]:
        """Return a row and a tile of unknown shape, which may be a column, in one shape, and the fact with it."""
        (row, fact), (text, tile) = (left, right) if is_left else (right, left)
        assert fact.shape is not None
        text = self.named(text, "tile")
        shape = (f"{text}.shape[0]", fact.shape[1])
        self.report.changed(self.line, "the tiles are broadcast to the same shape first")
        row, text = (f"{self.nl}.broadcast_to({t}, {self.tuple_text(shape)})" for t in (row, text))
        return (row, text, fact.like(shape)) if is_left else (text, row, tile.like(shape))

    def column(self, text: str, tensor: TensorFact, rank: int) -> tuple[str, TensorFact]:
        """Return a column with the number of dimensions of the other operand; other tiles stay unchanged."""
        if tensor.shape is None or len(tensor.shape) != 2 or tensor.shape[1] != "1" or rank <= 2:
            return text, tensor
        more = range(2, rank)
        if not self.broadcasts:
            for k in more:
                text = f"{self.nl}.expand_dims({text}, {k})"
            return text, tensor.like((*tensor.shape, *("1" for _ in more)))
        return text + "".join(f".expand_dim({k})" for k in more), tensor.like((*tensor.shape, *("1" for _ in more)))

    def counts(self) -> set[str]:
        """Return the names of sizes that a mask has cut."""
        return {*self.scope.counts.values(), *self.scope.cut_sizes}

    def shortened(self, text: str, tensor: TensorFact, other: TensorFact) -> tuple[str, TensorFact]:
        """Return the part of a tile that remains when a mask cuts the other operand."""
        assert tensor.shape is not None and other.shape is not None
        counts = self.counts()
        shape = tuple(y if (y in counts and x not in counts and x != "1") or 1 < (terms.number(y) or 0) < (
            terms.number(x) or 0) else x for x, y in zip(tensor.shape, other.shape))
        if shape == tensor.shape:
            return text, tensor
        items = [":" if x == y else f"0:{y}" for x, y in zip(tensor.shape, shape)]
        integers = {name for name, fact in self.scope.facts.items() if fact == NumberFact("int")}
        return part_of(text, items, integers), tensor.like(shape)

    def stretched(self, text: str, tensor: TensorFact, shape: tuple[str, ...], like: str = "") -> str:
        """Return a tile repeated along its dimensions of one element."""
        assert tensor.shape is not None
        axes = [k for k, (extent, size) in enumerate(zip(tensor.shape, shape)) if extent == "1" != size]
        if not axes:
            return text
        self.report.changed(self.line, "the tiles are broadcast to the same shape first")
        shape = tuple(f"{terms.factor(like)}.shape[{k}]" if s == "?" and like else s for k, s in enumerate(shape))
        if 0 in axes or not self.broadcasts:
            return f"{self.nl}.broadcast_to({text}, {self.tuple_text(shape)})"
        return text + "".join(f".broadcast({k}, {shape[k]})" for k in axes)

    def viewed(self, node: cst.CSTNode, mask: MaskFact | None = None) -> tuple[str, TensorFact]:
        """Return the text and the fact of an operand under a mask, which also cuts a view that the operand repeats."""
        source = self.repeated_views.get(id(node))
        if source is None or mask is None:
            return super().viewed(node, mask)
        text, part = super().viewed(source, mask)
        _, fact = masked("tile", super().viewed(node)[1], mask)
        if part.shape is None or fact.shape is None or len(part.shape) != len(fact.shape):
            return super().viewed(node, mask)
        return self.stretched(text, part, fact.shape), fact

    def repeated(self, dst: str, dst_fact: TensorFact, result: OperationText, texts: list[str], tile: Callable[[], str]
                 ) -> list[str]:
        """Return the statements that write a result along axes on which it has one element. ``texts`` would write it
        without repeating it: a copy repeats its source, the tile of other results is computed first."""
        shape = dst_fact.shape or ()
        for before in (f"{self.nisa}.{move}(dst={dst}, src=" for move in ("tensor_copy", "dma_copy")):
            if len(texts) == 1 and texts[0].startswith(before):
                source = terms.factor(texts[0].removeprefix(before)[:-1])
                return [f"{before}{self.stretched(source, result.fact, shape, dst)})"]
        return [f"{self.nisa}.tensor_copy(dst={dst}, src={self.stretched(tile(), result.fact, shape, dst)})"]

    def operands(self, nodes: Sequence[cst.BaseExpression], mask: MaskFact | None) -> list[Operand]:
        """Return the texts and facts of operands that are tiles or numbers."""
        if any(isinstance(self.fact(n), Unknown) for n in nodes):
            raise LeftForAPerson("an operand that may or may not be a tile: the text does not show it")
        views = [self.viewed(n, mask) if isinstance(self.fact(n), TensorFact) else None for n in nodes]
        for k, (view, other) in enumerate(zip(views, views[::-1])):
            if mask is not None and view is not None and other is not None:
                views[k] = self.cut_after_broadcast(nodes[k], view, other[1], mask)
        return [self.operand(*view) if view is not None else (self.text(n), self.fact(n))
                for n, view in zip(nodes, views)]

    def cut_after_broadcast(self, node: cst.BaseExpression, view: tuple[str, TensorFact], other: TensorFact,
                            mask: MaskFact) -> tuple[str, TensorFact]:
        """Return an operand that may have one column, or the number of columns that the other operand had before the
        mask. It is broadcast to that number before a slice leaves the columns that the mask selects."""
        fact, bound = self.fact(node), bound_of(mask, -1)
        extents = [c.index.axes[-1].extent for c in mask.comparisons if c.varying == [-1]]
        if bound is None or not extents or not isinstance(fact, TensorFact) or fact.rank != 2 or other.rank != 2:
            return view
        assert fact.shape is not None and other.shape is not None
        is_known = fact.shape[1] in (extents[0], bound.high, "?") or terms.number(fact.shape[1]) is not None
        if is_known or other.shape[1] != bound.high or fact.shape[0] == "?":
            return view
        wide = f"{self.nl}.broadcast_to({self.without_marks(self.code(node))}, ({fact.shape[0]}, {extents[0]}))"
        return masked(wide, fact.like((fact.shape[0], extents[0])), mask)

    def binary(self, name: str, left: cst.BaseExpression, right: cst.BaseExpression, dtype: str = "",
               meaning: str = "", mask: MaskFact | None = None) -> OperationText:
        """Return an operation on two tiles, or on a tile and a number."""
        if name in MODULI:                      # no device has these operators
            self.report.changed(self.line, f"nl.{name} stays; the current generation has it in the simulator alone")
        steps = [self.step(node) for node in (left, right)]
        first, second = self.operands((left, right), mask)
        result = self.quotient(first, second, dtype, meaning) if name == "divide" else None
        return result or self.in_one(self.computed(name, first, second, dtype, meaning), name, steps,
                                     (first, second))

    def step(self, node: cst.BaseExpression) -> EarlierOperation | None:
        """Return the operation with a number or a column that computes a node, unless a mask or a condition restricts
        it."""
        result = self.result(node)
        if result is None or result.condition or result.part or result.mask is not None:
            return None
        return result.step

    def in_one(self, result: OperationText, name: str, steps: Sequence[EarlierOperation | None],
               operands: Sequence[Operand]) -> OperationText:
        """Return an operation, one operand of which is an operation with a number or a column, such as ``acc * factor +
        product``, as one instruction that writes the result into a destination."""
        for k, (step, (_, inner), (text, fact)) in enumerate(zip(steps, operands, operands[::-1])):
            if step is None or not isinstance(inner, TensorFact) or not isinstance(fact, TensorFact):
                continue
            is_alike = fact.shape is not None and "?" not in fact.shape and fact.shape == inner.shape == step.tile.shape
            in_psum = step.tile.memory == fact.memory == PSUM
            if is_alike and not in_psum and name not in {*NO_INSTRUCTION, *BITWISE}:
                result.write_to = self.write_both(step, name, text, k == 1, result.write_to)
                break
        return result

    def write_both(self, first: EarlierOperation, name: str, operand: str, is_second: bool, apart: WriteTo | None
                   ) -> WriteTo:
        """Return a function that writes two operations as one ``scalar_tensor_tensor`` where ``apart`` writes the
        second as one ``tensor_tensor``; otherwise it returns the texts of ``apart``, for example if these convert the
        result."""
        reverse = [", reverse0=True" * first.is_reversed, ", reverse1=True" * (is_second and name not in COMMUTE)]

        def write_to(dst: str, target: TensorFact) -> list[str]:
            texts = apart(dst, target) if apart is not None else []
            if len(texts) != 1 or f".tensor_tensor(dst={dst}" not in texts[0]:
                return texts
            return [f"{self.nisa}.scalar_tensor_tensor(dst={dst}, data={first.data}, op0={self.nl}.{first.name}, "
                    f"operand0={terms.without_parentheses(first.operand)}{reverse[0]}, op1={self.nl}.{name}, "
                    f"operand1={terms.without_parentheses(operand)}{reverse[1]})"]
        return write_to

    def computed(self, name: str, left: Operand, right: Operand, dtype: str = "", meaning: str = "") -> OperationText:
        """Return the operation ``name`` of operands whose texts are known."""
        pair, nl = (left, right), self.nl
        tiles = [(text, tensor) for text, tensor in pair if isinstance(tensor, TensorFact)]
        operation, common_dtype = (self.of_tiles if len(tiles) == 2 else self.with_number)(name, pair, dtype, meaning)
        fact, tiles, dtype, meaning = operation.fact, operation.tiles, operation.dtype, operation.meaning
        if name == "power" and len(tiles) == 1 and isinstance(left[1], TensorFact) and terms.literal(right[0]) == 2:
            return self.function_of("square", operation.first, fact, dtype, meaning)
        if name in VERDICTS and not operation.explicit:
            dtype, meaning = f"{nl}.bool_", "nl.bool_"
        floating = (not dtype or meaning == " ") and any(tensor.is_float for _, tensor in tiles)
        result = replace(fact.like(fact.shape, meaning or dtype or common_dtype or " "), floating=floating)
        wide = tiles[0][0]
        if len(tiles) == 2 and tiles[0][1].shape is not None and "1" in tiles[0][1].shape:
            wide = tiles[1][0]
        first, second = terms.without_parentheses(operation.first), terms.without_parentheses(operation.second)
        operation = operation._replace(first=first, second=second, dtype=dtype, meaning=meaning)
        is_small = any(abs(terms.number(text) or SMALL) < SMALL for text in (first, second))
        narrow = (f"{nl}.{name}({first}, {second})", fact.dtype) if (
            is_small and name in SATURATING and NUMBER in dtype and len(tiles) == 1) else ("", "")
        return OperationText(self.on_chip(result), f"{nl}.{name}({first}, {second}{operation.dtype_argument})",
                             self.write_binary(operation, pair, result.dtype), self.shape_text(result, wide),
                             dtype or common_dtype, name, step=self.step_of(name, pair, result), narrow=narrow)

    def of_tiles(self, name: str, pair: tuple[Operand, Operand], dtype: str, meaning: str
                 ) -> tuple[BinaryOperation, str]:
        """Return an operation of two tiles, and the dtype that it has without ``dtype``; empty if unknown."""
        tiles = [(text, tensor) for text, tensor in pair if isinstance(tensor, TensorFact)]
        first, second, fact = self.in_one_shape(*tiles)
        explicit, common_dtype = bool(dtype), promoted(*(tensor.dtype for _, tensor in tiles))
        if name == "divide" and not dtype and not common_dtype.startswith("nl.float"):
            common_dtype = ""
        if not dtype and name not in {*VERDICTS, "divide"} and all(t.dtype == "nl.bool_" for _, t in tiles):
            dtype, meaning, explicit = f"{self.nl}.uint8", "nl.uint8", True
        return BinaryOperation(name, first, second, tiles, fact, dtype, meaning, explicit), common_dtype

    def with_number(self, name: str, pair: tuple[Operand, Operand], dtype: str, meaning: str
                    ) -> tuple[BinaryOperation, str]:
        """Return an operation of a tile and a number, and the tile's dtype."""
        first, second = pair[0][0], pair[1][0]
        is_first = isinstance(pair[0][1], TensorFact)
        tile, number = pair if is_first else pair[::-1]
        fact, explicit = tile[1], bool(dtype)
        assert isinstance(fact, TensorFact)
        if isinstance(number[1], IndexFact):
            raise LeftForAPerson("an index as an operand: use nisa.iota")
        text = tile[0]
        if not dtype and name not in VERDICTS:
            text, dtype, meaning = self.number_dtype(tile, number, name)
            first, second = (text, second) if is_first else (first, text)
        return BinaryOperation(name, first, second, [(text, fact)], fact, dtype, meaning, explicit), fact.dtype

    def write_binary(self, operation: BinaryOperation, pair: tuple[Operand, Operand], result_dtype: str) -> WriteTo:
        """Return a function that writes an operation into a destination: by one instruction, or by a copy of its result
        if no instruction computes it or converts to the destination's dtype."""
        name, first, second, tiles, fact, _, _, explicit = operation
        nl, nisa = self.nl, self.nisa
        on_gpsimd = name == "power" and len(tiles) == 1         # GpSimd has no access to PSUM

        def write_to(dst: str, target: TensorFact) -> list[str]:
            has_instruction = name not in NO_INSTRUCTION or (on_gpsimd and target.memory == SBUF)
            converts = name in BITWISE and len({result_dtype.strip() or "?", target.dtype, *(
                tensor.dtype for _, tensor in tiles)}) > 1                                      # no instruction does
            if not has_instruction or converts or (explicit and operation.written_dtype != target.dtype):
                kept_dtype = target.dtype if self.plain(target) else f"{dst}.dtype"
                dtype_of_copy = operation.dtype_argument if explicit else f", dtype={kept_dtype}"
                return [f"{nisa}.tensor_copy(dst={dst}, src={nl}.{name}({first}, {second}{dtype_of_copy}))"]
            column = self.column_of(tiles) if len(tiles) == 2 else None
            if len(tiles) == 2 and column is None:
                return [f"{nisa}.tensor_tensor(dst={dst}, data1={first}, data2={second}, op={nl}.{name})"]
            in_order = isinstance(pair[0][1], TensorFact) if column is None else column == 1
            operands = (first, second) if column is None else (
                terms.without_parentheses(pair[0][0]), terms.without_parentheses(pair[1][0]))
            data, operand = operands if in_order else operands[::-1]
            data = f"{nl}.copy({data})" if on_gpsimd and fact.memory != SBUF else data
            swapped = "" if in_order or name in COMMUTE else ", reverse0=True"
            return [f"{nisa}.tensor_scalar(dst={dst}, data={data}, op0={nl}.{name}, operand0={operand}{swapped})"]
        return write_to

    def number_dtype(self, tile: Operand, number: Operand, name: str) -> tuple[str, str, str]:
        """Return the text of a tile, which is a variable if the dtype names it, and the text and the meaning of the
        dtype of its operation ``name`` with a number; both are empty if the operation has that dtype without it."""
        (text, fact), (shown, other) = tile, number
        assert isinstance(fact, TensorFact)
        kind = "int" if name in BITWISE else other.kind if isinstance(other, NumberFact) else ""
        if name == "divide" and fact.dtype in INTEGERS:
            return text, "", ""
        if fact.dtype in NARROW and kind == "int":
            return text, f"{self.nl}.int32", "nl.int32"
        if fact.dtype == "nl.uint32" and name not in BITWISE:
            return text, f"{self.nl}.float32", FLOAT32
        if fact.dtype == FLOAT32 or (kind == "int" and (fact.is_float or self.plain(fact))):
            return text, "", ""
        if kind == "float":
            return text, f"{self.nl}.float32", FLOAT32
        if name == "divide":
            text = self.named(text, "tile")
            return text, f"{QUOTIENT}({text}, {terms.without_parentheses(shown)})", " "
        if self.plain(fact):
            dtype = fact.dtype.replace("nl.", f"{self.nl}.", 1)
        elif fact.dtype.strip() and self.stable(fact.dtype):
            dtype = fact.dtype
        else:
            text = self.named(text, "tile")
            dtype = f"{text}.dtype"
        return text, f"{NUMBER}({dtype}, {terms.without_parentheses(shown)})", " "

    def step_of(self, name: str, pair: Sequence[Operand], result: TensorFact) -> EarlierOperation | None:
        """Return an operation of a tile with a number or a column of float32, if an instruction computes it in float32;
        else None."""
        tiles = [(text, tensor) for text, tensor in pair if isinstance(tensor, TensorFact)]
        number = next((k for k, (_, fact) in enumerate(pair) if not isinstance(fact, TensorFact)), None)
        if number is None:
            number = self.column_of(tiles)
            if number is None and all(tensor.shape is not None and tensor.shape[1:] == ("1",) and (
                    tensor.shape[0] != "?") and tensor.dtype == FLOAT32 for _, tensor in tiles):
                number = 1
        if number is None or result.dtype != FLOAT32 or name in {*NO_INSTRUCTION, *BITWISE, *VERDICTS}:
            return None
        (data, tensor), (operand, _) = pair[1 - number], pair[number]
        if not isinstance(tensor, TensorFact) or tensor.shape != result.shape:      # a mask leaves only a part of it
            return None
        return EarlierOperation(name, data, operand, tensor, number == 0 and name not in COMMUTE)

    @staticmethod
    def column_of(pair: Sequence[tuple[str, TensorFact]]) -> int | None:
        """Return which of two operands is a column of float32, which ``tensor_scalar`` accepts; None if neither is."""
        (first, second), shapes = pair, [tensor.shape for _, tensor in pair]
        for k, (column, other) in enumerate(zip(shapes, shapes[::-1])):
            if column is None or other is None or len(column) != 2 or len(other) < 2 or column[1] != "1":
                continue
            is_column = "?" not in (*column, *other) and other[1] != "1" and column[0] == other[0]
            return k if is_column and (first, second)[k][1].dtype == FLOAT32 else None
        return None

    # -- quotients -----------------------------------------------------------------------------------------------------
    def quotient(self, left: Operand, right: Operand, dtype: str, meaning: str) -> OperationText | None:
        """Return a quotient as a product with a reciprocal, because no device divides tiles. None for integers, whose
        quotients must be exact."""
        (x, first), (y, second), shown = left, right, ""
        tiles = [fact for fact in (first, second) if isinstance(fact, TensorFact)]
        if self.must_be_exact(*tiles, dtype=meaning):
            return None
        if not dtype:
            left, right, shown = self.beta_dtype(left, right)
            (x, _), (y, _) = left, right
        number = next((fact for fact in (first, second) if isinstance(fact, NumberFact)), NumberFact())
        floats = all(tile.is_float for tile in tiles)
        if not isinstance(second, TensorFact):
            kind = number.kind if floats and not shown else "float"
            result = self.computed("multiply", left, (terms.inverse(y), NumberFact(kind)), dtype, meaning)
        elif isinstance(first, TensorFact):
            keeps = not dtype and floats and first.dtype == second.dtype != FLOAT32     # the reciprocal is float32
            x = self.named(x, "dividend") if keeps and not self.plain(first) else x
            result = self.computed("multiply", (x, first), self.reciprocal(y, second), dtype, meaning)
            if keeps:
                narrow = first.dtype.replace("nl.", f"{self.nl}.", 1) if self.plain(first) else f"{x}.dtype"
                result.expression = f"{result.expression[:-1]}, dtype={narrow})"
                result.dtype, result.fact = narrow, result.fact.like(result.fact.shape, first.dtype or " ")
        elif terms.literal(x) == 1:
            wide = not dtype and second.dtype != FLOAT32 and not (floats and number.kind == "int")
            result = self.function_of("reciprocal", y, second, f"{self.nl}.float32" if wide else dtype,
                                   FLOAT32 if wide else meaning)
        else:
            narrow = second.dtype if self.plain(second) and second.dtype != FLOAT32 and number.kind == "int" else ""
            result = self.computed("multiply", self.reciprocal(y, second), (x, NumberFact(number.kind)),
                                   dtype or narrow.replace("nl.", f"{self.nl}.", 1), meaning or narrow)
        if shown:
            expression = re.sub(rf", dtype={self.nl}\.float32\)$", ")", result.expression)
            result.expression, result.dtype = f"{expression[:-1]}, dtype={shown})", shown
            result.fact = result.fact.like(result.fact.shape, " ")
        result.name, result.exact = "quotient", lambda: self.exact(left, right, dtype, meaning)
        return result

    def beta_dtype(self, left: Operand, right: Operand) -> tuple[Operand, Operand, str]:
        """Return the operands of a quotient, and the text of the dtype that it has in the beta generation if the text
        does not show that; the tile that the text names is a variable then."""
        pair = [left, right]
        at, *second_tiles = [k for k, (_, fact) in enumerate(pair) if isinstance(fact, TensorFact)]
        text, fact = pair[at]
        assert isinstance(fact, TensorFact)
        if any(tile.dtype == FLOAT32 for _, tile in pair if isinstance(tile, TensorFact)):
            return left, right, ""
        number, other = pair[1 - at]
        argument = ""
        if isinstance(other, TensorFact):
            if not fact.dtype or fact.dtype != other.dtype:
                self.report.changed(self.line, "the quotient is float32, because the text does not show the dtypes")
                return left, right, ""
            if fact.is_float and other.is_float:
                return left, right, ""
        else:
            kind = other.kind if isinstance(other, NumberFact) else ""
            if kind == "float" or (kind == "int" and fact.is_float):
                return left, right, ""
            argument = "" if kind == "int" and not number.isidentifier() else f", {terms.without_parentheses(number)}"
        pair[at] = self.named(text, "tile"), fact
        if second_tiles and number == text:
            pair[1] = pair[0]
        return pair[0], pair[1], f"{QUOTIENT}({pair[at][0]}{argument})"

    def must_be_exact(self, *facts: Fact, dtype: str = "") -> bool:
        """Return whether a quotient of values with these facts, in that dtype, stays: one of integers, or any."""
        is_exact = self.exact_quotients or dtype in INTEGERS or any(
            isinstance(f, TensorFact) and f.dtype in INTEGERS for f in facts)
        self.report.changed(self.line, EXACT if is_exact else INVERTED)
        return is_exact

    def exact(self, left: Operand, right: Operand, dtype: str = "", meaning: str = "") -> OperationText:
        """Return a quotient that is rounded once, which the simulator computes."""
        self.report.changed(self.line, EXACT)
        return self.computed("divide", left, right, dtype, meaning)

    def reciprocal(self, text: str, tensor: TensorFact) -> tuple[str, TensorFact]:
        """Return the reciprocal of a tile in float32."""
        wide = "" if tensor.dtype == FLOAT32 else f", dtype={self.nl}.float32"
        return f"{self.nl}.reciprocal({text}{wide})", self.on_chip(tensor.like(tensor.shape, FLOAT32))

    def unary(self, name: str, node: cst.BaseExpression, dtype: str = "", meaning: str = "",
              mask: MaskFact | None = None) -> OperationText:
        """Return a function of a tile's elements."""
        result = self.result(node)
        if name in ROUNDING and result is not None and result.exact is not None:
            result.expression = result.exact().expression
        if isinstance(self.fact(node), TensorFact):
            return self.function_of(name, *self.operand(*self.viewed(node, mask)), dtype, meaning)
        return self.function_of(name, self.text(node), TensorFact(SBUF), dtype, meaning)

    def function_of(self, name: str, text: str, fact: TensorFact, dtype: str = "", meaning: str = "") -> OperationText:
        """Return that function of an operand whose text is known."""
        dtype_argument = f", dtype={dtype}" if dtype else ""
        if name == "logical_not" and not dtype:
            dtype, meaning = f"{self.nl}.bool_", "nl.bool_"
            dtype_argument = f", dtype={dtype}"
        if name == "rsqrt" and fact.memory == "psum":
            text = f"{self.nl}.copy({text})"
        result = self.on_chip(fact.like(fact.shape, meaning or dtype or fact.dtype))
        result = replace(result, floating=not dtype and (fact.floating or name in FLOATING))

        def write_to(dst: str, target: TensorFact) -> list[str]:
            if name in ACTIVATIONS and not (dtype_argument and (meaning or dtype) != target.dtype):
                return [f"{self.nisa}.activation(dst={dst}, op={self.nl}.{name}, data={text})"]
            if name == "negative" and fact.is_float and not (dtype_argument and (meaning or dtype) != target.dtype):
                return [f"{self.nisa}.tensor_scalar(dst={dst}, data={text}, op0={self.nl}.multiply, operand0=-1.0)"]
            dtype_of_copy = dtype_argument or f", dtype={dst}.dtype"
            return [f"{self.nisa}.tensor_copy(dst={dst}, src={self.nl}.{name}({text}{dtype_of_copy}))"]
        return OperationText(result, f"{self.nl}.{name}({text}{dtype_argument})", write_to,
                             self.shape_text(result, text), dtype or fact.dtype or f"{text}.dtype", name)

    @staticmethod
    def plain(tensor: TensorFact) -> bool:
        """Return whether the text of a dtype can be written anywhere."""
        return tensor.dtype.startswith("nl.")

    @staticmethod
    def on_chip(tensor: TensorFact) -> TensorFact:
        """Return the fact of a new tile in SBUF."""
        return replace(tensor, memory=SBUF, dtype=tensor.dtype.strip())
