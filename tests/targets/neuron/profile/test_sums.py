# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Of every example: busy and stall times of each engine add up to the makespan, the critical path does exactly."""

from itertools import pairwise

import pytest

from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.profile import profile_of

from ....examples import NAMES, OF_RANKS, cases

pytestmark = pytest.mark.usefixtures("example_modules")


@pytest.mark.share(3)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_RANKS])
def test_times_of_an_example_add_up(name, monkeypatch):
    for kernel, arguments, _, _ in cases(name, monkeypatch):
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
