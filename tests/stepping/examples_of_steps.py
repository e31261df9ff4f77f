# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel in a file, for commands."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def logs(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    shifted = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=shifted, src=x)
    nisa.tensor_scalar(dst=shifted, data=shifted, op0=nl.subtract, operand0=3.0)
    nisa.dma_copy(dst=out, src=shifted)
    return out
