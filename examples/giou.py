# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generalized intersection over union of box pairs: strided views read the fields of boxes; the kernel writes a
parameter.

python -m nki_mlir examples/giou.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np

SMALL = 1e-5


@nki.trace
def giou(first, second, out):
    """Compute out [N, M], a value for each pair of boxes; first, second [N, 4 M] have M boxes (left, top, right,
    bottom) a row.

    N is at most 128 or a multiple of it.
    """
    rows, fields = first.shape
    boxes, height = fields // 4, min(rows, 128)
    p = nl.arange(height)[:, None]
    f = nl.arange(boxes)[None, :]
    for i in nl.affine_range(rows // height):
        a = nl.load(first[i * height:(i + 1) * height, :])
        b = nl.load(second[i * height:(i + 1) * height, :])
        left_a, top_a, right_a, bottom_a = (a[p, 4 * f + k] for k in range(4))
        left_b, top_b, right_b, bottom_b = (b[p, 4 * f + k] for k in range(4))
        area = (right_a - left_a) * (bottom_a - top_a) + (right_b - left_b) * (bottom_b - top_b)
        width = nl.maximum(nl.minimum(right_a, right_b) - nl.maximum(left_a, left_b), 0)
        depth = nl.maximum(nl.minimum(bottom_a, bottom_b) - nl.maximum(top_a, top_b), 0)
        common = width * depth
        union = area - common
        around_width = nl.maximum(right_a, right_b) - nl.minimum(left_a, left_b)
        around_height = nl.maximum(bottom_a, bottom_b) - nl.minimum(top_a, top_b)
        around = around_width * around_height
        value = common / nl.maximum(union, SMALL) - (around - union) / nl.maximum(around, SMALL)
        nl.store(out[i * height:(i + 1) * height, :], value)


def reference(first, second):
    a, b = (x.astype(np.float64).reshape(len(x), -1, 4) for x in (first, second))
    common = np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0, None).prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - common
    around = (np.maximum(a[..., 2:], b[..., 2:]) - np.minimum(a[..., :2], b[..., :2])).prod(-1)
    return common / np.maximum(union, SMALL) - (around - union) / np.maximum(around, SMALL)


def random_boxes(rows, boxes, seed):
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 200, (rows, boxes, 2))
    return np.concatenate([corner, corner + rng.uniform(1, 56, corner.shape)], -1).astype(np.float32).reshape(rows, -1)


def cases():
    first, second = random_boxes(256, 64, 0), random_boxes(256, 64, 1)
    return [(giou, (first, second, np.empty((256, 64), np.float32)), reference(first, second), 1e-5)]


if __name__ == "__main__":
    (kernel, arguments, answer, tolerance), = cases()
    kernel(*arguments)
    error = np.abs(arguments[2] - answer).max()
    print(f"generalized IoU of {answer.size} pairs: largest error {error:.1e}")
    assert error < tolerance
