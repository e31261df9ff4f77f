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


@pytest.mark.parametrize("text", [
    "A", "A=", "=1", "A=1..x", "A=[", "1A=3", f"A={'9' * 5000}", f"A={'[' * 5000}", "A=1..99999999999", "A=1..2..0",
    "A=-1..9223372036854775808", f"A=1..{'9' * 400}", "grid=0", "grid=True", "grid=1e308", "grid=9223372036854775808", "O=True"])
def test_spaces_that_are_none(text):
    with pytest.raises(BadSpace, match=r"the space is not understood: .*\[NKI-TUNE-SPACE\]"):
        space_from_texts([text])


def test_space_without_parameters__is_an_error():
    with pytest.raises(BadSpace, match="it has no parameters"):
        space_of({})
    with pytest.raises(BadSpace, match="O is 2; there are 0, 1, 3"):
        space_of({"O": [0, 2]})
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
    with pytest.raises(NothingRight, match=r"none of 1 choice computes right results; the first: no \[NKI-TUNE-NONE\]"):
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
    report = json.loads(capsys.readouterr().out)
    assert report["best"] == {"COLUMNS": 64, "factor": 2.0} and report["speedup"] > 1 and report["source"] == "model"
    assert [a["seconds"] is None for a in report["attempts"]] == [False, True, False, True]
    assert "NKI-SCORE-VALUES" in report["attempts"][1]["reason"]
    assert (tmp_path / "best.py").read_text() == KERNEL.replace("COLUMNS = 8", "COLUMNS = 64")
    assert tune.main([*options[:3], "--space", "ROWS=1", "--store", "s.db"]) == 1
    assert "kernel.py has no parameter ROWS" in capsys.readouterr().err


LAYOUTS = '''
import nki
import nki.isa as nisa
import nki.language as nl

LAYOUT = "strided"


@nki.jit
def kernel(x):
    """Columns of a row in the free dimension one after the other, or each partition's elements far apart."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    programs = nl.num_programs(0)
    for piece in nl.affine_range(rows // 128 // programs):
        at = (nl.program_id(0) * (rows // 128 // programs) + piece) * 128
        whole = slice(None)
        if LAYOUT == "strided":
            for column in nl.affine_range(columns):
                tile = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=x[nl.ds(at, 128), nl.ds(column, 1)])
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
                nisa.dma_copy(dst=out[nl.ds(at, 128), nl.ds(column, 1)], src=tile)
        else:
            tile = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[nl.ds(at, 128), whole])
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
            nisa.dma_copy(dst=out[nl.ds(at, 128), whole], src=tile)
    return out
'''
DOUBLED = '''
import numpy as np
def inputs(rng, rows): return [rng.standard_normal((rows, 16)).astype(np.float32)]
def reference(x): return x * 2
CASES = [{"rows": 512}]
'''


def tuned(tmp_path, capsys, *space, rows=512):
    """What the command finds in a space of ``LAYOUTS``."""
    (tmp_path / "kernel.py").write_text(LAYOUTS)
    (tmp_path / "reference.py").write_text(DOUBLED.replace("512", str(rows)))
    options = [text for one in space for text in ("--space", one)]
    assert tune.main([str(tmp_path / "kernel.py"), "-r", str(tmp_path / "reference.py"), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_layouts__are_a_dimension(tmp_path, capsys):
    report = tuned(tmp_path, capsys, "LAYOUT='strided','rows'", "O=0,1")
    seconds = {(a["choice"]["LAYOUT"], a["choice"]["O"]): a["seconds"] for a in report["attempts"]}
    assert report["best"]["LAYOUT"] == "rows" and len(seconds) == 4
    assert seconds["strided", 0] > seconds["strided", 1] > seconds["rows", 1]


def test_grids__are_a_dimension(tmp_path, capsys):
    """Two programs on two cores beat one; where a grid leaves rows out, it is not right, however fast."""
    report = tuned(tmp_path, capsys, "LAYOUT='rows'", "grid=1,2,3", rows=2048)
    reasons = {a["choice"]["grid"][0]: a["reason"] for a in report["attempts"]}
    assert reasons[1] == reasons[2] == "" and "launched on 1 to 2 cores, got 3" in reasons[3]
    assert report["best"]["grid"] == [2] and report["speedup"] > 1
    odd = tuned(tmp_path, capsys, "LAYOUT='rows'", "grid=2,1", rows=384)
    assert odd["best"]["grid"] == [1] and "NKI-SCORE" in odd["attempts"][0]["reason"]
