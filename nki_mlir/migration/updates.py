# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites updates of tiles (such as ``+=``) as instructions whose destination is also an operand.

    acc[...] += nl.matmul(x, y, transpose_x=True)       nisa.nc_matmul(dst=acc, stationary=x, moving=y)
    tile += column                                      nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, ...)
"""

import libcst as cst

from nki_mlir.migration import terms
from nki_mlir.migration.calls import OPERATORS
from nki_mlir.migration.diagonals import from_first_row
from nki_mlir.migration.elementwise import NO_INSTRUCTION
from nki_mlir.migration.facts import PSUM, SBUF, Fact, IndexFact, Items, Many, MaskFact, TensorFact, as_many
from nki_mlir.migration.functions import FunctionCalls
from nki_mlir.migration.operation_text import OperationText
from nki_mlir.migration.product_masks import selects_box

AUGMENTED = {cst.AddAssign: cst.Add, cst.SubtractAssign: cst.Subtract, cst.MultiplyAssign: cst.Multiply,
             cst.DivideAssign: cst.Divide, cst.ModuloAssign: cst.Modulo, cst.PowerAssign: cst.Power,
             cst.BitAndAssign: cst.BitAnd, cst.BitOrAssign: cst.BitOr, cst.BitXorAssign: cst.BitXor,
             cst.LeftShiftAssign: cst.LeftShift, cst.RightShiftAssign: cst.RightShift}


class TileUpdates(FunctionCalls):
    """The part of the rewriter for the statement ``t += value``."""

    def augmented(self, node: cst.AugAssign) -> list[str] | None:
        """Rewrite t += value."""
        subscript = self.rewritten(node.target)
        fact = self.fact(subscript)
        self.updated_tile = fact if isinstance(fact, TensorFact) else None
        value = self.rewritten(node.value)
        self.updated_tile = None
        value_fact, result = self.fact(value), self.result(value)
        if not isinstance(fact, TensorFact) and not isinstance(value_fact, TensorFact):
            return self._without_tiles(node, value, fact, value_fact)
        value, mask, condition = (value, self._mask_of_update(result), result.condition) if result is not None else (
            self.selected_part(value))
        value_fact = self.fact(value)
        dst, dst_fact = self.viewed(subscript, mask) if isinstance(fact, TensorFact) else (
            self.text(subscript), TensorFact(SBUF))
        name = OPERATORS.get(AUGMENTED.get(type(node.operator), cst.FloorDivide), "")
        self.report.changed(self.line, "the update becomes an instruction whose destination is also an operand")
        if result is not None and result.product is not None and name == "add" and (
                dst_fact.memory == PSUM and selects_box(result)):
            if dst_fact.shape and result.fact.shape and len(dst_fact.shape) == len(result.fact.shape):
                dst, dst_fact = self.shortened(dst, dst_fact, result.fact)
            return self.run_if(condition, [self.without_marks(t) for t in result.product(dst)])
        if not name:
            self.reject(f"{self.code(node.operator).strip()} on a tile")
        inverted = name == "divide" and not self.must_be_exact(fact, value_fact)
        name = "multiply" if inverted else name
        rows, _ = self.operand(dst, dst_fact)
        write_back = [f"{self.nisa}.dma_copy(dst={dst}, src={rows})"] if rows != dst else []
        is_tile = isinstance(value_fact, TensorFact)
        part = result.part if result is not None else ""        # read first, because writing the value clears it
        text = self.text(value) + part
        if is_tile:
            text, source = self.operand(*(self.viewed(value) if result is None else (text, result.computed)))
            text, source = self.reciprocal(text, source) if inverted else (text, source)
            if source.shape is not None and dst_fact.shape is not None:
                text, source = self.column(text, source, len(dst_fact.shape))
                if len(source.shape or ()) != len(dst_fact.shape or ()):
                    self.reject(f"operands of {len(dst_fact.shape or ())} and {len(source.shape or ())} dimensions")
                dst, dst_fact = self.shortened(dst, dst_fact, source)               # a mask has left a smaller tile
                text, source = self.shortened(text, source, dst_fact)
                rows = self.operand(dst, dst_fact)[0] if not write_back else rows
                text = self.stretched(text, source, dst_fact.shape or (), rows)
            elif source.shape is not None and "1" in source.shape[1:]:
                text = self.repeated_like(text, source, rows)
            if dst_fact.memory == PSUM and source.memory == PSUM and name not in NO_INSTRUCTION:
                text = f"{self.nl}.copy({text})"
        elif inverted:
            text = terms.inverse(text)
        texts = self._instructions(name, rows, dst_fact, text, is_tile, mask, "" if write_back else dst)
        return self.run_if(condition, [*texts, *write_back])

    def _instructions(self, name: str, rows: str, dst_fact: TensorFact, operand: str, is_tile: bool,
                      mask: MaskFact | None, dst: str) -> list[str]:
        """Return the instructions that update ``rows`` by an operand; ``dst`` is empty if a copy of them follows."""
        nl, nisa = self.nl, self.nisa

        def write(to: str, _: TensorFact) -> list[str]:
            if name in NO_INSTRUCTION:
                return [f"{nisa}.tensor_copy(dst={to}, src={nl}.{name}({rows}, {operand}, dtype={rows}.dtype))"]
            if is_tile:
                return [f"{nisa}.tensor_tensor(dst={to}, data1={rows}, data2={operand}, op={nl}.{name})"]
            return [f"{nisa}.tensor_scalar(dst={to}, data={rows}, op0={nl}.{name}, operand0={operand})"]
        texts = self.via_new_tile(rows, dst_fact, lambda to: write(to, dst_fact))
        if dst and self.may_start_between(texts):
            expression = f"{nl}.{name}({dst}, {operand}, dtype={dst.partition('[')[0]}.dtype)"
            texts = self.of_expression(dst, dst_fact, expression, dst_fact.dtype)
        if mask is not None and mask.selects_no_box:
            texts = self.predicated(rows, dst_fact, mask, write, name)
        return texts

    def _without_tiles(self, node: cst.AugAssign, value: cst.BaseExpression, fact: Fact, value_fact: Fact) -> list[str]:
        """Return the update of a number or list, which stays unchanged."""
        if isinstance(node.target, cst.Name) and isinstance(fact, (IndexFact, MaskFact)):
            self.reject("an update of an index vector")
        if isinstance(fact, (Items, Many)) and isinstance(value_fact, (Items, Many)):
            self.extended(node.target, as_many(value_fact))
        return [f"{self.code(node.target)} {self.code(node.operator).strip()} {self.text(value)}"]

    @staticmethod
    def _mask_of_update(result: OperationText) -> MaskFact | None:
        """Return the mask of an update: that of its value, which may have more rows in the new text."""
        mask, source = result.mask, result.selected
        if mask is None or source is None or [b.axis for b in mask.bounds] != [b.axis for b in source.bounds]:
            return mask
        return from_first_row(source) if any(b.low and not a.low for a, b in zip(mask.bounds, source.bounds)) else mask
