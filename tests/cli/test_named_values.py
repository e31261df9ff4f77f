# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments of the command line that name what the kernel's file defines."""

import numpy as np
import pytest

from nki_mlir.cli import migrate, opt, run
from nki_mlir.cli.named_values import named_value

KERNEL = """import os
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


class Mode(Enum):
    ADD = 1
    MULTIPLY = 2


class Sizes(NamedTuple):
    rows: int
    columns: int = 8


@dataclass(frozen=True)
class Config:
    factor: float
    sizes: Sizes = Sizes(4)

    def __post_init__(self):
        assert self.factor > 0, "the factor must be positive"


def secret(text):
    raise SystemExit(99)


@nki.jit
def kernel(x, mode=Mode.ADD, config=Config(1.0), act=nl.copy):
    rows, columns = config.sizes
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:rows, 0:columns])
    result = tile + config.factor if mode == Mode.ADD else tile * config.factor
    nl.store(out, act(result))
    return out
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.py").write_text(KERNEL)
    return "k.py:kernel"


@pytest.mark.parametrize("arguments, expected", [
    (["mode=Mode.MULTIPLY", "config=Config(3.0, sizes=Sizes(2))"], lambda x: (3 * x)[:2, :8]),
    (["Mode.ADD", "Config(2.0, Sizes(rows=8, columns=4))", "act=nl.square"], lambda x: ((x + 2) ** 2)[:8, :4]),
    (["Mode.ADD", "Config(factor=0.5)"], lambda x: (x + 0.5)[:4, :8])])
def test_values_that_the_file_defines(file, arguments, expected):
    options = [part for text in ["8x8xf32=arange", *arguments] for part in ("--arg", text)]
    assert run.main([file, *options, "--save", "out.npz", "--quiet", "--compare"]) == 0
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    np.testing.assert_array_equal(next(iter(np.load("out.npz").values())), expected(x))


@pytest.mark.parametrize("text, message", [
    ("Mod.ADD", "--arg Mod.ADD: the kernel's file has no name 'Mod'; did you mean Mode?"),
    ("Mode.ADDD", "--arg Mode.ADDD: Mode has no name 'ADDD'; did you mean ADD?"),
    ("config=Config(-1.0)", "--arg Config(-1.0): the factor must be positive"),
    ("config=Sizes()", "missing 1 required positional argument: 'rows'"),
    ("mode=-Mode.ADD", "--arg -Mode.ADD: -Mode.ADD is not the negative of a number"),
    ("mode={Config: 1, [Mode.ADD]: 2}", "unhashable type: 'list'"),
    ("secret('x')", "--arg secret('x'): secret is not a class of an enum, a dataclass, a named tuple or an NKIObject"),
    ("os.system('exit 3')", "os.system is not a class of"),
    ("Mode.__class__", "--arg Mode.__class__: is neither a tensor nor a Python constant"),
    ("open('k.py').read()", "--arg open('k.py').read(): the kernel's file has no name 'open'")])
def test_mistakes(file, capsys, text, message):
    assert run.main([file, "--arg", "8x8xf32", "--arg", text]) in (1, 2)
    assert message in capsys.readouterr().err


def test_a_module_has_no_names(tmp_path, file, capsys):
    (tmp_path / "m.mlir").write_text("module {}")
    assert run.main(["m.mlir", "--arg", "Mode.ADD"]) in (1, 2)
    assert "--arg Mode.ADD: only a kernel takes it" in capsys.readouterr().err


def test_other_commands(file, capsys):
    assert opt.main([file, "--arg", "8x8xf32", "--arg", "mode=Mode.MULTIPLY"]) == 0
    assert '"multiply"' in capsys.readouterr().out
    assert migrate.main([file.partition(":")[0], "-o", "new.py", "--quiet", "--check", "8x8xf32", "config=Config(4.0)"]) == 0
    assert "kernel on jit: the same values" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["2 * 3", "f(*x)", "f(**a.b)", "{**a.b}", "f(x for x in y)", "lambda: 1", "a.b[0]", "x", "(" * 100_000, "a._b"])
def test_texts_that_are_no_named_values(text):
    assert named_value(text) is None
