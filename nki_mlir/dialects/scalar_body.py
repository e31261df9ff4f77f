# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that compute each element by one scalar expression, and the evaluation of such expressions on arrays."""

import math
from functools import lru_cache
from typing import Protocol, TypeVar

import numpy as np

from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import Iteration, LoweringBuilder, Op, Results
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.activation.entry import evaluate
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BOOL, FLOAT32, DType, convert

V = TypeVar("V")                # the value of one element in some form: an array, an SSA value, a node


class ScalarFunctions(Protocol[V]):
    """The scalar operations that a ``body`` calls: on MLIR values it builds code, on numbers it computes."""

    def constant(self, value: float) -> V:
        """Return the number as a value of the dtype in which the operation computes."""

    def alu(self, name: str, *values: V) -> V:
        """Apply an operator of ``scalar.alu``, by name."""

    def activation(self, name: str, value: V) -> V:
        """Apply a function of ``scalar.activation``, by name."""


def has_domain(op: Op) -> bool:
    """Return whether an operation evaluates a function by a table that is accurate for only a part of the numbers.

    The reciprocal of the tile language is an instruction of the Vector engine, which needs no table.
    """
    name = getattr(op, "fn", "")
    return name in ACTIVATIONS and ACTIVATIONS[name].is_bounded and not (op.dialect == "nki" and name == "reciprocal")


def constant_value(value: float, dtype: DType) -> float | int:
    """Convert a constant to ``dtype``. Unlike a conversion of elements it does not go through float32."""
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return float(convert(np.asarray(value, np.float32), dtype))
    if dtype is BOOL:
        return int(value != 0)
    limits = np.iinfo(dtype.numpy)
    if math.isnan(value):
        return 0
    return round(min(max(value, limits.min), limits.max))


@lru_cache(4096)
def array_constant(value: float, sign: float, dtype: DType) -> np.ndarray:
    """Return a constant as an array without dims. ``sign`` distinguishes zeros, which are equal."""
    number: np.ndarray = dtype.numpy.type(constant_value(value, dtype))
    return number


class ArrayScalars:
    """Evaluates a scalar body on complete arrays: the NumPy counterpart of the scalar operations that
    ``lower`` emits."""

    def __init__(self, compute: DType | None) -> None:
        self.compute = compute or FLOAT32

    def constant(self, value: float) -> np.ndarray:
        return array_constant(value, math.copysign(1.0, value), self.compute)

    @staticmethod
    def alu(name: str, *values: np.ndarray) -> np.ndarray:
        return ALU[name].numpy(*values)

    @staticmethod
    def activation(name: str, value: np.ndarray) -> np.ndarray:
        return evaluate(ACTIVATIONS[name], value)


class Elementwise(Op):
    """Mixin of ops whose tiles all have the shape of ``dst``: one iteration axis a dim."""

    dst: Tile
    broadcasts = True

    def iteration(self) -> Iteration:
        shape = self.dst.shape
        axes = tuple(range(len(shape)))
        return Iteration(shape, {f.name: axes for f, _ in self.operands()})

    def lower(self, b: LoweringBuilder) -> None:
        b.elementwise(self)

    def body(self, s: ScalarFunctions[V], *values: V) -> V:
        """Return the scalar expression of ``dst``, built through ``s`` (constants, alu, activation) from
        the sources."""
        raise InternalError(f"{self.full_name()} has no scalar body")

    def reference(self, *sources: np.ndarray) -> Results:
        return self.body(ArrayScalars(self.compute), *sources)
