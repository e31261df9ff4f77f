# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that no file has: their text is found where what ran it still holds it; else a warning says what is lost."""

import linecache
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

from nki_mlir.capture.errors import AnnotationMismatch, OutOfScope
from nki_mlir.capture.source_text import text_of
from nki_mlir.capture.wrapping import NoSourceWarning, underlying
from nki_mlir.language.current import nki as current

HEAD = """
from nki_mlir.language.beta import nki, language as nl, isa as nisa, typing as nt
from nki_mlir.language.current import nki as nki_, language as nl_, isa as nisa_
def output_of(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out
"""
SUM = """
def repeated(t, times):
    total = nl.zeros(t.shape, t.dtype)
    for k in nl.sequential_range(times):
        total += t
    return total
@nki.jit
def kernel(x):
    i, j = nl.arange(16)[:, None], nl.arange(8)[None, :]
    part = nl.zeros((16, 8), nl.float32)
    part[...] = nl.load(x[i, j], mask=(i < 10 and j < 4))
    return output_of(repeated(part, 5))
"""
OUTSIDE = """
@nki.jit
def kernel(x):
    for k in nl.affine_range(3):
        tile = nl.load(x)
    return output_of(tile)
"""
ANNOTATED = """
@nki.jit
def kernel(x):
    tile: nt.tensor[1, 2] = nl.load(x)
    return output_of(tile)
"""
X = np.arange(128, dtype=np.float32).reshape(16, 8)
EXPECTED = np.zeros((16, 8), np.float32)
EXPECTED[:10, :4] = 5 * X[:10, :4]


def kernel_of(text, name="kernel", **more):
    """What a text defines."""
    names = dict(more)
    exec(text, names)
    return names[name]


@pytest.fixture(params=["eager", "interpreter", "jit", "isa"])
def on(request):
    return request.param


def test_all_checks_of_a_text_that_is_run(on, recwarn):
    np.testing.assert_array_equal(kernel_of(HEAD + SUM).on(on)(X), EXPECTED)
    with pytest.raises(OutOfScope, match="tensor tile was created inside a loop or branch that has ended"):
        kernel_of(HEAD + OUTSIDE).on(on)(X)
    with pytest.raises(AnnotationMismatch, match=r"says \(1, 2\), but the value has shape \(16, 8\)"):
        kernel_of(HEAD + ANNOTATED).on(on)(X)
    assert not [w for w in recwarn if w.category is NoSourceWarning]


def test_texts_of_one_file_name():
    """Each function has its own, whatever lines they are on."""
    kernels = [kernel_of(HEAD + SUM.replace("5", str(n))) for n in (2, 3, 4)]
    for n, kernel in zip((2, 3, 4), kernels):
        np.testing.assert_array_equal(kernel.on("jit")(X), EXPECTED / 5 * n)
        assert f"repeated(part, {n})" in text_of(underlying(kernel.func).__code__)


def ran(text):
    names = {}
    exec(textwrap.dedent(text), names)
    return names["kernel"]


def compiled(text):
    names = {}
    exec(compile(text.encode(), "<kernels>", "exec"), names)
    return names["kernel"]


def of_a_literal(text):
    names = {}
    exec("""
from nki_mlir.language.beta import nki, language as nl
@nki.jit
def kernel(x):
    for k in nl.affine_range(3):
        tile = nl.load(x)
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out
""", names)
    return names["kernel"]


@pytest.mark.parametrize("run", [ran, compiled, of_a_literal], ids=lambda f: f.__name__)
def test_ways_to_run_a_text(run):
    indented = textwrap.indent(HEAD + OUTSIDE, "    ") if run is ran else HEAD + OUTSIDE
    with pytest.raises(OutOfScope, match="tensor tile was created inside a loop or branch that has ended"):
        run(indented).on("jit")(X)


def test_text_in_linecache():
    text, name = HEAD + OUTSIDE, "<cell 1>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names = {}
    exec(compile(text, name, "exec"), names)
    with pytest.raises(OutOfScope, match="tensor tile was created inside a loop or branch that has ended"):
        names["kernel"].on("jit")(X)


def test_a_text_that_nobody_holds():
    """One warning a function, which lists what is not checked; the values are Python's."""
    parts = [HEAD.replace("\n", "\n\n"), OUTSIDE]
    names = {}
    exec("".join(parts), names)
    kernel = names["kernel"]
    with pytest.warns(NoSourceWarning) as caught:
        np.testing.assert_array_equal(kernel.on("jit")(X), X)
        np.testing.assert_array_equal(kernel.on("eager")(X), X)
    messages = [str(w.message) for w in caught if w.category is NoSourceWarning]
    assert len(messages) == 1 and caught[0].filename == "<string>" and caught[0].lineno == 16
    for words in ("the source of kernel cannot be read", "loops are unrolled", "iterations of affine_range depend",
                  "'while' does not test values of the device", "used after the loop", "'and', 'or', 'not'", "the shape of its annotation", "the buffer of a tensor",
                  "linecache"):
        assert words in messages[0]


PROGRAM = HEAD + OUTSIDE + """
import numpy as np
try:
    kernel.on("interpreter")(np.ones((16, 8), np.float32))
    print("ran")
except Exception as error:
    print(type(error).__name__, error.at.line)
"""


def output_of_python(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=120, **options)


def test_standard_input(tmp_path):
    """A file is read once more; a pipe cannot be, which is said."""
    file = tmp_path / "program"
    file.write_text(PROGRAM)
    with file.open() as opened:
        done = output_of_python("-", stdin=opened)
    assert done.stdout.split() == ["OutOfScope", "6"] and not done.stderr
    done = output_of_python("-", input=PROGRAM)
    assert done.stdout.split() == ["ran"] and "NoSourceWarning: the source of kernel cannot be read" in done.stderr


def test_a_command():
    done = output_of_python("-c", PROGRAM)
    assert done.stdout.split() == ["OutOfScope", "6"] and not done.stderr


LEFT = """
def kernel(x):
    tile, out = nl_.load(x), nl_.ndarray(x.shape, x.dtype, buffer=nl_.shared_hbm)
    for i in nl_.dynamic_range(3):
        nisa_.tensor_scalar(tile, tile, nl_.add, 1.0)
        break
    nisa_.dma_copy(out, tile)
    return out
"""


def test_loops_of_the_device_in_the_current_generation(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    text = HEAD + LEFT
    names = {}
    exec(text, names)
    with pytest.raises(AssertionError, match="break and return are not allowed within dynamic loop"):
        current.jit(names["kernel"]).on("interpreter")(X)


def test_functions_of_files_are_not_looked_for():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = current.jit(of_a_file)
        assert text_of(of_a_file.__code__) is None
        assert kernel.__name__ == "of_a_file"


def of_a_file(x):
    return x
