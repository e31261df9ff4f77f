# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The document's C++ operator: built, loaded and timed as printed, with its three faults named; right when corrected."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LISTINGS = ROOT.parent / "shared" / "seeds" / "listings"

pytestmark = [pytest.mark.torch,
              pytest.mark.skipif(not LISTINGS.is_dir(), reason="the listings are not beside the checkout"),
              pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")]

BENCHMARK = """
from torch_neuronx.xla_impl import custom_op
custom_op.load_library('libgiou.so')
avg_time = benchmark(torch.ops.my_ops.giou)(t_boxes_0, t_boxes_1)
print(f'C++ giou: {avg_time}')
"""
CHECK = """
result = torch.ops.my_ops.giou(t_boxes_0, t_boxes_1)
print("equal to the kernel's:", np.array_equal(result.numpy(), out))
print("near PyTorch's:", torch.allclose(result, torch_giou(t_boxes_0, t_boxes_1), rtol=1e-5, atol=1e-6))
"""


@pytest.fixture
def folder(tmp_path):
    """The listings, with the part of giou.py that comes before its own measurements."""
    pytest.importorskip("torch")
    for name in ("giou.cpp", "shape.cpp", "build.py"):
        (tmp_path / name).write_text((LISTINGS / name).read_text())
    text = (LISTINGS / "giou.py").read_text()
    (tmp_path / "setting.py").write_text(text[:text.index("avg_time = benchmark(torch_giou)")])
    return tmp_path


def run(folder, name, *parts):
    """Run a script as a user does."""
    if parts:
        (folder / name).write_text("".join(parts))
    done = subprocess.run([sys.executable, "-m", "nki_mlir", name], cwd=folder, capture_output=True, text=True,
                          timeout=300, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr


def line_of(folder, text, nth=0):
    return [k + 1 for k, line in enumerate((folder / "giou.cpp").read_text().split("\n")) if text in line][nth]


def test_as_printed__runs_and_is_flagged(folder):
    pytest.importorskip("torch")
    out, _ = run(folder, "build.py")
    assert (folder / "libgiou.so").is_file() and "my_ops (8 cores, checked): giou" in out
    setting = (folder / "setting.py").read_text()
    quick = BENCHMARK.replace("benchmark(torch", "benchmark(ntrials=2, warmup_iters=1, f=torch")
    out, err = run(folder, "timed.py", setting, quick, CHECK)
    assert "C++ giou: 0." in out and "equal to the kernel's: False" in out
    leak, writes, request = (line_of(folder, t) for t in ("float *tcm_output", "t_out_tcm_acc.tcm_to_tensor", "get_dst_tensor"))
    assert f"giou.cpp:{leak}: Leaked: this allocation of 4096 bytes of tightly coupled memory is never freed" in err
    assert f"giou.cpp:{writes}: Overlapping: more than one core writes 33,408 elements of the output" in err
    assert f"giou.cpp:{request}: Unwritten: 228,480 of the 262,144 elements of the output are never written" in err


def test_corrected__is_right_and_not_flagged(folder):
    pytest.importorskip("torch")
    text = (folder / "giou.cpp").read_text()
    for size in ("tcm_in_size", "tcm_out_size"):
        text = text.replace(f"partition*cpu_id + i*{size}", f"(partition*cpu_id + i)*{size}")
    text = text.replace("torch::neuron::tcm_free(tcm_target);",
                        "torch::neuron::tcm_free(tcm_target);\ntorch::neuron::tcm_free(tcm_output);")
    (folder / "giou.cpp").write_text(text)
    run(folder, "build.py")
    setting = (folder / "setting.py").read_text()
    quick = BENCHMARK.replace("benchmark(torch", "benchmark(ntrials=2, warmup_iters=1, f=torch")
    out, err = run(folder, "timed.py", setting, quick, CHECK)
    assert "equal to the kernel's: True" in out and "near PyTorch's: True" in out
    assert "giou.cpp" not in err


@pytest.mark.slow
def test_benchmark__as_printed(folder):
    pytest.importorskip("torch")
    run(folder, "build.py")
    out, _ = run(folder, "timed.py", (folder / "setting.py").read_text(), BENCHMARK)
    assert "C++ giou: 0." in out
