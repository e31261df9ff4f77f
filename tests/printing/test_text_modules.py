# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of a module is captured again for its comment: names that the module chooses run nothing."""

from pathlib import Path

import pytest

from nki_mlir.cli import translate
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.printing.kernel_text import NamedTensor
from nki_mlir.printing.text_modules import calls_only_the_language, modules_of_text
from nki_mlir.scalar.dtypes import FLOAT32

MODULE = """func.func @"NAME"(%x: memref<128x4xf32, "hbm"> {nki.name = "x"}, %r: memref<128x4xf32, "hbm"> {nki.name = "r",
    nki.shared = 0 : i64}) attributes {nki.grid = [], nki.results = [1]} {
  %t = memref.alloc() : memref<128x4xf32, "sbuf">
  "nki.load"(%t, %x) {access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 4]]>,
    #nki.access<f32, affine_map<() -> (0)>, [[4, 128], [1, 4]]>], mask = affine_set<() : (0 == 0)>}
    : (memref<128x4xf32, "sbuf">, memref<128x4xf32, "hbm">) -> () loc("FILE":1:1)
  "nki.store"(%r, %t) {access = [#nki.access<f32, affine_map<() -> (0)>, [[4, 128], [1, 4]]>,
    #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 4]]>], mask = affine_set<() : (0 == 0)>}
    : (memref<128x4xf32, "hbm">, memref<128x4xf32, "sbuf">) -> () loc("FILE":2:1)
  return
}
"""


@pytest.mark.parametrize("options", [[], ["--keep-placement"]], ids=["text", "placed"])
@pytest.mark.parametrize("name, file", [
    ("kernel", r"k.py\0A        open('made', 'w')\0A        #"),
    (r"f(x=open('made', 'w')):\0A    pass\0Adef g", "k.py")], ids=["a file's name", "a function's name"])
def test_names_of_a_module_run_nothing(name, file, options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("m.mlir").write_text(MODULE.replace("NAME", name).replace("FILE", file))
    assert translate.main(["--to-nki-python", *options, "m.mlir"]) == 0
    text = capsys.readouterr().out
    assert not Path("made").exists()
    assert [line for line in text.splitlines() if "open(" in line and not line.lstrip().startswith("#")] == []
    assert "nisa.dma_copy" in text


@pytest.mark.parametrize("text, accepted", [
    ("@nki.jit\ndef f(x):\n    '''x'''\n    for i in range(2):\n        t = nl.ndarray((2, 2), dtype=nl.float32)\n"
     "        nl.device_print('t', t)\n    def body(i):\n        pass\n    nl.fori_loop(0, 2, body)\n    c = nl.shared_constant(np.eye(2, dtype=np.float32))\n    return t\n", True),
    ("def f(x):\n    nisa.memset(dst=x, value=float('-inf'))\n", True), ("def f(x):\n    float('a.npy')\n", False),
    ("import os\n", False), ("nl.add(1, 2)\n", False), ("def f(x=open('a')):\n    pass\n", False),
    ("def f():\n    import os\n", False), ("def f():\n    __import__\n", False), ("def f():\n    eval\n", False),
    ("def f():\n    nl.__dict__\n", False), ("def f():\n    np.save\n", False), ("def f():\n    nl.np.eye\n", False),
    ("def f():\n    nki.benchmark\n", False), ("def f():\n    nl = 1\n", False), ("def nl():\n    pass\n", False),
    ("def f():\n    nl.shared_constant('a.npy')\n", False), ("class C:\n    pass\n", False),
])
def test_texts_that_are_captured(text, accepted):
    assert calls_only_the_language(text) is accepted


TEXT = """import nki
import nki.isa as nisa
import nki.language as nl
@nki.jit
def f(x):
    t = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out
"""
X = [NamedTensor("x", (4, 4), FLOAT32, "nl.shared_hbm")]


def test_errors_of_the_text_are_raised():
    assert len(modules_of_text(TEXT, "f", "trn2", X, False)) == 1
    wrong = TEXT.replace("src=x", "src=x[0:2]")
    with pytest.raises(NkiMlirError, match="dma_copy"):
        modules_of_text(wrong, "f", "trn2", X, False)
    with pytest.raises(SyntaxError, match="invalid syntax"):
        modules_of_text(TEXT.replace("src=x", "src="), "f", "trn2", X, False)
    with pytest.raises(AttributeError, match="no_such_memory"):
        modules_of_text(TEXT.replace("nl.sbuf", "nl.no_such_memory"), "f", "trn2", X, False)
    assert not modules_of_text(wrong, "f", "trn2", X, False, release="2.27")
    assert not modules_of_text(TEXT.replace("src=x", "src=open('a')"), "f", "trn2", X, False)
