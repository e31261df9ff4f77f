# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The call of ``nki.isa`` for each operation: the field of the operation that each parameter takes.

The entries of regular instructions contain this; this module has the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import Parameter, signature

from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.dialects.scalar_body import Elementwise
from nki_mlir.language.current import isa
from nki_mlir.language.entries import REGULAR
from nki_mlir.language.signatures.table import signatures

OPERATORS = ("op", "op0", "op1", "fn", "reduce_op", "comp0", "comp1")
ENUMS = {"engine": "nisa.engine", "reduce_cmd": "nisa.reduce_cmd", "mode": "nisa.oob_mode"}


@dataclass(frozen=True)
class PrintedCall:
    """The parameters of an operation's call: those that take a tile, a tile or a number, or an attribute."""

    function: str
    tiles: Mapping[str, str]
    scalars: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    paired: bool = True             # operands are paired in iteration order, whatever their dims
    initial: str = ""               # the parameter of the number with which registers begin a sum
    constants: Mapping[str, str] = field(default_factory=dict)      # the text of arguments that are always the same

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters of the newest signature, in order."""
        return _parameters(self.function)


@cache
def _parameters(function: str) -> Mapping[str, Parameter]:
    return signature(getattr(isa, function)).parameters


FORMS = {
    "tensor_tensor": PrintedCall("tensor_tensor", {"data1": "lhs", "data2": "rhs"}),
    "tensor_scalar": PrintedCall(
        "tensor_scalar", {"data": "src"}, {"operand0": ("operand0", "imm0"), "operand1": ("operand1", "imm1")}),
    "activation": PrintedCall("activation", {"data": "src", "bias": "bias"}, {"scale": ("scale", "imm")},
                                  {"op": "fn"}),
    "activation_reduce": PrintedCall(
        "activation_reduce", {"data": "src", "bias": "bias", "reduce_res": "reduce_res"}, {"scale": ("scale", "imm")},
        {"op": "fn"}),
    "activation_accumulate": PrintedCall(
        "activation", {"data": "src", "bias": "bias", "reduce_res": "reduce_res"}, {"scale": ("scale", "imm")},
        {"op": "fn"}),
    "tensor_copy_predicated": PrintedCall("tensor_copy_predicated", {"src": "src", "predicate": "predicate"}),
    "tensor_reduce": PrintedCall("tensor_reduce", {"data": "src"}, attributes={"axis": "axes"}, paired=False),
    "tensor_partition_reduce": PrintedCall("tensor_partition_reduce", {"data": "src"}),
    "memset": PrintedCall("memset", {}, attributes={"value": "value"}),
    "nc_matmul": PrintedCall("nc_matmul", {"stationary": "stationary", "moving": "moving"}),
    "nc_matmul_double_row": PrintedCall("nc_matmul", {"stationary": "stationary", "moving": "moving"}, constants={
        "perf_mode": "nisa.matmul_perf_mode.double_row"}),
    "nc_transpose": PrintedCall("nc_transpose", {"data": "src"}),
    "dma_copy": PrintedCall("dma_copy", {"src": "src"}),
    "dma_transpose": PrintedCall("dma_transpose", {"src": "src"}, attributes={"axes": "permutation"}, paired=False),
    "tensor_scalar_reduce": PrintedCall(
        "tensor_scalar_reduce", {"data": "src", "reduce_res": "reduce_res"}, {"operand0": ("operand0", "imm0")}),
    "core_barrier": PrintedCall("core_barrier", {"data": "data"}, paired=False),
    "sendrecv": PrintedCall("sendrecv", {"src": "src"}, attributes={
        "send_to_rank": "send_to", "recv_from_rank": "receive_from", "pipe_id": "pipe"}),
    "dropout": PrintedCall("dropout", {"data": "src"}, {"prob": ("prob", "imm")}),
}


def form_of(cls: type[Op]) -> PrintedCall | None:
    """Return the form of an operation's class, or None if it has none."""
    return _form(cls.name) if cls.dialect == "nisa" else None


@cache
def _form(operation: str) -> PrintedCall | None:
    if operation in FORMS:
        return FORMS[operation]
    cls = REGISTRY[f"nisa.{operation}"]
    for name, entry in REGULAR.items():
        if (entry.op or name) == operation and signatures(f"nki.isa.{name}", "current"):
            present = {t.name for t in cls.tiles}
            tiles = {p: tile for p, tile in {**entry.tiles, **entry.rows, "reduce_res": "reduce_res"}.items()
                     if tile in present}
            paired = entry.shape is None and issubclass(cls, Elementwise)
            return PrintedCall(name, tiles, entry.scalars, entry.named, paired, entry.initial)
    return None
