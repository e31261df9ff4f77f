# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of ``nl`` that are operators, in both generations: elementwise ones, and reductions with theirs."""

ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
MODULI = ("mod", "fmod")
VERDICTS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or",
            "logical_xor")
UNARY = ("invert", "negative", "logical_not", "exp", "log", "sin", "cos", "tan", "tanh", "arctan", "sqrt", "rsqrt",
         "sigmoid", "relu", "gelu", "gelu_dx", "gelu_apprx_tanh", "gelu_apprx_sigmoid", "silu", "silu_dx", "erf",
         "erf_dx", "softplus", "mish", "square", "sign", "abs", "reciprocal", "floor", "ceil", "trunc")
REDUCTIONS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
