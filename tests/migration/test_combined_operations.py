# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that one instruction computes, and names that a text does not define."""

import ast
from pathlib import Path

import pytest

from nki_mlir.migration.files import migrated

from .test_rewritten_text import rewritten


def statements(folder: Path, body: str) -> list[str]:
    """Return the statements that the body of a kernel becomes, each on one line."""
    return list(map(ast.unparse, ast.parse("\n".join(rewritten(folder, body))).body))


SELECTION = "t = nl.load(x)\nlow = nl.zeros((128, 64), dtype=x.dtype)\nchosen = nl.greater(t, 0.5)\n"
PREDICATE = "predicate=chosen.view(nl.uint8)"


@pytest.mark.parametrize(("source", "lines"), [
    ("low[...] = nl.where(chosen, t, low)", [f"nisa.tensor_copy_predicated(dst=low, src=t, {PREDICATE})"]),
    ("low[...] = nl.where(chosen, low, t)",
     [f"nisa.tensor_copy_predicated(dst=low, src=t, {PREDICATE}, reverse_pred=True)"]),
    ("low[...] = nl.where(chosen, t, 0.0)",
     ["nisa.tensor_copy(dst=low, src=nl.where(chosen, t, 0.0, dtype=nl.float32))"]),     # float32 of any dtype
    ("low[...] = nl.where(chosen, t, t)",
     ["nisa.tensor_copy(dst=low, src=t)", f"nisa.tensor_copy_predicated(dst=low, src=t, {PREDICATE})"])])
def test_a_selection_is_written_under_its_predicate(source, lines, tmp_path):
    assert statements(tmp_path, SELECTION + source)[-len(lines):] == lines


@pytest.mark.parametrize(("value", "line"), [
    ("total * column + other", "scalar_tensor_tensor(dst=total, data=total, op0=nl.multiply, operand0=column, op1=nl.add, "
                               "operand1=other)"),
    ("other - total * column", "scalar_tensor_tensor(dst=total, data=total, op0=nl.multiply, operand0=column, "
                               "op1=nl.subtract, operand1=other, reverse1=True)"),
    ("(1.0 - total) * other", "scalar_tensor_tensor(dst=total, data=total, op0=nl.subtract, operand0=1.0, reverse0=True, "
                              "op1=nl.multiply, operand1=other)"),
    ("total * other + other", "tensor_tensor(dst=total, data1=nl.multiply(total, other), data2=other, op=nl.add)"),
    ("-other", "tensor_scalar(dst=total, data=other, op0=nl.multiply, operand0=-1.0)")])
def test_one_instruction_computes_two_operations(value, line, tmp_path):
    fills = "total, other = nl.ones((128, 64), nl.float32), nl.ones((128, 64), nl.float32)\n"
    lines = statements(tmp_path, fills + f"column = nl.ones((128, 1), nl.float32)\ntotal[...] = {value}")
    assert lines[-1] == f"nisa.{line}"


def test_a_mean_is_written_by_one_instruction(tmp_path):
    lines = statements(tmp_path, "t = nl.ones((128, 64), nl.float32)\nmeans = nl.ndarray((128, 2), nl.float32)\n"
                                 "means[:, 0] = nl.mean(t, axis=1)")
    assert lines[-1] == "nisa.tensor_scalar(dst=means[:, 0:1], data=nl.sum(t, axis=1), op0=nl.multiply, operand0=0.015625)"


def test_a_function_that_is_a_default_computes_a_tile(tmp_path):
    file = tmp_path / "gated.py"
    file.write_text("""import neuronxcc.nki.language as nl


def gated(tile, gate, act=nl.silu):
    return act(nl.copy(gate)) * nl.exp(tile)
""")
    one, = migrated(file, "2.32")
    assert "return nl.multiply(act(nl.copy(gate)), nl.exp(tile))" in one.new and one.report.is_complete


def test_a_star_import_lists_the_names_in_use(tmp_path):
    file = tmp_path / "star.py"
    file.write_text("""from neuronxcc.nki import jit
from neuronxcc.nki.language import *


@jit
def double(x):
    out = ndarray(x.shape, dtype=x.dtype, buffer=shared_hbm)
    store(out, load(x) * 2)
    return out
""")
    one, = migrated(file, "2.32")
    assert "*" not in one.new and "nl.store(out, nl.multiply(nl.load(x), 2))" in one.new and one.report.is_complete


def test_a_star_import_lists_public_names_alone(tmp_path):
    file = tmp_path / "star.py"
    file.write_text("""import numpy as np
from neuronxcc.nki.isa import *
from neuronxcc.nki.language import *


def scaled(exp):
    return np.float32(exp)


def logarithm(tile):
    return log(exp(tile))
""")
    one, = migrated(file, "2.32")
    assert "*" not in one.new and "import np" not in one.new and one.report.is_complete
    assert "return nl.log(nl.exp(tile))" in one.new and "return np.float32(exp)" in one.new
    assert "from nki.language import exp\n" in one.new and "import nki.isa\n" in one.new


def test_a_loop_reduction_into_a_variable_allocates_it_in_the_first_iteration(tmp_path):
    file = tmp_path / "reduced.py"
    file.write_text("""import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def most(x):
    o = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    for j in nl.affine_range(2, 8):
        best = nl.loop_reduce(nl.load(x[:, nl.ds(j * 8, 8)]), op=nl.maximum, loop_indices=[j])
    nl.store(o, best)
    return o
""")
    one, = migrated(file, "2.32")
    assert one.report.is_complete
    assert """
        if j == 2:
            best = nl.ndarray(""" in one.new
    file.write_text(file.read_text().replace("        best = nl.loop_reduce(", "        nl.store(o, nl.loop_reduce(").replace(
        "[j])\n    nl.store(o, best)", "[j]))"))
    one, = migrated(file, "2.32")
    assert [(e.line, e.text) for e in one.report.entries if e.left] == [(9, "nl.loop_reduce that is not assigned")]


def test_imports_of_the_beta_generation_in_a_kernel_become_the_module_s(tmp_path):
    """Generated kernels import what they need themselves. An added function is in front of the first that calls it,
    also if the module imports more later."""
    file = tmp_path / "generated.py"
    file.write_text("""from neuronxcc import nki


@nki.jit
def kernel(v1, n):
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl
    import neuronxcc.nki.isa as nisa
    import numpy as np
    v2 = nl.ndarray((128, 64), dtype=np.float32, buffer=nl.shared_hbm)
    v3 = nisa.activation(op=np.exp, data=nl.load(v1), mask=None)
    nl.store(v2, v3 + nl.load(v1, dtype=nl.int32) * n)
    return v2


import math
""")
    one, = migrated(file, "2.32")
    assert "neuronxcc" not in one.new and one.report.is_complete
    assert one.new.index("import nki.isa as nisa") < one.new.index("def number_dtype") < one.new.index("def kernel")
    assert sorted(e.line for e in one.report.entries if "within a function" in e.text) == [9]
    assert [e.line for e in one.report.entries if "becomes one of the module" in e.text] == [6, 7, 8]


def test_names_that_nothing_defines_are_left(tmp_path):
    file = tmp_path / "names.py"
    file.write_text("""import neuronxcc.nki.language as nl


def scaled(x):
    return nl.multiply(nl.load(x), scale)


def doubled(x, *, by=2):
    try:
        return [len(x) * k * by for k in range(3)]
    except ValueError as error:
        raise error
""")
    one, = migrated(file, "2.32")
    assert [(e.line, e.text) for e in one.report.entries if e.left] == [
        (5, "the name scale, which nothing in the file defines: import or define it")]


def test_functions_of_files_that_are_not_there_are_left(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("""import math
import neuronxcc.nki.language as nl
import absent_package.tools as tools
from beside import doubled
from neuronxcc import nki
from absent_module import scaled


@nki.jit
def kernel(x):
    return doubled(scaled(nl.load(x))) * math.sqrt(4) + tools.one() + tools.one()
""")
    (tmp_path / "beside.py").write_text("def doubled(tile):\n    return tile * 2\n")
    one, = migrated(file, "2.32")
    assert [(e.line, e.text) for e in one.report.entries if "absent" in e.text] == [
        (11, "absent_package.tools.one is neither beside the file nor installed: migrate the directory that has it"),
        (11, "absent_module.scaled is neither beside the file nor installed: migrate the directory that has it")]


def test_operators_on_results_of_unknown_functions_are_left(tmp_path):
    file = tmp_path / "unknown.py"
    file.write_text("""import elsewhere
import neuronxcc.nki.language as nl


def scaled(x):
    return elsewhere.rotated(nl.load(x)) * 2
""")
    one, = migrated(file, "2.32")
    assert [(e.line, e.text) for e in one.report.entries if e.left] == [
        (6, "an operand that may or may not be a tile: the text does not show it"),
        (6, "elsewhere.rotated is neither beside the file nor installed: migrate the directory that has it")]
