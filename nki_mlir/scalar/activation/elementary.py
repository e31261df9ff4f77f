# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that one or two instructions compute: copies, signs, roundings, roots, reciprocals."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.activation.entry import ActivationFunction, Numpy
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter


def _of_alu(name: str) -> "tuple[str, Numpy, Callable[[ScalarEmitter, Value], Value]]":
    """Name, NumPy form and expansion of the activation function that an ALU operator computes too."""
    op = ALU[name]
    return name, op.numpy, lambda e, x: op.expand(e, FLOAT32, x)


def _same(x: np.ndarray) -> np.ndarray:
    return x


def _expand_sign(e: "ScalarEmitter", x: "Value") -> "Value":
    above = e.select(e.cmp("ogt", x, 0.0), e.const(x, 1.0), e.const(x, 0.0))
    signed = e.select(e.cmp("olt", x, 0.0), e.const(x, -1.0), above)
    return e.select(e.cmp("uno", x, x), x, signed)


ActivationFunction("copy", _same, lambda e, x: x, ulp=0)
ActivationFunction("identity", _same, lambda e, x: x, ulp=0, asm="copy")
ActivationFunction("sign", np.sign, _expand_sign, ulp=0)
ActivationFunction("floor", np.floor, lambda e, x: e.floor(x), ulp=0, native=False)
ActivationFunction("ceil", np.ceil, lambda e, x: e.ceil(x), ulp=0, native=False)
ActivationFunction("trunc", np.trunc, lambda e, x: e.trunc(x), ulp=0, native=False)
ActivationFunction("sqrt", np.sqrt, lambda e, x: e.sqrt(x), ulp=0.5, valid_range=(2.0**-116, 2.0**118))
ActivationFunction(*_of_alu("abs"), ulp=0)
ActivationFunction(*_of_alu("negative"), ulp=0, native=False)
ActivationFunction(*_of_alu("square"), ulp=0.5)
ActivationFunction(*_of_alu("relu"), ulp=0)
ActivationFunction(*_of_alu("rsqrt"), ulp=1.5, valid_range=(2.0**-87, 2.0**97))
ActivationFunction(*_of_alu("reciprocal"), ulp=0.5, valid_range=(2.0**-42, 2.0**42), by_magnitude=True)
