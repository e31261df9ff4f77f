# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise engine instructions: tensor_tensor, tensor_scalar, scalar_tensor_tensor, activation, selections."""

from collections.abc import Sequence

import numpy as np

from nki_mlir.dialects.access import PSUM, Linear, Tile
from nki_mlir.dialects.access_factors import access_factor, adjacent, slowest
from nki_mlir.dialects.nki.elementwise import TwoTiles, exact_integer, number_dtype, number_with_tile, select_compute
from nki_mlir.dialects.op import In, InOut, NisaOp, Op, Out
from nki_mlir.dialects.scalar_body import Elementwise, ScalarFunctions, V
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Work
from nki_mlir.machine.engine import ENGINE_NAMED, ROUNDING, VECTOR_HAS_NOT
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT32, UINT8, UINT16, UINT32, DType

VECTOR, SCALAR, GPSIMD = Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD
ON_SCALAR = (("multiply", "add"), ("multiply", "bypass"), ("add", "bypass"))    # before generation 4


def not_all_in_psum(op: Op, check: Check, *labels: str) -> None:
    """Check that some source is in SBUF: the engines have one PSUM read port."""
    check.rule(any(getattr(op, label).space != PSUM for label in labels),
               f"at most one of {' and '.join(labels)} may be in PSUM", "copy one of them to SBUF first")


# A variant of a work has another rate, which depends on the tiles; its name follows the law's. If a machine has no law
# for a variant, the law of the work itself holds.

def of_dtype(*tiles: Tile) -> str:
    """Return a dot and the dtype if all tiles are in SBUF and have one dtype, a float of 16 or 8 bits; else ""."""
    return "" if any(t.space == PSUM for t in tiles) else _narrow(tiles)


def of_tiles(*tiles: Tile) -> str:
    """Return the variant: ``.psum`` if a tile is in PSUM, then the dtype's variant if all tiles have adjacent elements,
    or ``.apart`` if the tiles have one dtype of 16 bits but some elements are apart."""
    space, narrow = ".psum" if any(t.space == PSUM for t in tiles) else "", _narrow(tiles)
    if not all(map(adjacent, tiles)):
        narrow = ".apart" if narrow and tiles[0].dtype.bits == 16 else ""
    return space + narrow


def _narrow(tiles: Sequence[Tile]) -> str:
    first_dtype = tiles[0].dtype
    narrow = first_dtype.is_float and first_dtype.bits <= 16
    return f".{first_dtype}" if narrow and all(t.dtype is first_dtype for t in tiles) else ""


# -- instructions ------------------------------------------------------------------------------------------------------
class TensorTensorOp(NisaOp, TwoTiles, name="tensor_tensor", engines=(VECTOR, GPSIMD), mnemonic="TENSOR_TENSOR",
                     opcode=0x10):
    """dst = lhs (op) rhs. float32 inside; bit operations keep bits; 32-bit integer arithmetic is exact on GpSimd."""

    def verify(self, check: Check) -> None:
        super().verify(check)
        not_all_in_psum(self, check, "lhs", "rhs")
        if self.runs_on is GPSIMD:
            check.all_in(("sbuf",), "dst", "lhs", "rhs")

    def verify_target(self, check: TargetCheck) -> None:
        check.operators(self.op)

    @property
    def runs_on(self) -> Engine:
        if self.engine != "unknown":
            return ENGINE_NAMED.get(self.engine) or Engine(self.engine)
        if self.op == "power":
            return GPSIMD
        integers = exact_integer(self.op, self.dst.dtype, self.lhs.dtype, self.rhs.dtype)
        in_sbuf = all(t.space != PSUM for _, t in self.operands())
        return GPSIMD if in_sbuf and integers else VECTOR

    @property
    def compute(self) -> DType:
        return FLOAT32 if self.runs_on is VECTOR and not ALU[self.op].on_bits else super().compute

    def work(self) -> Work:
        """The engine takes time for each element of ``dst``. Division, one operand in PSUM, and simple operators on 16
        bits have other rates."""
        n = self.dst.free_elements
        if self.op == "divide":
            return Work("tensor_tensor.divide", n, slowest(self.dst, (self.lhs, self.rhs)))
        mixed = (self.lhs.space == PSUM) != (self.rhs.space == PSUM)
        simple = self.op in ("add", "multiply", "subtract")
        variant = of_dtype(self.dst, self.lhs, self.rhs) if simple else ""
        if mixed:                               # both are read at the same time
            return Work("tensor_tensor.psum", n, max(map(access_factor, (self.dst, self.lhs, self.rhs))))
        return Work(f"tensor_tensor{variant}", n, slowest(self.dst, (self.lhs, self.rhs)))


class TensorScalarOp(NisaOp, Elementwise, name="tensor_scalar", engines=(VECTOR, SCALAR, GPSIMD),
                     mnemonic="TENSOR_SCALAR", opcode=0x11):
    """dst = (src op0 operand0) op1 operand1; an operand is a [P, 1] tile or a constant ``imm``; reverse swaps sides."""

    dst: Out
    src: In
    operand0: In | None
    operand1: In | None
    op0: str
    imm0: float = 0.0
    reverse0: bool = False
    op1: str = "bypass"
    imm1: float = 0.0
    reverse1: bool = False
    row_operands = "operand0", "operand1"
    free_number = "imm0", "op0", "operand0"

    def verify(self, check: Check) -> None:
        check.alu("op0", 1, 2)
        check.alu("op1", 1, 2)
        check.on_chip_of_one_shape("dst", "src", "operand0", "operand1")
        check.bits(["op0", "op1"], "src")
        if self.runs_on is GPSIMD:
            check.all_in(("sbuf",), "src", "dst")

    def verify_target(self, check: TargetCheck) -> None:
        check.one_a_row(*self.row_operands)
        if self.runs_on is SCALAR:
            check.need(3, "tensor_scalar on the scalar engine", "use the vector engine")
            if (self.op0, self.op1) not in ON_SCALAR:
                check.need(4, f"tensor_scalar of {self.op0} and {self.op1} on the scalar engine",
                           "use the vector engine")
            return
        in_psum = PSUM in (self.src.space, self.dst.space)
        if "power" in (self.op0, self.op1) and in_psum and self.engine == "unknown":
            check.rule(False, "power reads and writes SBUF only, got a tile in PSUM", "copy it to SBUF first",
                       binds_current=True)
        else:
            check.operators(self.op0, self.op1, binds_current=True)

    @property
    def exact(self) -> bool:
        """Return whether this is integer arithmetic on GpSimd."""
        if not self.dst.dtype.is_integer:
            return False
        steps = [(self.op0, self.operand0, self.imm0)]
        steps += [] if self.op1 == "bypass" else [(self.op1, self.operand1, self.imm1)]
        kind = self.src.dtype
        return all(exact_integer(op, self.dst.dtype, kind, tile.dtype if tile is not None else self.number(imm))
                   for op, tile, imm in steps)

    def number(self, imm: float) -> DType:
        return number_dtype(imm, self.src.dtype) if float(imm).is_integer() else FLOAT32

    @property
    def runs_on(self) -> Engine:
        if self.engine != "unknown":
            return ENGINE_NAMED.get(self.engine) or Engine(self.engine)
        in_sbuf = PSUM not in (self.src.space, self.dst.space)
        return GPSIMD if in_sbuf and (self.exact or not VECTOR_HAS_NOT.isdisjoint((self.op0, self.op1))) else VECTOR

    @property
    def compute(self) -> DType:
        bits = ALU[self.op0].on_bits or ALU[self.op1].on_bits
        return self.src.dtype if bits or (self.exact and self.runs_on is GPSIMD) else FLOAT32

    def body(self, s: ScalarFunctions[V], src: V, *tiles: V) -> V:
        operands = iter(tiles)
        kind = self.src.dtype
        scalar = next(operands) if self.operand0 is not None else s.constant(
            number_with_tile(self.op0, self.imm0, kind, self.reverse0))
        value = apply_alu(s, self.op0, src, scalar, self.reverse0)
        right = next(operands) if self.operand1 is not None else s.constant(
            number_with_tile(self.op1, self.imm1, kind, self.reverse1))
        return apply_alu(s, self.op1, value, right, self.reverse1)

    def work(self) -> Work:
        """The engine takes time for each element of ``dst``, which depends on the dtypes and memories of the tiles; the
        operators ``nl.rsqrt`` and ``nl.power`` are slower."""
        rooted = not VECTOR_HAS_NOT.isdisjoint((self.op0, self.op1))
        law = "roots" if rooted else f"tensor_scalar{of_tiles(self.dst, self.src)}"
        return Work(law, self.dst.free_elements, slowest(self.dst, (self.src,)))


def apply_alu(s: ScalarFunctions[V], op: str, value: V, operand: V, reverse: bool) -> V:
    """Apply one step of a two-operation instruction; operations of one operand ignore the second."""
    if op == "bypass":
        return value
    if ALU[op].arity == 1:
        return s.alu(op, value)
    return s.alu(op, operand, value) if reverse else s.alu(op, value, operand)


class ScalarTensorTensorOp(NisaOp, Elementwise, name="scalar_tensor_tensor", engines=(VECTOR,),
                           mnemonic="SCALAR_TENSOR_TENSOR", opcode=0x12):
    """dst = (src op0 operand0) op1 rhs; operand0 is a [P, 1] tile or the constant ``imm0``, rhs a tile."""

    dst: Out
    src: In
    operand0: In | None
    rhs: In
    op0: str
    op1: str
    imm0: float = 0.0
    reverse0: bool = False
    reverse1: bool = False
    row_operands = ("operand0",)
    free_number = "imm0", "op0", "operand0"

    def verify(self, check: Check) -> None:
        check.alu("op0", 1, 2)
        check.alu("op1", 1, 2)
        check.on_chip_of_one_shape("dst", "src", "operand0", "rhs")
        not_all_in_psum(self, check, "src", "rhs")
        check.bits(["op0", "op1"], "src", "rhs")

    def verify_target(self, check: TargetCheck) -> None:
        check.one_a_row(*self.row_operands)
        check.operators(self.op0, self.op1)

    @property
    def compute(self) -> DType:
        return self.src.dtype if ALU[self.op0].on_bits or ALU[self.op1].on_bits else FLOAT32

    def body(self, s: ScalarFunctions[V], src: V, *tiles: V) -> V:
        scalar = tiles[0] if self.operand0 is not None else s.constant(self.imm0)
        return apply_alu(s, self.op1, apply_alu(s, self.op0, src, scalar, self.reverse0), tiles[-1], self.reverse1)

    def work(self) -> Work:
        """The engine takes time for each element of ``dst``. Products and differences of tiles of 16 bits with an even
        number of elements are faster."""
        n = self.dst.free_elements
        fast = n % 2 == 0 and {self.op0, self.op1} <= {"subtract", "multiply"}
        law = f"scalar_tensor_tensor{of_dtype(self.dst, self.src, self.rhs) if fast else ''}"
        return Work(law, n, slowest(self.dst, (self.src, self.rhs)))


class ActivationOp(NisaOp, Elementwise, name="activation", engines=(SCALAR,), mnemonic="ACTIVATE", opcode=0x13):
    """dst = fn(src * scale + bias); scale is a [P, 1] tile or the constant ``imm``, bias a [P, 1] tile or 0."""

    dst: Out
    src: In
    bias: In | None
    scale: In | None
    fn: str
    imm: float = 1.0
    law = "activation"
    row_operands = "scale", "bias"

    def verify(self, check: Check) -> None:
        check.one_of("fn", ACTIVATIONS)
        check.on_chip_of_one_shape("dst", "src", "bias", "scale")
        check.dtype("bias", FLOAT32, FLOAT16, BFLOAT16)
        check.dtype("scale", FLOAT32)

    def verify_target(self, check: TargetCheck) -> None:
        check.one_a_row("scale")
        check.one_a_row("bias", uncertain=True)         # one release accepted any shape
        if self.fn == "reciprocal" and self.bias is not None:
            check.need(3, "the activation 'reciprocal' with a bias", "add the bias in a separate instruction")

    def body(self, s: ScalarFunctions[V], src: V, *tiles: V) -> V:
        operands = iter(tiles)
        bias = next(operands) if self.bias is not None else None
        if self.scale is not None:
            src = s.alu("multiply", src, next(operands))
        elif self.imm != 1.0:
            src = s.alu("multiply", src, s.constant(self.imm))
        return s.activation(self.fn, src if bias is None else s.alu("add", src, bias))

    def work(self) -> Work:
        """The engine takes time for each element of ``dst``. Other engines can read the result sooner if the
        function is ``nl.copy``. A function that rounds to integers takes the time of several instructions."""
        variant = ".copy" if self.fn in ("copy", "identity") else ".rounded" if self.fn in ROUNDING else ""
        return Work(f"{self.law}{variant}", self.dst.free_elements, slowest(self.dst, (self.src,)))


class ReciprocalOp(NisaOp, Elementwise, name="reciprocal", engines=(VECTOR,), mnemonic="RECIPROCAL", opcode=0x14):
    """dst = 1 / src."""

    dst: Out
    src: In
    law = "reciprocal"

    def verify(self, check: Check) -> None:
        check.on_chip_of_one_shape("dst", "src")

    def body(self, s: ScalarFunctions[V], src: V) -> V:
        return s.alu("reciprocal", src)


class TensorCopyPredicatedOp(NisaOp, Elementwise, name="tensor_copy_predicated", engines=(VECTOR,),
                             mnemonic="COPY_PREDICATED", opcode=0x15):
    """dst = src where predicate is not 0 (is 0 with ``reverse_pred``); other elements of dst keep their value."""

    dst: InOut
    src: In
    predicate: In
    reverse_pred: bool = False
    chooses = True
    addressed_by_data = "dst"

    def verify(self, check: Check) -> None:
        check.on_chip_of_one_shape("dst", "src", "predicate")
        not_all_in_psum(self, check, "src", "predicate")

    def verify_target(self, check: TargetCheck) -> None:
        signed = self.predicate.dtype.is_integer        # a test for 0 reads the bits, whatever the sign
        check.dtypes("predicate", UINT8, UINT16, UINT32, BOOL, uncertain=signed)

    @property
    def compute(self) -> DType:
        return select_compute(self.predicate.dtype, self.dst.dtype, self.src.dtype)

    def accessed_elements(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        return (tiles["predicate"] == 0) if self.reverse_pred else (tiles["predicate"] != 0)

    def body(self, s: ScalarFunctions[V], dst: V, src: V, predicate: V) -> V:
        return s.alu("select", predicate, dst, src) if self.reverse_pred else s.alu("select", predicate, src, dst)

    def work(self) -> Work:
        """The engine takes time for each element of ``dst``. The rate differs if exactly one of ``src`` and
        ``predicate`` is in PSUM."""
        mixed = (self.src.space == PSUM) != (self.predicate.space == PSUM)
        factor = slowest(self.dst, (self.src, self.predicate))
        return Work("select.psum" if mixed else "select", self.dst.free_elements, factor)


class AffineSelectOp(NisaOp, Elementwise, name="affine_select", engines=(GPSIMD,), mnemonic="AFFINE_SELECT",
                     opcode=0x16):
    """dst = src where ``predicate`` (an affine form over the axes) is >= 0 (``equal``: == 0), else ``value``."""

    dst: Out
    src: In
    predicate: Linear
    equal: bool = False
    value: float = 0.0
    chooses = True
    law = "affine_select"

    def verify(self, check: Check) -> None:
        check.on_chip_of_one_shape("dst", "src")

    def verify_target(self, check: TargetCheck) -> None:
        kind = self.src.dtype
        check.rule(kind.is_float or kind.itemsize < 4, f"selects floats and integers of 8 and 16 bits, got {kind}",
                   "convert the tile first", uncertain=True)

    @property
    def compute(self) -> DType:
        """The values' dtype if they keep it, since float32 cannot represent all integers; else float32."""
        return select_compute(INT32, self.src.dtype) if self.dst.dtype is self.src.dtype else FLOAT32

    def index_forms(self) -> tuple[Linear, ...]:
        return (self.predicate,)

    def body(self, s: ScalarFunctions[V], src: V, position: V) -> V:
        holds = s.alu("equal" if self.equal else "greater_equal", position, s.constant(0.0))
        return s.alu("select", holds, src, s.constant(self.value))
