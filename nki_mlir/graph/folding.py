# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the body of a reduction folds, and how."""

from dataclasses import dataclass

from nki_mlir.diagnostics import Unsupported
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import DType
from nki_mlir.waist.expressions import Alu, Convert, Node, Output
from nki_mlir.waist.tile_nest import TileNest


@dataclass(frozen=True)
class Fold:
    """``output = output (fn) element``, kept in ``dtype`` until it is complete."""

    fn: str
    element: Node
    dtype: DType

    @property
    def identity(self) -> float | int:
        value = ALU[self.fn].identity(self.dtype)
        assert value is not None
        return value


def fold_of(nest: TileNest) -> Fold:
    """The fold of a reduction. A narrow result is kept in the dtype of its arithmetic, not rounded at each step."""
    body = nest.body.value if isinstance(nest.body, Convert) else nest.body
    if isinstance(body, Alu) and len(body.args) == 2:
        for old, element in (body.args, body.args[::-1]):
            inner = old.value if isinstance(old, Convert) else old
            foldable = ALU[body.fn].reduce is not None and ALU[body.fn].identity(body.dtype) is not None
            if isinstance(inner, Output) and foldable and not _reads(element):
                return Fold(body.fn, element, body.dtype)
    raise Unsupported(feature="a reduction whose step is no sum, product, extreme or logical operation as engine "
                              "instructions", instead="run this program on the CPU")


def _reads(node: Node) -> bool:
    match node:
        case Output():
            return True
        case Convert(value=inner):
            return _reads(inner)
        case Alu(args=args):
            return any(map(_reads, args))
    return False
