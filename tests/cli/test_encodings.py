# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Commands in a locale whose encoding is ASCII: texts are UTF-8, or what a Python source declares."""

import json
import os
import subprocess
import sys

import pytest

KERNEL = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)  # doublé
    return out
"""
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def ran(command, *arguments, cwd):
    script = f"import sys; from nki_mlir.cli.entry import {command}; sys.argv[0] = 'nki-{command}'; sys.exit({command}())"
    ended = subprocess.run([sys.executable, "-c", script, *arguments], cwd=cwd, env=os.environ | ASCII,
                           capture_output=True, timeout=120)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_profile_has_the_lines_of_its_source_and_prints_bars(tmp_path, encoding):
    (tmp_path / "k.py").write_text(f"# -*- coding: {encoding} -*-\n{KERNEL}", encoding=encoding)
    out = ran("run", "k.py:double", "--arg", "128x64xf32", "--profile", "p", cwd=tmp_path)
    files = json.loads((tmp_path / "p" / "profile.json").read_text("utf-8"))["files"]
    assert [lines[8] for lines in files.values()] == ["    nl.store(out, nl.load(x) * 2)  # doublé"]
    assert b"critical path:\n?" in out and b"# doubl?" in out


def test_a_migrated_source_is_utf_8(tmp_path):
    (tmp_path / "k.py").write_text(KERNEL, encoding="utf-8")
    assert "# doublé" in ran("migrate", "k.py", cwd=tmp_path).decode("utf-8")
