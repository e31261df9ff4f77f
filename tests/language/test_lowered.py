# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``kernel.lower``: what becomes of a kernel of either generation, for arguments that are only described."""

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

import nki_mlir
import nki_mlir.language.beta.language as nl
import nki_mlir.language.current.isa as current_isa
import nki_mlir.language.current.language as current_nl
from nki_mlir import display
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import nki
from nki_mlir.language.current import nki as current
from nki_mlir.passes.levels import Level, check_level


@nki.jit
def doubled(x, factor=2.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        nl.store(out[rows, :], nl.load(x[rows, :]) * factor)
    return out


@nki.jit
def one_tile(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    at = nl.program_id(0) * 128
    nl.store(out[at:at + 128, :], nl.exp(nl.load(x[at:at + 128, :])))
    return out


@current.jit
def current_doubled(x):
    out = current_nl.ndarray(x.shape, dtype=x.dtype, buffer=current_nl.shared_hbm)
    tile = current_nl.ndarray(x.shape, dtype=x.dtype, buffer=current_nl.sbuf)
    current_isa.dma_copy(dst=tile, src=x)
    current_isa.tensor_scalar(dst=tile, data=tile, op0=current_nl.multiply, operand0=2.0)
    current_isa.dma_copy(dst=out, src=tile)
    return out


KERNELS = {"beta": (doubled, (256, 64)), "grid": (one_tile[2], (256, 64)), "current": (current_doubled, (128, 64)),
           "cores": (current_doubled[1], (128, 64))}


@pytest.mark.parametrize(("kernel", "shape"), KERNELS.values(), ids=KERNELS)
def test_every_level__is_text_and_module(kernel, shape):
    lowered = kernel.lower(nki_mlir.spec(shape))
    for level in (Level.NKI, Level.WAIST, Level.NISA, Level.ISA):
        module = lowered.module(level.title)
        assert module.operation.verify()
        check_level(module, level, "as lowered")
        if level is not Level.ISA:
            assert lowered.as_text(level.title) == f"{module}\n"
    assert f".kernel {kernel.__name__}" in lowered.as_text("isa")
    assert len(lowered.streams) == 1
    assert lowered.streams[0].kernel == kernel.__name__


def test_arguments__may_be_anything_with_shape_and_dtype():
    text = doubled.lower(np.zeros((256, 64), np.float16)).as_text()
    assert "memref<256x64xf16" in text
    for dtype in ("float16", np.float16, np.dtype("float16")):
        assert doubled.lower(nki_mlir.spec((256, 64), dtype)).as_text() == text
    assert doubled.lower(x=nki_mlir.spec((256, 64), "float16")).as_text() == text
    assert doubled.lower(nki_mlir.spec((256, 64), "float16"), 3.0).as_text() == text.replace("2.000000e+00", "3.000000e+00")


def test_arguments__of_frameworks_need_no_values():
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    text = doubled.lower(nki_mlir.spec((256, 64), "bfloat16")).as_text()
    assert doubled.lower(torch.empty((256, 64), dtype=torch.bfloat16, device="meta")).as_text() == text
    assert doubled.lower(torch.ones((256, 64), dtype=torch.bfloat16)).as_text() == text
    assert doubled.lower(jax.ShapeDtypeStruct((256, 64), jax.numpy.bfloat16)).as_text() == text
    assert doubled.lower(jax.numpy.ones((256, 64), "bfloat16")).as_text() == text
    assert nki_mlir.spec((2, 3), torch.int32).zeros().dtype == np.int32


def test_time_profile_and_cost__agree(tmp_path):
    lowered = doubled.lower(nki_mlir.spec((256, 64)))
    figures = lowered.time().figures()
    assert figures == lowered.profile().document["timing"]
    cost = lowered.cost
    assert (cost.total_ns, cost.instructions) == (figures["total_ns"], figures["instructions"])
    assert cost.hbm_bytes == 2 * 256 * 64 * 4
    assert cost.operations == 256 * 64
    files = lowered.profile().write(tmp_path)
    assert [f.name for f in files] == ["profile.json", "trace.json.gz", "profile.html"]
    assert json.loads(files[0].read_text())["timing"]["total_ns"] == cost.total_ns
    assert str(lowered.profile()).startswith("doubled (trn2): ")


def test_opt__runs_passes_on_modules_and_texts():
    lowered = doubled.lower(nki_mlir.spec((256, 64)))
    before = lowered.as_text("nki")
    for source in (before, lowered.module("nki")):
        assert f"{nki_mlir.opt(source, to='nisa')}\n" == lowered.as_text("nisa")
        assert f"{nki_mlir.opt(source, 'split-masked-loops,nki-to-linalg')}\n" == lowered.as_text("waist")
        assert f"{nki_mlir.opt(source, ['split-masked-loops', 'nki-to-linalg'])}\n" == lowered.as_text("waist")
        assert f"{nki_mlir.opt(source)}\n" == before
    assert lowered.as_text("nki") == before
    assert 'nki.target = "trn1"' in str(nki_mlir.opt(before, target="trn1"))


@pytest.mark.parametrize(("wrong", "text"), [
    (lambda: doubled.lower(nki_mlir.spec((256, 64))).as_text("llvm"), "there is no level named 'llvm'"),
    (lambda: doubled.lower(nki_mlir.spec((256, 64))).module("waist", 1),
     "there is no module 1 at the waist level: the kernel has 1"),
    (lambda: doubled.lower(nki_mlir.spec((256, 64))).module("waist", "first"),
     "there is no module first at the waist level: the kernel has 1"),
    (lambda: nki_mlir.spec((2, 3), "float64"), "a tensor of shape (2, 3) and dtype float64: float64 is not an element"),
    (lambda: nki_mlir.opt("module {}", to="isa"), "nki_mlir.opt lowers to linalg or nisa, not to 'isa'"),
    (lambda: nki_mlir.opt("module {}", "a b"), "'a b' is not a list of passes such as A,B{x=1 y=2}"),
    (lambda: nki_mlir.opt("module {}", "no-such"), "there is no pass named 'no-such'"),
])
def test_mistakes__say_what_there_is(wrong, text):
    with pytest.raises(NkiMlirError) as caught:
        wrong()
    assert caught.value.headline.startswith(text)


def test_importing_the_package__loads_neither_mlir_nor_numpy():
    code = "import sys, nki_mlir; print(nki_mlir.spec.__name__, {'numpy', 'torch_mlir', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "spec set()\n"


def test_help__shows_the_way():
    assert nki_mlir.__doc__ is not None
    for way in ("kernel.lower(", "as_text", ".streams", ".time()", ".profile()", ".cost", "nki_mlir.opt(", "nki_mlir.spec(",
                "nki_mlir.check(", "nki_mlir.score(", "nki_mlir.tune("):
        assert way in nki_mlir.__doc__
    assert dir(nki_mlir) == ["__version__", "check", "load_ipython_extension", "opt", "score", "spec", "tune"]


# -- displays ----------------------------------------------------------------------------------------------------------
def test_a_tile__is_a_table_row_by_partition():
    observed = []

    @nki.jit
    def look(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        observed.append(tile._repr_html_())
        nl.store(out, tile)
        return out
    look.on("eager")(np.arange(6, dtype=np.float32).reshape(2, 3) / 4)
    assert "<tr><td>0</td><td>0</td><td>0.25</td><td>0.5</td></tr><tr><td>1</td><td>0.75</td><td>1</td><td>1.25</td></tr>" \
        in observed[0]
    assert "[2, 3] float32 in sbuf" in observed[0]


def test_a_large_table__has_its_ends():
    page = display.tile("t", np.arange(128 * 30, dtype=np.int64).reshape(128, 30), (128, 30))
    assert page.count("<tr>") == 1 + 2 * display.ROWS + 1
    assert "<td>3839</td>" in page


def test_mlir__is_highlighted_and_folds():
    page = doubled.lower(nki_mlir.spec((256, 64)))._repr_html_()
    assert page.count("<summary><b>") == 4
    assert '<details open><summary style="list-style-position:outside">' in page
    assert page.count("<details") == page.count("</details>")
    assert display.colored('%a = "nki.load"(%b) // <x>') == (
        '<span style="color:#3d7fc4">%a</span> = <span style="color:#3a8a3a">&quot;nki.load&quot;</span>'
        '(<span style="color:#3d7fc4">%b</span>) <span style="color:#7a7a7a">// &lt;x&gt;</span>')


def test_folding__loses_no_line():
    text = doubled.lower(nki_mlir.spec((256, 64))).as_text("waist")
    from html.parser import HTMLParser  # here: nothing else needs it

    class Words(HTMLParser):
        words = ""

        def handle_data(self, data: str) -> None:
            self.words += data
    words = Words()
    words.feed(display.mlir(text))
    assert words.words == "".join(text.splitlines())


def test_a_profile__is_a_page_in_the_notebook():
    page = doubled.lower(nki_mlir.spec((256, 64))).profile()._repr_html_()
    assert page.startswith('<iframe srcdoc="')
    assert "&quot;total_ns&quot;" in page


def test_a_notebook__shows_modules(monkeypatch):
    """Return what IPython would get; it is not a dependency."""
    shown = {}

    class Formatter:
        def for_type_by_name(self, module, name, function):
            shown[module, name] = function

    class Shell:
        class display_formatter:
            formatters = {"text/html": Formatter()}

    class IPython:
        get_ipython = staticmethod(Shell)
    monkeypatch.setitem(sys.modules, "IPython", IPython)
    module = doubled.lower(nki_mlir.spec((256, 64))).module("nisa")
    assert "dma_copy" in shown[type(module).__module__, "Module"](module)


@pytest.mark.parametrize("kernel", [one_tile[2], current_doubled])
def test_pickle__lowers_again(kernel):
    lowered = kernel.lower(np.ones((256 if kernel.grid else 128, 64), np.float32))
    loaded = pickle.loads(pickle.dumps(lowered))
    assert len(pickle.dumps(lowered)) < 1000 and loaded.time().total_ns == lowered.time().total_ns
    assert loaded.as_text("isa") == lowered.as_text("isa")
    other = copy.deepcopy(lowered)
    assert other.module() is not lowered.module() and other.as_text() == lowered.as_text()
