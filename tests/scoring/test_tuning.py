# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Searches for the fastest choice of parameters, in this process and on workers."""

import json
import math

import numpy as np
import pytest

import nki_mlir
from nki_mlir.cli import tune
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.tuning.search import Attempt, NothingRight, search
from nki_mlir.tuning.source import NoParameter, with_parameters
from nki_mlir.tuning.space import BadSpace, grid_of, size_of, space_from_texts, space_of
from tests.scoring.candidates import REFERENCES

KERNEL = '''
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

COLUMNS = 8         # of a tile
OFFSET: float = 1.0


@nki.jit
def kernel(x, factor=2.0, *, rows=128):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for c in nl.affine_range(x.shape[1] // COLUMNS):
        part = nl.ds(c * COLUMNS, COLUMNS)
        nl.store(out[:, part], nl.load(x[:, part]) * factor + OFFSET)
    return out
'''


def test_parameters__are_written_where_they_are():
    text = with_parameters(KERNEL, {"COLUMNS": 32, "OFFSET": 0.5, "factor": (3, "ä"), "rows": 64, "grid": 2, "O": 0}, "k.py")
    assert "COLUMNS = 32         # of a tile\nOFFSET: float = 0.5\n" in text
    assert "def kernel(x, factor=(3, 'ä'), *, rows=64):" in text and text.count("COLUMNS") == KERNEL.count("COLUMNS")
    with pytest.raises(NoParameter, match=r"k.py has no parameter x \[NKI-TUNE-NAME\]"):
        with_parameters(KERNEL, {"x": 1}, "k.py")


def test_spaces__are_read():
    space = space_from_texts(["A=1,2,4", "B=1..7..3", "C='row','column'", "grid=1,(2, 2)"])
    assert space == {"A": [1, 2, 4], "B": [1, 4, 7], "C": ["row", "column"], "grid": [(1,), (2, 2)]}
    assert size_of(space) == 36 and list(grid_of({"A": [1, 2], "B": [3]})) == [{"A": 1, "B": 3}, {"A": 2, "B": 3}]


@pytest.mark.parametrize("text", ["A", "A=", "=1", "A=1..x", "A=[", "1A=3"])
def test_spaces_that_are_none(text):
    with pytest.raises(BadSpace, match=r"the space is not understood: .*\[NKI-TUNE-SPACE\]"):
        space_from_texts([text])


def test_space_without_parameters__is_an_error():
    with pytest.raises(BadSpace, match="it has no parameters"):
        space_of({})
    with pytest.raises(BadSpace, match="the values of A are 3"):
        space_of({"A": 3})


def valley(choices):
    """Fast near (70, 30), a third of the choices not right; of each choice what it takes."""
    for choice in choices:
        x, y, z = (choice[name] for name in "xyz")
        wrong = (x + y) % 3 == 0
        yield Attempt(choice, math.inf if wrong else 1e-6 * (1 + abs(x - 70) + abs(y - 30) + (z != "b")), (0.0, 0.0), "no")


SPACE = {"x": list(range(100)), "y": list(range(100)), "z": ["a", "b", "c"]}


def test_search__beats_the_grid():
    """With 80 attempts of 30,000 it comes closer than 80 points of an even grid, and it tries nothing twice."""
    result = search(SPACE, valley, 80)
    even = [{"x": x, "y": y, "z": z} for x in range(0, 100, 20) for y in range(0, 100, 18) for z in "abc"][:80]
    assert result.seconds < min(a.seconds for a in valley(even))
    assert len(result.attempts) == 80 == len({repr(a.choice) for a in result.attempts})
    assert [a.choice for a in search(SPACE, valley, 80).attempts] == [a.choice for a in result.attempts]


def test_search__of_a_small_space_tries_all():
    small = {"x": [69, 70], "y": [30, 31], "z": ["b"]}
    result = search(small, valley, 10)
    assert [a.choice for a in result.attempts] == list(grid_of(small)) and result.best == {"x": 70, "y": 30, "z": "b"}


def test_search__where_nothing_is_right():
    with pytest.raises(NothingRight, match=r"none of 1 choices is right; the first: no \[NKI-TUNE-NONE\]"):
        assert search({"x": [3], "y": [0], "z": ["a"]}, valley, 10).best


@nki.jit
def scaled(x, columns=8, factor=2.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for c in nl.affine_range(x.shape[1] // columns):
        part = nl.ds(c * columns, columns)
        nl.store(out[:, part], nl.multiply(nl.load(x[:, part]), factor))
    return out


def test_kernel_of_this_process():
    x = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    space = {"columns": [8, 64, 60], "factor": [3.0, 2.0], "O": [0, 1]}
    result = nki_mlir.tune(scaled, space, [x], lambda x: x * 2)
    assert result.best["columns"] == 64 and result.best["factor"] == 2.0
    assert len(result.attempts) == 12 and result.speedup > 1
    wrong = [a.choice for a in result.attempts if math.isinf(a.seconds)]
    assert all(c["factor"] == 3.0 or c["columns"] == 60 for c in wrong) and len(wrong) == 8
    assert nki_mlir.tune(scaled, {"columns": [8, 64]}, [x]).best == {"columns": 64}


def test_command__writes_the_best(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "reference.py").write_text(REFERENCES["small"])
    options = ["kernel.py", "-r", "reference.py", "--space", "COLUMNS=8,64", "--space", "factor=2.0,2.5", "--json",
               "-o", "best.py", "--store", "s.db"]
    assert tune.main(options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["best"] == {"COLUMNS": 64, "factor": 2.0} and found["speedup"] > 1 and found["source"] == "model"
    assert [a["seconds"] is None for a in found["attempts"]] == [False, True, False, True]
    assert "NKI-SCORE-VALUES" in found["attempts"][1]["reason"]
    assert (tmp_path / "best.py").read_text() == KERNEL.replace("COLUMNS = 8", "COLUMNS = 64")
    assert tune.main([*options[:3], "--space", "ROWS=1", "--store", "s.db"]) == 1
    assert "kernel.py has no parameter ROWS" in capsys.readouterr().err
