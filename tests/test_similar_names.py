# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which name an unknown one stands for: the same words, another library's name, or a similar name."""

import re
from difflib import get_close_matches

import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.current import isa as current_nisa
from nki_mlir.language.current import language as current_nl
from nki_mlir.similar_names import ALIKE, COMPOSED, ELSEWHERE, nearest, same_name

NAMES = ("softmax", "max8", "multiply", "sum", "subtract", "matmul", "tensor_tensor_scan", "dma_copy", "Exp", "exp",
         "float32", "min")


@pytest.mark.parametrize(("name", "expected"), [
    ("SoftMax", "softmax"), ("EXP", "Exp"), ("mul", "multiply"), ("Sub", "subtract"), ("mm", "matmul"),
    ("scan_tensor_tensor", "tensor_tensor_scan"), ("copy_dma", "dma_copy"), ("double", "float32"),
    ("tensor_tensor", ""), ("sofmax", ""), ("amax", ""), ("", "")])
def test_same_name(name, expected):
    """Upper case and the order of words do not matter; of equal names, the first is meant."""
    assert same_name(name, NAMES) == expected
    assert not expected or nearest(name, NAMES) == expected


@pytest.mark.parametrize("name", ["sofmax", "sumn", "tensor_scan", "mulitply", "dma_cpoy", "flaot32", "xyzzy", "i", "mat"])
def test_nearest_name_is_that_of_difflib(name):
    assert nearest(name, NAMES) == next(iter(get_close_matches(name, NAMES, 1, ALIKE)), "")


def test_cutoff_is_the_least_ratio():
    assert nearest("abcd", ["abxx"], cutoff=0.5) == "abxx" and nearest("abcd", ["abxx"], cutoff=0.51) == ""
    assert nearest("abcd", ["abxx", "abyy"], cutoff=0.5) == "abxx", "the first of equally similar names"
    assert nearest("abcd", []) == ""


def test_names_of_other_libraries_stand_for_names_of_the_language():
    known = {*dir(nl), "axis", "dst", "data", "stationary", "moving", "int64", "tfloat32"}         # and of parameters
    assert not {*ELSEWHERE.values()} - known


@pytest.mark.parametrize("module", [nl, nisa, current_nl, current_nisa], ids=lambda m: m.__name__)
def test_name_of_numpy_is_no_misspelling(module):
    """A guess such as cos for cosh, or invert for inverse, would compute something else."""
    for name in sorted({*np.__all__} - {*dir(module), *ELSEWHERE}):
        try:
            getattr(module, name)
        except AttributeError as error:
            meant = str(error).partition("did you mean ")[2].partition("?")[0]
            assert not meant or same_name(name, [meant]), (name, meant)


@pytest.mark.parametrize(("name", "meant"), [
    ("swish", "silu"), ("square_root", "sqrt"), ("reciprocal_sqrt", "rsqrt"), ("invsqrt", "rsqrt"), ("inv_sqrt", "rsqrt"),
    ("inverse_sqrt", "rsqrt"), ("inverse", "reciprocal"), ("inv", "reciprocal"), ("variance", "var")])
def test_function_of_another_name_is_not_a_similar_one(name, meant):
    """Difflib finds mish for swish, square for square_root and invert for inverse, which compute something else."""
    for module in (nl, current_nl):
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; did you mean {meant}\?"):
            getattr(module, name)


@pytest.mark.parametrize(("name", "fix"), [
    ("softsign", "divide x by nl.add"), ("erfinv", "pass what the host computes"), ("hardswish", "multiply x by nl.minimum"),
    ("quick_gelu", "multiply x by nl.sigmoid of 1.702"), ("rrelu", "select x or slope"), ("masked_fill", "use nl.where"),
    ("gumbel_softmax", "add noise")])
def test_function_that_the_language_lacks_is_composed(name, fix):
    for module in (nl, current_nl):
        with pytest.raises(AttributeError) as raised:
            getattr(module, name)
        assert "did you mean" not in str(raised.value) and raised.value.advice[1].startswith(fix)


def test_fixes_name_what_the_languages_have():
    for fix in {*COMPOSED.values()}:
        for prefix, modules in (("nl", (nl, current_nl)), ("nisa", (nisa, current_nisa))):
            for name in re.findall(rf"\b{prefix}\.(\w+)", fix):
                assert any(hasattr(module, name) for module in modules), (name, fix)
