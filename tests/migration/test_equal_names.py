# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of one name: those of different functions are all rewritten, those of one block are an error."""

import ast

import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.migration.equal_names import NamedTwice, with_old_names, with_unique_names
from nki_mlir.migration.files import MigrationError, migrated
from tests.migration.test_migration import loaded

install()
HEAD = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n\n\n"
KERNEL = """@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) OPERATION)
    return out
"""
FACTORIES = HEAD + "".join(
    f"def {name}(number):\n" + "".join(f"    {line}\n" for line in KERNEL.replace("OPERATION", operation).splitlines())
    + "    return kernel\n\n\n" for name, operation in (("scaled", "* number"), ("shifted", "+ number")))


@pytest.mark.parametrize("text", [
    FACTORIES, FACTORIES + KERNEL.replace("OPERATION", "* 2"), HEAD + KERNEL.replace("OPERATION", "* 2") + (
        "\n\n" + FACTORIES.removeprefix(HEAD))], ids=["factories", "and one after", "and one before"])
def test_kernels_of_one_name_in_different_functions(text, tmp_path):
    file = tmp_path / "factories.py"
    file.write_text(text)
    result, = migrated(file, "2.32")
    assert result.report.is_complete and "_of_line_" not in result.new + str(result.report)
    assert result.new.count("def kernel(") == text.count("def kernel(")
    assert not [n for n in ast.walk(ast.parse(result.new)) if isinstance(n, ast.BinOp) and isinstance(n.left, ast.Call)
                and ast.unparse(n.left.func) == "nl.load"]          # no operator on a tile stays
    new = tmp_path / "new.py"
    new.write_text(result.new)
    before, after = loaded(file, "equal_before"), loaded(new, "equal_after")
    x = np.linspace(-2, 2, 64, dtype=np.float32).reshape(8, 8)
    for name in ("scaled", "shifted"):
        np.testing.assert_array_equal(getattr(after, name)(3)(x), getattr(before, name)(3)(x))


@pytest.mark.parametrize("text, line, first", [
    (KERNEL + "\n\n" + KERNEL, 13, 6), ("if True:\n    pass\n" + KERNEL + "\n\n" + KERNEL, 15, 8),
    ("def f(kernel):\n    return kernel\n\n\n" + KERNEL, None, None),
    (KERNEL + "\n\ndef f(kernel):\n    kernel(1)\n" + "".join(f"    {row}\n" for row in KERNEL.splitlines()), 15, 6)])
def test_two_kernels_of_one_block_are_an_error(text, line, first, tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(HEAD + text.replace(" OPERATION", ""))
    if line is None:
        assert migrated(file, "2.32")[0].report.is_complete
        return
    with pytest.raises(MigrationError) as error:
        migrated(file, "2.32")
    assert str(error.value).splitlines()[0] == (
        f"{file}:{line}:1: error: kernel is the name of the kernel in line {first}, too [NKI-MIGRATE]")
    assert "  fix: give each kernel its own name" in str(error.value)


@pytest.mark.parametrize("text", ["x = 1\n", FACTORIES.replace("def shifted", "def kernel_of_line_3"), HEAD])
def test_texts_without_equal_names(text):
    if "kernel_of_line_3" in text:
        with pytest.raises(NamedTwice, match="kernel is the name of the kernel in line 7, too"):
            with_unique_names(text)
    else:
        assert with_unique_names(text) == (text, {})
    assert with_old_names("kernel_of_line_12(x), kernel", {"kernel_of_line_12": "kernel"}) == "kernel(x), kernel"


def test_names_of_the_user_that_look_like_unique_ones_stay(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(HEAD + "rows_of_line_3 = 8\n\n\n" + KERNEL.replace("OPERATION", "* 2").replace(
        "nl.store(out, nl.load(x)", "sum_of_line_2 = nl.load(x)\n    nl.store(out, sum_of_line_2"))
    new = migrated(file, "2.32")[0].new
    assert "rows_of_line_3 = 8\n" in new and "sum_of_line_2 = nl.load(x)\n" in new and new.count("sum_of_line_2") == 2
