# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``tools/line_probes.py`` says which lines of functions ran, by test, and changes nothing else."""

import ast
import builtins
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import line_probes
from tools.line_probes import NAME, ProbeTable, instrumented, union
from tools.seeding import PACKAGE, ROOT

SOURCE = '''"""A module."""
LIMIT = 1
def f(x):
    """A function."""
    a = LIMIT
    if x > 2:
        return a
    for i in range(x):
        if i == 1:
            break
    else:
        a = 5
    try:
        g(a)
    except ValueError:
        a = 3
    finally:
        a += 1
    match x:
        case 1:
            a += 7
        case _ if a:
            a += 8
    with open("/dev/null"):
        pass
    def inner():
        return a
    return (
        inner())
class C:
    def m(self): return 2
def g(a):
    if a == 5: raise ValueError
'''
ALL = {5, 6, 8, 13, 14, 15, 18, 19, 20, 22, 24, 25, 26, 27, 28, 29, 33}


@pytest.mark.parametrize("argument, result, lines", [
    (3, 1, {5, 6, 7}), (0, 12, ALL | {12, 16, 23}), (1, 11, ALL | {9, 12, 16, 21}), (2, 10, ALL | {9, 10, 23})])
def test_lines__are_those_that_run(argument, result, lines, monkeypatch):
    tree, probes = instrumented(SOURCE)
    bits = bytearray(len(probes))
    monkeypatch.setattr(builtins, NAME, bits, raising=False)
    names = {}
    exec(compile(tree, "source", "exec"), names)
    assert not any(bits) and names["f"].__doc__ == "A function." and names["__doc__"] == "A module."
    assert names["f"].__code__.co_firstlineno == 3
    assert names["f"](argument) == result
    assert {line for seen, run in zip(bits, probes) if seen for line in run} == lines


def test_all_lines_of_functions__have_a_probe():
    for file in ("tools/mutation.py", "nki_mlir/waist/nest.py", "nki_mlir/targets/cpu/loops.py"):
        text = (ROOT / file).read_text()
        probed = {line for run in instrumented(text)[1] for line in run}
        functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        inside = {statement.lineno for function in functions for node in function.body for statement in ast.walk(node)
                  if isinstance(statement, ast.stmt)}
        documented = {function.body[0].lineno for function in functions if ast.get_docstring(function) is not None}
        assert inside - documented <= probed


def test_union__is_what_any_run_passed():
    assert union([bytes([1, 0, 0, 0]), bytes([0, 0, 1, 0])]) == bytes([1, 0, 1, 0])


TESTS = """
import os
import subprocess
import sys

from package import work

def test_here():
    assert work.first(1) == 2

def test_in_a_process():
    subprocess.run([sys.executable, "-c", "from package import work; work.second(1)"], check=True)

def test_in_a_fork():
    if not (child := os.fork()):
        work.second(2)
        os._exit(0)
    os.waitpid(child, 0)

def test_of_nothing():
    pass
"""
WORK = "def first(x):\n    return x + 1\n\ndef second(x):\n    return x\n\ndef third(x):\n    return x\nthird(1)\n"


def test_lines_of_tests__also_in_processes_that_they_start(tmp_path):
    package, recorded = tmp_path / "package", tmp_path / "recorded"
    for folder in (package, recorded):
        folder.mkdir()
    (package / "work.py").write_text(WORK)
    (tmp_path / "test_work.py").write_text(TESTS)
    (tmp_path / "sitecustomize.py").write_text("import tools.line_probes\n\ntools.line_probes.start()\n")
    table = ProbeTable(package)
    table.write(recorded, package)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
                   line_probes.DIRECTORY: str(recorded), "NKI_MLIR_SECONDS": str(tmp_path / "seconds.json")}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "tools.record_tests", "-p", "no:cacheprovider", "-c",
                           os.devnull, "--rootdir", str(tmp_path), "test_work.py"], cwd=tmp_path, env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {test.rpartition("::")[2]: table.lines("work.py", line_probes.zlib.decompress(bits))
             for test, bits in line_probes.collected(recorded).items()}
    assert lines[""] >= {8} and not (package / "__pycache__").exists()
    assert lines["test_here"] == {2}
    assert lines["test_in_a_fork"] == {5}
    assert lines["test_in_a_process"] == {5, 8}             # with what its import runs
    assert not lines.get("test_of_nothing")


def test_table__numbers_the_probes_of_all_files():
    table = ProbeTable(ROOT / PACKAGE / "scalar")
    last = max(table.files, key=lambda file: table.files[file][0])
    assert table.size == sum(len(lines) for _, lines in table.files.values()) == (
        table.files[last][0] + len(table.files[last][1]))
    assert set(table.files) == {str(f.relative_to(ROOT / PACKAGE / "scalar"))
                                for f in Path(ROOT / PACKAGE / "scalar").rglob("*.py")}
