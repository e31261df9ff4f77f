# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generalized IoU as a C++ operator in PyTorch, beside the NKI kernel of examples/giou.py.

    python -m nki_mlir examples/custom_operators/giou_operator.py
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch_neuronx.xla_impl import custom_op

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from giou import giou as nki_giou  # noqa: E402
from giou import random_boxes  # noqa: E402

ROWS, BOXES = 256, 64


def main(folder):
    custom_op.load(name="giou", compute_srcs=[str(HERE / "giou.cpp")], shape_srcs=[str(HERE / "giou_shape.cpp")],
                   build_directory=folder, multicore=True)
    first, second = random_boxes(ROWS, BOXES, 0), random_boxes(ROWS, BOXES, 1)
    boxes = [torch.from_numpy(b).reshape(ROWS, BOXES, 4) for b in (first, second)]
    result = torch.ops.box_ops.giou(*boxes)
    kernel = np.empty((ROWS, BOXES), np.float32)
    nki_giou(first, second, kernel)
    assert np.array_equal(result.numpy(), kernel), "the operator and the kernel differ"

    compiled = torch.compile(lambda a, b: 1 - torch.ops.box_ops.giou(a, b).mean(), backend="aot_eager")
    print(f"loss of {result.numel()} pairs: {compiled(*boxes).item():.4f}; equal to the NKI kernel's")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
