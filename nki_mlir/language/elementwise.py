# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of ``nl`` that are operators, in both generations: elementwise ones, and reductions with theirs."""

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
MODULI = ("mod", "fmod")
VERDICTS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or",
            "logical_xor")
UNARY = ("invert", "negative", "logical_not", "exp", "log", "sin", "cos", "tan", "tanh", "arctan", "sqrt", "rsqrt",
         "sigmoid", "relu", "gelu", "gelu_dx", "gelu_apprx_tanh", "gelu_apprx_sigmoid", "silu", "silu_dx", "erf",
         "erf_dx", "softplus", "mish", "square", "sign", "abs", "reciprocal", "floor", "ceil", "trunc")
REDUCTIONS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


def token(operator: str, name: str = "", does: str = "") -> Callable[[F], F]:
    """Decorator: the function is the operator of that name, too. Those that are made get a name, and what they do."""
    def mark(function: F) -> F:
        function.nki_token = operator           # type: ignore[attr-defined]
        if name:
            function.__name__, function.__qualname__, function.__doc__ = name, name, does
        return function
    return mark
