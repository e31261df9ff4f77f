# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statements that read a part of a tile and write a shifted one."""

import ast
import random

import numpy as np
import pytest

from nki_mlir.migration.shifted_parts import overlap

from .test_combined_operations import statements
from .test_text import assert_same_values

TILE = "t = nl.load(x)\n"
BUFFER = "nl.ndarray((t.shape[0], {}), dtype=t.dtype, buffer=nl.sbuf)"


@pytest.mark.parametrize(("source", "lines"), [
    ("t[:, 1:8] = t[:, 0:7]",
     [f"shifted = {BUFFER.format(7)}", "nisa.tensor_copy(dst=shifted, src=t[:, 0:7])",
      "nisa.tensor_copy(dst=t[:, 1:8], src=shifted)"]),
    ("t[:, 0:4] = nl.exp(t[:, 3:7])",
     [f"shifted = {BUFFER.format(4)}", "nisa.activation(dst=shifted, op=nl.exp, data=t[:, 3:7])",
      "nisa.tensor_copy(dst=t[:, 0:4], src=shifted)"]),
    ("t[:, 0:4] += t[:, 1:5]",
     [f"shifted = {BUFFER.format(4)}", "nisa.tensor_tensor(dst=shifted, data1=t[:, 0:4], data2=t[:, 1:5], op=nl.add)",
      "nisa.tensor_copy(dst=t[:, 0:4], src=shifted)"]),
    ("t[:, 0:4] = t[:, 4:8]", ["nisa.tensor_copy(dst=t[:, 0:4], src=t[:, 4:8])"]),
    ("t[:, 0:4] = nl.exp(t[:, 0:4])", ["nisa.activation(dst=t[:, 0:4], op=nl.exp, data=t[:, 0:4])"])])
def test_shifted_results_go_through_another_tile(source, lines, tmp_path):
    assert statements(tmp_path, TILE + source)[-len(lines):] == lines


def test_values_of_shifted_parts(tmp_path):
    """Parts that move with a loop, rows at which no engine starts, and index grids."""
    assert_same_values("""def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    for k in nl.static_range(3):
        t[:, k + 1:k + 9] = nl.add(t[:, k:k + 8], 1.0)
    t[1:5, :] = t[0:4, :]
    i, j = nl.mgrid[0:16, 0:6]
    t[i, j + 1] = nl.copy(t[i, j])
    nl.store(out, t)
    return out
""", tmp_path, np.arange(256, dtype=np.float32).reshape(16, 16))


@pytest.mark.parametrize("seed", range(3))
def test_parts_overlap__where_they_have_elements_in_common(seed):
    """Slices, ``nl.ds`` and indices, at numbers and beside a variable."""
    rng = random.Random(seed)

    def drawn():
        start, count, base = rng.randint(0, 6), rng.randint(1, 4), rng.choice(["", "k + "])
        form = rng.choice([f"{base}{start}:{base}{start + count}", f"nl.ds({base}{start}, {count})", f"{base}{start}"])
        elements = range(start, start + (count if ":" in form or "ds" in form else 1))
        return form, {(base, n) for n in elements}
    for _ in range(200):
        texts, sets = [], []
        for _ in range(2):
            items = [drawn() for _ in range(2)]
            texts.append(f"t[{', '.join(text for text, _ in items)}]")
            sets.append([elements for _, elements in items])
        first, second = (ast.parse(text, mode="eval").body for text in texts)
        assert overlap(first, second) == all(one & other for one, other in zip(*sets)), texts
