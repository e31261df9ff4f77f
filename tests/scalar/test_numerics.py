# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``docs/numerics.md``: it is complete, what is written from the figures, and the figures hold on a sample."""

import json
import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import ALL, FLOAT16, FLOAT32, INT16, TFLOAT32
from nki_mlir.scalar.mathematics import MATH
from tools import numerics
from tools.numeric_errors import Group, error, groups, host, measure

DOCUMENT = json.loads(numerics.RESULTS.read_text())
FIGURES = DOCUMENT["errors"]
SAMPLED = {("one", "float32"), ("two", "float32"), ("bits", "int16"), ("conversions", "float32"),
           ("conversions", "bfloat16")}
SAMPLE = 8192


def test_page__is_what_the_figures_say() -> None:
    assert numerics.page() == numerics.PAGE.read_text()


def test_page__lists_every_function_and_conversion() -> None:
    listed = set(FIGURES["one"]) | set(FIGURES["two"]) | set(FIGURES["bits"]) | set(DOCUMENT["graphs"])
    assert listed >= {*ACTIVATIONS, *ALU}
    assert set(MATH) - listed == {"copysign", "quotient"}            # of which the page has a sentence
    pairs = {(frm, to) for to, by in FIGURES["conversions"].items() for frm in by}
    assert pairs == {(frm.name, to.name) for frm in ALL for to in ALL if frm is not to}
    assert DOCUMENT["values"] >= 10_000_000


def sampled(group: Group) -> Group:
    """The group on the first values of its first operands, which have the edges."""
    def operands(chunks: int) -> Iterator[list[np.ndarray]]:
        yield [a[:SAMPLE] for a in next(group.operands(1))]
    return Group(group.cases, operands)


@pytest.mark.parametrize("title, group", [pytest.param(t, g, id=f"{t}_{g.cases[0].sources[0]}") for t, g in groups()
                                          if (t, g.cases[0].sources[0].name) in SAMPLED and len(g.cases) > 1])
def test_figures__hold_on_a_sample(title: str, group: Group) -> None:
    here = host() == DOCUMENT["host"]           # elsewhere NumPy may have other forms of its functions
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        measured = list(measure(sampled(group), 1))
    for case, errors in measured:
        figures = FIGURES[title][case.name][case.sources[0].name]
        for on, worst in errors.items():
            assert (worst is None) == (figures[on] is None), (case.name, on)
            if worst is not None:
                allowed = figures[on] if here or on == "jit" else max(figures[on], numerics.OF_NUMPY)
                assert worst <= allowed * 1.001, (case.name, on)            # figures have four digits


def test_error__is_in_units_of_the_dtype() -> None:
    exact = np.array([1.0, 2.0, 65520.0, 2.0**-25, np.nan, 1e9])
    assert error(np.float16([1, 2, np.inf, 0, np.nan, np.inf]), exact, FLOAT16) == 0.5
    assert error(np.float16([1, 2 + 2**-9, np.inf, 0, np.nan, np.inf]), exact, FLOAT16) == 1
    assert error(np.float32([1 + 2**-23]), np.array([1.0]), FLOAT32) == 1
    assert error(np.float32([1 + 2**-23]), np.array([1.0]), FLOAT32, absolute=2.0**-23) == 0
    assert error(np.float32([1 + 2**-10]), np.array([1.0]), TFLOAT32) == 1
    assert error(np.float32([0]), np.array([np.nan]), FLOAT32) == np.inf
    assert error(np.int16([3, 32767, 0]), np.array([2.5, 1e9, np.nan]), INT16) == 0.5
