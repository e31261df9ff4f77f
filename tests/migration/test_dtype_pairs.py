# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of all pairs of dtypes: the new text gives the dtypes and values of the beta generation."""

import contextlib
import io
import os
import random
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("libcst")

from nki_mlir import compat
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.migration.added_functions import COMMON, DEFINITIONS
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport
from nki_mlir.scalar.dtypes import BY_NAME, promote

from ..language.generated import kernel_from_text
from .test_text import HEAD

TILES = {"m": "", "u8": "uint8", "i8": "int8", "i32": "int32", "u32": "uint32", "f16": "float16", "bf16": "bfloat16",
         "f32": "float32"}
FLOATS = {"f16", "bf16", "f32"}
KERNEL = """
@nki.jit
def kernel(x):
    t = nl.load(x[0:4, 0:8])
    m = nl.greater(t, 0)
{tiles}
{statements}
    print(result.dtype)
    out = nl.ndarray(result.shape, nl.float32, buffer=nl.shared_hbm)
    nl.store(out[...], nl.copy(result, dtype=nl.float32))
    return out
"""
TWO = ("nl.add({}, {})", "nl.subtract({}, {})", "nl.bitwise_and({}, {})", "nl.divide({}, {})", "nl.maximum({}, {})",
       "nl.greater({}, {})", "nisa.tensor_tensor({}, {}, np.add)", "nl.where(m, {}, {})")
NUMBER = ("nl.add({}, {})", "nl.multiply({1}, {0})", "nl.subtract({1}, {0})", "nisa.tensor_scalar({}, np.subtract, {})",
          "nisa.tensor_scalar({}, np.subtract, {}, reverse0=True)", "nl.where(m, {}, {})", "nl.divide({}, {})",
          "nl.maximum({}, {})")
ONE = (*(f"nl.{name}({{}})" for name in ("negative", "abs", "square", "exp", "copy", "relu", "sign", "floor", "invert",
                                         "sqrt", "reciprocal", "transpose")),
       *(f"nl.{name}({{}}, axis=[1])" for name in ("sum", "max", "min", "mean", "var", "prod", "softmax")),
       "nisa.tensor_reduce(np.add, {}, axis=[1])", "nisa.activation(nl.exp, {})", "nl.bitwise_or({}, 1)",
       "nisa.activation(nl.square, {}, scale=2.0)", "nisa.tensor_copy({})", "nisa.reciprocal({})",
       "nisa.scalar_tensor_tensor(data={0}, op0=np.add, operand0=1.0, op1=np.multiply, operand1={0})")
OPERATIONS = [
    *(form.format(p, q) for form in TWO for p in TILES for q in TILES if "bitwise" not in form or not {p, q} & FLOATS),
    *(form.format(p, n) for form in NUMBER for p in TILES for n in ("2", "1.5")),
    *(form.format(p) for form in ONE for p in TILES)]
ROUNDED_TWICE = ("divide", "mean", "var", "softmax")
X = np.array([[-3, -1, 0, 1, 2, 3, 100, 6]] * 4, np.float32)


def outcome(text):
    """The name of the dtype that a kernel prints, and its result."""
    compat.install()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        result = kernel_from_text(text, {}, jit=lambda kernel: kernel).on("eager")(X.copy())
    return printed.getvalue().strip().rpartition(".")[2], np.asarray(result)


def check_operation(operation, into):
    tiles = "\n".join(f"    {name} = nl.copy(t, dtype=nl.{dtype})" for name, dtype in TILES.items() if dtype)
    columns = 1 if "axis=[1]" in operation and "softmax" not in operation else 8
    shape = "(8, 4)" if "transpose" in operation else f"(4, {columns})"
    statements = f"    result = {operation}" if into is None else (
        f"    result = nl.full({shape}, 3, nl.{into})\n    result[...] = {operation}")
    old = HEAD.removesuffix("@nki.jit\n") + KERNEL.format(tiles=tiles, statements=statements)
    try:
        dtype, expected = outcome(old)
    except NkiMlirError:
        return                              # the beta generation refuses these dtypes
    report = MigrationReport("kernel.py")
    new = rewritten(old, report)
    if not report.is_complete:
        return
    new_dtype, values = outcome(new)
    assert new_dtype == dtype, f"{operation}\n{new}"
    rtol = 2.0 ** -7 if any(name in operation for name in ROUNDED_TWICE) else 0
    np.testing.assert_allclose(values, expected, rtol=rtol, err_msg=f"{operation}\n{new}")


@pytest.mark.filterwarnings("ignore")
def test_some_operations_keep_dtypes_and_values():
    for operation in random.Random(1).sample(OPERATIONS, 6):
        check_operation(operation, None)


def test_common_dtype_of_all_pairs():
    names = ("bool_", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float8_e4m3", "float8_e5m2", "bfloat16",
             "float16", "tfloat32", "float32")
    nl = SimpleNamespace(**{name: BY_NAME[name] for name in names})
    scope = {"nl": nl}
    exec(DEFINITIONS[COMMON], scope)
    for first in vars(nl).values():
        for second in vars(nl).values():
            assert scope[COMMON](first, second) is promote(first, second), (first, second)


def test_choice_between_tiles_of_unknown_dtypes():
    text = HEAD + """def kernel(x, y, m):
    out = nl.ndarray((4, 8), dtype=nl.float16, buffer=nl.shared_hbm)
    result = nl.where(nl.load(m), nl.load(x), nl.load(y))
    assert result.dtype == nl.float16
    nl.store(out, result)
    return out
"""
    arrays = X.astype(np.float16), X.astype(np.int8), (X > 1).astype(np.uint8)
    compat.install()
    report = MigrationReport("kernel.py")
    old, new = (kernel_from_text(t, {}, jit=lambda kernel: kernel).on("eager")(*arrays)
                for t in (text, rewritten(text, report)))
    assert report.is_complete
    np.testing.assert_array_equal(new, old)


def test_bits_of_tiles_of_different_widths():
    check_operation("nl.bitwise_and(i8, u32)", "float32")


@pytest.mark.fuzz
@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE") != "fuzz", reason="minutes: make fuzz")
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("into", [None, "float32", "uint8", "bfloat16"])
@pytest.mark.filterwarnings("ignore")
def test_operations_keep_dtypes_and_values(into, part):
    for operation in OPERATIONS[part::8]:
        check_operation(operation, into)
