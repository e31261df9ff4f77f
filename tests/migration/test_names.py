# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What names of a module's text mean, compared with what Python resolves."""

import ast
import dis
import math
from types import CodeType

import libcst as cst
import numpy as np
import pytest

from nki_mlir.migration.files import migrated
from nki_mlir.migration.names import (
    Names,
    Substitution,
    dotted,
    limit_of,
    operator,
    read_without_import,
    shortened,
    unresolved,
    with_named_imports,
)
from nki_mlir.migration.spare_imports import import_position, insert_import

TEXT = """
import neuronxcc.nki as nki, neuronxcc.nki.language as lang
import neuronxcc.nki.isa
import numpy as xp, numpy
from neuronxcc.nki import isa, language as nl2, jit as compile_kernel
from neuronxcc.nki.language import load, store as put
from torch_neuronx import nki_jit
from neuronxcc import nki as knki
from .helpers import local
from . import sibling as s
import os.path
"""


@pytest.mark.parametrize("name, meaning", [
    ("lang.load", "nl.load"), ("nki.language.load", "nl.load"), ("neuronxcc.nki.isa.iota", "nisa.iota"), ("isa.iota", "nisa.iota"),
    ("nl2.tile_size.pmax", "nl.tile_size.pmax"), ("compile_kernel", "nki.jit"), ("load", "nl.load"), ("put", "nl.store"),
    ("nki.jit", "nki.jit"), ("knki.trace", "nki.trace"), ("nki_jit", "nki.jit"), ("xp.exp", "np.exp"), ("numpy.float32", "np.float32"),
    ("neuronxcc.nki.isa.constants.oob_mode", "nisa.oob_mode"), ("isa.neuron_isa.dma_copy", "nisa.dma_copy"),
    ("nki.typing.tensor", "nt.tensor"), ("nki.compiler.sbuf", "ncc.sbuf"), ("lang", "nl"), ("nki", "nki"), ("local", ""), ("s", ""),
    ("os.path.join", ""), ("unknown.load", ""), ("f(x).load", ""), ("(lang).load", "nl.load"), ("numpyx.exp", ""), ("x[0]", "")])
def test_meanings(name, meaning):
    assert Names(TEXT).meaning(cst.parse_expression(name)) == meaning


@pytest.mark.parametrize("path, short", [
    ("neuronxcc.nki.language", "nl"), ("neuronxcc.nki.languages", "nki.languages"), ("neuronxcc.nki", "nki"), ("nki.isa.iota", "nisa.iota"),
    ("nki.collectives.all_reduce", "nccl.all_reduce"), ("nkis.isa", ""), ("neuronxcc.other", ""), ("jax_neuronx.nki_call", "nki.nki_call"),
    ("numpy.random.rand", "np.random.rand"), ("nki.language.constants.x", "nl.constants.x"), ("nki.isa.constants.engine", "nisa.engine"), ("", "")])
def test_short_paths(path, short):
    assert shortened(path) == short


def test_dotted_names():
    for text, path in [("a", "a"), ("a.b.c", "a.b.c"), ("f().b", None), ("a[0].b", None), ("1", None)]:
        assert dotted(cst.parse_expression(text)) == path


def test_aliases_and_imports():
    names = Names(TEXT)
    assert (names.alias("nl"), names.alias("nisa"), names.alias("nki"), names.alias("np")) == ("lang", "isa", "nki", "xp")
    assert Names("import os").alias("nl") == "nl" and Names("from neuronxcc.nki.language import load").alias("nl") == "nl"
    assert names.imports["local"] == "helpers.local" and names.imports["s"] == "sibling" and names.imports["os.path"] == "os.path"
    assert names.paths["os"] == "os" and "local" not in names.paths and names.paths["neuronxcc"] == "neuronxcc"
    assert names.imports["put"] == "neuronxcc.nki.language.store"


@pytest.mark.parametrize("text, says", [
    ("import neuronxcc.nki", True), ("import neuronxcc", True), ("from neuronxcc.nki.isa import iota", True), ("import nki", False),
    ("import nki.language as nl", False), ("from torch_neuronx import nki_jit", True), ("from jax_neuronx import nki_call", True),
    ("from nki import jit", False), ("import torch_neuronx", False), ("", False), ("from .neuronxcc import nki", False)])
def test_which_generation(text, says):
    assert Names(text).is_beta is says


@pytest.mark.parametrize("text, named", [
    ("from neuronxcc.nki.language import *\nload(x); store = 3\n", "from neuronxcc.nki.language import load\nload(x); store = 3\n"),
    ("x = 1\nfrom neuronxcc.nki.isa import *  # all\niota(load)\n", "x = 1\nfrom neuronxcc.nki.isa import iota  # all\niota(load)\n"),
    ("from neuronxcc.nki.language import *\nf(x)\n", "import neuronxcc.nki.language\nf(x)\n"),
    ("from os import *\nload(x)\n", "from os import *\nload(x)\n"),
    ("from neuronxcc.nki.language import load\n", "from neuronxcc.nki.language import load\n"),
    ("from neuronxcc.nki.language import *\nfrom neuronxcc.nki.isa import *\niota(store(exp(x)))\n",
     "from neuronxcc.nki.language import exp, store\nfrom neuronxcc.nki.isa import iota\niota(store(exp(x)))\n")])
def test_named_imports(text, named):
    assert with_named_imports(text) == named


DEFINING = """
import a, b.c as d, e.f
from g import h as i, j
def k(l, /, m=1, *n, o, **p): return q1, l, m, n, o, p
async def r(): pass
class S: T = 1
u: int = 1
v = w = 1
for x, (y, *z) in []: pass
with open('f') as aa: pass
try: pass
except ValueError as bb: print(bb)
match 1:
    case {'k': cc, **dd}: pass
    case [ee, *ff] as gg: pass
    case S(T=hh): pass
(ii := 1)
jj = [kk for kk in range(3)]
ll = lambda mm: mm
def nn():
    global oo
    oo = 1
def pp():
    global qq
"""


def test_names_that_nothing_defines():
    defined = ("a d e i j k r S u v w x y z aa cc dd ee ff gg hh ii jj ll nn oo pp qq").split()
    text = DEFINING + "\n".join(f"print({name})" for name in defined) + "\nprint(__file__, len, undefined, b, h)\nundefined2\nundefined\n"
    line = text.splitlines().index("print(__file__, len, undefined, b, h)") + 1
    assert unresolved(text) == [(4, "q1"), (line, "b"), (line, "h"), (line, "undefined"), (line + 1, "undefined2")]
    assert unresolved("from x import *\nundefined\n") == [] and unresolved("") == []
    assert unresolved("f(\n g)\ng\nf = 1\n") == [(2, "g")]


def test_a_name_has_the_line_of_a_scope_that_does_not_bind_it():
    """A parameter, a local name and a name of a comprehension above have the name, too."""
    text = ("def kernel(x, config):\n    return x + config\ndef other():\n    config = 2\n    return config\n"
            "sizes = [config for config in range(2)]\nif __name__ == '__main__':\n    print(config)\n")
    assert unresolved(text) == [(8, "config")]
    assert unresolved("f = lambda config=config: config\n") == [(1, "config")]


def test_names_that_only_code_beside_kernels_reads_are_not_left(tmp_path):
    file = tmp_path / "script.py"
    file.write_text("import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n@nki.jit\ndef kernel(x, y=1):\n"
                    "    return scale(x)\nif __name__ == '__main__':\n    kernel(torch.ones(2), y)\n    scale(y)\n")
    result, = migrated(file, "2.32")
    stays = "stays, which nothing in the file defines; no kernel reads it"
    assert [(e.line, e.text, e.left) for e in result.report.entries if "nothing in the file" in e.text] == [
        (5, "the name scale, which nothing in the file defines: import or define it", True),
        (7, f"the name torch {stays}", False), (7, f"the name y {stays}", False)]


def test_names_that_only_other_functions_define():
    text = ("def other(row):\n    offset = row\n    return [column for column in offset]\n"
            "def build(scale):\n    @nki.jit\n    def kernel(x):\n        inner = x\n"
            "        return lambda y: x * scale * offset * row * y * inner\n    return kernel, column\n"
            "class A:\n    size = 3\n    double = size * 2\n    def f(self): return size\nimport nki\n")
    assert unresolved(text) == [(8, "offset"), (8, "row"), (9, "column"), (13, "size")]


def test_a_function_with_the_name_of_a_symbol_table_has_its_own_names():
    assert unresolved("def top(x):\n    v = x\n    return v, w, [u for u in v]\n") == [(3, "w")]


def test_a_generated_closure_reports_what_nothing_defines(tmp_path):
    file = tmp_path / "closure.py"
    file.write_text("from neuronxcc import nki\nfrom neuronxcc.nki.language import *\ndef other():\n    offset = 3\n"
                    "def build(scale):\n    @nki.jit\n    def kernel(x):\n        tile = load(x)\n"
                    "        for i in range(2):\n            store(x, multiply(tile, scale * offset))\n    return kernel\n")
    result, = migrated(file, "2.32")
    assert [(e.line, e.text) for e in result.report.entries if e.left] == [
        (10, "the name offset, which nothing in the file defines: import or define it")]
    assert "from nki.language" not in result.new and "for i in range(2):" in result.new


def loaded_globals(code):
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from loaded_globals(constant)


def test_unresolved_names_are_those_that_python_does_not_find():
    text = "def f(x):\n    y = x + z\n    return [w for v in y if v] + g(y)\nclass C(D):\n    e = f\n    def m(self): return self.h, e2\n"
    code = compile(text, "file", "exec")
    unknown = {n for n in loaded_globals(code) if n not in ("f", "C", "__name__") and n not in code.co_names[:0]}
    assert {name for _, name in unresolved(text)} == unknown - {"e"}


def test_names_that_are_read_without_an_import():
    tree = ast.parse("import a, b.c\nfrom d import e as f\nif x:\n    import g\na, b, f, g, h\n"
                     "def t():\n    import u\n    return u\ndef k():\n    import l\n    return l, m, a\ndef n():\n    return l\nclass O:\n    import p\n    q = p\np\n")
    assert read_without_import(tree) == {"x", "h", "m", "l", "p"}


def test_operators():
    for meaning, name in [("nl.add", "add"), ("np.amax", operator("np.max")), ("nisa.iota", ""), ("", ""), ("np.add", "add"), ("os.add", "")]:
        assert operator(meaning) == name
    assert operator("np.max") in ("max", "maximum")


@pytest.mark.parametrize("text, number", [
    ("lang.finfo(lang.bfloat16).max", 3.3895313892515355e38), ("nl2.finfo(xp.float32).min", float(np.finfo(np.float32).min)),
    ("lang.finfo(lang.float16).max", 65504.0), ("lang.finfo(lang.int8).max", None), ("lang.finfo(dtype).max", None),
    ("xp.finfo(xp.float32).max", None), ("lang.finfo(isa.float32).max", None), ("lang.finfo(lang.bfloat16).nothing", None),
    ("lang.finfo(lang.bfloat16, 1).max", None), ("lang.finfo.max", None), ("lang.finfo(lang.unknown).max", None)])
def test_limits_of_dtypes(text, number):
    assert limit_of(cst.parse_expression(text), Names(TEXT)) == (number if number is None else pytest.approx(number)), math.inf


@pytest.mark.parametrize("text, value, expected", [
    ("return(x)", "y", "return(y)"), ("a = (x)in(x)", "y", "a = (y)in(y)"), ("a = 2 * (x)", "p + q", "a = 2 * (p + q)"),
    ("f(x=x).x = t.x[x:x]", "3", "f(x=3).x = t.x[3:3]"), ("a = x", "(y)", "a = (y)")])
def test_variables_are_replaced__in_their_parentheses(text, value, expected):
    statement = cst.parse_statement(text)
    replaced = statement.visit(Substitution({"x": cst.parse_expression(value)}))
    assert cst.Module([replaced]).code.strip() == expected


@pytest.mark.parametrize("imports, text, position", [
    (["import nki", "import nki.language as nl"], "import nki.isa as nisa", 1), (["import nki.isa as nisa"], "import math", 0),
    (["import nki", "import nki.isa as nisa"], "import nki.language as nl", 2), (["import os"], "import nki.isa as nisa", 1),
    (["import os", "import sys", "import numpy as np"], "import nki", 2), (["import os", "import numpy as np"], "import math", 0),
    (["import os", "\n# arrays\nimport numpy as np"], "import nki", 2), (["import numpy as np", "import os"], "import nki", 0)])
def test_new_imports_follow_those_of_their_package(imports, text, position):
    assert import_position(text, [cst.parse_statement(line) for line in imports], 0) == position


@pytest.mark.parametrize("lines, expected", [
    ("import nki\n", "import math\n\nimport nki\n"),
    ("import os\nimport nki\n", "import math\nimport os\nimport nki\n"),
    ("x = 1\n", "import math\nx = 1\n")])
def test_the_standard_library_is_a_group_of_imports(lines, expected):
    body = list(cst.parse_module(lines).body)
    insert_import("import math", body, 0)
    assert cst.Module(body).code == expected
