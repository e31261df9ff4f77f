# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""References: what their functions return as inputs of a kernel, launches, and errors of their tables."""

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.scoring.reference import load_reference

TEXT = """
import numpy as np
CASES = [{{"n": 3}}]
def inputs(rng, n=2):
    return {inputs}
def reference(*values, **named):
    taken = [*values, *named.values()][0]
    taken += 1                          # the kernel's inputs stay as they are
    return taken
{more}
"""
DOUBLED = "def transform_to_nki_inputs(values):\n    return {}\n"


def trial(folder, inputs, more=""):
    (folder / "reference.py").write_text(TEXT.format(inputs=inputs, more=more))
    one, *_ = load_reference(folder / "reference.py").trials
    return one


@pytest.mark.parametrize("inputs, more, positional, keywords", [
    ("np.zeros(n)", "", [0], {}), ("[np.zeros(n), 5]", "", [0, 5], {}), ("(np.zeros(n), 5)", "", [0, 5], {}),
    ("{'x': np.zeros(n), 'k': 5}", "", [], {"x": 0, "k": 5}),
    ("[np.zeros(n), 5]", DOUBLED.format("[v * 0 + 7 for v in values]"), [7, 7], {}),
    ("[np.zeros(n), 5]", DOUBLED.format("(values[1],)"), [5], {}), ("[np.zeros(n), 5]", DOUBLED.format("values[1]"), [5], {}),
    ("{'x': np.zeros(n), 'k': 5}", DOUBLED.format("1 / 0"), [], {"x": 0, "k": 5})])
def test_inputs__are_arguments_of_the_kernel(inputs, more, positional, keywords, tmp_path):
    one = trial(tmp_path, inputs, more)
    assert [np.max(v) for v in one.positional] == positional
    assert {name: np.max(v) for name, v in one.keywords.items()} == keywords
    np.testing.assert_array_equal(one.expected[0], np.ones(3))


@pytest.mark.parametrize("grid, launch", [
    ("", ()), ("GRID = 2", (2,)), ("GRID = (2, 3)", (2, 3)), ("GRID = [4]", (4,)),
    ("def GRID(n):\n    return n", (3,)), ("def GRID(n):\n    return [n, 2 * n]", (3, 6))])
def test_grid__is_that_of_the_case(grid, launch, tmp_path):
    assert trial(tmp_path, "np.zeros(n)", grid).grid == launch


@pytest.mark.parametrize("tolerance, mistake", [
    ("3", "is no dict"), ("{'b': 1, 'a': 2, 'absolute': 1}", "has a, b"),
    ("{'absolute': float('nan')}", "has nan as absolute"), ("{'absolute': -1}", "has -1 as absolute"),
    ("{'absolute': '1'}", "has '1' as absolute"), ("{'relative': float('inf')}", "has inf as relative")])
def test_tolerance__is_a_dict_of_finite_numbers(tolerance, mistake, tmp_path):
    with pytest.raises(NkiMlirError) as error:
        trial(tmp_path, "np.zeros(n)", f"TOLERANCE = {tolerance}")
    assert f"is not understood: its TOLERANCE {mistake}" in error.value.headline
    assert error.value.at.line == 10


@pytest.mark.parametrize("tolerance", ["{}", "{'absolute': 0}", "{'relative': 1e-3, 'relative_l2': 2}"])
def test_tolerance__may_be_zero(tolerance, tmp_path):
    trial(tmp_path, "np.zeros(n)", f"TOLERANCE = {tolerance}")
