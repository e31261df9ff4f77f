# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maps the objects that kernels pass as operators to an ``AluOperator`` or ``ActivationFunction``.

Accepted are names, the language's own functions (they carry their name as ``nki_token``) and NumPy's functions.
"""

from typing import TypeVar

import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.scalar.activation import ACTIVATIONS, ActivationFunction
from nki_mlir.scalar.alu import ALU, AluOperator


class UnknownToken(KernelError, TypeError):
    code = "NKI-OPERATOR"
    message = "{token} is not {what}"
    fix = "{instead}"


_Entry = TypeVar("_Entry", AluOperator, ActivationFunction)

# Names of NumPy and of the language that differ from the operator's own.
ALIASES = {
    "max": "maximum", "amax": "maximum", "fmax": "maximum",
    "min": "minimum", "amin": "minimum", "fmin": "minimum",
    "sum": "add", "prod": "multiply", "mean": "average", "all": "logical_and", "any": "logical_or",
    "true_divide": "divide", "remainder": "mod", "pow": "power", "float_power": "power",
    "absolute": "abs", "fabs": "abs", "bitwise_not": "invert", "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift",
    "atan": "arctan", "positive": "copy", "fix": "trunc", "where": "select",
}


def token_name(token: object) -> str | None:
    """Return the operator's name in ``token``, or None if it is not a token."""
    if isinstance(token, (AluOperator, ActivationFunction)):
        return token.name
    name = token if isinstance(token, str) else getattr(token, "nki_token", None)
    if name is None and (isinstance(token, np.ufunc) or getattr(token, "__module__", None) == "numpy"):
        name = getattr(token, "__name__", None)
    return ALIASES.get(name, name) if isinstance(name, str) else None


def _entry(token: object, table: dict[str, _Entry], kind: str, instead: str) -> _Entry:
    name = token_name(token)
    if name is not None and name in table:
        return table[name]
    shown = repr(token) if isinstance(token, str) else getattr(token, "__name__", repr(token))
    raise UnknownToken(token=shown, what=kind, instead=instead)


def alu_token(token: object) -> AluOperator:
    """Return the ALU operator that ``token`` means.

    >>> alu_token(np.amax), alu_token("add")
    (maximum, add)
    """
    return _entry(token, ALU, "an ALU operator", "give an operator of nl, for example nl.add or nl.multiply")


def activation_token(token: object) -> ActivationFunction:
    """Return the activation function that ``token`` means.

    >>> activation_token(np.tanh)
    tanh
    """
    return _entry(token, ACTIVATIONS, "an activation function",
                  f"use a function of the language or of NumPy with one of the names {', '.join(ACTIVATIONS)}")
