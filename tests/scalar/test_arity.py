# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions take as many operands as they say, by which modules are refused, and have the profiler's names."""

import inspect

import numpy as np
import pytest

from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.mathematics import MATH


def operands_of(expand: object, before: int) -> int:
    """The operands of ``expand(emitter, ..., *operands)``."""
    kinds = [p.kind for p in inspect.signature(expand).parameters.values()]         # type: ignore[arg-type]
    return kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) - before


@pytest.mark.parametrize("function", [*ALU.values(), *MATH.values()], ids=str)
def test_operators__take_the_operands_that_they_say(function):
    assert function.arity == operands_of(function.expand, 2)
    values = [np.ones(2, np.float32 if getattr(function, "floats", not function.integers) else np.int32)] * function.arity
    assert np.asarray(function.numpy(*values)).shape == (2,)


@pytest.mark.parametrize("function", ACTIVATIONS.values(), ids=str)
def test_activations__take_one_operand(function):
    assert function.arity == operands_of(function.expand, 1) == 1
    assert function.numpy(np.full(2, 0.5, np.float32)).shape == (2,)


def test_activations__have_the_names_of_the_profiler():
    assert {a.name: a.asm for a in ACTIVATIONS.values() if a.asm != a.name} == {"identity": "copy"}
