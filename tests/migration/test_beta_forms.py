# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels in the form of the beta generation in files that already import the current one."""

import pytest

from nki_mlir import extensions
from nki_mlir.cli.migrate import main
from nki_mlir.cli.migration_check import printed_cases
from nki_mlir.migration.beta_forms import as_beta, functions_in_beta_form
from nki_mlir.migration.files import migrated
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

HEAD = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n"
BETA = """@nki.jit
def scaled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:32, 0:16]
    for i in nl.affine_range((x.shape[0] + 31) // 32):
        tile = nl.load(x[i * 32 + i_p, i_f], mask=i * 32 + i_p < x.shape[0])
        nl.store(out[i * 32 + i_p, i_f], nisa.activation(nl.exp, tile), mask=i * 32 + i_p < x.shape[0])
    return out
"""
CURRENT = """@nki.jit
def shifted(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    row = nl.load(x[0])
    nisa.tensor_scalar(row, row, nl.add, 1.0)
    nisa.dma_copy(out[0], row)
    return out
"""


def test_values_and_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(extensions, "EXECUTORS", ("eager",))
    file = tmp_path / "kernel.py"
    file.write_text(HEAD + BETA)
    assert main([f"{file}:scaled", "--check", "40x16xf32"]) == 0
    new, report = capsys.readouterr()
    assert "mask" not in new and "nisa.activation(dst=" in new and "scaled on eager: the same values\n" in report


def test_a_kernel_that_is_printed__keeps_the_names_of_its_source(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(HEAD + "import numpy as np\n\n\n" + BETA.replace("i in", "row in").replace("i * 32", "row * 32")
                    + "\n\ndef cases():\n    return [(scaled, (np.ones((64, 16), np.float32),))]\n")
    old, = migrated(file, "2.32")
    assert "    for row in range(2):\n" in printed_cases(old, {"scaled"}, "2.32")["scaled"]


def test_functions_of_the_current_form_stay():
    report = MigrationReport("kernel.py")
    new = rewritten(HEAD + BETA + "\n\n" + CURRENT, report)
    assert new.endswith(CURRENT) and "mgrid" not in new and report.is_complete


@pytest.mark.parametrize("value", ["list(x.shape)", "dict(first=1)", "sizes_of(x)", "[1, 2]", "x.shape[:]"])
def test_elements_of_other_objects_than_tiles_are_no_form_of_beta(value):
    kernel = CURRENT.replace("    row = ", f"    sizes = {value}\n    sizes[0] = 4\n    row = ")
    assert functions_in_beta_form(HEAD + kernel) == set()
    tile = kernel.replace(f"sizes = {value}", "sizes = nl.ndarray((4, 4), nl.float32, buffer=nl.sbuf)")
    assert functions_in_beta_form(HEAD + tile) == {"shifted"}


def test_calls_with_a_destination_stay_beside_masks():
    kernel = """@nki.jit
def kernel(x):
    tile = nl.load(x[nl.arange(32)[:, None], nl.arange(16)[None, :]])
    bank = nl.ndarray((32, 16), nl.float32, buffer=nl.psum)
    nisa.memset(tile, 0)
    nisa.nc_matmul(bank, tile, tile, accumulate=False)
    nisa.tensor_tensor(tile, tile, bank, nl.add, mask=nl.arange(32)[:, None] < 8)
"""
    report = MigrationReport("kernel.py")
    new = rewritten(HEAD + kernel, report)
    assert """    nisa.memset(dst=tile, value=0)
    nisa.nc_matmul(dst=bank, stationary=tile, moving=tile, accumulate=False)
    nisa.tensor_tensor(dst=tile[0:8], data1=tile[0:8], data2=bank[0:8], op=nl.add)
""" in new and report.is_complete


@pytest.mark.parametrize("body", [
    "y[0:4] = nl.exp(x)", "y[...] += nl.exp(x)", "y = nl.ndarray((4, 8), nl.float32); y[0] = x", "nl.store(x, y, mask=m)",
    "return nisa.tensor_copy(x)", "return nisa.memset((4, 4), 0, nl.float32)", "return nl.program_id(1)",
    "return nki.simulate_kernel(f, x)"])
def test_beta_form(body):
    assert functions_in_beta_form(f"{HEAD}def f(x, y):\n    {body}\n") == {"f"}


@pytest.mark.parametrize("body", [
    "y[0:4] = x", "y[0] = nl.exp(x)", "nl.store(x, y, mask=None)", "nisa.tensor_copy(x, y)", "copy = nisa.tensor_copy(dst=x, src=y)",
    "y = nl.ndarray((4, nl.par_dim(8)), nl.float32)", "return nl.program_id(0)", "return nl.load(x[0:4])"])
def test_no_beta_form(body):
    assert not functions_in_beta_form(f"{HEAD}def f(x, y):\n    {body}\n")


def test_functions_that_call_each_other():
    text = HEAD + "\n".join(f"def {name}(x, y):\n    return {value}" for name, value in {
        "load": "nl.load(x)", "kernel": "exp(load(x))", "exp": "nisa.activation(nl.exp, x)", "other": "nl.load(y)"}.items())
    assert functions_in_beta_form(text) == {"load", "kernel", "exp"}


def test_imports_of_the_beta_generation():
    assert as_beta("import nki\nfrom nki import jit\nimport nki.language as nl\nfrom nki.isa import iota\n") == (
        "import neuronxcc.nki as nki\nfrom neuronxcc.nki import jit\nimport neuronxcc.nki.language as nl\n"
        "from neuronxcc.nki.isa import iota\n")
    assert not as_beta(HEAD + CURRENT)
