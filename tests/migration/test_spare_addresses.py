# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses that nothing reads once the compiler allocates the tensors are not computed."""

import libcst as cst
import pytest

from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.spare_addresses import without_address_functions, without_addresses

HEAD = """import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.language as nl


@nki.jit
"""
KERNEL = """def kernel(x, allocate=True):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    size, n = x.shape[1] * 4, x.shape[0] // 128
    base = 0
    {update}
    y = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer={buffer})
    for i in nl.affine_range(n):
        y[...] = nl.load(x[nl.ds(i * 128, 128), :])
        nl.store(out[nl.ds(i * 128, 128), :], y)
    return out
"""
ALLOCATED = "ncc.sbuf.mod_alloc(base_addr=base)"


@pytest.mark.parametrize("update", ["base += size", "base = base + 2 * max(size, nl.tile_size.pmax)", "base = 64"])
@pytest.mark.parametrize("buffer", [ALLOCATED, f"{ALLOCATED} if allocate else nl.sbuf", f"nl.sbuf if allocate else {ALLOCATED}"])
def test_addresses_are_not_computed(update, buffer):
    report = MigrationReport("kernel.py")
    new = rewritten(HEAD + KERNEL.format(update=update, buffer=buffer), report)
    assert "base" not in new and "y = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)\n" in new
    assert "    size, n = x.shape[1] * 4, x.shape[0] // 128\n" in new and report.is_complete


@pytest.mark.parametrize(("assigned", "written"), [
    (ALLOCATED, "where = nl.sbuf"), (f"{ALLOCATED} if allocate else nl.sbuf", "where = nl.sbuf"),
    ("nl.psum", "where = nl.psum")])
def test_a_variable_that_is_a_buffer_names_its_memory(assigned, written):
    report = MigrationReport("kernel.py")
    new = rewritten(HEAD + KERNEL.format(update=f"where = {assigned}", buffer="where"), report)
    assert f"    {written}\n" in new and "dtype=x.dtype, buffer=where)" in new and "ncc" not in new
    assert "base" not in new or assigned == "nl.psum"
    assert report.is_complete


def test_a_buffer_in_one_of_two_memories_is_left():
    report = MigrationReport("kernel.py")
    rewritten(HEAD + KERNEL.format(update="where = nl.psum if allocate else nl.sbuf", buffer="where"), report)
    assert [e.text for e in report.entries if e.left] == ["a buffer that the text does not show"]


@pytest.mark.parametrize("body, expected", [
    ("a = 0\nu = f(a)\na += 4", None),                                      # read otherwise
    ("a = 0\na = a + step\nstep = 4", ""),
    ("step = n * 4\na = 0\nfor i in range(3):\n    a += step\nu = n", "for i in range(3):\n    pass\nu = n"),
    ("a = arena.take(4)\nu = 1", None),                                    # changes an object
    ("a = math.ceil(n / 4)\nu = 1", "u = 1"),
    ("b = 8\na = b\nu = b", "b = 8\nu = b"),
    ("a = lambda: 3\nb = 1", "b = 1"), ("u = 1", None)])
def test_what_only_addresses_read(body, expected):
    after = without_addresses(cst.parse_module(body).body, {"a", "n"})
    assert cst.Module(list(after)).code.strip() == (body if expected is None else expected)


def test_functions_that_only_return_addresses():
    text = "def alloc(i):\n    return align(i)\n\n\ndef align(i):\n    return i * 4\n\n\ndef other():\n    return 1\n"
    assert without_address_functions(text, {"alloc", "align"}, []).lstrip() == "def other():\n    return 1\n"
    assert without_address_functions(text, {"alloc", "align"}, ["from file import alloc"]) == text
    assert without_address_functions(text, {"alloc"}, []).lstrip() == text[text.index("def align"):]


INNER = """def kernel(x):
    n = x.shape[0] // 128
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    def bank_of(index):
        return index[0] % n

    def banks(idx, pdim_size, fdim_size, first=0):
        return first + bank_of(idx), 0, 0

    {assigned}
    for i in nl.affine_range(n):
        y = nl.ndarray((1, nl.par_dim(128), 64), dtype=x.dtype, buffer=ncc.psum.alloc({placed}))
        y[0] = nl.load(x[nl.ds(i * 128, 128), :])
        nl.store(out[nl.ds(i * 128, 128), :], y[0])
    return out{use}
"""


@pytest.mark.parametrize("assigned, placed", [("placed = functools.partial(banks, first=2)", "placed"),
                                              ("pass", "functools.partial(banks, first=2)")])
def test_inner_functions_that_only_return_addresses(assigned, placed):
    report = MigrationReport("kernel.py")
    new = rewritten("import functools\n" + HEAD + INNER.format(assigned=assigned, placed=placed, use=""), report)
    assert "bank" not in new and "functools" not in new and report.is_complete
    assert not any("inner function" in line or "operator" in line for line in str(report).splitlines())


def test_an_inner_function_that_others_read_stays():
    new = rewritten(HEAD + INNER.format(assigned="placed = banks", placed="placed", use=", bank_of([1])"), MigrationReport("kernel.py"))
    assert "def bank_of(" in new and "banks" not in new
