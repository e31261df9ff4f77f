# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Right but slow: loads each tile three times."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def row_softmax(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:16, 0:columns]
    for i in nl.sequential_range(-(-rows // 16)):
        inside = i * 16 + p < rows
        largest = nl.max(nl.load(x[i * 16 + p, f], mask=inside), axis=1, keepdims=True, mask=inside)
        total = nl.sum(nl.exp(nl.subtract(nl.load(x[i * 16 + p, f], mask=inside), largest, mask=inside), mask=inside),
                       axis=1, keepdims=True, mask=inside)
        powers = nl.exp(nl.subtract(nl.load(x[i * 16 + p, f], mask=inside), largest, mask=inside), mask=inside)
        nl.store(out[i * 16 + p, f], powers / total, mask=inside)
    return out
