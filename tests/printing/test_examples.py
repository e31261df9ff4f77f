# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the examples, printed as NKI Python and captured again: equal values, and a text that stays."""

from pathlib import Path

import numpy as np
import pytest

from nki_mlir.bindings import cloned, ir
from nki_mlir.cli.source import run_file
from nki_mlir.passes.pass_manager import run_passes
from nki_mlir.passes.pipelines import passes_to
from nki_mlir.printing.errors import Unprintable

from ..examples import NAMES, OF_RANKS
from ..random_programs.comparing import flat
from .reading import modules_text, printed, reread, reread_beta

ROOT = Path(__file__).parents[2]
KERNELS = ("attention", "average_pool2d", "convolution", "current_average_pool2d", "current_cumulative_sum",
           "current_normalization", "current_transpose2d", "cumulative_sum", "flash_attention", "giou", "multi_core_add",
           "normalization", "rotary", "selective_scan", "softmax", "tensor_add", "top_k", "transpose2d")


def first_cases(name):
    """The first case of each kernel of an example."""
    return [(launched, arguments) for launched, arguments, _ in cases_within(name)]


def cases_within(name):
    """The first case of each kernel of an example, with the tolerance of its answer."""
    cases = {}
    for launched, arguments, _, tolerance in run_file(ROOT / "examples" / f"{name}.py")["cases"]():
        cases.setdefault(launched.__name__, (launched, arguments, tolerance))
    return cases.values()


def all_cases():
    """The first case of each kernel of one rank of each example, after the name of its file."""
    return [(name, *case) for name in NAMES if name not in OF_RANKS for case in cases_within(name)]


@pytest.mark.filterwarnings("ignore")
def test_printed_microscaled_products_compute_the_same(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    test_printed_examples_compute_the_same("current_mx_matmul")


@pytest.mark.share(3)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.filterwarnings("ignore")
def test_printed_examples_compute_the_same(name):
    for launched, arguments in first_cases(name):
        text = printed(launched, arguments)
        grid = launched.lower(*arguments).specialization.grid
        arrays = [a for a in arguments if isinstance(a, np.ndarray)]
        again = reread(text, grid)
        expected, got = flat([launched.on("interpreter")(*arguments)]), flat([again.on("interpreter")(*arrays)])
        assert len(expected) == len(got)
        for one, other in zip(expected, got):
            np.testing.assert_array_equal(np.asarray(one, np.float64), np.asarray(other, np.float64))
        second = printed(again, arrays)
        assert second == text


PLACED, BETA = {"keep_placement": True}, {"generation": "beta"}
FORMS = [("nki", {}), ("linalg", {}), ("nisa", {}), ("nki", PLACED), ("nki", BETA)]


def assert_the_second_text_is_the_first(launched, arguments, level, options):
    """Print the kernel's modules at a level, and those of the text."""
    arrays = [a for a in arguments if isinstance(a, np.ndarray)]

    def text_of(kernel, arguments):
        modules = [cloned(module) for module in kernel.lower(*arguments).specialization.program_modules]
        for module in modules if level != "nki" else ():
            with module.context, ir.Location.unknown():
                run_passes(module, passes_to(level, module))
        return modules_text(modules, **options)
    first = text_of(launched, arguments)
    read = reread_beta if options == BETA else reread
    assert text_of(read(first, launched.lower(*arguments).specialization.grid), arrays) == first


@pytest.mark.parametrize("name, level, options", [
    ("allocated_transpose", "nki", {}), ("tensor_add", "linalg", {}), ("tensor_add", "nisa", {}),
    ("transpose2d", "nki", PLACED), ("embedding", "nki", PLACED), ("rotary", "nki", BETA)])
@pytest.mark.filterwarnings("ignore")
def test_the_second_text_of_examples_is_the_first(name, level, options):
    """The texts of a gather with placement have other instructions, semaphores and queues than the program itself."""
    for launched, arguments in first_cases(name):
        assert_the_second_text_is_the_first(launched, arguments, level, options)


@pytest.mark.share(10)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_RANKS])
@pytest.mark.filterwarnings("ignore")
def test_the_second_text_of_kept_placements_is_the_first(name, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    for launched, arguments in first_cases(name):
        assert_the_second_text_is_the_first(launched, arguments, "nki", PLACED)


@pytest.mark.share(4)
@pytest.mark.fuzz
@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_RANKS])
@pytest.mark.filterwarnings("ignore")
def test_the_second_text_of_each_example_is_the_first_at_each_level(name, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    for launched, arguments in first_cases(name):
        for level, options in FORMS:
            try:
                assert_the_second_text_is_the_first(launched, arguments, level, options)
            except Unprintable:                     # registers, for example, which beta lacks
                assert options == BETA
