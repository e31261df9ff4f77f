# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens: names, the language's functions and NumPy's functions."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.tokens import ALIASES, activation_token, alu_token

NUMPY_ALU = {
    np.add: "add", np.subtract: "subtract", np.multiply: "multiply", np.divide: "divide", np.true_divide: "divide",
    np.maximum: "maximum", np.max: "maximum", np.amax: "maximum", np.minimum: "minimum", np.min: "minimum",
    np.amin: "minimum", np.sum: "add", np.prod: "multiply", np.mean: "average", np.power: "power", np.mod: "mod",
    np.remainder: "mod", np.fmod: "fmod", np.equal: "equal", np.not_equal: "not_equal", np.greater: "greater",
    np.greater_equal: "greater_equal", np.less: "less", np.less_equal: "less_equal", np.logical_and: "logical_and",
    np.logical_or: "logical_or", np.logical_xor: "logical_xor", np.logical_not: "logical_not",
    np.bitwise_and: "bitwise_and", np.bitwise_or: "bitwise_or", np.bitwise_xor: "bitwise_xor", np.invert: "invert",
    np.bitwise_not: "invert", np.left_shift: "left_shift", np.right_shift: "right_shift", np.abs: "abs",
    np.absolute: "abs", np.square: "square", np.negative: "negative", np.reciprocal: "reciprocal", np.where: "select",
}
NUMPY_ACTIVATION = {
    np.exp: "exp", np.log: "log", np.sin: "sin", np.cos: "cos", np.tan: "tan", np.tanh: "tanh", np.arctan: "arctan",
    np.sqrt: "sqrt", np.reciprocal: "reciprocal", np.square: "square", np.copy: "copy", np.sign: "sign", np.abs: "abs",
    np.floor: "floor", np.ceil: "ceil", np.trunc: "trunc", np.negative: "negative",
}


@pytest.mark.parametrize(("function", "name"), NUMPY_ALU.items(), ids=lambda v: v if isinstance(v, str) else "")
def test_alu_token__takes_numpy_functions(function: object, name: str) -> None:
    assert alu_token(function) is ALU[name]


@pytest.mark.parametrize(("function", "name"), NUMPY_ACTIVATION.items(), ids=lambda v: v if isinstance(v, str) else "")
def test_activation_token__takes_numpy_functions(function: object, name: str) -> None:
    assert activation_token(function) is ACTIVATIONS[name]


def test_tokens__take_names_entries_and_the_language() -> None:
    for name, op in ALU.items():
        assert alu_token(name) is alu_token(op) is alu_token(SimpleNamespace(nki_token=name)) is op
    for name, function in ACTIVATIONS.items():
        assert activation_token(name) is activation_token(function) is function
    assert alu_token(SimpleNamespace(nki_token="max")) is ALU["maximum"]
    assert activation_token(ALU["rsqrt"]) is ACTIVATIONS["rsqrt"]


def test_aliases__lead_to_operators() -> None:
    assert set(ALIASES.values()) <= set(ALU) | set(ACTIVATIONS)
    assert not set(ALIASES) & (set(ALU) | set(ACTIVATIONS))


@pytest.mark.parametrize("token", ["exponent", np.exp, np.linalg.norm, max, 3, None, SimpleNamespace(nki_token="exp")])
def test_alu_token__refuses_the_rest(token: object) -> None:
    with pytest.raises(TypeError, match=r"(?s)is not an ALU operator .*give an operator of nl, for example nl.add or nl.multiply"):
        alu_token(token)


@pytest.mark.parametrize("token", ["add", np.add, lambda x: x, 1.0])
def test_activation_token__refuses_the_rest(token: object) -> None:
    with pytest.raises(TypeError, match=r"(?s)is not an activation function .*one of the names .*gelu"):
        activation_token(token)


def test_import__loads_no_mlir() -> None:
    modules = "alu activation dtypes tokens".split()
    code = "; ".join([*(f"import nki_mlir.scalar.{m}" for m in modules), "import sys",
                      "print([m for m in sys.modules if m.split('.')[0] in ('mlir', 'torch_mlir')])"])
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
