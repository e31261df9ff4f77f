# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every example and benchmark kernel with each pair of its arrays at one address, and at addresses that overlap."""

import importlib
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.language.kernel import Kernel, is_array

from .aliasing import AliasedKernel, offsets_of
from .examples import NAMES, OF_RANKS

BENCH = Path(__file__).parent.parent / "bench"
SLOW = ("flash_attention", "transformer_kernels")
LARGEST = 512               # extent of a benchmark's arrays here
MODULES = ("movement", "products", "rows")              # of benchmarks whose arrays can be small
TOLERANCE = 1e-3            # of functions and sums that the interpreter and native code compute in other orders


def check(kernel, arguments):
    bound = kernel.bind(tuple(arguments), {}, is_array, kernel.describe)
    aliased = AliasedKernel(kernel.specialize(bound))
    if aliased.native.exchanges_data:
        return 0                # its programs run side by side: what they see of each other is chance
    arrays = {s.name: np.asarray(t) for s, t in zip(bound.specs, bound.tensors)}
    rng, count = np.random.default_rng(0), 0
    assert aliased.written
    for pair in combinations(range(len(aliased.inputs)), 2):
        if not {*pair} & {*aliased.written}:
            continue
        for offset in offsets_of(aliased, pair, rng):
            difference = aliased.difference(pair, offset, arrays, TOLERANCE)
            names = [aliased.inputs[k].name for k in pair]
            assert not difference, f"{kernel.__name__}, {names} {offset} bytes apart: {difference}"
            count += 1
    return count


@pytest.mark.share(3)
@pytest.mark.usefixtures("example_modules")
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n
                                  for n in NAMES if n not in OF_RANKS])
def test_examples(name, monkeypatch):
    module = importlib.import_module(name)
    if hasattr(module, "TARGET"):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", module.TARGET)
    for kernel, arguments, _, _ in module.cases():
        check(kernel, arguments)


@pytest.fixture
def benchmarks(monkeypatch, example_modules):
    """The cases of the benchmarks, with small arrays."""
    monkeypatch.syspath_prepend(str(BENCH))
    case = importlib.import_module("case")
    draw = case.random
    monkeypatch.setattr(case, "random", lambda *shape, **options: draw(*(min(n, LARGEST) for n in shape), **options))
    imported, registered = modules_of_cases(), dict(case.CASES)
    for name in imported:
        del sys.modules[name]
    modules = [importlib.import_module(f"cases.{name}") for name in MODULES]
    functions = {name: getattr(make, "func", make) for name, make in case.CASES.items()}        # with arguments fixed
    yield {name: case.CASES[name] for name, make in functions.items() if sys.modules.get(make.__module__) in modules}
    for name in modules_of_cases():         # other tests run the cases with their own arrays
        del sys.modules[name]
    sys.modules.update(imported)
    case.CASES.clear()
    case.CASES.update(registered)


def modules_of_cases():
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "cases"}


@pytest.mark.slow
def test_benchmarks(benchmarks):
    counts = {}
    for name, make in benchmarks.items():
        benchmark = make()
        if isinstance(benchmark.kernel, Kernel):
            counts[name] = check(benchmark.kernel, benchmark.arrays)
    assert len(counts) >= 9 and all(counts.values())
