# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generalised IoU of 1024 x 256 pairs: the NKI kernel on the JIT, PyTorch, and the C++ operator in both builds."""

import shutil
import tempfile
from pathlib import Path

import nki_mlir.compat

nki_mlir.compat.install()

import giou as example  # noqa: E402
import numpy as np  # noqa: E402
from cases.contestants import kernel_call, largest_error  # noqa: E402

from nki_mlir import customop  # noqa: E402

SOURCES = Path(example.__file__).parent / "custom_operators"
ROWS, BOXES = 1024, 256

first, second = example.random_boxes(ROWS, BOXES, 0), example.random_boxes(ROWS, BOXES, 1)
out = np.empty((ROWS, BOXES), np.float32)
kernel = kernel_call(example.giou, (first, second, out))
folder = tempfile.TemporaryDirectory()          # lives as long as the process


def torch_eager():
    """The formula of torchvision's loss, without its mean."""
    import torch
    a, b = (torch.from_numpy(x).reshape(ROWS, BOXES, 4) for x in (first, second))

    def call():
        area = [(x[..., 2] - x[..., 0]) * (x[..., 3] - x[..., 1]) for x in (a, b)]
        size = (torch.min(a[..., 2:], b[..., 2:]) - torch.max(a[..., :2], b[..., :2])).clamp(min=0)
        common = size[..., 0] * size[..., 1]
        union = area[0] + area[1] - common
        size = (torch.max(a[..., 2:], b[..., 2:]) - torch.min(a[..., :2], b[..., :2])).clamp(min=0)
        around = (size[..., 0] * size[..., 1]).clamp(1e-5)
        return common / union.clamp(1e-5) - (around - union) / around
    return call


def operator(checked):
    library = customop.load("giou" + "_checked" * checked, [SOURCES / "giou.cpp"], [SOURCES / "giou_shape.cpp"],
                            folder.name, multicore=True, checked=checked)
    boxes = [x.reshape(ROWS, BOXES, 4) for x in (first, second)]
    return lambda: library.giou(*boxes)


def peers():
    found = {}
    try:
        found["torch eager"] = torch_eager()
    except ImportError:
        pass
    if shutil.which("g++"):
        found |= {"C++ operator": operator(False), "C++ operator, checked": operator(True)}
        assert np.array_equal(found["C++ operator"](), found["C++ operator, checked"]())
    return found


def error():
    kernel()
    return largest_error(out, example.reference(first, second))
