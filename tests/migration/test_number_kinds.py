# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A number's kind is known from calls, not from defaults: an operation with a float is float32, with an integer not."""

import ml_dtypes  # noqa: F401  (names bfloat16)
import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport
from tests.migration.test_migration import as_kernel, loaded

HEAD = """import math

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np


def by(tile, number=3):
    return tile * number


@nki.jit
def kernel(x, n=3, k: int = 2):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.load(x)
    b = nl.load(x, dtype=nl.bfloat16)
"""
TAIL = "    nl.store(out, result)\n    return out\n"
CASES = [
    ("result = b / n", "result = nl.multiply(b, 1 / n, dtype=quotient_dtype(b, n))"),
    ("result = a / (n * 2)", "result = nl.multiply(a, 1 / (n * 2), dtype=quotient_dtype(a, n * 2))"),
    ("result = n / b", "result = nl.multiply(nl.reciprocal(b, dtype=nl.float32), n, dtype=quotient_dtype(b, n))"),
    ("result = b * n", "result = nl.multiply(b, n, dtype=number_dtype(nl.bfloat16, n))"),
    ("result = n - a", "result = nl.subtract(n, a, dtype=number_dtype(x.dtype, n))"),
    ("result = nl.exp(b) + n", "result = nl.add(nl.exp(b), n, dtype=number_dtype(nl.bfloat16, n))"),
    ("result = nl.maximum(nl.exp(a) * b, n)", "dtype=number_dtype(tile.dtype, n))"),
    ("result = nl.where(b > 1, b, n)", "b, n, dtype=number_dtype(nl.bfloat16, n))"),
    ("result = b * 2 ** -n", "nl.multiply(b, 2 ** -n, dtype=number_dtype(nl.bfloat16, 2 ** -n))"),
    ("c = b * n; result = c / 7", "result = nl.multiply(c, 1 / 7)\n"),
    ("result = by(b, n)", "nl.multiply(tile, number, dtype=number_dtype("),
    ("i = nl.load(x, dtype=nl.int8); result = i * n", "result = nl.multiply(i, n, dtype=number_dtype(nl.int8, n))"),
    ("i = nl.load(x, dtype=nl.int32); result = i / n", "result = nl.divide(i, n)"),
    ("result = a * 2", "result = nl.multiply(a, 2, dtype=number_dtype(x.dtype, 2))"),
    ("result = nl.maximum(3 - a, 1)", "tile = nl.subtract(3, a, dtype=number_dtype(x.dtype, 3))"),
]
KNOWN = [       # texts that no function of the kind lengthens
    ("result = b * k", "result = nl.multiply(b, k)"),
    ("result = b / 7", "result = nl.multiply(b, 1 / 7)"),
    ("result = b * math.sqrt(k)", "result = nl.multiply(b, math.sqrt(k), dtype=nl.float32)"),
    ("result = b * np.float32(k)", "result = nl.multiply(b, np.float32(k), dtype=nl.float32)"),
    ("nl.store(out, a); out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm); nl.store(out, a * 200); "
     "result = nl.load(out, dtype=nl.float32); out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)",
     "nl.store(out, nl.multiply(a, 200))"),
    ("result = nl.exp(a) * 2", "result = nl.multiply(nl.exp(a), 2)"),
    ("result = by(b)", "return nl.multiply(tile, number)"),
    ("result = by(b, 2.5)", "return nl.multiply(tile, number, dtype=nl.float32)"),
    ("w = nl.load(x, dtype=nl.float32); result = w * n / n", "result = nl.multiply(nl.multiply(w, n), 1 / n)"),
]
NUMBERS = [2, 2.5, np.float32(2.5), np.int32(3)]


def old_text(line: str) -> str:
    return HEAD + "".join(f"    {part}\n" for part in line.split("; ")) + TAIL


@pytest.mark.share(4)
@pytest.mark.parametrize(("line", "text"), [*CASES, *KNOWN])
def test_values_are_those_of_the_number_that_a_caller_passes(line, text, tmp_path):
    report = MigrationReport("kernel.py")
    new_text = rewritten(old_text(line), report)
    assert text in new_text and not [e.text for e in report.entries if e.left]
    if (line, text) in KNOWN:
        assert "_dtype(" not in new_text
    files = tmp_path / "kinds_old.py", tmp_path / "kinds_new.py"
    for file, content in zip(files, (old_text(line), new_text)):
        file.write_text(content)
    install()
    old, new = (as_kernel(loaded(file, file.stem).kernel) for file in files)
    for dtype in ("bfloat16", "int8") if " a" in line else ("bfloat16",):
        x = np.random.default_rng(7).uniform(1.0, 3.0, (8, 16)).astype(dtype)
        for number in NUMBERS:
            is_integer = isinstance(number, int | np.integer)
            if "-n" in line and is_integer and not isinstance(number, int):
                continue                        # NumPy refuses an integer to a negative power
            for on in ("eager", "interpreter", "jit", "isa"):
                expected = old.run([x], {"n": number}, on)
                result = new.run([x], {"n": number}, on)
                is_narrow = np.array_equal(expected, expected.astype("bfloat16").astype("float32"))
                assert is_narrow == np.array_equal(result, result.astype("bfloat16").astype("float32")), (number, on)
                # The product with a reciprocal may differ from the quotient by a unit in the last place.
                np.testing.assert_allclose(result, expected, rtol=2.0 ** -7 if is_narrow else 3e-7, err_msg=str(on))
