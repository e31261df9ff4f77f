# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Covers the expression of an elementwise nest with engine instructions, the largest that fits first.

A subtree that no instruction can take as an operand becomes a buffer of its dtype, over the axes that it depends on. An
instruction is taken only if it computes in the subtree's dtype, so that the value is rounded where the expression says.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.nisa import elementwise
from nki_mlir.dialects.nisa.movement import IotaOp, MemsetOp
from nki_mlir.dialects.nki.elementwise import select_compute
from nki_mlir.dialects.op import NisaOp
from nki_mlir.machine import Engine, Work
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, UINT8, UINT16, UINT32, DType
from nki_mlir.selection.emitter import GPSIMD, SCALAR, VECTOR, Emitter
from nki_mlir.waist.expression import (
    Activation,
    Alu,
    Constant,
    Convert,
    Input,
    Node,
    Output,
    Position,
    alu,
    children,
    converted,
    operands_first,
)
from nki_mlir.waist.tile_operand import TileNest, TileOperand, walked

ON_GPSIMD = ("rsqrt", "power")          # functions that only GpSimd computes with full precision
DEEP = 32                               # most levels of an expression whose instructions are chosen together
UNSIGNED = {1: UINT8, 2: UINT16, 4: UINT32}
Candidate = tuple[type[NisaOp], Engine, dict[str, Any]]
# value, function, scalar operand, whether the operand is on the left
Step = tuple[Node, str, Node | None, bool]


class Cover:
    """One arranged nest: ``assign`` emits an expression over its axes.

    ``bring`` returns an operand on chip, its lanes on axis 0; it is called once for each operand that is read.
    """

    def __init__(self, emitter: Emitter, nest: TileNest, bring: Callable[[TileOperand], TileOperand]) -> None:
        self.emitter, self.nest, self.extents, self.bring = emitter, nest, nest.extents, bring
        self.operands: dict[Node, TileOperand] = {}            # values that are already in a buffer
        self.known_axes: dict[Node, frozenset[int]] = {}

    # -- shapes --------------------------------------------------------------------------------------------------------
    def axes(self, node: Node) -> frozenset[int]:
        """Return the free axes along which a value changes."""
        if node not in self.known_axes:
            self.known_axes[node] = self.axes_of(node)
        return self.known_axes[node]

    def axes_of(self, node: Node) -> frozenset[int]:
        free = range(1, len(self.extents))
        match node:
            case Input(index=k):
                return frozenset(a for a in free if self.nest.inputs[k].moves(a))
            case Output():
                return frozenset(a for a in free if self.nest.output.moves(a))
            case Position(form=form):
                return frozenset(a for a, _ in form.axes if a > 0)
        return frozenset().union(*map(self.axes, children(node)))

    def counts(self, axes: frozenset[int]) -> tuple[int, ...]:
        return tuple(n if a == 0 or a in axes else 1 for a, n in enumerate(self.extents))

    def narrow(self, node: Node, axes: frozenset[int]) -> bool:
        """Return whether an instruction over ``axes`` takes the value as its scalar operand: one number a partition."""
        return isinstance(node, Constant) or (bool(axes) and not self.axes(node))

    # -- values --------------------------------------------------------------------------------------------------------
    def in_parts(self, body: Node) -> "Cover":
        """Compute values inside of a deep expression first, so that the search for instructions, which goes from a
        result down to its operands, has a limit of depth."""
        depth: dict[Node, int] = {}
        for node in operands_first(body):
            depth[node] = 1 + max([depth[child] for child in children(node)], default=0)
            computed = isinstance(node, Alu | Activation) and node.dtype is not BOOL
            if depth[node] >= DEEP and computed and node is not body:
                depth[node] = 1
                self.value(node)
        return self

    def value(self, node: Node) -> TileOperand:
        """Return a buffer that has the value, in its dtype."""
        if node not in self.operands:
            match node:
                case Input(index=k):
                    self.operands[node] = self.bring(self.nest.inputs[k])
                case Output():
                    self.operands[node] = self.bring(self.nest.output)
                case _:
                    self.operands[node] = self.buffer(node.dtype, self.axes(node))
                    self.assign(node, self.operands[node].tile(self.counts(self.axes(node))), self.axes(node))
        return self.operands[node]

    def buffer(self, dtype: DType, axes: frozenset[int]) -> TileOperand:
        tile = self.emitter.buffer(self.counts(axes), dtype)
        steps = tuple(step if a in axes else 0 for a, (step, _) in enumerate(tile.access.dims))
        return walked(tile, steps, 0)

    def read(self, node: Node, compute: DType, axes: frozenset[int], widened: bool = False) -> Tile:
        """Return a tile that an instruction over ``axes``, which computes in ``compute``, reads as the value.

        Most instructions convert their operands; ``widened`` is for instructions that compute in the dtype of their
        operands.
        """
        inner = node.value if isinstance(node, Convert) and node.dtype is compute and not widened else node
        return self.value(inner).tile(self.counts(axes))

    def assign(self, node: Node, dst: Tile, axes: frozenset[int]) -> None:
        """Emit ``dst = value``; both have the same dtype."""
        inner = node.value if isinstance(node, Convert) else node
        match inner:
            case Alu() | Activation():
                self.compute(inner, dst, axes)
            case Constant():
                self.emitter.emit(MemsetOp, VECTOR, dst=dst, value=_exact(inner.value))
            case Position():
                self.emitter.emit(IotaOp, GPSIMD, dst=dst, expression=inner.form)
            case Convert() if inner.dtype is FLOAT32 and not _exact_in_float32(inner.value.dtype):
                self.emitter.copy(dst, self.value(inner.value).tile(self.counts(axes)), SCALAR)     # via float32
            case Convert() if inner.dtype is FLOAT32:
                self.emitter.copy(dst, self.value(inner.value).tile(self.counts(axes)))
            case _:
                self.emitter.copy(dst, self.value(inner).tile(self.counts(axes)))

    def compute(self, node: Node, dst: Tile, axes: frozenset[int]) -> None:
        """Emit the instruction for an operation on values."""
        if isinstance(node, Alu) and node.fn == "select":
            return self.select(node, dst, axes)
        if isinstance(node, Activation) and node.fn == "negative":      # no table function; a sign change elsewhere
            node = Alu(node.dtype, node.fn, (node.value,))
        for cls, engine, fields in self.candidates(node, axes):
            op = cls(dst=dst, engine=engine.value, **fields)
            exact = not node.dtype.is_integer or all(t.dtype.is_integer for _, t in op.sources())
            if op.compute is node.dtype and exact:
                if not (isinstance(op, elementwise.TensorTensorOp) and self.divide_rows(op)):
                    self.emitter.emit(cls, engine, dst=dst, **fields)
                return
        if dst.dtype is not node.dtype:     # integer arithmetic has integer results, which are then converted
            return self.emitter.copy(dst, self.value(node).tile(self.counts(axes)))
        raise Unsupported(feature=f"'{getattr(node, 'fn', '?')}' computed in {node.dtype} as an engine instruction",
                          instead="compute it in float32")

    # -- instructions --------------------------------------------------------------------------------------------------
    def candidates(self, node: Node, axes: frozenset[int]) -> Iterator[Candidate]:
        """Yield instructions for an operation, the best first. Each loads its operands only when it is tried."""
        if isinstance(node, Activation):
            if self.is_short_reciprocal(node, axes):
                yield elementwise.ReciprocalOp, VECTOR, {"src": self.read(node.value, node.dtype, axes)}
            yield self.activation(node, axes)
            return
        assert isinstance(node, Alu)
        if node.fn == "reciprocal":
            yield elementwise.ReciprocalOp, VECTOR, {"src": self.read(node.args[0], node.dtype, axes)}
            return
        chain = self.chain(node, axes)
        if chain is None and (fused := self.scalar_tensor_tensor(node, axes)) is not None:
            yield fused
        for widened in (False, True):
            for engine in (GPSIMD,) if node.fn in ON_GPSIMD else (VECTOR, GPSIMD):
                if chain is not None:
                    yield elementwise.TensorScalarOp, engine, self.tensor_scalar(chain, node, axes, widened)
                else:
                    left, right = (self.read(arg, node.dtype, axes, widened) for arg in node.args)
                    yield elementwise.TensorTensorOp, engine, {"lhs": left, "rhs": right, "op": node.fn}

    def divide_rows(self, op: elementwise.TensorTensorOp) -> bool:
        """Emit a quotient whose divisor is the same for all elements of a row as one instruction for each row, if all
        these take less time: they divide by their scalar operand. Return whether they are emitted."""
        emitter = self.emitter
        if op.op != "divide" or emitter.limits or not emitter.row_quotients:
            return False
        rows = [n if step else 1 for step, n in op.rhs.access.dims[1:]]
        row = op.dst.free_elements // prod(rows)
        vector = emitter.machine.costs.engines[VECTOR]
        if row == 1 or vector.cycles(op.work()) <= prod(rows) * vector.cycles(Work("tensor_scalar", row)):
            return False
        counts = [op.dst.shape[0], *(1 if rows[k] > 1 else n for k, n in enumerate(op.dst.shape[1:]))]
        for index in product(*map(range, rows)):
            dst, src, divisor = (replace(tile, access=tile.access.box((0, *index), counts))
                                 for tile in (op.dst, op.lhs, op.rhs))
            emitter.emit(elementwise.TensorScalarOp, VECTOR, dst=dst, src=src, operand0=divisor, op0="divide")
        return True

    def is_short_reciprocal(self, node: Activation, axes: frozenset[int]) -> bool:
        """Return whether the Vector engine should compute a reciprocal: it returns the same bits, and the Scalar engine
        may first have to load functions."""
        inner = node.value
        if node.fn != "reciprocal" or (isinstance(inner, Alu) and inner.fn in ("add", "multiply")
                                       and inner not in self.operands):
            return False
        machine, count = self.emitter.machine, prod(self.counts(axes)[1:])
        vector, scalar = (machine.cost(engine, Work(law, count)).busy
                          for engine, law in ((VECTOR, elementwise.ReciprocalOp.law),
                                              (SCALAR, elementwise.ActivationOp.law)))
        return vector < scalar + machine.costs.control.table_load_ns

    def activation(self, node: Activation, axes: frozenset[int]) -> Candidate:
        """Cover an activation, with its argument if that is src * scale + bias."""
        inner = node.value
        fields: dict[str, object] = {"fn": node.fn}
        if isinstance(inner, Alu) and inner.fn == "add" and inner not in self.operands:
            for src, bias in (inner.args, inner.args[::-1]):
                if not isinstance(bias, Constant) and self.narrow(bias, axes):
                    tile = self.read(bias, FLOAT32, axes)
                    if tile.dtype in (FLOAT32, FLOAT16, BFLOAT16):
                        inner, fields["bias"] = src, tile
                        break
        if isinstance(inner, Alu) and inner.fn == "multiply" and inner not in self.operands:
            for src, scale in (inner.args, inner.args[::-1]):
                if isinstance(scale, Constant):
                    inner, fields["imm"] = src, scale.value
                    break
                if self.narrow(scale, axes) and self.read(scale, FLOAT32, axes).dtype is FLOAT32:
                    inner, fields["scale"] = src, self.read(scale, FLOAT32, axes)
                    break
        fields["src"] = self.read(inner, FLOAT32, axes)
        return elementwise.ActivationOp, SCALAR, fields

    def step(self, node: Node, axes: frozenset[int]) -> Step | None:
        """Return an operation as (value, function, scalar operand, operand on the left), if it has that form."""
        if not isinstance(node, Alu) or node.fn in ("select", "reciprocal"):
            return None
        if len(node.args) == 1:
            return node.args[0], node.fn, None, False
        left, right = node.args
        if self.narrow(right, axes) and not isinstance(left, Constant):     # a number needs no tile on the left
            return left, node.fn, right, False
        return (right, node.fn, left, True) if self.narrow(left, axes) else None

    def chain(self, node: Node, axes: frozenset[int]) -> list[Step] | None:
        """Return one or two operations that have one scalar operand each, the inner one first; None if the node has
        another form."""
        outer_step = self.step(node, axes)
        if outer_step is None:
            return None
        inner = outer_step[0]
        inner_step = self.step(inner, axes)
        exact = node.dtype is not FLOAT32 and not ALU[outer_step[1]].on_bits       # compute one operation at a time
        if inner_step is None or inner in self.operands or inner.dtype is not node.dtype or exact or not self.fuses(
                inner_step[1], outer_step[1]):
            return [outer_step]
        return [inner_step, outer_step]

    @staticmethod
    def fuses(*functions: str) -> bool:
        """Return whether one instruction of the Vector engine does both."""
        bits = [ALU[fn].on_bits for fn in functions]
        return all(fn not in ON_GPSIMD for fn in functions) and (all(bits) or not any(bits))

    def tensor_scalar(self, chain: list[Step], node: Alu, axes: frozenset[int], widened: bool) -> dict[str, object]:
        fields: dict[str, object] = {"src": self.read(chain[0][0], node.dtype, axes, widened)}
        for k, (_, fn, operand, on_left) in enumerate(chain):
            fields |= {f"op{k}": fn, f"reverse{k}": on_left, **self.scalar_operand(operand, k, node.dtype, axes,
                                                                                   widened)}
        return fields

    def scalar_operand(self, operand: Node | None, k: int, dtype: DType, axes: frozenset[int], widened: bool = False
                       ) -> dict[str, Tile | float]:
        """Return the fields for the k-th scalar operand of an instruction: a number or a tile."""
        if operand is None:
            return {}
        if isinstance(operand, Constant):
            return {f"imm{k}": _exact(operand.value)}
        return {f"operand{k}": self.read(operand, dtype, axes, widened)}

    def scalar_tensor_tensor(self, node: Alu, axes: frozenset[int]) -> Candidate | None:
        """Cover (src op0 scalar) op1 tile; return None if the expression has another form."""
        if node.dtype is not FLOAT32 or node.fn in ON_GPSIMD:
            return None
        for inner, other in (node.args, node.args[::-1]):
            reverse = inner is not node.args[0]
            inner_step = self.step(inner, axes)
            if inner_step is None or inner in self.operands or inner == other or not self.fuses(inner_step[1], node.fn):
                continue
            source, fn, operand, on_left = inner_step
            fields = {"src": self.read(source, FLOAT32, axes), "rhs": self.read(other, FLOAT32, axes), "op0": fn,
                      "op1": node.fn, "reverse0": on_left, "reverse1": reverse,
                      **self.scalar_operand(operand, 0, FLOAT32, axes)}
            return elementwise.ScalarTensorTensorOp, VECTOR, fields
        return None

    # -- selections ----------------------------------------------------------------------------------------------------
    def select(self, node: Alu, dst: Tile, axes: frozenset[int]) -> None:
        """Emit a selection: write one of the two values, and copy the other one over it under the condition."""
        condition, on_true, on_false = node.args
        affine = _affine_condition(condition)
        if affine is not None and isinstance(on_false, Constant) and node.dtype is FLOAT32:
            form, equal = affine
            return self.emitter.emit(elementwise.AffineSelectOp, GPSIMD, dst=dst, src=self.read(on_true, FLOAT32, axes),
                                     predicate=form, equal=equal, value=on_false.value)
        predicate = self.predicate(condition, axes)
        chosen, other = (self.read(value, node.dtype, axes) for value in (on_true, on_false))
        reverse = chosen.handle == dst.handle
        if reverse:
            chosen, other, on_true, on_false = other, chosen, on_false, on_true
        if node.dtype is FLOAT32 and select_compute(predicate.dtype, dst.dtype, chosen.dtype) is not FLOAT32:
            chosen = self.read(on_true, FLOAT32, axes, widened=True)     # integers would not be rounded
        result = dst
        if any(t.handle == dst.handle for t in (chosen, predicate)) or (
                other.handle == dst.handle and other.access != dst.access) or not self.emitter.reachable(dst):
            result = self.emitter.buffer(dst.shape, dst.dtype)
        self.assign(converted(on_false, dst.dtype), result, axes)
        self.emitter.emit(elementwise.TensorCopyPredicatedOp, VECTOR, dst=result, src=chosen, predicate=predicate,
                          reverse_pred=reverse)
        return self.emitter.copy(dst, result)

    def predicate(self, condition: Node, axes: frozenset[int]) -> Tile:
        """Return a tile of an unsigned integer type that is not 0 where the condition is not."""
        inner = condition.value if isinstance(condition, Convert) else condition
        if isinstance(inner, Convert) and inner.dtype is BOOL and _is_truth(inner.value):
            inner = inner.value
        if isinstance(inner, Input) and inner.dtype.is_integer and inner.dtype.itemsize in UNSIGNED:
            flags = self.value(inner)
            return replace(flags, dtype=UNSIGNED[flags.dtype.itemsize]).tile(self.counts(axes))
        if not _is_truth(inner):
            inner = alu("not_equal", converted(inner, FLOAT32), Constant(FLOAT32, 0.0))
        return self.value(converted(inner, UINT8)).tile(self.counts(axes))


def _is_truth(value: Node) -> bool:
    """Return whether a value is 0 or 1 because it is a comparison or a logical function."""
    return isinstance(value, Alu) and ALU[value.fn].group in ("comparison", "logical")


def _affine_condition(condition: Node) -> tuple[Linear, bool] | None:
    """Return the form and kind of ``form >= 0`` or ``form == 0``."""
    match condition:
        case Alu(fn="greater_equal" | "equal" as fn, args=(Convert(value=Position(form=form)), Constant(value=0))):
            return form, fn == "equal"
    return None


def _exact_in_float32(dtype: DType) -> bool:
    return dtype.is_float or dtype.bits <= 16


def _exact(value: float | int) -> float:
    """Return a constant as an attribute of an instruction represents it."""
    if isinstance(value, int) and int(float(value)) != value:
        raise Unsupported(feature=f"the constant {value}, which no float64 holds",
                          instead="build it from smaller ones, with a shift")
    return float(value)

