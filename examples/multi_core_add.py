# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An addition whose launch grid distributes its programs over two physical cores.

python -m nki_mlir examples/multi_core_add.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def add(a, b):
    """Compute a + b; program i adds the 128 rows from row 128 i on."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows = nl.ds(nl.program_id(0) * 128, 128)
    nl.store(out[rows, :], nl.load(a[rows, :]) + nl.load(b[rows, :]))
    return out


def cases():
    a, b = np.random.default_rng(0).standard_normal((2, 512, 256)).astype(np.float32)
    by_core = nl.spmd_dim(nl.nc(2), 2)          # programs 0, 1 on core 0; 2, 3 on core 1
    return [(add[by_core], (a, b), a + b, 0)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
