# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The largest cause of the time: a resource at its bound, the launch, or a line."""

import pytest

from nki_mlir.targets.neuron.profile import profile_of
from nki_mlir.targets.neuron.profile.largest_cause import largest_cause
from tests.targets.neuron.profile.kernels import streams


def kernel(**changes):
    """A kernel of 1,000 ns: 100 of launch, 500 of a product, 350 of a load, which is 50% of what HBM has."""
    timing = {"total_ns": 1000.0, "launch_ns": 100.0, "hbm_bytes": 181_000, "cores": [
        {"busy_ns": {"tensor": 600.0, "sync": 200.0}, "dma_ns": 550.0}]} | changes
    lines = [{"file": "a/k.py", "line": 1, "path_ns": 350.0}, {"file": "a/k.py", "line": 2, "path_ns": 500.0}]
    return timing, lines, {"a/k.py": ["load(x)", "  product(x)"]}, 362.0


@pytest.mark.parametrize("changes, text", [
    ({}, "50% of the critical path is k.py:2: `product(x)`"),
    ({"hbm_bytes": 333_040}, "at the bound of HBM: 0.3 MB at 362 GB/s are 92% of the time; 50% of the critical path is k.py:2"),
    ({"cores": [{"busy_ns": {"tensor": 950.0}, "dma_ns": 0.0}]},
     "at the bound of the tensor engine: it is busy 95% of the time; 50% of the critical path is k.py:2"),
    ({"cores": [{"busy_ns": {"tensor": 1.0}, "dma_ns": 2.0}, {"busy_ns": {"tensor": 50.0}, "dma_ns": 810.0}]},
     "at the bound of the DMA engines: they move data 81% of the time; 50% of the critical path is k.py:2"),
    ({"launch_ns": 560.0}, "56% of the time is the launch, which no kernel changes; 50% of the critical path is k.py:2")])
def test_it_is_what_has_the_most(changes, text):
    assert largest_cause(*kernel(**changes))["text"] == text


def test_it_is_in_the_profile():
    profile = profile_of(streams("examples/matmul.py:matmul_tiled", "256x256xbf16", "256x1024xbf16"))
    most = max(profile["lines"], key=lambda row: row["path_ns"])
    assert (profile["cause"]["file"], profile["cause"]["line"]) == (most["file"], most["line"])


def test_no_point_of_the_roofline_is_above_the_ceilings():
    """The vector engine does two elements of float32 a cycle on trn2, four of 16 bits."""
    ceilings = profile_of(streams("examples/softmax.py:softmax", "256x512xf32"))["roofline"]["ceilings"]
    assert list(ceilings) == ["tensor", "tensor float32", "vector", "scalar", "gpsimd", "hbm_bytes_per_ns"]
    assert [ceilings[name] for name in ("vector", "scalar", "gpsimd")] == pytest.approx([491.52, 153.6, 153.6])
