# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names that separate blocks share, arguments that fresh tiles need not, and other texts that a person would not write."""

import random

import libcst as cst
import pytest

from nki_mlir.migration.benchmarks import with_classes
from nki_mlir.migration.block_names import candidates, with_shared_names
from nki_mlir.migration.fresh_products import without_spare_arguments
from nki_mlir.migration.releases import newest
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.spare_imports import insert_import
from nki_mlir.migration.view_parts import part_of

from .test_text import assert_same_values, floats, migrated

NAMES = ("total", "total_2", "total_3", "num_rows", "tile_rows", "tile_rows_2")


class Body:
    """The statements of a random function: loops, branches, assignments and uses."""

    def __init__(self, seed):
        self.rng, self.variables = random.Random(seed), 0
        self.lines = self.block(0)

    def block(self, depth):
        lines, names = [], self.rng.sample(NAMES, 2) if depth else ["first"]
        if self.rng.random() < 0.7:
            lines.append(f"{names[0]} = step()")
        for _ in range(self.rng.randint(1, 4)):
            kind = self.rng.random()
            if self.rng.random() < 0.05:
                names = [*names, self.rng.choice(NAMES)]
            if kind < 0.35:
                lines.append(f"{self.rng.choice(names)} = step()")
            elif kind < 0.6:
                lines.append(f"use({', '.join(self.rng.choices(names, k=2))})")
            elif depth < 3 and kind < 0.8:
                self.variables += 1
                lines.append(f"for i{self.variables} in range({self.rng.randint(1, 3)}):")
                lines += ["    " + line for line in self.block(depth + 1)]
            elif depth < 3:
                lines += ["if step() % 3:", *("    " + line for line in self.block(depth + 1))]
                if self.rng.random() < 0.5:
                    lines += ["else:", *("    " + line for line in self.block(depth + 1))]
            else:
                lines.append(f"{self.rng.choice(names)} += 1")
        return lines


def shared(text, old=frozenset()):
    body, renamed = with_shared_names(cst.parse_module(text).body, old)
    return cst.Module(body).code, renamed


def uses(text):
    """Return what uses get, up to the first use of a variable without a value."""
    record, steps = [], iter(range(10 ** 6))
    try:
        exec(text, {"use": lambda *values: record.append(values), "step": lambda: next(steps)})
    except NameError:
        record.append("no value")
    return record


def test_shared_names__have_the_values_that_uses_had():
    count = 0
    for seed in range(400):
        text = "\n".join(Body(seed).lines) + "\n"
        new, renamed = shared(text)
        old_uses, new_uses = uses(text), uses(new)
        if "no value" in old_uses:                  # a variable that had none may have one now
            old_uses = old_uses[:-1]
            new_uses = new_uses[:len(old_uses)]
        assert new_uses == old_uses, f"{text}\n{new}"
        count += bool(renamed)
    assert count > 20


@pytest.mark.parametrize("name, others", [
    ("tile_rows_3", ["num_rows", "tile_rows", "tile_rows_2"]), ("tile_columns", ["num_columns"]), ("total_2", ["total"]),
    ("total", []), ("x_1", []), ("num_rows", [])])
def test_candidates(name, others):
    assert candidates(name) == others


@pytest.mark.parametrize("before, after", [
    ("for i in r:\n    a = f(i)\n    g(a)\nfor i in r:\n    a_2 = f(i)\n    g(a_2)\n",
     "for i in r:\n    a = f(i)\n    g(a)\nfor i in r:\n    a = f(i)\n    g(a)\n"),
    ("if c:\n    a = f(1)\n    g(a)\nelse:\n    a_2 = f(2)\n    g(a_2)\n",
     "if c:\n    a = f(1)\n    g(a)\nelse:\n    a = f(2)\n    g(a)\n"),
    ("with c():\n    a = f(1)\nwhile c:\n    a_2 = f(2)\n    if a_2:\n        g(a_2)\n",
     "with c():\n    a = f(1)\nwhile c:\n    a = f(2)\n    if a:\n        g(a)\n"),
    ("for i in r:\n    a = f(i)\nfor i in r:\n    if c:\n        a_2 = 1\n    else:\n        a_2 = 2\n    g(a_2)\n",
     "for i in r:\n    a = f(i)\nfor i in r:\n    if c:\n        a = 1\n    else:\n        a = 2\n    g(a)\n"),
    # a name without the first of its kind
    ("a_3 = f(1)\ng(a_3)\n", "a = f(1)\ng(a)\n"), ("a_2 = f(1)\na_2 += 1\n", "a = f(1)\na += 1\n"),
    ("a_2 = f(1)\ng(lambda: a)\n", ""), ("a_2 = f(1)\ng(lambda: a_2)\n", ""),
    ("def a_2():\n    pass\na_2()\n", ""),
    # not if one is read later, around the other, in a function, or before it has a value
    ("for i in r:\n    a = f(i)\ng(a)\nfor i in r:\n    a_2 = f(i)\n    g(a_2)\n", ""),
    ("for i in r:\n    a = f(i)\n    for j in r:\n        a_2 = f(j)\n        g(a, a_2)\n", ""),
    ("for i in r:\n    a = f(i)\nfor i in r:\n    a_2 = f(i)\n    g(lambda: a_2)\n", ""),
    ("for i in r:\n    a = f(i)\nfor i in r:\n    if i:\n        g(a_2)\n    a_2 = f(i)\n", ""),
    ("for i in r:\n    a = f(i)\nfor i in r:\n    a_2 += 1\n", ""), ("a = f(1)\ng(a)\na_2 = f(2)\ng(a_2)\n", "")])
def test_examples_of_names(before, after):
    assert shared(before)[0] == (after or before)
    assert shared(before, {"a_2", "a_3"})[0] == before          # a name of the old text stays


PRODUCT = "nisa.nc_matmul(dst=s, stationary=x, moving=y, accumulate=False)\n"


@pytest.mark.parametrize("before, is_spare", [
    ("s = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)\nz = nl.load(y)\n", True),
    ("s = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)\nif c:\n    f(s)\n", False),
    ("s = nl.zeros((8, 8), dtype=nl.float32, buffer=nl.psum)\n", False), ("", False)])
def test_a_product_in_a_fresh_tile_begins_there(before, is_spare):
    text = cst.Module(without_spare_arguments(cst.parse_module(before + PRODUCT).body, "nl", "nisa")).code
    assert text == before + (PRODUCT.replace(", accumulate=False", "") if is_spare else PRODUCT)


@pytest.mark.parametrize("text, expected", [
    ("import os\n", '"""Text."""\n\nimport functools\nimport os\n'),
    ("import nki\n", '"""Text."""\n\nimport functools\n\nimport nki\n'),
    ("# about it\nimport os\n", '"""Text."""\nimport functools\n\n# about it\nimport os\n')])
def test_an_inserted_import_begins_the_group(text, expected):
    body = list(cst.parse_module(f'"""Text."""\n\n{text}').body)
    insert_import("import functools", body, 1)
    assert cst.Module(body).code == expected


@pytest.mark.parametrize("text, items, part", [
    ("idx[0:n, 0:1]", ["nl.ds(row, 1)"], "idx[nl.ds(row, 1), 0:1]"), ("idx[:n]", ["ds(row, 1)"], "idx[ds(row, 1)]"),
    ("idx[0:n]", ["0:n", ":"], "idx[0:n]"), ("idx[0:n]", ["0:m"], "idx[0:n][0:m]"),
    ("idx[2:n]", ["nl.ds(row, 1)"], "idx[2:n][nl.ds(row, 1)]"), ("idx[::2]", ["nl.ds(k, 1)"], "idx[::2][nl.ds(k, 1)]")])
def test_a_part_of_the_first_elements(text, items, part):
    assert part_of(text, items) == part


@pytest.mark.parametrize("returned", ["out.reshape((64,))", "out.reshape((2, 32))[0]", "flat"])
def test_results_that_are_views_of_tensors_move_to_shared_memory(returned):
    new = newest(f"""import nki
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.hbm)
    other = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.hbm)
    nl.store(out, nl.load(x))
    flat = out.reshape((64,))
    return {returned}
""", MigrationReport("kernel.py"), "2.32", is_current=True)
    assert "out = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.shared_hbm)" in new
    assert "other = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.hbm)" in new


def test_classes_that_measure_have_their_imports_in_groups():
    new = with_classes("import sys\n\nimport nki\nimport numpy as np\n\nmeasured = Benchmark(kernel)\n")
    assert new.splitlines()[:9] == [
        "import inspect", "import sys", "import tempfile", "from types import SimpleNamespace", "", "import nki",
        "from nki.framework.compiled import CompileKernel", "from nki.runtime import SpikeModel, SpikeTensor",
        "import numpy as np"]


def test_sizes_of_a_tile_that_a_branch_may_replace():
    new = migrated("""def kernel(x, w, causal=True):
    n, m = x.shape
    out = nl.ndarray((m, n), dtype=x.dtype, buffer=nl.shared_hbm)
    scores = nl.add(nl.load(x), nl.load(w))
    if causal:
        i, j = nl.mgrid[0:n, 0:m]
        scores = nisa.affine_select(pred=(i >= j), on_true_tile=scores[i, j], on_false_value=0.0)
    nl.store(out, nisa.nc_transpose(scores[:, 0:m]))
    return out
""")
    assert "transposed = nl.ndarray((m, n), dtype=" in new


def test_the_values_of_a_search_keep_their_columns(tmp_path):
    kernel = """def kernel(x, num=24):
    rows, cols = x.shape
    out = nl.ndarray((rows, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:rows, 0:cols]
    tile = nl.load(x)
    top = nisa.max8(src=tile[p, f], mask=f < num)
    nl.store(out, nisa.nc_find_index8(data=tile[p, f], vals=top, mask=f < num))
    return out
"""
    assert_same_values(kernel, tmp_path, floats(32, 40))
    assert "data=tile[:, 0:num_columns], vals=top)" in migrated(kernel)


def test_the_end_of_a_window_is_the_lesser_bound(tmp_path):
    kernel = """def kernel(x, lo=4, hi=20):
    rows, cols = x.shape
    out = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:rows, 0:cols]
    nl.store(out, nisa.tensor_reduce(np.max, nl.load(x)[p, f], axis=(1,), mask=(f >= lo) & (f < hi)))
    return out
"""
    assert_same_values(kernel, tmp_path, floats(32, 40))
    assert_same_values(kernel, tmp_path, floats(32, 16))
    assert "tile_columns = num_columns - start" in migrated(kernel)
