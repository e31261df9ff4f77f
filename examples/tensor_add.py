# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addition of two matrices over a launch grid: each program adds a tile. Masks allow shapes that tiles do not divide.

python -m nki_mlir examples/tensor_add.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np

ROWS, COLUMNS = 128, 512


@nki.jit
def tensor_add(a, b):
    """Compute a + b of two matrices of the same shape; program (i, j) adds the tile at row 128 i, column 512 j."""
    rows, columns = a.shape
    total = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    row = nl.program_id(0) * ROWS + nl.arange(ROWS)[:, None]
    column = nl.program_id(1) * COLUMNS + nl.arange(COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    left = nl.load(a[row, column], mask=inside)
    right = nl.load(b[row, column], mask=inside)
    nl.store(total[row, column], nl.add(left, right, mask=inside), mask=inside)
    return total


def launch(a, b):
    """Run the kernel on a grid that covers the matrices."""
    grid = -(-a.shape[0] // ROWS), -(-a.shape[1] // COLUMNS)
    return tensor_add[grid](a, b)


def cases():
    a, b = np.random.default_rng(0).standard_normal((2, 300, 1100)).astype(np.float32)
    return [(tensor_add[3, 3], (a, b), a + b, 0)]


if __name__ == "__main__":
    a, b = np.random.default_rng(0).standard_normal((2, 300, 1100)).astype(np.float32)
    assert np.array_equal(launch(a, b), a + b)
    print(f"tensor add of {a.shape}: exact")
