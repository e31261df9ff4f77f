# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki_call`` of the first beta: the new file's functions give JAX what the old one's gave."""

import ast
import linecache
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.migration.framework_calls import without_nki_calls
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

jax = pytest.importorskip("jax")

HEAD = '''"""Framework code."""
import functools
import jax
import jax.numpy as jnp
from jax_neuronx import nki_call
import neuronxcc.nki.language as nl


'''
ADD = '''def add_kernel(a, b, out):
    """Add two tensors, a tile of each program."""
    pid = nl.program_id(0)
    rows = pid * 128 + nl.arange(128)[:, None]
    cols = nl.arange(512)[None, :]
    nl.store(out[rows, cols], value=nl.load(a[rows, cols]) + nl.load(b[rows, cols]))


def run(x, y):
    out_shape = jax.ShapeDtypeStruct((x.shape[0], x.shape[1]), dtype=x.dtype)
    return nki_call(
        add_kernel, x, y,
        grid=(x.shape[0] // 128,),
        out_shape=out_shape,
    )
'''
TWO_RESULTS = '''def scaled_kernel(x, out, top, *, factor):
    t = nl.load(x)
    nl.store(out, t * factor)
    nl.store(top, nl.max(t, axis=[1]))


@jax.jit
def run(q, other):
    n, d = q.shape
    shapes = [jax.ShapeDtypeStruct(shape=q.shape, dtype=jnp.float32), jax.ShapeDtypeStruct((n, 1), other.dtype)]
    big, top = nki_call(functools.partial(scaled_kernel, factor=3.0), q, out_shape=tuple(shapes))
    return big + other[:n], top
'''.replace("tuple(shapes)", "shapes").replace("other.dtype", "q.dtype")
IN_A_METHOD = '''class Layer:
    def __call__(self, x, y):
        def kernel(a, b, out):
            nl.store(out[0:128, 0:512], nl.load(a[0:128, 0:512]) * nl.load(b[0:128, 0:512]))
        return nki_call(kernel, x * 1, y, out_shape=jax.ShapeDtypeStruct((128, (x * 1).shape[1]), 'float32'))


run = Layer()
'''


def new_text(text):
    report = MigrationReport("f.py")
    return rewritten(text, report), report


@pytest.mark.parametrize("text", [ADD, TWO_RESULTS, IN_A_METHOD], ids=["add", "two results", "in a method"])
def test_results_are_the_same(text):
    install()
    new, report = new_text(HEAD + text)
    assert report.is_complete and "nki_call" not in new and "jax_neuronx" not in new and new.count("import nki\n") == 1
    x = np.random.default_rng(0).integers(-9, 9, (256, 512)).astype(np.float32)
    arrays = [x, x + 1] if text is ADD else [x[:128], x[128:]]
    results = []
    for one in (HEAD + text, new):
        scope = {"__name__": "layer"}
        file = f"<{len(one)}>"
        linecache.cache[file] = len(one), None, one.splitlines(True), file
        exec(compile(one, file, "exec"), scope)
        results.append([np.asarray(r) for r in jax.tree.leaves(scope["run"](*arrays))])
    assert len(results[0]) == len(results[1])
    for old, new in zip(*results):
        assert old.dtype == new.dtype and np.array_equal(old, new)


def test_the_kernel_reads_like_one_that_a_person_wrote():
    new, _ = new_text(HEAD + TWO_RESULTS)
    kernel = next(n for n in ast.parse(new).body if isinstance(n, ast.FunctionDef) and n.decorator_list)
    assert ast.unparse(kernel).splitlines()[:4] == [
        "@nki.jit", "def scaled_kernel(x, *, factor):",
        "    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)",
        "    top = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)"]
    assert "scaled_kernel(q, factor=3.0)" in new and "shapes" not in new


def test_the_report_has_the_lines_of_the_old_text():
    _, report = new_text(HEAD + ADD)
    lines = (HEAD + ADD).splitlines()
    told = {e.text.split(" (")[0]: lines[e.line - 1] for e in report.entries}
    assert told["add_kernel creates and returns out"] == "def add_kernel(a, b, out):"
    assert told["nki_call becomes a call of add_kernel"] == told["the launch grid becomes an argument of the kernel"] == (
        "    return nki_call(")
    assert told["the index vector rows is removed: subscripts become slices"].startswith("    rows = pid")
    assert told["the operator on tiles becomes nl.add"].startswith("    nl.store(out[rows, cols]")


LEFT = {
    "a shape of the caller alone": ADD.replace("(x.shape[0], x.shape[1])", "(BLOCK, size())"),
    "another kind of shape": ADD.replace("jax.ShapeDtypeStruct((x.shape[0], x.shape[1]), dtype=x.dtype)",
                                         "jax.eval_shape(jnp.add, x, y)"),
    "calls that differ": ADD + '''

def other(x, y):
    return nki_call(add_kernel, x, y, grid=(1,), out_shape=jax.ShapeDtypeStruct(y.shape, jnp.bfloat16))
''',
    "a kernel that others name": ADD + "\n\nKERNELS = [add_kernel]\n",
    "a sequence of one": ADD.replace("out_shape=out_shape,", "out_shape=[out_shape],"),
}


@pytest.mark.parametrize("text", LEFT.values(), ids=list(LEFT))
def test_what_the_text_does_not_say_is_left(text):
    new, report = new_text(HEAD + text)
    assert {e.text for e in report.entries if e.left} == {
        "nki_call: call the kernel, which creates and returns its results"}
    assert "from jax_neuronx import nki_call" in new and "nki_call(" in new.split("def run")[1]
    ast.parse(new)


def test_texts_without_it_stay():
    text = Path(__file__).read_text().replace("nki_call", "")
    assert without_nki_calls(text, MigrationReport("f.py"))[0] == text


def test_the_grid_follows_keyword_only_parameters():
    text, _ = new_text(HEAD + ADD.replace("a, b, out):", "a, b, out, *, scale):").replace(
        "add_kernel, x, y,", "functools.partial(add_kernel, scale=2), x, y,"))
    assert "def add_kernel(a, b, *, scale, grid=(1,)):" in text and "add_kernel(x, y, scale=2, grid=" in text
