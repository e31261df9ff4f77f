# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-migrate``: its report, its files, its exit status, and what it cannot read."""

import os
import subprocess
import sys
from threading import Thread

import pytest

from nki_mlir.alone import ALONE
from nki_mlir.cli import migrate
from nki_mlir.cli.migrate import main

KERNEL = '''import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)  # twice
    return out
'''
NEW = '''import nki
import nki.language as nl


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2))  # twice
    return out
'''


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)
    return file


def test_report_and_text(file, capsys):
    assert main([str(file)]) == 0
    out, err = capsys.readouterr()
    assert out == NEW
    assert err == (f"{file}:1: neuronxcc.nki becomes nki\n{file}:2: neuronxcc.nki.language becomes nki.language\n"
                   f"{file}:8: the operator on tiles becomes nl.multiply\n")


def test_output_in_place_and_diff(file, tmp_path, capsys):
    new = tmp_path / "new.py"
    assert main([str(file), "-o", str(new), "--quiet"]) == 0
    assert new.read_text() == NEW and capsys.readouterr() == ("", "")
    assert main([str(file), "--diff", "--quiet"]) == 0
    assert "-    nl.store(out, nl.load(x) * 2)  # twice\n+    nl.store(out, nl.multiply(nl.load(x), 2))  # twice\n" in \
        capsys.readouterr().out
    assert file.read_text() == KERNEL
    assert main([str(tmp_path), "--in-place"]) == 0
    assert file.read_text() == NEW


def test_check(file, capsys):
    assert main([str(file), "--quiet", "--check", "128x32xf32"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"double on {on}: the same values" for on in ("eager", "interpreter", "jit", "isa")]


LONG = KERNEL.replace("nl.load(x) * 2", "nl.load(x) * 2 + nl.load(x) * nl.load(x) * nl.load(x)")


@pytest.mark.parametrize("settings", ["", "line-length = 60\n"])
def test_the_new_file_is_as_ruff_formats_it_there(settings, file, tmp_path, monkeypatch):
    """With the settings around the new file, else with those around the current directory."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "pyproject.toml").write_text("[tool.ruff]\nline-length = 140\n")
    if settings:
        (there / "ruff.toml").write_text(settings)
    file.write_text(LONG)
    monkeypatch.chdir(here)
    new = there / "new.py"
    assert main([str(file), "--quiet", "-o", str(new)]) == 0
    assert subprocess.run([sys.executable, "-m", "ruff", "format", "--check", str(new)], check=False).returncode == 0
    assert max(map(len, new.read_text().splitlines())) > (100 if not settings else 50)
    other_settings = subprocess.run([sys.executable, "-m", "ruff", "format", "--isolated", "--check", str(new)], check=False)
    assert other_settings.returncode == 1


def test_what_is_left(file, capsys):
    file.write_text(KERNEL.replace("nl.load(x) * 2", "nl.all_reduce(nl.load(x), op=nl.add, program_axes=[0])"))
    assert main([str(file), "--quiet"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith(f"{file}:8: left for a person: nl.all_reduce in a loop, a branch or a helper, or along some of ")
    assert "nl.all_reduce(nl.load(x), op=nl.add, program_axes=[0])" in out


CASES = """

@nki.jit
def wide(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    assert x.shape[0] > 128, "narrow"
    nl.store(out, nl.load(x))
    return out


def cases():
    import numpy as np
    x = np.ones((64, 32), np.float32)
    return [(double, (x,)), (wide, (x,)), (double, (np.zeros((200, 32), np.float32),)), (double, (x,))]
"""


def test_check_reports_every_case(file, capsys):
    """A kernel that raises an error ends neither the check nor the report."""
    file.write_text(KERNEL + CASES)
    assert main([str(file), "--quiet", "--check", "cases"]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if " on " in line and line[0] != " "]
    executors = "eager", "interpreter", "jit", "isa"
    assert lines[:4] == lines[12:] == [f"double on {on}: the same values" for on in executors]
    assert lines[4] == f"FAILS: wide on eager, the old kernel: {file}:15:12: error: AssertionError: narrow [NKI-KERNEL-RAISED]"
    assert lines[8].startswith(f"FAILS: double on eager, the old kernel: {file}:8:") and "200" in lines[8]
    for name, first in ("wide", 5), ("double", 9):      # the error is printed once
        assert lines[first:first + 3] == [f"FAILS: {name} on {on}, the old kernel: the same error as on eager"
                                          for on in executors[1:]]


@pytest.mark.parametrize("end", ["", ", np.full((4, 4), 3), 1e-5"])
def test_cases_have_arguments_by_name(file, capsys, end):
    scaled = KERNEL.replace("def double(x)", "def double(x, factor=2)").replace("* 2", "* factor")
    file.write_text(scaled + "\ndef cases():\n    import numpy as np\n"
                             f"    return [(double, [np.ones((4, 4), np.float32)], {{'factor': 3}}{end})]\n")
    assert main([str(file), "--quiet", "--check", "cases"]) == 0
    assert capsys.readouterr().err.count("double on") == 4


CHOSEN = """
import enum


class Step(enum.Enum):
    RELU = 1
    NONE = 2


@nki.jit
def chosen(x, step, act):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, act(nl.load(x)) if step is Step.RELU else nl.load(x))
    return out


def cases():
    import numpy as np
    return [(chosen, (np.random.standard_normal((4, 4)).astype(np.float32), Step.RELU), {"act": nl.relu})]
"""


def test_cases_give_functions_and_enums_of_their_file(file, capsys):
    """The new kernel gets the arrays of the old file's case, and the objects of the new file's."""
    file.write_text(KERNEL + CHOSEN)
    assert main([str(file), "--quiet", "--check", "cases"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"chosen on {on}: the same values" for on in ("eager", "interpreter", "jit", "isa")]


SCALED = """import neuronxcc.nki.language as nl

SCALE = 2


def scaled(tile):
    return nl.exp(tile) * SCALE
"""
PACKAGED = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

from ..ops.tiles import SCALE, scaled


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, scaled(nl.load(x)) + SCALE)
    return out
"""


@pytest.mark.parametrize("of_folder", [True, False])
def test_check_with_modules_of_the_folder(tmp_path, capsys, of_folder):
    """The new text runs with the new text of what it imports, the old one with the old; files without cases are
    imported alone."""
    text = PACKAGED.replace("from ..ops.tiles", "from tiles_of_folder")
    (tmp_path / "double.py").write_text(text + "\n\ndef cases():\n    import numpy as np\n"
                                               "    return [(double, (np.ones((4, 4), np.float32),))]\n")
    (tmp_path / "tiles_of_folder.py").write_text(SCALED)
    status = main([str(tmp_path if of_folder else tmp_path / "double.py"), "--quiet", "--check", "cases"])
    assert status == (not of_folder)
    assert capsys.readouterr().err.splitlines()[-4:] == [
        f"double on {on}: the same values" for on in ("eager", "interpreter", "jit", "isa")]


@pytest.mark.parametrize("with_init", [True, False])
def test_check_of_one_file_of_a_package(tmp_path, capsys, with_init):
    """The file runs in its package, before and after: relative imports reach its neighbors, which are migrated for
    the check alone."""
    name = f"a_package_{with_init}".lower()
    kernels, ops = tmp_path / name / "kernels", tmp_path / name / "ops"
    for folder in (kernels, ops):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    if with_init:
        (tmp_path / name / "__init__.py").write_text("")
    (kernels / "double.py").write_text(PACKAGED)
    (ops / "tiles.py").write_text(SCALED)
    assert main([str(kernels / "double.py"), "--quiet", "--check", "8x4xf32"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{kernels / 'double.py'}:4: left for a person: tiles.py is of the beta generation, too: migrate the directory",
        *(f"double on {on}: the same values" for on in ("eager", "interpreter", "jit", "isa"))]
    assert "neuronxcc" in (ops / "tiles.py").read_text()


BESIDES = """import importlib

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
IMPORT

SIZE = int((__import__("pathlib").Path(__file__).parent / "size.txt").read_text())


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tiles.scaled(nl.load(x)))
    return out


def cases():
    return [(double, (np.ones((SIZE, 4), np.float32),))]
"""
SAME = [f"double on {on}: the same values" for on in ("eager", "interpreter", "jit", "isa")]


@pytest.mark.parametrize(("line", "message"), [
    ("from {name}.ops import tiles", []), ("import {name}.ops.tiles\ntiles = {name}.ops.tiles", []),
    ("import {name}.ops.tiles as tiles", []), ("from ..ops import *", []),
    ("tiles = importlib.import_module('..ops.tiles', __package__)", []),
    ("tiles = importlib.import_module('{name}.ops.tiles')",
     ["importlib.import_module('{name}.ops.tiles') imports the old form of a module, because it has the name of the "
      "package"])])
def test_check_of_one_file_migrates_what_it_imports(tmp_path, capsys, line, message):
    """Not the other files of its package, of which one does not parse, and one has the name of the imported one."""
    name = f"package_of_{abs(hash(line))}"
    line = line.format(name=name)
    root = tmp_path / name
    for folder in (root, root / "kernels", root / "ops", root / "other"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text('__all__ = ["tiles"]\n' if folder.name == "ops" else "")
    (root / "kernels" / "double.py").write_text(BESIDES.replace("IMPORT", line))
    (root / "kernels" / "size.txt").write_text("8")
    (root / "ops" / "tiles.py").write_text(SCALED)
    (root / "other" / "tiles.py").write_text("def scaled(tile):\n    return None\n")
    (root / "other" / "broken.py").write_text("def (:")
    main([str(root / "kernels" / "double.py"), "--quiet", "--check", "cases"])
    shown = [text for text in capsys.readouterr().err.splitlines() if "left for a person" not in text]
    if message:
        assert shown[0].endswith(f"not followed: {message[0].format(name=name)}")
    else:
        assert shown == SAME


@pytest.mark.parametrize(("returned", "message"), [
    ("[]", "returns no case"), ("None", "returns None"), ("3", "returns 3"), ("{1: 2}", "returns {1: 2}"),
    ("[double]", "returns <"), ("[(double, 3)]", "3)"), ("[(max, ())]", "built-in"),
    ("[(double, (), [])]", "[])")])
def test_cases_that_are_none(file, capsys, returned, message):
    file.write_text(KERNEL + f"\ndef cases():\n    return {returned}\n")
    assert main([str(file), "--quiet", "--check", "cases"]) == 1
    error = capsys.readouterr().err
    assert message in error and "fix: let it return a list of (kernel, arguments)" in error


TRIANGLE = '''import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

SIZE = 8


@nki.jit
def triangle(x, scale=2.0):
    """Rows below the diagonal."""
    out = nl.ndarray((SIZE, SIZE), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:SIZE, 0:SIZE]
    kept = nl.zeros((SIZE, SIZE), x.dtype)
    kept[p, f] = nl.load(x[p, f], mask=p > f)
    kept = nl.maximum(kept, nl.finfo(x.dtype).min)
    nl.store(out, nl.multiply(kept, scale))
    return out


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)  # twice
    return out
'''


def test_a_kernel_that_cannot_be_rewritten_is_printed(file, capsys):
    file.write_text(TRIANGLE)
    assert main([f"{file}:triangle", "--check", "8x8xf32", "scale=3.0"]) == 0
    out, err = capsys.readouterr()
    assert (f"{file}:8: triangle is printed from IR for 8x8xf32 scale=3.0, because the tool cannot rewrite its text: "
            "nl.finfo has no counterpart\n") in err and "left for a person" not in err
    assert [line for line in err.splitlines() if " on " in line and "the same values" in line] == [
        f"triangle on {on}: the same values" for on in ("eager", "interpreter", "jit", "isa")]
    assert 'def triangle(x, scale=2.0):\n    """Rows below the diagonal."""\n    # kernel.py:12\n' in out and "nisa.dma_copy(dst=kept[" in out
    assert "import nki.isa as nisa\n" in out and "nl.multiply(nl.load(x), 2))  # twice\n" in out


PROGRAMS = """

@nki.jit
def programs(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    nl.store(out[i], nl.maximum(nl.load(x[i]), nl.finfo(x.dtype).min))
    return out


def cases():
    x = np.ones((4, 8, 8), np.float32)
    return [(triangle, (x[0],), {"scale": 3.0}), (programs[4], (x,)), (double, [x[0]])]
"""


def test_kernels_of_cases_that_cannot_be_rewritten_are_printed(file, capsys):
    file.write_text("import numpy as np\n" + TRIANGLE + PROGRAMS)
    assert main([str(file), "--check", "cases"]) == 0
    out, err = capsys.readouterr()
    for name in ("triangle", "programs"):
        assert f"{name} is printed from IR for the arguments of cases(), because the tool cannot rewrite its text" in err
    # what only the replaced text needed is gone, from the report, too
    assert "as_rows" not in out and f"{file}:32: " not in err
    assert err.count(": the same values\n") == 12 and "left for a person" not in err
    assert "def programs(x, grid=(1,)):" in out and "for program in range(4):" in out
    assert "nl.multiply(nl.load(x), 2))  # twice\n" in out


ROUNDED = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def rounded(x):
    out = nl.ndarray(x.shape, dtype=nl.int8, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nl.load(x) / 7.0, dtype=nl.int8))
    return out


def cases():
    return [(rounded, (np.float32([[-689.5, 70.0], [-675.5, 3.0]]),))]
"""


def test_check_explains_differences_by_the_last_bit_of_quotients(file, capsys):
    file.write_text(ROUNDED)
    assert main([str(file), "--quiet", "--check", "cases"]) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("rounded")] == [
        f"rounded on {on}: the same values within 0.0104; with nl.divide for the reciprocals they are equal"
        for on in ("eager", "interpreter", "jit", "isa")]


def test_check_reports_other_differences_beside_quotients(file, capsys, monkeypatch):
    monkeypatch.setattr("nki_mlir.migration.terms.inverse", lambda text: "0.5")
    file.write_text(ROUNDED)
    assert main([str(file), "--quiet", "--check", "cases"]) == 1
    assert "DIFFERS: rounded on eager by " in capsys.readouterr().err


LEFT_HELPERS = """

def least(dtype):
    return nl.finfo(dtype).min


def clamped(tile):
    return nl.maximum(tile, least(tile.dtype))


@nki.jit
def by_helper(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, clamped(nl.load(x)))
    return out


def cases():
    x = np.ones((8, 8), np.float32)
    return [(triangle, [x]), (triangle, [x], {"scale": 3.0}), (by_helper, [x])]
"""


def test_other_kernels_are_printed_beside_one_that_is_left_and_helpers_that_nothing_calls_are_deleted(file, capsys):
    file.write_text("import numpy as np\n" + TRIANGLE + LEFT_HELPERS)
    assert main([str(file), "--check", "cases"]) == 1
    out, err = capsys.readouterr()
    assert "it is not printed from IR: one text of triangle" in err
    assert ("by_helper is printed from IR for the arguments of cases(), because the tool cannot rewrite its text: "
            "nl.finfo has no counterpart") in err
    assert "def least" not in out and "def clamped" not in out and "by_helper on isa: the same values\n" in err


def test_cases_may_have_answers_as_the_examples_do(file, capsys):
    file.write_text("import numpy as np\n" + TRIANGLE.partition("\n\n\n@nki.jit\ndef triangle")[0] + "\n\n\n@nki.jit\ndef double" +
                    TRIANGLE.partition("def double")[2] + """

def cases():
    x = np.ones((8, 8), np.float32)
    return [(double, (x,), 2 * x, 1e-5)]
""")
    assert main([str(file), "--quiet", "--check", "cases"]) == 0
    assert capsys.readouterr().err.count(": the same values\n") == 4


def test_a_kernel_that_cases_call_in_several_ways_is_left(file, capsys):
    file.write_text("import numpy as np\n" + TRIANGLE + """

def cases():
    x = np.ones((8, 8), np.float32)
    return [(triangle, [x]), (triangle, [x], {"scale": 3.0})]
""")
    assert main([str(file), "--quiet", "--check", "cases"]) == 1
    assert f"{file}:8: left for a person: it is not printed from IR: one text of triangle for the several " \
        "arguments of cases() cannot be printed as NKI Python" in capsys.readouterr().err


def test_a_kernel_whose_printed_text_needs_other_names_is_left(file, capsys):
    file.write_text(TRIANGLE.replace("SIZE = 8", "import math as nisa\n\nSIZE = 8"))
    assert main([f"{file}:triangle", "--quiet", "--check", "8x8xf32"]) == 1
    assert f"{file}:10: left for a person: triangle is not printed from IR: the file has no nisa with the meaning" in \
        capsys.readouterr().err


def test_a_kernel_that_cannot_be_printed_either_is_left(file, capsys):
    assigned = "    kept = nl.maximum(kept, nl.finfo(x.dtype).min)"
    constant = "    large = nl.load(nl.shared_constant(np.arange(8192, dtype=np.float32).reshape(128, 64)))"
    used = "    kept = nl.maximum(kept, large[0:SIZE, 0:SIZE])"
    text = "import numpy as np\n" + TRIANGLE.replace(assigned, f"{constant}\n{assigned}\n{used}")
    file.write_text(text)
    line = text[:text.index("large")].count("\n") + 1
    assert main([f"{file}:triangle", "--quiet", "--check", "8x8xf32"]) == 1
    assert f"{file}:{line}: left for a person: it is not printed from IR: a constant of 8192 elements cannot" in \
        capsys.readouterr().err


def test_file_that_does_not_parse(file, capsys):
    file.write_text("def kernel(:\n")
    assert main([str(file), "-o", str(file.parent / "new.py")]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"{file}:1:") and "the file does not parse" in err and "fix: correct its syntax first" in err
    assert not (file.parent / "new.py").exists()


@pytest.mark.parametrize("data, at", [(b'"""caf\xe9"""\n', "1:7"), (b"\xef\xbb\xbfimport os\nname = '\xff'\n", "2:9"),
                                      (b"\xef\xbb\xbf'\xff'", "1:5")])
@pytest.mark.parametrize("options", [["-o", "new.py"], ["--in-place"]])
def test_file_that_is_not_utf8(file, tmp_path, monkeypatch, capsys, data, at, options):
    """In a directory, nothing is written for the other files."""
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other.py"
    other.write_bytes(data)
    before = file.read_text()
    assert main(["other.py" if "-o" in options else ".", *options]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"other.py:{at}: error: byte 0x") and "is not UTF-8" in err and "save the file as UTF-8" in err
    assert file.read_text() == before and other.read_bytes() == data and not (tmp_path / "new.py").exists()


@pytest.mark.parametrize("options", [["--in-place"], ["--in-place", "--quiet"], ["--diff"]])
@pytest.mark.parametrize("text, at, message", [
    ("import os\ndef f(:\n", "2:7", "the file does not parse"),
    ("import neuronxcc.nki.language as nl\nexec(open('k.txt').read(), {'nl': nl})\n", "2:1", "may contain a kernel")])
def test_a_directory_with_a_file_that_cannot_be_read_stays(file, tmp_path, capsys, options, text, at, message):
    """Other files of it are kernels, and Python that has none: none of them changes, and there is one error."""
    bad, plain = tmp_path / "part" / "bad.py", tmp_path / "plain.py"
    bad.parent.mkdir()
    bad.write_text(text)
    plain.write_text("import os\nprint(os.name)\n")
    before = {path: path.read_bytes() for path in (file, bad, plain)}
    assert main([str(tmp_path), *options]) == 1
    out, err = capsys.readouterr()
    assert f"{bad}:{at}: error: " in err and message in err and err.count("error: ") == 1 and not out
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.py")} == before


@pytest.mark.parametrize("options, changes", [(["--in-place"], True), (["--diff"], False)])
def test_a_directory_with_a_line_that_is_left(file, tmp_path, capsys, options, changes):
    """The status is 1, the report has the line, and the other files have their new text."""
    (tmp_path / "left.py").write_text("import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n\n\n@nki.jit\n"
                                      "def kernel(x):\n    return scaled(nl.load(x))\n")
    (tmp_path / "plain.py").write_text("import os\nprint(os.name)\n")
    before = file.read_text()
    assert main([str(tmp_path), *options]) == 1
    out, err = capsys.readouterr()
    assert f"{tmp_path / 'left.py'}:7: left for a person: the name scaled, which nothing in the file defines" in err
    assert (file.read_text() == NEW) is changes and (file.read_text() == before) is not changes
    assert (tmp_path / "plain.py").read_text() == "import os\nprint(os.name)\n"
    assert ("+import nki" in out) is not changes


def test_directory_without_files(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("none")
    assert main([str(tmp_path), "--in-place"]) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path} has no Python files")


def test_links(file, tmp_path, capsys):
    """A link stays one: its file gets the new text. One without a file is an error."""
    link, dangling = tmp_path / "link.py", tmp_path / "dangling.py"
    link.symlink_to(file)
    assert main([str(link), "--in-place"]) == 0
    assert link.is_symlink() and file.read_text() == NEW
    dangling.symlink_to(tmp_path / "nowhere.py")
    assert main([str(dangling)]) == 1
    assert "cannot read" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["folder", "none/new.py"])
def test_target_that_cannot_be_written(file, tmp_path, capsys, target):
    (tmp_path / "folder").mkdir()
    assert main([str(file), "--quiet", "-o", str(tmp_path / target)]) == 1
    assert capsys.readouterr().err.startswith(f"error: cannot write {tmp_path / target}: ")
    assert sorted(p.name for p in tmp_path.rglob("*")) == sorted([file.name, "folder"])


def test_kernel_that_the_file_does_not_have(file, capsys):
    assert main([f"{file}:nothing"]) == 1
    assert capsys.readouterr().err == (f"error: {file} has no kernel nothing [NKI-MIGRATE]\n"
                                       "  fix: give the name of a function of the file\n")


def test_directory_with_a_file_that_cannot_be_written_stays(file, tmp_path, monkeypatch, capsys):
    (tmp_path / "zz.py").write_text(file.read_text())
    before = file.read_text()
    monkeypatch.setattr("nki_mlir.cli.migrate.os.access", lambda path, mode: path.name != "zz.py")
    assert main([str(tmp_path), "--in-place", "--quiet"]) == 1
    assert f"cannot write {tmp_path / 'zz.py'}: no file has changed" in capsys.readouterr().err
    assert file.read_text() == (tmp_path / "zz.py").read_text() == before


def test_file_that_is_too_large(file, monkeypatch, capsys):
    monkeypatch.setenv("NKI_MLIR_INPUT_TEXT", "100")
    before = file.read_text()
    assert main([str(file), "--in-place"]) == 1
    assert capsys.readouterr().err.startswith(f"{file}:1:1: error: the file takes ")
    assert file.read_text() == before


def test_a_notebook_is_not_read(tmp_path, capsys):
    (tmp_path / "kernels.ipynb").write_text('{"cells": []}')
    assert main([str(tmp_path / "kernels.ipynb")]) == 1
    assert "is a notebook" in capsys.readouterr().err


def test_missing_file(tmp_path, capsys):
    assert main([str(tmp_path / "none.py")]) == 1
    assert "no such file or directory" in capsys.readouterr().err


def test_a_fifo_is_not_read(file, tmp_path, capsys):
    """To read one would wait for a writer."""
    fifo = tmp_path / "waits.py"
    os.mkfifo(fifo)
    assert main([str(fifo)]) == 1
    assert capsys.readouterr().err.startswith(f"error: cannot read {fifo}: it is not a regular file")
    assert main([str(file)]) == main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == NEW * 2


GENERATED = KERNEL + """

space = {"nl": nl}
exec(TEXT, space)
"""


@pytest.mark.parametrize("text", ["'def k(x):\\n    return nl.load(x)'", "open('kernel.txt').read()"])
def test_a_kernel_that_exec_makes_is_one_error(file, capsys, text):
    file.write_text(f"TEXT = {text}\n{GENERATED}")
    assert main([str(file), "--in-place"]) == 1
    err = capsys.readouterr().err
    assert f"{file}:14:1: error: a text that exec runs may contain a kernel, which stays as it is" in err
    assert "fix: write its definitions into a file, and migrate that" in err
    assert file.read_text() == f"TEXT = {text}\n{GENERATED}"


def test_exec_of_a_text_without_kernels_stays(file, capsys):
    file.write_text(f"TEXT = 'x = 1'\n{GENERATED}")
    assert main([str(file), "--quiet"]) == 0
    assert "exec(TEXT, space)" in capsys.readouterr().out


def test_a_helper_of_the_beta_generation_beside_it_is_left(file, tmp_path, capsys):
    """The new kernel would call functions of the old generation; a folder is migrated as a whole."""
    (tmp_path / "helpers.py").write_text("import neuronxcc.nki.language as nl\n\n\ndef rows(x):\n    return nl.load(x)\n")
    (tmp_path / "plain.py").write_text("SIZE = 8\n")
    file.write_text(KERNEL.replace("\n\n\n@", "\nfrom helpers import rows\nimport plain\n\n\n@").replace(
        "nl.load(x) * 2", "rows(x)"))
    assert main([str(file), "-o", str(tmp_path / "new.py")]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith(
        "kernel.py:3: left for a person: helpers.py is of the beta generation, too: migrate the directory")
    (tmp_path / "new.py").unlink()
    assert main([str(tmp_path), "--in-place"]) == 0
    assert "return nl.load(x)" in (tmp_path / "helpers.py").read_text()


HELPER = """def scale(t, by: int = 2):
    return t * by


def ceil_div(a, b):
    return (a + b - 1) // b
"""
WITH_HELPER = KERNEL.replace("nl.load(x) * 2", "scale(nl.load(x), ceil_div(3, 2))")


def test_a_helper_that_names_no_package_computes_on_tiles(file, capsys):
    file.write_text(WITH_HELPER.replace("\n\n\n", f"\n\n\n{HELPER}\n\n", 1))
    assert main([str(file), "--quiet", "--check", "128x32xf32"]) == 0
    text = capsys.readouterr().out
    assert "    return nl.multiply(t, by, dtype=number_dtype(t.dtype, by))\n" in text and "    return (a + b - 1) // b\n" in text
    assert "nl.store(out, scale(nl.load(x), ceil_div(3, 2)))" in text


@pytest.mark.parametrize(("line", "name"), [("from helper import ceil_div, scale", "scale"),
                                            ("from .helper import ceil_div, scale", "scale"),
                                            ("from helper import ceil_div, scale as by", "by"),
                                            ("import helper\nfrom helper import ceil_div", "helper.scale")])
def test_a_helper_of_another_file_is_rewritten_with_it(file, line, name, capsys):
    """The calls show that it gets a tile."""
    file.write_text(WITH_HELPER.replace("\n\n\n", f"\n{line}\n\n\n", 1).replace("scale(nl.load", f"{name}(nl.load"))
    (file.parent / "helper.py").write_text(HELPER)
    assert main([str(file), "--quiet", "--diff"]) == 1
    line_of_call = file.read_text().partition(f"{name}(nl.load")[0].count("\n") + 1
    assert capsys.readouterr().err == (f"{file}:{line_of_call}: left for a person: {name} of another file computes on "
                                       "tiles: migrate the directory\n")
    assert main([str(file.parent), "--quiet", "--in-place"]) == 0
    assert capsys.readouterr().err == ""
    new = (file.parent / "helper.py").read_text()
    assert new.startswith("import nki.language as nl\n\n\ndef number_dtype(dtype, number):") and new.endswith(
        "\n\n\n" + HELPER.replace("t * by", "nl.multiply(t, by, dtype=number_dtype(t.dtype, by))"))
    assert f"nl.store(out, {name}(nl.load(x), ceil_div(3, 2)))" in file.read_text()


PARTS = {"common.py": """import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

LOWEST = -30000.0


def row_max(tile):
    return nisa.tensor_reduce(np.max, tile, axis=[1])


def load_rows(x, i, n=32):
    return nl.load(x[i * n:(i + 1) * n, :])
""", "shifted.py": """from .common import load_rows, row_max


def shifted_rows(x, i):
    tile = load_rows(x, i)
    return tile - row_max(tile)
""", "kernel.py": """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

from . import shifted
from .common import LOWEST


@nki.jit
def kernel(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 32):
        tile = shifted.shifted_rows(x, i) + shifted.shifted_rows(y, i)
        nl.store(out[i * 32:(i + 1) * 32, :], nl.maximum(tile, LOWEST))
    return out
"""}


def test_functions_of_several_files_know_their_arguments(tmp_path, capsys):
    for name, text in PARTS.items():
        (tmp_path / name).write_text(text)
    assert main([str(tmp_path), "--quiet", "--in-place"]) == 0
    assert capsys.readouterr() == ("", "")
    common, shifted, kernel = ((tmp_path / name).read_text() for name in PARTS)
    assert "    largest = nl.ndarray((tile.shape[0], 1), dtype=tile.dtype, buffer=nl.sbuf)\n" in common
    assert "    return nl.load(x[nl.ds(i * n, n), :])\n" in common
    assert "    return nl.subtract(tile, row_max(tile).broadcast(1, tile.shape[1]))\n" in shifted
    assert shifted.startswith("import nki.language as nl\nfrom .common import load_rows, row_max\n")
    assert "        tile = nl.add(shifted.shifted_rows(x, i), shifted.shifted_rows(y, i))\n" in kernel
    assert "nl.store(out[nl.ds(i * 32, 32), :], nl.maximum(tile, LOWEST, dtype=nl.float32))" in kernel


ROWS = "import neuronxcc.nki.language as nl\n\n\ndef rows_of(x, rows):\n    return nl.load(x[rows, :])\n"
BY_INDICES = KERNEL.replace("\n\n\n", "\nfrom common import rows_of\n\n\n", 1).replace(
    "nl.load(x) * 2", "rows_of(x, nl.arange(128)[:, None])")
BY_SLICE = KERNEL.replace("\n\n\n", "\nimport common\n\n\n", 1).replace("nl.load(x) * 2", "common.rows_of(x, slice(0, 128))")


@pytest.mark.parametrize("others", (True, False))
def test_a_helper_whose_body_replaces_a_call_stays_if_another_file_calls_it(others, tmp_path, capsys):
    """No value of the new text is an index vector, so the new kernel cannot pass one to the helper."""
    for name, text in ({"common": ROWS, "first": BY_INDICES} | ({"second": BY_SLICE} if others else {})).items():
        (tmp_path / f"{name}.py").write_text(text)
    assert main([str(tmp_path), "--quiet", "--in-place"]) == 0
    assert ("def rows_of(x, rows):" in (tmp_path / "common.py").read_text()) is others
    assert "rows_of" not in (tmp_path / "first.py").read_text()
    assert not others or "common.rows_of(x, slice(0, 128))" in (tmp_path / "second.py").read_text()


def test_line_ends_stay(file, capsys):
    file.write_bytes(KERNEL.replace("\n", "\r\n").encode())
    assert main([str(file), "--in-place", "--quiet"]) == 0
    assert file.read_bytes() == NEW.replace("\n", "\r\n").encode()


@pytest.mark.parametrize("release", ["2.26", "9.9", "new"])
def test_a_release_that_does_not_exist_or_is_too_old(file, release, capsys):
    assert main([str(file), "--release", release]) == 1
    error, fix = capsys.readouterr().err.splitlines()
    assert error == f"error: there is no release {release} to migrate to [NKI-MIGRATE]" and "choose one of 2.27, 2.28, 2.29, " in fix


def test_checks_run_without_the_lock_of_compilation(file, monkeypatch):
    """Programs of a grid that meet run on threads, which compile."""
    acquired = []

    def run(options):
        thread = Thread(target=lambda: acquired.append(ALONE.acquire(timeout=1) and ALONE.release() is None))
        thread.start()
        thread.join()
        return 0
    monkeypatch.setattr(migrate, "run", run)
    assert main([str(file)]) == 0 and acquired == [True]
