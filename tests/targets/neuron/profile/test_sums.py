# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Of every example: busy and stall times of each engine add up to the makespan, the critical path does exactly."""

import importlib
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from nki_mlir.compat import install
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.profile import profile_of

EXAMPLES = Path(__file__).parents[4] / "examples"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.py") if "def cases" in p.read_text())
OF_RANKS = {"current_all_reduce"}           # a function that launches several ranks of a kernel


@pytest.fixture(scope="module", autouse=True)
def vendor_names():
    install()
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_RANKS])
def test_times_of_an_example_add_up(name, monkeypatch):
    module = importlib.import_module(name)
    if hasattr(module, "TARGET"):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", module.TARGET)
    for kernel, arguments, _, _ in module.cases():
        spec = kernel.specialize(kernel.bind(arguments, {}, is_array, describe_array))
        check(profile_of(neuron.streams(spec.captured, spec.grid, neuron.emission())))


def check(profile):
    timing, path = profile["timing"], profile["path"]
    total = timing["total_ns"]
    for core in [timing, *timing["cores"]]:
        assert core["busy_ns"]
        for engine, busy in core["busy_ns"].items():
            assert min([busy, *core["stall_ns"][engine].values()]) >= 0.0
            assert busy + sum(core["stall_ns"][engine].values()) == pytest.approx(total, rel=1e-9)
    assert path["begin"][0] == 0.0 and path["end"][-1] == total
    assert all(a == b for a, b in zip(path["begin"][1:], path["end"])) and all(a <= b for a, b in pairwise(path["end"]))
    assert sum(share["ns"] for share in timing["critical_path"]) == pytest.approx(total, rel=1e-12)
    assert all(0.0 <= one["saves_ns"] < total for one in profile["advice"])
