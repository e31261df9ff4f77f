# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What authors of kernels are told about the mistakes that they make first, at which line, and how to mend them.

``beta.txt`` and ``current.txt`` have the kernels and the texts.
"""

import re
import sys

import pytest

from .entries import GENERATIONS, Mistake, mistakes

EVERY = [one for generation in GENERATIONS for one in mistakes(generation)]
# The same mistake has another code where the generations have other rules.
OTHER_RULES = {
    "a tile without a free dimension": "a tile of the current generation may have one dimension",
    "a Python condition on a tile": "comparisons of the current generation are instructions",
}
# The same mistake has another fix where it names what one generation alone has.
OTHER_FIXES = OTHER_RULES.keys() | {
    # dtypes, buffers and the functions' own signatures
    "the short name of a dtype as text", "a dtype that the device does not have", "a dtype as a misspelled text",
    "a buffer as text",
    "a function of the other generation", "a misspelled keyword", "an argument too many", "an argument too few",
    "the extents of a shape one by one", "a misspelled limit of tiles", "an axis for the function of two tiles",
    "a misspelled option of the decorator", "an argument that nothing takes", "an output parameter", "a grid of text", "a grid of a whole float",
    "an array as a grid", "an activation that is none",
    # masks and index tensors of beta, patterns, registers and copies of current
    "an index beyond the end", "a text as a subscript", "a list as a subscript",
    "a boolean mask of NumPy as a subscript", "a negative step",
    "a reshape that changes the partition", "a reshape to another size",
    "a tile as the bound of a loop", "a tile as a Python number", "a tile as a NumPy array",
    # a product of current may have the columns that the target takes
    "a product that is wider than a bank",
}


def code_of(one: Mistake) -> str:
    """The code in what a mistake's author is told."""
    match = re.search(r" \[([\w-]+)\]$", one.told[0])
    assert match is not None, one
    return match[1]


@pytest.fixture(autouse=True)
def python_recursion_limit():
    """The texts state Python's own limit, which frameworks raise when other tests of a process compile with them."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.parametrize("one", EVERY, ids=lambda one: f"{one.generation}-{one.title}")
def test_mistake__is_explained_at_its_line_on_every_executor(one, tmp_path):
    assert len(one.told) == 2 and one.told[1].startswith("fix: ")
    for on in ("eager", "jit"):
        assert one.run(tmp_path, on) == (one.told, one.source[1]), on


def test_list__has_150_mistakes():
    assert len(EVERY) >= 150 and len({(one.generation, one.title) for one in EVERY}) == len(EVERY)


def test_same_mistake__has_one_code_in_both_generations():
    codes = {generation: {one.title: code_of(one) for one in EVERY if one.generation == generation}
             for generation in GENERATIONS}
    both = codes["beta"].keys() & codes["current"].keys()
    assert len(both) >= 50
    assert {title for title in both if codes["beta"][title] != codes["current"][title]} <= OTHER_RULES.keys()


def test_same_mistake__has_one_fix_in_both_generations():
    fixes = {generation: {one.title: one.told[1] for one in EVERY if one.generation == generation}
             for generation in GENERATIONS}
    both = fixes["beta"].keys() & fixes["current"].keys()
    assert {title for title in both if fixes["beta"][title] != fixes["current"][title]} == OTHER_FIXES & both
