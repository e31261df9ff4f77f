# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quotients of tiles become products with reciprocals, which devices have, powers squares; exact quotients stay."""

import ml_dtypes  # noqa: F401  (names bfloat16)
import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.migration.added_functions import DEFINITIONS, QUOTIENT, with_added_functions
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport
from tests.migration.test_migration import loaded

HEAD = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def kernel(x, n=3):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.load(x)
    wide = nl.load(x, dtype=nl.float32)
    total = nl.sum(wide, axis=1, keepdims=True)
"""
TAIL = "    nl.store(out, result)\n    return out\n"
CASES = [
    ("result = wide / wide", "result = nl.multiply(wide, nl.reciprocal(wide))"),
    ("result = wide / total", "result = nl.multiply(wide, nl.reciprocal(total).broadcast(1, wide.shape[1]))"),
    ("result = nl.divide(a, wide)", "result = nl.multiply(a, nl.reciprocal(wide))"),
    ("result = nl.exp(a) / nl.tanh(a)",
     "dividend = nl.exp(a)\n    result = nl.multiply(dividend, nl.reciprocal(nl.tanh(a), dtype=nl.float32), "
     "dtype=dividend.dtype)"),
    ("result = nl.exp(a) / nl.exp(wide)", "result = nl.multiply(nl.exp(a), nl.reciprocal(nl.exp(wide)))"),
    ("e = nl.exp(a); result = e / e", "result = nl.multiply(e, nl.reciprocal(e, dtype=nl.float32), dtype=e.dtype)"),
    ("e = nisa.activation(np.exp, a); result = e / e",
     "result = nl.multiply(e, nl.reciprocal(e, dtype=nl.float32), dtype=e.dtype)"),
    ("result = a / a", "result = nl.multiply(a, nl.reciprocal(a, dtype=nl.float32), dtype=quotient_dtype(a))"),
    ("result = wide / 4", "result = nl.multiply(wide, 0.25)"),
    ("result = wide / -4", "result = nl.multiply(wide, -0.25)"),
    ("result = -wide / total",          # the negated tile is computed once
     "wide_2 = nl.negative(wide)\n    result = nl.multiply(wide_2, nl.reciprocal(total).broadcast(1, wide_2.shape[1]))"),
    ("result = np.float32(3) / wide", "result = nl.multiply(nl.reciprocal(wide), np.float32(3))"),
    ("result = wide / n", "result = nl.multiply(wide, 1 / n)"),
    ("result = wide / (n + 1)", "result = nl.multiply(wide, 1 / (n + 1))"),
    ("result = a / n", "result = nl.multiply(a, 1 / n, dtype=quotient_dtype(a, n))"),
    ("result = a / (n * 2.0)", "result = nl.multiply(a, 1 / (n * 2.0), dtype=nl.float32)"),
    ("result = a / (7 * 2)", "result = nl.multiply(a, 1 / (7 * 2), dtype=quotient_dtype(a))"),
    ("result = (a + a) / 7", "tile = nl.add(a, a)\n    result = nl.multiply(tile, 1 / 7, dtype=quotient_dtype(tile))"),
    ("result = a / 7.0", "result = nl.multiply(a, 1 / 7.0, dtype=nl.float32)"),
    ("result = 2 / a", "result = nl.multiply(nl.reciprocal(a, dtype=nl.float32), 2, dtype=quotient_dtype(a))"),
    ("result = 1 / a", "result = nl.reciprocal(a, dtype=quotient_dtype(a))"),
    ("result = 1 / wide", "result = nl.reciprocal(wide)"),
    ("result = nl.divide(1.0, a)", "result = nl.reciprocal(a, dtype=nl.float32)"),
    ("result = n / wide", "result = nl.multiply(nl.reciprocal(wide), n)"),
    ("result = nl.divide(a, n, dtype=nl.bfloat16)", "result = nl.multiply(a, 1 / n, dtype=nl.bfloat16)"),
    ("wide[...] = wide / total; result = wide",
     "nisa.tensor_tensor(dst=wide, data1=wide, data2=nl.reciprocal(total).broadcast(1, wide.shape[1]), op=nl.multiply)"),
    ("wide /= n; result = wide", "nisa.tensor_scalar(dst=wide, data=wide, op0=nl.multiply, operand0=1 / n)"),
    ("wide /= wide; result = wide",
     "nisa.tensor_tensor(dst=wide, data1=wide, data2=nl.reciprocal(wide), op=nl.multiply)"),
]
POWERS = [
    ("result = nl.power(wide, 2)", "result = nl.square(wide)"),
    ("result = wide ** 2", "result = nl.square(wide)"),
    ("result = a ** 2.0", "result = nl.square(a, dtype=nl.float32)"),
    ("wide[...] = wide ** 0.3; result = wide",
     "nisa.tensor_scalar(dst=wide, data=wide, op0=nl.power, operand0=0.3)"),
    ("wide[...] = nl.power(1.5, wide); result = wide",
     "nisa.tensor_scalar(dst=wide, data=wide, op0=nl.power, operand0=1.5, reverse0=True)"),
    ("wide[...] = nl.power(nl.matmul(wide, wide[0:48, :]), 0.5); result = wide",
     "data=nl.copy(nl.matmul(nl.copy(nl.transpose(wide)), wide[0:48, :], transpose_x=True))"),
]
EXACT = [
    ("result = nl.floor(wide / n)", "result = nl.floor(nl.divide(wide, n))"),
    ("result = nl.floor(nl.divide(a, n), dtype=nl.int32)",
     "result = nl.floor(nl.divide(a, n, dtype=quotient_dtype(a, n)), dtype=nl.int32)"),
    ("result = wide // 3", "result = nl.floor(nl.divide(wide, 3, dtype=nl.float32))"),
    ("k = nl.load(x, dtype=nl.int32); result = k / n", "result = nl.divide(k, n)"),
    ("result = nl.divide(a, n, dtype=nl.int32)", "result = nl.divide(a, n, dtype=nl.int32)"),
]
INVERTED = "the quotient becomes a product with a reciprocal, because devices do not divide tiles"


def migrated(line):
    report = MigrationReport("kernel.py")
    text = rewritten(HEAD + "".join(f"    {part}\n" for part in line.split("; ")) + TAIL, report)
    assert not [e.text for e in report.entries if e.left]
    return text, {e.text for e in report.entries}


@pytest.mark.parametrize(("line", "product"), CASES)
def test_quotient_becomes_a_product(line, product):
    text, report = migrated(line)
    assert product in text and "nl.divide" not in text and INVERTED in report


@pytest.mark.parametrize(("line", "quotient"), EXACT)
def test_exact_quotient_stays(line, quotient):
    text, report = migrated(line)
    assert quotient in text and "nl.divide stays, because its quotients are exact; devices do not have it" in report


@pytest.mark.parametrize("name", ["mod", "fmod"])
def test_what_the_simulator_alone_has__is_reported(name):
    text, report = migrated(f"result = nl.{name}(wide, 3.0)")
    assert f"nl.{name}(wide, 3.0)" in text
    assert f"nl.{name} stays; the current generation has it in the simulator alone" in report


@pytest.mark.parametrize(("line", "new"), POWERS)
def test_power_becomes_an_instruction(line, new):
    assert new in migrated(line)[0]


@pytest.mark.share(4)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("line", [line for line, _ in [*CASES, *POWERS]])
def test_values_are_those_of_the_quotient(line, dtype, tmp_path):
    old, new = tmp_path / "quotient_old.py", tmp_path / "quotient_new.py"
    old.write_text(HEAD + "".join(f"    {part}\n" for part in line.split("; ")) + TAIL)
    new.write_text(migrated(line)[0])
    install()
    x = np.random.default_rng(7).uniform(0.5, 3.0, (64, 48)).astype(dtype)
    values = [np.float32(loaded(file, file.stem).kernel(x)) for file in (old, new)]
    # One unit in the last place of bfloat16 is 2 ** -7; in float32 the product is rounded once more than the quotient.
    np.testing.assert_allclose(values[1], values[0], rtol=2e-7 if dtype == "float32" else 2.0 ** -7)


def test_the_function_is_behind_the_imports():
    text = "import nki\nimport nki.language as lang\n\nX = 1\n\nresult = quotient_dtype(1)\n"
    definition = [line.replace("nl.", "lang.") for line in DEFINITIONS[QUOTIENT].splitlines()]
    lines = text.splitlines()
    assert with_added_functions(text).splitlines() == [*lines[:2], *definition, *lines[2:]]
    assert with_added_functions(with_added_functions(text)) == with_added_functions(text)
    assert with_added_functions("quotient = 1\n") == "quotient = 1\n"
